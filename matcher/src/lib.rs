//! Filter, gang, score, explain over an in-memory snapshot. Pure.
//!
//! [`snapshot`] holds all live offers. [`search()`] finds the offers that satisfy a demand: each offer is
//! either eligible and ranked, or counted under exactly one [`ReasonCode`]. `gpus`, `train` and `serve` hold
//! the needs and the ranking of each kind of demand, and `hybrid` combines two of them. [`perf`] holds the
//! arithmetic of memory and speed, and [`models`] the models that it knows by name. `pricing` freezes a
//! candidate's price, and the store holds its nodes.

#![forbid(unsafe_code)]

mod explain;
mod filter;
pub mod fleet;
mod fleet_search;
mod gpus;
mod hardware;
mod hybrid;
mod launch;
pub mod models;
mod network;
mod own;
pub mod perf;
mod plan;
mod ranking;
mod reason;
mod search;
mod serve;
pub mod snapshot;
mod ties;
mod train;
mod verdict;
mod walk;

#[cfg(test)]
mod samples;

use market::demand::Precision;

pub use gpus::NearestCounts;
pub use hybrid::{
    BaselineKind, BaselineWay, HybridBaseline, HybridBill, HybridPair, HybridPlan, HybridSearch,
    StagingLeg, search_hybrid,
};
pub use launch::{EngineConfig, EngineLaunch};
pub use own::{at_own_prices, price_for};
pub use plan::{
    AlsoAt, Alternative, Candidate, CandidateLine, CandidateView, CoveredLine, Facts,
    OfferWithReasons, Placed, Plan, PlanView, Refused, Rejections, RunLayout, RunStrategy,
};
pub use reason::ReasonCode;
pub use search::{Cooling, Held, SearchOptions, search, search_within};
pub use snapshot::{OfferRef, ProviderView, Quarantine, Snapshot};
pub use verdict::{OfferOutcome, OfferVerdict};

/// The texts of the tables that predictions and prices of staging follow from: models, chips,
/// constants, places of users, egress, link floors, published figures of GPUs, regions of providers.
/// A record of a decision contains their digest.
#[must_use]
pub const fn tables() -> [&'static str; 8] {
    [
        include_str!("../data/models.csv"),
        include_str!("../data/gpus.csv"),
        include_str!("../data/params.json"),
        include_str!("../data/user_places.csv"),
        include_str!("../data/egress.csv"),
        include_str!("../data/link_floors.csv"),
        market::gpu::GPU_TABLE,
        market::place::REGION_TABLE,
    ]
}

/// Why a demand could not be matched at all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// The model's name is not in the table.
    #[error(
        "the model `{name}` is not known{}; name one that `broker models` lists, or give its shape",
        if nearest.is_empty() { String::new() } else { format!("; the nearest names are {}", nearest.join(", ")) }
    )]
    UnknownModel {
        /// The name in the demand, cut to 80 characters.
        name: String,
        /// Up to three known names that are most similar, nearest first.
        nearest: Vec<&'static str>,
    },
    /// The work is not supported in this precision.
    #[error("{work} in {} is not supported; choose another precision", .precision.as_str())]
    PrecisionNotSupported {
        /// `training` or `serving`.
        work: &'static str,
        /// The precision.
        precision: Precision,
    },
    /// The measurement does not fit the demand.
    #[error("the calibration cannot be used: {0}")]
    Calibration(String),
    /// The load of a serving demand is missing.
    #[error("a fleet cannot be sized without a load; give `requests_per_second` or `concurrency`")]
    LoadMissing,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// A table that a prediction reads but that its record lacks could change, and the record would still
    /// replay.
    #[test]
    fn every_table_that_a_prediction_reads_is_among_those_of_its_record() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let folder = std::fs::read_dir(crates.join("matcher/data")).expect("the tables");
        let names = folder.map(|entry| entry.expect("a file").file_name());
        let names = names.map(|name| name.into_string().expect("a name"));
        // Only tests read the constants of the reference.
        let others = ["README.md", "params.reference.json"];
        let own = names.filter(|name| !others.contains(&name.as_str()));
        let own = own.map(|name| format!("matcher/data/{name}"));
        let of_market = ["market/data/gpus.csv", "market/data/regions.csv"].map(str::to_owned);
        let files: Vec<_> = own.chain(of_market).collect();
        for file in &files {
            let text = std::fs::read_to_string(crates.join(file)).expect("a table");
            assert!(text.len() > 100);
            assert!(super::tables().contains(&text.as_str()), "{file}");
        }
        assert_eq!(files.len(), super::tables().len(), "{files:?}");
    }
}
