//! Rules on a sustained load: whether the rate stays up, and the reasons why it does not.

use market::attestation::{Finding, FindingCode};
use market::verification::{BurnFacts, GpuFacts};

use super::seen::{Seen, Sight};

/// The share of the first third's rate that the last third must reach. Units: thousandths.
const SUSTAINED_PERMILLE: u64 = 950;
/// The share of samples in which the clock may be slowed for reasons other than the power limit. Units:
/// thousandths.
const MOST_SLOWED_PERMILLE: u32 = 50;
/// The share of the power limit that a load should draw. Units: thousandths.
const LOADED_PERMILLE: u64 = 750;
/// How far a card should stay below the temperature at which it slows itself. Degrees Celsius.
const MARGIN_C: u32 = 5;
/// The fewest samples that have a first third and a last.
const LEAST_LOOKS: u32 = 3;

/// A finding from the load of each GPU.
fn each_burn(
    seen: &Seen<'_>,
    code: FindingCode,
    good: &str,
    look: impl Fn(&GpuFacts, &BurnFacts) -> Sight,
) -> Finding {
    seen.each_gpu(code, good, |gpu| match &gpu.burn {
        Some(burn) if burn.samples >= LEAST_LOOKS => look(gpu, burn),
        _ => Sight::Unseen,
    })
}

pub(super) fn sustained(seen: &Seen<'_>) -> Finding {
    let good = "The rate held under load.";
    each_burn(seen, FindingCode::BurnSustained, good, |_, burn| {
        let kept = burn.last_third_gflops.saturating_mul(1_000) / burn.first_third_gflops.max(1);
        if burn.first_third_gflops == 0 {
            Sight::Bad("it did no work".to_owned())
        } else if kept < SUSTAINED_PERMILLE {
            Sight::Bad(format!("{kept} permille of the rate are left at the end"))
        } else {
            Sight::Good
        }
    })
}

pub(super) fn throttle(seen: &Seen<'_>) -> Finding {
    let good = "Nothing but the power limit slowed the clocks.";
    each_burn(seen, FindingCode::BurnThrottle, good, |_, burn| {
        let reasons = [
            ("the hardware", burn.hw_slowdown_permille),
            ("heat", burn.thermal_permille),
            ("the power supply", burn.power_brake_permille),
        ];
        let told = reasons.map(|(what, permille)| permille.map(|permille| (permille, what)));
        // None is less than any value.
        match told.into_iter().max().flatten() {
            Some((permille, what)) if permille > MOST_SLOWED_PERMILLE => {
                Sight::Bad(format!("{what} slowed it in {permille} of 1000 samples"))
            }
            _ if told.contains(&None) => Sight::Unseen,
            _ => Sight::Good,
        }
    })
}

pub(super) fn power(seen: &Seen<'_>) -> Finding {
    let good = "The GPUs drew the power of loaded ones.";
    each_burn(seen, FindingCode::BurnPower, good, |gpu, burn| {
        match (burn.mean_power_w, gpu.power_limit_w) {
            (Some(mean), Some(limit)) => {
                let permille = u64::from(mean) * 1_000 / u64::from(limit.max(1));
                if permille < LOADED_PERMILLE {
                    Sight::Bad(format!("it drew {mean} of {limit} W"))
                } else {
                    Sight::Good
                }
            }
            _ => Sight::Unseen,
        }
    })
}

pub(super) fn temperature(seen: &Seen<'_>) -> Finding {
    let good = "The GPUs stayed clear of slowing themselves.";
    each_burn(seen, FindingCode::BurnTemperature, good, |_, burn| {
        match (burn.highest_temperature_c, burn.slowdown_temperature_c) {
            (Some(highest), Some(slowdown)) if highest.saturating_add(MARGIN_C) > slowdown => {
                Sight::Bad(format!("{highest} C, it slows itself at {slowdown} C"))
            }
            (Some(_), Some(_)) => Sight::Good,
            _ => Sight::Unseen,
        }
    })
}
