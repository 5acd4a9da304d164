//! A plan as it is listed: its GPUs, its prices, and what its id repeats of both.
//!
//! A plan is named after its size: `vcg-a40-6c-30g-12vram`, `vbm-256c-2048gb-8-mi300x-gpu`. Where the id and the
//! fields disagree on what decides the price of a GPU, the plan is refused. Plans of whole nodes have no field
//! for their GPUs: those are in a table of ours (`data/vultr_plans.csv`).

use std::sync::LazyLock;

use market::catalog::SkipReason;
use market::gpu::GpuIdentity;
use market::offer::{Availability, Terms};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::Deserialize;
use serde_json::Value;

use super::{Kind, MB_PER_GIB, PROFILE};
use crate::gate::{self, Rejection};
use crate::reading::parse;

const TABLE: &str = include_str!("../../../data/vultr_plans.csv");

/// What only the id of a plan says.
#[derive(Debug, Deserialize)]
struct Known {
    plan: String,
    gpu: String,
    gpus: u64,
    /// The memory of one.
    gpu_gb: u64,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(TABLE.as_bytes()).into_deserialize();
    // A test of this module counts them, so none is left out here.
    rows.filter_map(Result::ok).collect()
});

#[derive(Debug, Deserialize)]
pub(super) struct Plan {
    /// The list that it is in.
    #[serde(skip)]
    pub(super) list: Kind,
    pub(super) id: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    vcpu_count: Option<u32>,
    cpu_count: Option<u32>,
    cpu_threads: Option<u32>,
    #[serde(default)]
    ram: Value,
    #[serde(default)]
    disk: Value,
    disk_count: Option<u32>,
    #[serde(default)]
    hourly_cost: Value,
    #[serde(default)]
    hourly_cost_preemptible: Value,
    /// Prices of single regions; an empty list where there are none.
    #[serde(default)]
    location_cost: Value,
    locations: Option<Vec<String>>,
    pub(super) deploy_ondemand: Option<bool>,
    deploy_preemptible: Option<bool>,
    gpu_type: Option<String>,
    /// A number, or a text such as `1/4`.
    #[serde(default)]
    gpu_count: Value,
    /// Of the whole plan.
    gpu_vram_gb: Option<u64>,
}

/// The GPUs of a plan.
pub(super) struct Hardware {
    pub(super) name: String,
    pub(super) gpu: GpuIdentity,
    pub(super) gpus: GpuCount,
    /// Of one whole GPU. Units: MiB.
    pub(super) memory_mib: Option<u64>,
}

impl Plan {
    pub(super) fn read(record: &Value, list: Kind) -> Result<Self, Rejection> {
        parse(record).map(|plan| Self { list, ..plan })
    }

    pub(super) fn has_gpu(&self) -> bool {
        let is_vm = || matches!(self.kind.as_deref(), Some("vcg" | "vdm"));
        let by_id = match self.list {
            Kind::Vm => self.id.starts_with("vcg-") || is_vm(),
            Kind::Metal => self.id.ends_with("-gpu"),
        };
        by_id || self.gpu_word().is_some()
    }

    fn gpu_word(&self) -> Option<&str> {
        let word = self.gpu_type.as_deref();
        word.filter(|word| !matches!(*word, "" | "none"))
    }

    /// The regions where it can be had; an empty name stands among them at times.
    pub(super) fn named(&self) -> impl Iterator<Item = &str> {
        let named = self.locations.iter().flatten().map(String::as_str);
        named.filter(|region| !region.is_empty())
    }

    pub(super) fn availability_in(&self, region: &str, terms: Terms) -> Availability {
        let allowed = match terms {
            Terms::Spot => self.deploy_preemptible,
            _ => self.deploy_ondemand.or(Some(true)),
        };
        let is_named = self.named().any(|named| named == region);
        match allowed {
            Some(false) => Availability::NONE,
            _ if self.locations.is_none() => Availability::UNKNOWN,
            _ if !is_named => Availability::NONE,
            Some(true) => Availability::PRESENT,
            None => Availability::UNKNOWN,
        }
    }

    /// The price of a machine for an hour in a region; `None` where it is not sold on these terms.
    pub(super) fn price_in(&self, region: &str, terms: Terms) -> Priced {
        let of = |field: &str, usual| {
            let of_region = &self.location_cost[region][field];
            let is_usual = of_region.is_null();
            gate::price(if is_usual { usual } else { of_region })
        };
        let on_demand = of("hourly_cost", &self.hourly_cost);
        if terms == Terms::OnDemand {
            let none = || Rejection::new(SkipReason::NoPrice, "hourly_cost is absent or empty");
            return on_demand?.ok_or_else(none).map(Some);
        }
        let spot = of("hourly_cost_preemptible", &self.hourly_cost_preemptible)?;
        // Plans that are not preemptible repeat the price on demand, or have zero.
        let is_placeholder = |price: &Decimal| price.is_zero() || on_demand == Ok(Some(*price));
        Ok(spot.filter(|price| self.deploy_preemptible == Some(true) || !is_placeholder(price)))
    }

    /// The threads; unknown where the id names another number.
    pub(super) fn vcpus(&self) -> Option<u32> {
        let said = self.cpu_threads.or(self.vcpu_count);
        let named = number_in(&self.id, &["c"]);
        let fits = |named| [said, self.cpu_count].contains(&u32::try_from(named).ok());
        said.filter(|count| *count > 0 && named.is_none_or(fits))
    }

    /// The main memory. Units: GiB.
    pub(super) fn memory_gib(&self) -> Result<Option<u32>, Rejection> {
        let gib = gate::size_gib("ram", &self.ram, MB_PER_GIB)?;
        // The id is rounded.
        let is_near = |(gib, named): (u32, u64)| {
            let gib = u64::from(gib);
            4 * gib >= named.saturating_mul(3) && 4 * gib <= named.saturating_mul(5)
        };
        match gib
            .zip(number_in(&self.id, &["gb", "g"]))
            .is_none_or(is_near)
        {
            true => Ok(gib),
            false => Err(contradicts(format!("a memory of {} MB", self.ram))),
        }
    }

    /// All disks together. Units: GiB.
    pub(super) fn disk_gib(&self) -> Result<Option<u32>, Rejection> {
        let gib = gate::size_gib("a disk", &self.disk, 1)?;
        Ok(gib.and_then(|gib| gib.checked_mul(self.disk_count.unwrap_or(1).max(1))))
    }

    pub(super) fn hardware(&self) -> Result<Hardware, Rejection> {
        let known = || KNOWN.iter().find(|known| known.plan == self.id);
        let in_id = number_in(&self.id, &["vram"]);
        let (name, count, all_gb) = match self.gpu_word() {
            Some(word) => (word, self.count()?, self.gpu_vram_gb.or(in_id)),
            None => {
                let why = "it does not name its GPU, and its id is none that is known";
                let unknown = || Rejection::new(SkipReason::UnknownGpu, why);
                let known = known().ok_or_else(unknown)?;
                let all_gb = known.gpus * known.gpu_gb;
                (known.gpu.as_str(), Some((known.gpus, 1)), Some(all_gb))
            }
        };
        let with = |mib| gate::hardware(PROFILE.id, &self.id, Some(name), mib).map(|(gpu, _)| gpu);
        let (part, whole) = match count.or(all_gb.zip(card_gb(&with(None)?))) {
            Some((part, whole)) if part > 0 && whole > 0 => (part, whole),
            _ => {
                let why = "it says neither how many GPUs it has nor their memory";
                return Err(Rejection::new(SkipReason::Unreadable, why));
            }
        };
        let gpus = share(part, whole)?;
        let memory_mib = all_gb.map(|all| (all.saturating_mul(whole) / part).saturating_mul(1_024));
        let gpu = with(memory_mib)?;
        let counted = number_in(&self.id, &[""]);
        let is_other = |named: u64, said: u64| named != said;
        if counted.is_some_and(|counted| is_other(counted * 1_000, gpus.thousandths().into()))
            || in_id
                .zip(all_gb)
                .is_some_and(|(named, said)| is_other(named, said))
            || memory_mib.is_some_and(|mib| !gpu.may_have_memory(mib))
        {
            let all_gb = all_gb.unwrap_or_default();
            return Err(contradicts(format!(
                "`{name}` {gpus} times with {all_gb} GB"
            )));
        }
        let name = name.to_owned();
        Ok(Hardware {
            name,
            gpu,
            gpus,
            memory_mib,
        })
    }

    /// The count of GPUs as a fraction: 8, `8` or `1/4`; `None` where it is not said.
    fn count(&self) -> Result<Option<(u64, u64)>, Rejection> {
        let text = match &self.gpu_count {
            Value::Null => return Ok(None),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let (part, whole) = text.split_once('/').unwrap_or((&text, "1"));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| *number > 0);
        let count = number(part).zip(number(whole));
        let impossible = || impossible(&gate::shown(&text));
        count
            .map(|(part, whole)| Some((part.into(), whole.into())))
            .ok_or_else(impossible)
    }
}

/// A price, none, or why it is not one.
type Priced = Result<Option<Decimal>, Rejection>;

/// So many GPUs; more than one are whole ones.
fn share(part: u64, whole: u64) -> Result<GpuCount, Rejection> {
    let thousandths = part.saturating_mul(1_000) / whole;
    let count = u32::try_from(thousandths).ok();
    let count = count.and_then(|count| GpuCount::from_thousandths(count).ok());
    let possible = count.filter(|count| part < whole || count.as_whole().is_some());
    possible.ok_or_else(|| impossible(&format!("{part}/{whole}")))
}

fn impossible(count: &str) -> Rejection {
    let why = format!("no machine has `{count}` GPUs");
    Rejection::new(SkipReason::ImpossibleCount, why)
}

/// The memory of one card of this kind: of the larger one, where there are two. Units: GB.
fn card_gb(gpu: &GpuIdentity) -> Option<u64> {
    gpu.forms().map(|form| form.spec().memory_gb as u64).max()
}

/// The number before one of these units, between the hyphens of an id.
fn number_in(id: &str, units: &[&str]) -> Option<u64> {
    let of = |part: &str, unit: &&str| part.strip_suffix(*unit)?.parse().ok();
    id.split('-')
        .find_map(|part| units.iter().find_map(|unit| of(part, unit)))
}

fn contradicts(what: String) -> Rejection {
    let why = format!("{what} contradicts its id, or its card");
    Rejection::new(SkipReason::ContradictsList, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_read_and_all_but_one_agree_with_their_id() {
        assert_eq!(KNOWN.len(), TABLE.lines().count() - 1);
        let plans = KNOWN
            .iter()
            .map(|known| serde_json::json!({ "id": known.plan }));
        let plans = plans.map(|plan| serde_json::from_value::<Plan>(plan).expect("a plan"));
        let refused = plans.filter(|plan| plan.hardware().is_err());
        let refused: Vec<String> = refused.map(|plan| plan.id).collect();
        assert_eq!(refused, ["vcg-mi325x-252c-2872g-1536vram"]);
    }
}
