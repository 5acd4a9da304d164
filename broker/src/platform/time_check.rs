//! Checks the machine's clock against other clocks, at startup and while it is doubted.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use store::{Store, StoreError};

use crate::platform::app::Broker;
use crate::platform::clock::{BOUND, Clock, Doubt};
use crate::platform::stop::{Stop, pause};

/// How long a jump lasts before other clocks are asked about it.
const STANDS: TimeDelta = TimeDelta::minutes(10);
/// How often a doubted clock is checked.
const LOOK: Duration = Duration::from_secs(5);
/// How many providers must show the same.
const PROVIDERS: usize = 2;

/// Sets the clock from the database, before anything else uses it: from the clock of its server, where that
/// is another machine, else from the newest reading in it.
///
/// Errors: [`StoreError`].
pub(crate) async fn begin(clock: &dyn Clock, store: &Store) -> Result<(), StoreError> {
    if let Some(server) = store.server_time().await? {
        if (server - clock.now()).abs() > BOUND {
            clock.begin_at(server);
        }
    } else if let Some(newest) = store.catalog().newest_reading().await? {
        clock.begin_after(newest);
    }
    Ok(())
}

/// Accepts a jump that stands and that the database's server, or two providers, confirm; after a long
/// stop a clock that one provider confirms, or that no other clock contradicts for as long as a jump stands.
pub(crate) async fn keep_checking(broker: Broker, stop: Stop) {
    while pause(&stop, LOOK).await {
        let Some(doubt) = broker.clock().doubt() else {
            continue;
        };
        if !doubt.was_stopped && doubt.stands_for < STANDS {
            continue;
        }
        let server = broker.store().server_time().await.ok().flatten();
        let links = broker.providers();
        let dates: Vec<_> = links
            .iter()
            .filter_map(|link| link.http.shown_time())
            .collect();
        if is_right(&doubt, server, &dates) {
            broker.clock().accept(&doubt);
        }
    }
}

/// Whether the clock that is doubted is right, by the clock of the database's server and by those of
/// providers.
fn is_right(doubt: &Doubt, server: Option<DateTime<Utc>>, dates: &[DateTime<Utc>]) -> bool {
    let shows_same = |at: &DateTime<Utc>| (*at - doubt.shows).abs() <= BOUND;
    let same = dates.iter().filter(|at| shows_same(at)).count();
    let stands = doubt.stands_for >= STANDS;
    let by_others = server.as_ref().is_some_and(shows_same) || same >= PROVIDERS;
    if !doubt.was_stopped {
        return stands && by_others;
    }
    // Of one that shows the same and one that does not, neither decides.
    let contradicted = same < dates.len();
    by_others || !contradicted && (same > 0 || stands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_clocks_show_decides_whether_a_clock_is_right() {
        let shows = DateTime::from_timestamp(1_790_000_000, 0).expect("a moment");
        let doubt = |was_stopped, minutes| Doubt {
            shows,
            believed: shows - TimeDelta::days(3),
            stands_for: TimeDelta::minutes(minutes),
            was_stopped,
        };
        let (jump, stop) = (
            |minutes| doubt(false, minutes),
            |minutes| doubt(true, minutes),
        );
        let (same, other) = (shows + BOUND, shows - TimeDelta::days(3));
        type Case<'a> = (Doubt, Option<DateTime<Utc>>, &'a [DateTime<Utc>], bool);
        let cases: [Case<'_>; 14] = [
            (jump(9), Some(same), &[same, same], false),
            (jump(10), None, &[], false),
            (jump(10), None, &[same], false),
            (jump(10), None, &[same, same], true),
            (jump(10), Some(same), &[other], true),
            (jump(10), Some(other), &[other], false),
            (stop(0), None, &[], false),
            (stop(0), None, &[same], true),
            (stop(0), None, &[other], false),
            (stop(0), None, &[same, other], false),
            (stop(0), None, &[same, same, other], true),
            (stop(0), Some(same), &[], true),
            (stop(10), None, &[], true),
            (stop(10), None, &[other], false),
        ];
        for (doubt, server, dates, right) in cases {
            assert_eq!(
                is_right(&doubt, server, dates),
                right,
                "{doubt:?} {server:?} {dates:?}"
            );
        }
    }
}
