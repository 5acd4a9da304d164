//! Spaces calls out, so that an account stays below its provider's rate limit.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Slots for calls, at least the spacing apart.
#[derive(Debug)]
pub(super) struct Pace {
    spacing: Duration,
    next: Mutex<Option<Instant>>,
}

impl Pace {
    pub(super) const fn new(spacing: Duration) -> Self {
        Self {
            spacing,
            next: Mutex::new(None),
        }
    }

    /// Waits for the next slot.
    ///
    /// Errors: how long the wait would be, when it exceeds `longest`; then no slot was taken.
    pub(super) async fn turn(&self, longest: Duration) -> Result<(), Duration> {
        let turn = self.take_turn(Instant::now(), longest)?;
        tokio::time::sleep_until(turn).await;
        Ok(())
    }

    fn take_turn(&self, now: Instant, longest: Duration) -> Result<Instant, Duration> {
        // A panic elsewhere cannot leave an instant half written.
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = next.unwrap_or(now).max(now);
        if turn - now > longest {
            return Err(turn - now);
        }
        *next = Some(turn + self.spacing);
        Ok(turn)
    }

    /// Allows no slot before `after` has passed, as the provider asked.
    ///
    /// Without a spacing there is nothing to delay: the time is then the simulator's, not ours.
    pub(super) fn hold(&self, after: Duration) {
        self.hold_until(Instant::now() + after);
    }

    fn hold_until(&self, earliest: Instant) {
        if self.spacing.is_zero() {
            return;
        }
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        *next = Some(next.map_or(earliest, |next| next.max(earliest)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn turns_are_spaced_and_the_first_is_at_once() {
        let (pace, now) = (Pace::new(12 * SECOND), Instant::now());
        for turn in 0..3 {
            assert_eq!(
                pace.take_turn(now, 60 * SECOND),
                Ok(now + turn * 12 * SECOND)
            );
        }
        let late = now + 100 * SECOND;
        assert_eq!(pace.take_turn(late, Duration::ZERO), Ok(late));
    }

    #[test]
    fn a_turn_too_far_away_is_refused_and_not_taken() {
        let (pace, now) = (Pace::new(12 * SECOND), Instant::now());
        for _ in 0..3 {
            pace.take_turn(now, 60 * SECOND).expect("a turn");
        }
        assert_eq!(pace.take_turn(now, 30 * SECOND), Err(36 * SECOND));
        assert_eq!(pace.take_turn(now, 30 * SECOND), Err(36 * SECOND));
        let turn = now + 36 * SECOND;
        assert_eq!(pace.take_turn(now, 36 * SECOND), Ok(turn));
    }

    #[test]
    fn a_hold_keeps_everyone_back() {
        let (pace, now) = (Pace::new(SECOND), Instant::now());
        pace.hold_until(now + 7 * SECOND);
        let turn = now + 7 * SECOND;
        assert_eq!(pace.take_turn(now, 60 * SECOND), Ok(turn));
    }

    // In real time: it does wait.
    #[tokio::test]
    async fn whoever_has_a_later_turn_waits_for_it() {
        let spacing = Duration::from_millis(30);
        let (pace, began) = (Pace::new(spacing), Instant::now());
        pace.hold(spacing);
        for _ in 0..2 {
            pace.turn(60 * SECOND).await.expect("a turn");
        }
        assert!(began.elapsed() >= 2 * spacing, "{:?}", began.elapsed());
    }

    #[test]
    fn without_a_spacing_nothing_is_held() {
        let (pace, now) = (Pace::new(Duration::ZERO), Instant::now());
        pace.hold_until(now + 7 * SECOND);
        assert_eq!(pace.take_turn(now, Duration::ZERO), Ok(now));
    }
}
