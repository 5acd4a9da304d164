//! The machine's clock, which is not trusted alone.
//!
//! Somebody sets a clock, or a machine starts with a wrong one: anything metered, ended or called fresh by it
//! stays so for good. So the wall clock is compared with the time since the machine started, which nobody can
//! set, and after a start with the newest time in the database. While it is off by more than [`BOUND`] the
//! broker keeps its own time, and logs an error. [`crate::platform::time_check`] decides which jump is
//! accepted after all.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use rustix::time::{ClockId, clock_gettime};
use tracing::{error, info, warn};

use super::{Clock, Doubt};

/// How far the wall clock may be off. A step of a time server is far shorter.
pub const BOUND: TimeDelta = TimeDelta::seconds(10);

/// The machine's reading: the wall clock, and the time since it started, sleep included.
type Read = dyn Fn() -> (DateTime<Utc>, TimeDelta) + Send + Sync;

/// The machine's clock under watch.
pub struct WatchedClock {
    read: Box<Read>,
    /// Whether it is trusted at startup, even against other clocks.
    is_trusted: bool,
    state: Mutex<State>,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// The offset to add to the time since the start.
    started_at: DateTime<Utc>,
    /// The wall clock's value for the same, and since when it shows that.
    doubted: Option<(DateTime<Utc>, TimeDelta)>,
}

impl std::fmt::Debug for WatchedClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WatchedClock")
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

impl WatchedClock {
    /// That of this machine.
    #[must_use]
    pub fn of_machine() -> Self {
        Self::reading(|| (Utc::now(), since_start()))
    }

    /// The same clock, trusted at startup even against other clocks.
    #[must_use]
    pub fn trusted(self) -> Self {
        Self {
            is_trusted: true,
            ..self
        }
    }

    fn reading(read: impl Fn() -> (DateTime<Utc>, TimeDelta) + Send + Sync + 'static) -> Self {
        let (wall, up) = read();
        Self {
            read: Box::new(read),
            is_trusted: false,
            state: Mutex::new(State {
                started_at: wall - up,
                doubted: None,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for WatchedClock {
    fn now(&self) -> DateTime<Utc> {
        let (wall, up) = (self.read)();
        let mut state = self.state();
        let says = wall - up;
        if (says - state.started_at).abs() <= BOUND {
            state.started_at = says;
            if state.doubted.take().is_some() {
                info!("The machine's clock shows the right time again");
            }
            return wall.trunc_subsecs(6);
        }
        let is_same = |(said, _): &(DateTime<Utc>, TimeDelta)| (says - *said).abs() <= BOUND;
        if !state.doubted.as_ref().is_some_and(is_same) {
            state.doubted = Some((says, up));
            let off_by = (says - state.started_at).num_seconds();
            error!(
                off_by_seconds = off_by,
                "The machine's clock jumped by {off_by} s; the broker keeps its own time. Set the clock right, or restart if it is right"
            );
        }
        (state.started_at + up).trunc_subsecs(6)
    }

    fn begin_after(&self, newest: DateTime<Utc>) {
        let (_, up) = (self.read)();
        let mut state = self.state();
        // A newest time further back casts no doubt: the service was down.
        if newest - BOUND > state.started_at + up && !self.is_trusted {
            state.started_at = newest - up;
        }
    }

    fn can_be_contradicted(&self) -> bool {
        !self.is_trusted
    }

    fn begin_at(&self, other: DateTime<Utc>) {
        let (_, up) = (self.read)();
        if !self.is_trusted {
            self.state().started_at = other - up;
        }
    }

    fn doubt(&self) -> Option<Doubt> {
        let now = self.now();
        let (wall, up) = (self.read)();
        let state = self.state();
        let (_, since) = state.doubted?;
        Some(Doubt {
            shows: wall,
            believed: now,
            stands_for: up - since,
        })
    }

    fn accept(&self, doubt: &Doubt) {
        let mut state = self.state();
        let Some((says, _)) = state.doubted else {
            return;
        };
        let off_by = says - state.started_at;
        // Another jump may have come meanwhile.
        if (off_by - (doubt.shows - doubt.believed)).abs() > BOUND {
            return;
        }
        state.doubted = None;
        let off_by = off_by.num_seconds();
        state.started_at = says;
        warn!(
            off_by_seconds = off_by,
            "The broker trusts the machine's clock again, {off_by} s from its own time"
        );
    }
}

/// The time since the machine started, on Linux including sleep.
fn since_start() -> TimeDelta {
    #[cfg(target_os = "linux")]
    let id = ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = ClockId::Monotonic;
    let since = clock_gettime(id);
    // A machine is not up for 292,000 years.
    TimeDelta::seconds(since.tv_sec) + TimeDelta::nanoseconds(since.tv_nsec)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// A machine whose two clocks are set by hand: the wall's, and the seconds since the start.
    #[derive(Clone)]
    struct Machine(Arc<Mutex<(i64, i64)>>);

    impl Machine {
        fn at(wall: i64) -> (Self, WatchedClock) {
            let machine = Self(Arc::new(Mutex::new((wall, 1_000))));
            let read = machine.clone();
            let clock = WatchedClock::reading(move || {
                let (wall, up) = *read.0.lock().expect("sound");
                (moment(wall), TimeDelta::seconds(up))
            });
            (machine, clock)
        }

        fn pass(&self, seconds: i64) {
            let mut both = self.0.lock().expect("sound");
            *both = (both.0 + seconds, both.1 + seconds);
        }

        fn set(&self, by: i64) {
            self.0.lock().expect("sound").0 += by;
        }
    }

    fn moment(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_790_000_000 + seconds, 0).expect("a moment")
    }

    #[test]
    fn a_jump_of_three_days_for_five_seconds_is_never_seen() {
        let (machine, clock) = Machine::at(0);
        machine.pass(60);
        assert_eq!(clock.now(), moment(60));
        for by in [3 * 86_400, -3 * 86_400] {
            let before = clock.now();
            machine.set(by);
            machine.pass(5);
            assert_eq!(clock.now(), before + TimeDelta::seconds(5));
            let doubt = clock.doubt().expect("a doubt");
            assert_eq!(doubt.shows - doubt.believed, TimeDelta::seconds(by));
            machine.set(-by);
            assert_eq!(clock.now(), before + TimeDelta::seconds(5));
            assert!(clock.doubt().is_none());
        }
    }

    #[test]
    fn steps_of_a_time_server_are_followed() {
        let (machine, clock) = Machine::at(0);
        for _ in 0..5 {
            machine.set(9);
            assert!(clock.doubt().is_none());
        }
        assert_eq!(clock.now(), moment(45));
    }

    #[test]
    fn a_jump_stands_from_when_it_was_seen_and_is_followed_once_it_is_accepted() {
        let (machine, clock) = Machine::at(0);
        machine.set(3_600);
        assert_eq!(clock.now(), moment(0));
        machine.pass(300);
        assert_eq!(
            clock.doubt().expect("a doubt").stands_for,
            TimeDelta::seconds(300)
        );
        // Another jump is another doubt.
        machine.set(3_600);
        assert_eq!(clock.now(), moment(300));
        machine.pass(700);
        let doubt = clock.doubt().expect("a doubt");
        assert_eq!(doubt.stands_for, TimeDelta::seconds(700));
        // Not the first of the two jumps.
        clock.accept(&Doubt {
            shows: doubt.shows - TimeDelta::hours(1),
            ..doubt
        });
        assert!(clock.doubt().is_some());
        clock.accept(&doubt);
        assert_eq!(clock.now(), moment(7_200 + 1_000));
        assert!(clock.doubt().is_none());
    }

    #[test]
    fn a_clock_that_is_behind_the_database_at_the_start_is_doubted_and_a_short_pause_is_not() {
        let (machine, clock) = Machine::at(0);
        clock.begin_after(moment(-3_600));
        assert_eq!(clock.now(), moment(0));
        clock.begin_after(moment(86_400));
        machine.pass(5);
        assert_eq!(clock.now(), moment(86_405));
        assert!(clock.doubt().is_some());
        // By another clock it is right.
        clock.begin_at(moment(5));
        assert_eq!(clock.now(), moment(5));
        assert!(clock.doubt().is_none());
        let (_, clock) = Machine::at(0);
        assert!(clock.can_be_contradicted());
        let clock = clock.trusted();
        assert!(!clock.can_be_contradicted());
        clock.begin_after(moment(86_400));
        clock.begin_at(moment(86_400));
        assert_eq!(clock.now(), moment(0));
    }

    #[test]
    fn the_machine_says_how_long_it_is_up() {
        let before = since_start();
        assert!(before > TimeDelta::zero() && since_start() >= before);
    }
}
