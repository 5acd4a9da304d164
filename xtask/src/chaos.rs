//! Long runs of the test that kills real processes.

use anyhow::Result;

use crate::cargo;

/// Kills replicas and Redis so often, at moments drawn from the seed.
pub(crate) fn chaos(kills: u64, seed: u64) -> Result<()> {
    let (kills, seed) = (kills.to_string(), seed.to_string());
    cargo(
        &[
            "test",
            "-p",
            "broker",
            "--test",
            "it",
            "--",
            "kills_of_real_replicas_and_of_redis_at_any_moment_lose_no_acknowledged_work",
            "--nocapture",
        ],
        &[
            ("CHAOS_KILLS", kills.as_str()),
            ("CHAOS_SEED", seed.as_str()),
            ("REQUIRE_SERVICES", "1"),
        ],
    )
}
