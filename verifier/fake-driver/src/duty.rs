//! The share of time in which a process has work queued on its card. Drivers give processes time slices: a
//! process with nothing to do in its slice takes nothing from the others.

/// How long a card stays idle after a process has waited for all of its work, until the process queues more.
/// It is as small beside a real host's time as a test's work is beside real work.
/// Units: milliseconds.
const PAUSE_MS: f64 = 0.002;

/// The work so far of a process that streams through memory.
#[derive(Debug, Default)]
pub struct Duty {
    worked_ms: f64,
    pauses: f64,
}

impl Duty {
    /// Work that took this long.
    pub fn work(&mut self, ms: f64) {
        self.worked_ms += ms;
    }

    /// The process waited until no work was left.
    pub fn pause(&mut self) {
        if self.worked_ms > 0.0 {
            self.pauses += 1.0;
        }
    }

    /// The share of the time with work; nothing before the first. Units: thousandths.
    pub fn permille(&self) -> u32 {
        let whole_ms = self.worked_ms + self.pauses * PAUSE_MS;
        if whole_ms > 0.0 {
            (self.worked_ms / whole_ms * 1e3).round() as u32
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_after_each_short_piece_of_work_is_hardly_there() {
        let mut duty = Duty::default();
        duty.pause();
        assert_eq!(duty.permille(), 0);
        duty.work(1.0);
        assert_eq!(duty.permille(), 1_000);
        let (mut weak, mut strong) = (Duty::default(), Duty::default());
        for _ in 0..100 {
            weak.work(0.0005);
            weak.pause();
            strong.work(0.0005);
        }
        strong.pause();
        assert_eq!(weak.permille(), 200);
        assert!(strong.permille() > 950, "{strong:?}");
    }
}
