//! Long runs of the tests that kill real processes.

use anyhow::Result;

use crate::{integration_test, named};

/// How long fronts run before the providers, by the clock of the market. Units: minutes.
pub(crate) const FRONT_MINUTES: (&str, &str) = ("CHAOS_FRONT_MINUTES", "30");

/// Kills replicas, PostgreSQL and Redis this many times, at moments drawn from the seed, and then a broker on
/// its embedded database. After that fronts run before the providers of real replicas for half an hour.
pub(crate) fn chaos(kills: u64, seed: u64) -> Result<()> {
    let (kills, seed) = (kills.to_string(), seed.to_string());
    let settings = [
        ("CHAOS_KILLS", kills.as_str()),
        ("CHAOS_SEED", seed.as_str()),
        FRONT_MINUTES,
        ("REQUIRE_SERVICES", "1"),
    ];
    for test in &named::CHAOS {
        integration_test(test, &[], &settings)?;
    }
    Ok(())
}
