//! Waiting for a driver that may still come up, as on a machine that has just started.

use std::time::Duration;

use super::{NoDriver, Survey};

/// How often the driver is checked during the whole wait, and once more at its end.
const LOOKS: u32 = 12;

/// Which parts of the driver are waited for, and how long; each is waited for once.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The most time for all parts together.
    pub most: Duration,
    /// Whether to wait for a driver that is not installed yet, or shows no GPU yet. A fabric that is not
    /// ready is always waited for.
    pub for_driver: bool,
}

impl Patience {
    fn is_worth(self, why: &NoDriver) -> bool {
        why.is_fabric() || self.for_driver && why.may_come_up()
    }
}

/// This time in whole seconds, rounded up.
pub(super) fn seconds(waited: Duration) -> u64 {
    u64::try_from(waited.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Checks a driver repeatedly while it may still come up. Gives its last survey and how long that took; where
/// it shows nothing, the reason includes the wait.
///
/// `wait` lets this much time pass and gets the reason.
pub(super) fn survey(
    patience: Patience,
    mut look: impl FnMut() -> Result<Survey, NoDriver>,
    mut wait: impl FnMut(&NoDriver, Duration),
) -> (Result<Survey, NoDriver>, Duration) {
    let pause = patience.most / LOOKS;
    let mut waited = Duration::ZERO;
    for _ in 0..LOOKS {
        match look() {
            Err(why) if !pause.is_zero() && patience.is_worth(&why) => wait(&why, pause),
            Err(why) => return (Err(why.after(waited)), waited),
            surveyed => return (surveyed, waited),
        }
        waited += pause;
    }
    (look().map_err(|why| why.after(waited)), waited)
}

#[cfg(test)]
mod tests {
    use market::verification::TroubleKind;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn refused(kind: TroubleKind, may_come_up: bool) -> NoDriver {
        NoDriver::Refused {
            kind,
            what: "it does not".to_owned(),
            may_come_up,
        }
    }

    fn missing() -> NoDriver {
        NoDriver::Missing("libcuda.so.1".to_owned())
    }

    fn no_gpu_yet() -> NoDriver {
        refused(TroubleKind::GpuWithdrawn, true)
    }

    fn not_ready() -> NoDriver {
        refused(TroubleKind::FabricNotReady, false)
    }

    /// The result for a driver that is in these states until these seconds of virtual time, one after the
    /// other, and then is up; and the seconds that passed.
    fn waited(for_driver: bool, states: &[(u64, NoDriver)]) -> (Result<Survey, NoDriver>, u64) {
        let now = std::cell::Cell::new(Duration::ZERO);
        let look = || {
            let seconds = now.get().as_secs();
            let state = states.iter().find(|(until, _)| seconds < *until);
            state.map_or_else(|| Ok(Survey::default()), |(_, why)| Err(why.clone()))
        };
        let most = MINUTE;
        let wait = |_: &NoDriver, pause| now.set(now.get() + pause);
        let (surveyed, waited) = survey(Patience { most, for_driver }, look, wait);
        assert_eq!(waited, now.get());
        (surveyed, waited.as_secs())
    }

    #[test]
    fn a_fabric_that_is_not_ready_is_waited_for_by_everyone() {
        for for_driver in [false, true] {
            let (surveyed, seconds) = waited(for_driver, &[(20, not_ready())]);
            assert_eq!((surveyed.is_ok(), seconds), (true, 20));
            let (surveyed, seconds) = waited(for_driver, &[(61, not_ready())]);
            assert_eq!((surveyed.is_ok(), seconds), (false, 60));
        }
    }

    #[test]
    fn a_driver_that_is_not_up_yet_is_waited_for_where_a_broker_waits_and_by_nobody_else() {
        for why in [missing(), no_gpu_yet()] {
            let (surveyed, seconds) = waited(true, &[(42, why.clone())]);
            assert_eq!((surveyed.is_ok(), seconds), (true, 45), "{why}");
            let (surveyed, seconds) = waited(false, &[(42, why.clone())]);
            assert_eq!((surveyed, seconds), (Err(why), 0));
        }
    }

    #[test]
    fn what_comes_up_bit_by_bit_has_one_minute_for_all_of_it_and_is_told_what_was_left() {
        let bit_by_bit = [(20, missing()), (40, no_gpu_yet()), (59, not_ready())];
        let (surveyed, seconds) = waited(true, &bit_by_bit);
        assert_eq!((surveyed.is_ok(), seconds), (true, 60));
        let too_long = [(40, missing()), (80, not_ready())];
        let (surveyed, seconds) = waited(true, &too_long);
        let why = surveyed.expect_err("not ready").to_string();
        assert_eq!(seconds, 60);
        assert!(why.ends_with("it does not (after 60 s)"), "{why}");
        let (surveyed, _) = waited(true, &[(90, missing())]);
        let why = surveyed.expect_err("missing").to_string();
        assert!(why.contains("no libcuda.so.1 (after 60 s): "), "{why}");
    }

    #[test]
    fn what_does_not_heal_by_itself_is_not_waited_for() {
        for why in [
            refused(TroubleKind::Driver, false),
            refused(TroubleKind::TimedOut, false),
            NoDriver::UnsupportedVendor,
        ] {
            let (surveyed, seconds) = waited(true, &[(90, why.clone())]);
            assert_eq!((surveyed, seconds), (Err(why), 0));
        }
    }
}
