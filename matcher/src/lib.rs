//! Filter, gang, score, explain over an in-memory snapshot. Pure.
//!
//! [`snapshot`] holds all live offers, [`search()`] finds what satisfies a demand: each offer is
//! either eligible and ranked, or counted under exactly one [`ReasonCode`]. What a kind of demand
//! needs and how it ranks is in `gpus`, `train` and `serve`; the arithmetic of memory and speed
//! is in [`perf`], the models that it knows by name in [`models`]. Freezing a candidate's price is
//! `pricing`'s business, setting it aside the store's.

#![forbid(unsafe_code)]

mod explain;
mod filter;
pub mod fleet;
mod fleet_search;
mod gpus;
mod hardware;
mod launch;
pub mod models;
mod network;
pub mod perf;
mod plan;
mod reason;
mod search;
mod serve;
pub mod snapshot;
mod train;

#[cfg(test)]
mod samples;

use market::demand::{DemandKind, Precision};

pub use launch::EngineLaunch;
pub use plan::{
    Alternative, Candidate, CandidateLine, CandidateView, Facts, OfferWithReasons, Plan, PlanView,
    Refused, Rejections, RunLayout, RunStrategy,
};
pub use reason::ReasonCode;
pub use search::{Held, SearchOptions, search, search_within};
pub use snapshot::{ProviderView, Quarantine, Snapshot};

/// Why a demand could not be matched at all.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// The kind of demand is not matched yet.
    #[error("demands of the kind `{}` are not matched yet; ask for gpus, train, serve_realtime or serve_batch", .0.as_str())]
    KindNotSupported(DemandKind),
    /// The model's name is not in the table.
    #[error(
        "the model `{name}` is not known{}; name a known one or give its shape",
        if nearest.is_empty() { String::new() } else { format!("; the nearest names are {}", nearest.join(", ")) }
    )]
    UnknownModel {
        /// What was asked for, cut to 80 characters.
        name: String,
        /// Up to three known names that look most like it, nearest first.
        nearest: Vec<&'static str>,
    },
    /// The work is not done in this precision.
    #[error("{work} in {} is not planned; choose another precision", .precision.as_str())]
    PrecisionNotSupported {
        /// `training` or `serving`.
        work: &'static str,
        /// The precision.
        precision: Precision,
    },
    /// The load of a serving demand is missing.
    #[error("a fleet cannot be sized without a load; give `requests_per_second` or `concurrency`")]
    LoadMissing,
}
