//! The clock that everything takes `now` from.
//!
//! Deadlines of the verification conversation do not use it: they run on the machine's real
//! monotonic clock.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now, in whole microseconds, as every database keeps it.
    fn now(&self) -> DateTime<Utc>;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
}

impl simulator::Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Clock::now(self)
    }
}

/// A clock that only moves when it is told to: the demo's and the tests'.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that stands at `start`.
    #[must_use]
    pub fn at(start: DateTime<Utc>) -> Self {
        Self(Mutex::new(start.trunc_subsecs(6)))
    }

    /// Moves the clock on and says what it shows then.
    pub fn advance(&self, by: TimeDelta) -> DateTime<Utc> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
        *now
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl simulator::Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        Clock::now(self)
    }
}
