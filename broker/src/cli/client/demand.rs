//! The demand, from a file or from short flags.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use chrono::{DateTime, Utc};
use clap::Args;
use market::certification::CertificationName;
use market::demand::{Ceiling, Counts, Demand, GpusDemand, Places, Policy, Window};
use market::fabric::FabricWanted;
use market::gpu::{GpuWanted, GpusWanted};
use market::ids::ProviderId;
use market::money::{Money, Rate};
use market::offer::Tenancy;
use market::place::Country;
use market::tags::Tags;
use market::verification::Level;
use serde_json::Value;

use crate::cli::client::argument::{hours, word};
use crate::cli::input::read_text;
use crate::terminal::ending::Ending;

/// The demand: from a file, or as GPUs by short flags.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Demand")]
pub(super) struct DemandArgs {
    /// A demand of any kind as JSON; `-` reads it from standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "gpu")]
    demand: Option<PathBuf>,
    /// A GPU (`H100-SXM`), a family (`H100`), one memory size (`A100-80GB`), a minimum memory (`40GB+`) or
    /// `any`; separate alternatives with commas.
    #[arg(long, value_delimiter = ',', value_parser = word::<GpuWanted>)]
    gpu: Vec<GpuWanted>,
    /// GPUs in each node: `8`, or a range such as `4-8`.
    #[arg(long, value_name = "N", requires = "gpu", default_value = "1", value_parser = counts)]
    count: Counts,
    /// Number of nodes.
    #[arg(long, value_name = "N", requires = "gpu", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    nodes: u32,
    /// The fabric between several nodes: any, rdma, infiniband. With rdma or infiniband the nodes are
    /// verified together and replaced together before the hand-off. If one fails in use, all of them end.
    #[arg(long, value_name = "FABRIC", requires = "gpu", value_parser = word::<FabricWanted>, conflicts_with = "allow_ethernet")]
    fabric: Option<FabricWanted>,
    /// Minimum memory of each GPU, as its maker states it (80 includes an H100).
    #[arg(long, value_name = "GIB", requires = "gpu", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    gpu_memory_gib: Option<u32>,
    /// Minimum main memory of each node.
    #[arg(long, value_name = "GIB", requires = "gpu", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    host_memory_gib: Option<u32>,
    /// Minimum virtual CPUs of each node.
    #[arg(long, value_name = "N", requires = "gpu", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    vcpus: Option<u32>,
    /// Spot instead of on demand.
    #[arg(long, requires = "gpu")]
    spot: bool,
    /// For this many hours; by default, without a fixed end.
    #[arg(long, value_name = "N", requires = "gpu", conflicts_with = "until", value_parser = hours)]
    hours: Option<NonZeroU32>,
    /// Until this time, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "TIME", requires = "gpu")]
    until: Option<DateTime<Utc>>,
    /// Not before this time, such as 2026-12-24T18:00:00Z; it is ordered in time to be ready then.
    #[arg(long, value_name = "TIME", requires = "gpu", conflicts_with = "demand")]
    start: Option<DateTime<Utc>>,
    /// Gives up, free of charge, if it is not handed off by this time; after `--start`, by default a day
    /// later.
    #[arg(long, value_name = "TIME", requires = "gpu", conflicts_with = "demand")]
    start_latest: Option<DateTime<Utc>>,
    /// Only in this country, such as `US`; may be repeated.
    #[arg(long, value_name = "CODE", requires = "gpu", value_parser = word::<Country>)]
    country: Vec<Country>,
    /// Only in this region, in the provider's spelling; may be repeated.
    #[arg(long, value_name = "REGION", requires = "gpu")]
    region: Vec<String>,
    /// Only machines of this kind: bare_metal, vm, container, managed; may be repeated.
    #[arg(long, requires = "gpu", value_parser = word::<Tenancy>)]
    tenancy: Vec<Tenancy>,
    /// Only from this provider; may be repeated.
    #[arg(long, value_name = "NAME", requires = "gpu", value_parser = word::<ProviderId>)]
    provider: Vec<ProviderId>,
    /// Never from this provider; may be repeated.
    #[arg(long, value_name = "NAME", requires = "gpu", value_parser = word::<ProviderId>)]
    not_provider: Vec<ProviderId>,
    /// Only from providers whose operator is under the law of this country; may be repeated.
    #[arg(long, value_name = "CODE", requires = "gpu", value_parser = word::<Country>)]
    operator_country: Vec<Country>,
    /// Only from providers with this certification, such as `iso27001`; may be repeated.
    #[arg(long, value_name = "NAME", requires = "gpu", value_parser = word::<CertificationName>)]
    certification: Vec<CertificationName>,
    /// Allows plain Ethernet between several nodes: the older form of `--fabric any`.
    #[arg(long, requires = "gpu")]
    allow_ethernet: bool,
    /// The verification level of its nodes before the hand-off: quick, standard, deep.
    #[arg(long, value_name = "LEVEL", requires = "gpu", value_parser = word::<Level>)]
    verification: Option<Level>,
    /// Maximum US dollars per GPU-hour, also for a replacement.
    #[arg(long, value_name = "USD", value_parser = word::<Rate>)]
    max_usd_per_gpu_hour: Option<Rate>,
    /// Maximum US dollars per hour for everything.
    #[arg(long, value_name = "USD", value_parser = word::<Money>)]
    max_usd_per_hour: Option<Money>,
}

impl DemandArgs {
    /// The price ceiling, if any.
    pub(super) fn ceiling(&self) -> Option<Ceiling> {
        let ceiling = Ceiling {
            usd_per_gpu_hour: self.max_usd_per_gpu_hour,
            usd_per_hour: self.max_usd_per_hour,
        };
        (ceiling != Ceiling::default()).then_some(ceiling)
    }

    /// The demand in the form of the API, with the ceiling.
    ///
    /// Errors: wrong input if there is no demand or the file cannot be used.
    pub(super) fn read(&self) -> Result<Value, Ending> {
        if let Some(file) = &self.demand {
            return self.read_file(file);
        }
        if self.gpu.is_empty() {
            return Err(Ending::wrong_input(
                "give a demand: --demand FILE, or --gpu H100-SXM --count 8",
            ));
        }
        let gpu = GpusWanted::any_of(self.gpu.clone()).ok_or_else(|| {
            let most = GpusWanted::MOST;
            Ending::wrong_input(format!("--gpu takes at most {most} names"))
        })?;
        Ok(serde_json::to_value(self.of_gpus(gpu))?)
    }

    fn read_file(&self, file: &Path) -> Result<Value, Ending> {
        let mut demand = read_json(file)?;
        if let Some(ceiling) = self.ceiling() {
            let Some(fields) = demand.as_object_mut() else {
                return Err(Ending::wrong_input("a demand must be a JSON object"));
            };
            if fields
                .insert("ceiling".to_owned(), serde_json::to_value(ceiling)?)
                .is_some()
            {
                return Err(Ending::wrong_input(
                    "the demand has a ceiling of its own; give it once",
                ));
            }
        }
        Ok(demand)
    }

    fn of_gpus(&self, gpu: GpusWanted) -> Demand {
        let window = Window {
            start_earliest: self.start,
            start_latest: self.start_latest,
            duration_hours: self.hours,
            end: self.until,
        };
        let places = Places {
            countries: self.country.clone(),
            regions: self.region.clone(),
        };
        let policy = Policy {
            allow_providers: self.provider.clone(),
            deny_providers: self.not_provider.clone(),
            operator_countries: self.operator_country.clone(),
            certifications: self.certification.clone(),
            allow_ethernet: self.allow_ethernet.then_some(true),
            on_unreachable: None,
        };
        Demand::Gpus(GpusDemand {
            gpu,
            count: self.count,
            nodes: self.nodes,
            fabric: self.fabric,
            spot: self.spot,
            gpu_memory_gib: self.gpu_memory_gib,
            host_memory_gib: self.host_memory_gib,
            vcpus: self.vcpus,
            window: said(window),
            ceiling: self.ceiling(),
            places: said(places),
            tenancy: said(self.tenancy.clone()),
            policy: said(policy),
            verification: self.verification,
            tags: Tags::new(),
        })
    }
}

/// Parses `8` or `4-8`.
fn counts(text: &str) -> Result<Counts, String> {
    let read = |number: &str| number.parse().ok().filter(|n| (1..=1_024).contains(n));
    let (min, max) = text.split_once('-').unwrap_or((text, text));
    match (read(min), read(max)) {
        (Some(min), Some(max)) if min <= max => Ok(Counts { min, max }),
        _ => Err(
            "must be a number from 1 to 1024 such as 8, or the fewest and the most such as 4-8"
                .to_owned(),
        ),
    }
}

/// A part of the demand, unless it is empty.
fn said<T: Default + PartialEq>(part: T) -> Option<T> {
    (part != T::default()).then_some(part)
}

/// Reads a file of JSON; the service checks whether it is a demand.
fn read_json(file: &Path) -> Result<Value, Ending> {
    let shown = file.display();
    let text = read_text("the demand", file)?;
    serde_json::from_str(&text)
        .map_err(|error| Ending::wrong_input(format!("the demand {shown} is not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        demand: DemandArgs,
    }

    fn parsed(line: &str) -> Result<DemandArgs, clap::Error> {
        let words = ["test"].into_iter().chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.demand)
    }

    #[test]
    fn short_flags_make_the_demand_that_a_file_would() {
        let line = "--gpu H100-SXM --count 8 --nodes 2 --hours 24 --max-usd-per-gpu-hour 3.50 \
                    --country US --country CA --spot --tenancy bare_metal --not-provider lambda \
                    --operator-country FR --certification ISO-27001 --verification deep";
        let demand = parsed(line).expect("flags").read().expect("a demand");
        assert_eq!(
            demand,
            json!({
                "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": 2, "spot": true,
                "window": { "duration_hours": 24 },
                "ceiling": { "usd_per_gpu_hour": "3.50" },
                "places": { "countries": ["US", "CA"] },
                "tenancy": ["bare_metal"], "verification": "deep",
                "policy": {
                    "deny_providers": ["lambda"], "operator_countries": ["FR"],
                    "certifications": ["iso27001"],
                },
            })
        );
        let more = "--gpu A100-80GB,40GB+ --count 4-8 --nodes 2 --fabric rdma --gpu-memory-gib 80 \
                    --host-memory-gib 512 --vcpus 64 --start 2026-12-24T18:00:00Z \
                    --start-latest 2026-12-24T22:00:00+02:00";
        assert_eq!(
            parsed(more).expect("flags").read().expect("a demand"),
            json!({
                "kind": "gpus", "gpu": ["A100-80GB", "40GB+"], "count": { "min": 4, "max": 8 },
                "nodes": 2, "fabric": "rdma", "spot": false, "gpu_memory_gib": 80,
                "host_memory_gib": 512, "vcpus": 64,
                "window": {
                    "start_earliest": "2026-12-24T18:00:00Z",
                    "start_latest": "2026-12-24T20:00:00Z",
                },
            })
        );
        let least = parsed("--gpu any")
            .expect("flags")
            .read()
            .expect("a demand");
        assert_eq!(
            least,
            json!({ "kind": "gpus", "gpu": "any", "count": 1, "nodes": 1, "spot": false })
        );
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_sent() {
        for bad in [
            "--gpu X9000",
            "--gpu H100 --count 0",
            "--gpu H100 --count 8-4",
            "--gpu H100 --count 4-",
            "--gpu H100,X9000",
            "--gpu H100 --fabric ethernet",
            "--gpu H100 --fabric rdma --allow-ethernet",
            "--gpu H100 --vcpus 0",
            "--gpu H100 --nodes 10001",
            "--gpu H100 --hours 0",
            "--gpu H100 --hours 87601",
            "--gpu H100 --hours 1 --until 2026-12-24T18:00:00Z",
            "--gpu H100 --until tomorrow",
            "--gpu H100 --start tomorrow",
            "--gpu H100 --start-latest 2026-12-24",
            "--gpu H100 --country Mars",
            "--gpu H100 --tenancy cloud",
            "--gpu H100 --max-usd-per-gpu-hour cheap",
            "--demand x.json --gpu H100",
            "--demand x.json --start 2026-12-24T18:00:00Z",
            "--demand x.json --start-latest 2026-12-24T18:00:00Z",
            "--nodes 2",
            "--start 2026-12-24T18:00:00Z",
            "--spot",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(
            parsed("").expect("flags").read().is_err(),
            "nothing is wanted"
        );
    }

    #[test]
    fn a_ceiling_beside_a_file_goes_into_its_demand_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("demand.json");
        let read = |text: &str, flags: &str| {
            std::fs::write(&file, text).expect("written");
            parsed(&format!("--demand {} {flags}", file.display()))
                .expect("flags")
                .read()
        };
        let demand = read(r#"{"kind":"train"}"#, "--max-usd-per-hour 20").expect("a demand");
        assert_eq!(
            demand,
            json!({ "kind": "train", "ceiling": { "usd_per_hour": "20.00" } })
        );
        assert!(read(r#"{"ceiling":{}}"#, "--max-usd-per-hour 20").is_err());
        assert!(read("[]", "--max-usd-per-hour 20").is_err());
        assert!(read("{", "").is_err());
    }
}
