//! The floors below which a GPU is not what it should be: `data/floors.csv`, versioned.
//!
//! Three references are kept apart: the published figure (an upper sanity bound), what a good card
//! shows with these kernels (`expected`, once measured), and the floor. Until a calibration exists
//! the floor is loose and says so.

use std::sync::LazyLock;

use market::gpu::Gpu;
use serde::Deserialize;

const TABLE: &str = include_str!("../data/floors.csv");

/// Where a floor comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Calibration {
    /// Nobody measured such a card; the floor is a loose fraction of the published figure.
    None,
    /// Others published a measurement; the floor is still the loose one.
    Provisional,
}

/// The floor of one GPU's copy rate. Units: 1e6 bytes per second, bytes read plus bytes written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Floor {
    /// Below this the GPU fails.
    pub floor_mb_per_s: u64,
    /// What a good card shows, as far as known.
    pub expected_mb_per_s: Option<u64>,
    /// Above this the measurement cannot be believed.
    pub ceiling_mb_per_s: u64,
    /// How well founded it is.
    pub calibration: Calibration,
}

#[derive(Debug, Deserialize)]
struct Row {
    version: u32,
    gpu: String,
    metric: String,
    floor_permille_of_spec: u64,
    expected_mb_per_s: Option<u64>,
    calibration: Calibration,
}

/// All floors of one version.
#[derive(Debug)]
pub struct Floors {
    rows: Vec<Row>,
    version: String,
}

impl Floors {
    /// The table that this build carries.
    #[must_use]
    pub fn current() -> &'static Self {
        // The table is part of the build and a test reads every row.
        static CURRENT: LazyLock<Floors> =
            LazyLock::new(|| Floors::read(TABLE).unwrap_or_else(|refusal| panic!("{refusal}")));
        &CURRENT
    }

    fn read(table: &str) -> Result<Self, csv::Error> {
        let rows: Vec<Row> = csv::Reader::from_reader(table.as_bytes())
            .deserialize()
            .collect::<Result<_, _>>()?;
        let newest = rows.iter().map(|row| row.version).max().unwrap_or(0);
        let digest = blake3::hash(table.as_bytes()).to_hex();
        Ok(Self {
            rows,
            version: format!("{newest}-{}", &digest[..8]),
        })
    }

    /// The version with a hash of the table, so that no change goes unseen.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The floor of a GPU's copy rate; its own row, or the one of `*`.
    #[must_use]
    pub fn copy_rate(&self, gpu: Gpu) -> Option<Floor> {
        let of = |name: &str| {
            self.rows
                .iter()
                .find(|row| row.gpu == name && row.metric == "hbm_copy")
        };
        let row = of(gpu.name()).or_else(|| of("*"))?;
        // Published figures are whole MB/s of at most 8 digits.
        let spec_mb_per_s = (gpu.spec().memory_bandwidth_gbps * 1_000.0).round() as u64;
        let best = spec_mb_per_s.max(row.expected_mb_per_s.unwrap_or(0));
        Some(Floor {
            floor_mb_per_s: spec_mb_per_s * row.floor_permille_of_spec / 1_000,
            expected_mb_per_s: row.expected_mb_per_s,
            ceiling_mb_per_s: best * 115 / 100,
            calibration: row.calibration,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vendor's own table carried dead entries, a thousand times too low: they could not fail.
    #[test]
    fn every_floor_lies_between_two_fifths_and_the_whole_of_the_published_figure() {
        for gpu in Gpu::all() {
            let floor = Floors::current()
                .copy_rate(gpu)
                .expect("a floor for every GPU");
            let spec = gpu.spec().memory_bandwidth_gbps * 1_000.0;
            let share = floor.floor_mb_per_s as f64 / spec;
            assert!((0.4..1.15).contains(&share), "{gpu}: {share}");
            if let Some(expected) = floor.expected_mb_per_s {
                let share = expected as f64 / spec;
                assert!((0.6..1.15).contains(&share), "{gpu}: {share}");
                assert!(expected > floor.floor_mb_per_s, "{gpu}");
            }
        }
    }

    #[test]
    fn every_row_names_a_gpu_a_known_metric_and_a_source() {
        let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
        let headers = reader.headers().expect("headers").clone();
        let source = headers
            .iter()
            .position(|h| h == "source")
            .expect("a source column");
        for record in reader.records() {
            assert!(!record.expect("readable")[source].is_empty());
        }
        for row in &Floors::current().rows {
            assert!(
                row.gpu == "*" || Gpu::parse(&row.gpu).is_ok(),
                "{}",
                row.gpu
            );
            assert_eq!(row.metric, "hbm_copy");
        }
    }

    #[test]
    fn a_changed_table_has_another_version() {
        let changed = Floors::read(&TABLE.replace("550", "551")).expect("readable");
        assert_ne!(changed.version(), Floors::current().version());
        assert!(Floors::current().version().starts_with("1-"));
    }

    #[test]
    fn an_h100_must_copy_at_least_at_1842_gb_per_s() {
        let h100 = Gpu::parse("H100-SXM").expect("known");
        let floor = Floors::current().copy_rate(h100).expect("a floor");
        assert_eq!(floor.floor_mb_per_s, 1_842_500);
        assert_eq!(floor.expected_mb_per_s, Some(3_000_000));
        assert_eq!(floor.ceiling_mb_per_s, 3_852_500);
    }
}
