//! Long runs of the test that kills real processes.

use anyhow::Result;

use crate::{integration_test, named};

/// Kills replicas and Redis so often, at moments drawn from the seed.
pub(crate) fn chaos(kills: u64, seed: u64) -> Result<()> {
    let (kills, seed) = (kills.to_string(), seed.to_string());
    let settings = [
        ("CHAOS_KILLS", kills.as_str()),
        ("CHAOS_SEED", seed.as_str()),
        ("REQUIRE_SERVICES", "1"),
    ];
    integration_test(&named::CHAOS, &[], &settings)
}
