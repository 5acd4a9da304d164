//! A sustained load on all GPUs at once, and memory that is held meanwhile.

use std::time::Duration;

use market::verification::{BurnFacts, Digest, Level, NodeFacts, Pattern, VerificationOrder};
use serde::{Deserialize, Serialize};

use crate::device::{DeviceError, Node};
use crate::gemm::GemmInputs;
use crate::memory::Contents;

/// The share of filled memory that is held during the load. Units: percent.
const HELD_PERCENT: u64 = 40;

/// The load of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BurnWork {
    /// The product that is computed repeatedly.
    pub inputs: GemmInputs,
    /// The contents of memory meanwhile.
    pub contents: Contents,
    /// The size of these contents, bytes.
    pub held_bytes: u64,
    /// How long, by the GPU's clock.
    pub lasts: Duration,
}

/// The results of a load on one GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Burned {
    /// The load itself.
    pub burn: BurnFacts,
    /// 32-bit words that changed while memory was held.
    pub dwell_bad_words: u64,
}

/// One look at a loaded GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LoadSample {
    /// How long the work since the last sample took by the GPU's clock, ms.
    pub elapsed_ms: f64,
    /// The operations of that work.
    pub operations: f64,
    /// The reasons for a slowed clock; none where the driver does not report them.
    pub slowed: Option<SlowedBy>,
    /// The power, W.
    pub power_w: Option<u32>,
    /// The temperature, degrees Celsius.
    pub temperature_c: Option<u32>,
    /// The clock of the multiprocessors, MHz.
    pub sm_mhz: Option<u32>,
    /// The checksum of the last product of that work.
    pub sum: u64,
}

/// The reasons for a GPU's slowed clock at a moment, besides the power limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlowedBy {
    /// The hardware.
    pub hw_slowdown: bool,
    /// Heat.
    pub thermal: bool,
    /// The power supply.
    pub power_brake: bool,
}

/// How long a level loads the GPUs: at most half of the time left for the report, so that the work around the
/// load and the way to the broker have time too.
#[must_use]
pub fn lasts(level: Level, left: Duration) -> Option<Duration> {
    let wanted = match level {
        Level::Quick => return None,
        Level::Standard => Duration::from_secs(25),
        Level::Deep => Duration::from_secs(15 * 60),
    };
    Some(wanted.min(left / 2))
}

/// Loads all GPUs at once and records each one's results; `left` is the time left in the step. Gives the GPUs
/// that did not finish.
pub fn burn(
    node: &mut Node,
    facts: &mut NodeFacts,
    nonce: &Digest,
    order: &VerificationOrder,
    left: Duration,
) -> Vec<DeviceError> {
    let Some(lasts) = lasts(order.level, left) else {
        return Vec::new();
    };
    let held = order.memory.pattern_bytes * HELD_PERCENT / 100;
    let nothing = vec![(); node.devices.len()];
    let burned = node.on_all(nothing, |gpu, device, ()| {
        device.burn(&BurnWork {
            inputs: GemmInputs::derive(nonce, gpu, &order.gemm),
            contents: Contents::derive(nonce, gpu, Pattern::Prf),
            held_bytes: held / 16 * 16,
            lasts,
        })
    });
    match burned {
        Ok(burned) => {
            for (gpu, burned) in facts.gpus.iter_mut().zip(burned) {
                // A simulated GPU has its own figures, or none.
                if let Some(burned) = burned {
                    gpu.burn = Some(burned.burn);
                    gpu.dwell_bad_words = Some(burned.dwell_bad_words);
                }
            }
            Vec::new()
        }
        Err(errors) => errors,
    }
}

fn elapsed_ms(samples: &[LoadSample]) -> f64 {
    samples.iter().map(|sample| sample.elapsed_ms).sum()
}

fn gflops(samples: &[LoadSample]) -> u64 {
    let operations: f64 = samples.iter().map(|sample| sample.operations).sum();
    let elapsed_ms = elapsed_ms(samples);
    if elapsed_ms > 0.0 {
        (operations / elapsed_ms / 1e6) as u64
    } else {
        0
    }
}

/// What the looks amount to.
///
/// Shape: at least three samples, or the rates of the thirds are zero.
#[must_use]
pub fn summary(samples: &[LoadSample], slowdown_temperature_c: Option<u32>) -> BurnFacts {
    let third = samples.len() / 3;
    let sum = samples.first().map_or(0, |sample| sample.sum);
    // A reason that one sample could not show may have slowed the clock just then.
    let slowed: Option<Vec<SlowedBy>> = samples.iter().map(|sample| sample.slowed).collect();
    let permille = |by: fn(&SlowedBy) -> bool| {
        let slowed = slowed.as_ref()?.iter().filter(|slowed| by(slowed)).count();
        Some((slowed * 1_000 / samples.len().max(1)) as u32)
    };
    let power: Option<Vec<u32>> = samples.iter().map(|sample| sample.power_w).collect();
    let mean = |watts: Vec<u32>| {
        let sum: u64 = watts.iter().copied().map(u64::from).sum();
        u32::try_from(sum / watts.len().max(1) as u64).ok()
    };
    BurnFacts {
        elapsed_ms: elapsed_ms(samples) as u64,
        samples: samples.len() as u32,
        first_third_gflops: gflops(&samples[..third]),
        last_third_gflops: gflops(&samples[samples.len() - third..]),
        hw_slowdown_permille: permille(|slowed| slowed.hw_slowdown),
        thermal_permille: permille(|slowed| slowed.thermal),
        power_brake_permille: permille(|slowed| slowed.power_brake),
        mean_power_w: power.and_then(mean),
        highest_temperature_c: samples.iter().filter_map(|s| s.temperature_c).max(),
        slowdown_temperature_c,
        lowest_sm_mhz: samples.iter().filter_map(|sample| sample.sm_mhz).min(),
        changed_samples: Some(samples.iter().filter(|sample| sample.sum != sum).count() as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_takes_half_of_what_is_left_and_no_more_than_its_level_wants() {
        let seconds = Duration::from_secs;
        assert_eq!(lasts(Level::Quick, seconds(3_600)), None);
        assert_eq!(lasts(Level::Standard, seconds(55)), Some(seconds(25)));
        assert_eq!(lasts(Level::Standard, seconds(30)), Some(seconds(15)));
        assert_eq!(lasts(Level::Standard, seconds(0)), Some(seconds(0)));
        assert_eq!(lasts(Level::Deep, seconds(3_600)), Some(seconds(900)));
    }

    #[test]
    fn thirds_shares_and_extremes_are_those_of_the_looks() {
        let look = |at: u32| LoadSample {
            elapsed_ms: 200.0 + f64::from(at / 6) * 200.0,
            operations: 1e12,
            slowed: Some(SlowedBy {
                thermal: at == 3,
                ..SlowedBy::default()
            }),
            power_w: Some(600 + at),
            temperature_c: Some(60 + at),
            sm_mhz: Some(1_900 - at),
            sum: u64::from(at / 7),
        };
        let looks: Vec<LoadSample> = (0..9).map(look).collect();
        let facts = summary(&looks, Some(87));
        assert_eq!(facts.elapsed_ms, 2_400);
        assert_eq!(
            (facts.first_third_gflops, facts.last_third_gflops),
            (5_000, 2_500)
        );
        assert_eq!(
            (facts.thermal_permille, facts.hw_slowdown_permille),
            (Some(111), Some(0))
        );
        assert_eq!(
            (facts.mean_power_w, facts.highest_temperature_c),
            (Some(604), Some(68))
        );
        assert_eq!(
            (facts.lowest_sm_mhz, facts.slowdown_temperature_c),
            (Some(1_892), Some(87))
        );
        assert_eq!(facts.changed_samples, Some(2));
        assert_eq!(summary(&[], None).last_third_gflops, 0);
        let mut hidden = looks.clone();
        hidden[4].slowed = None;
        let BurnFacts {
            hw_slowdown_permille,
            thermal_permille,
            power_brake_permille,
            ..
        } = summary(&hidden, None);
        assert_eq!(
            [hw_slowdown_permille, thermal_permille, power_brake_permille],
            [None; 3],
            "what is not told is not zero"
        );
    }
}
