//! Checks the machine's clock against other clocks, at startup and while it is doubted.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures_util::future::join_all;
use store::{Store, StoreError};
use tracing::error;

use crate::platform::app::Broker;
use crate::platform::clock::{BOUND, Clock, Doubt};
use crate::platform::stop::{Stop, pause};

/// How long a jump lasts before other clocks are asked about it.
const STANDS: TimeDelta = TimeDelta::minutes(10);
/// How often a doubted clock is checked.
const LOOK: Duration = Duration::from_secs(30);
/// How many providers must show the same.
const PROVIDERS: usize = 2;

/// How long the broker may have been stopped before providers are asked for the time: a restart takes
/// minutes, and in a longer pause the clock may have been set wrong.
const LONG_STOP: TimeDelta = TimeDelta::hours(1);
/// How long a provider may take to answer then.
const PATIENCE: Duration = Duration::from_secs(10);

/// Sets the clock from the database, before anything else uses it: from the clock of its server, where that
/// is another machine, else from the newest reading in it.
///
/// Returns whether the broker was stopped for so long that other clocks should be asked.
/// Errors: [`StoreError`].
pub(crate) async fn begin(clock: &dyn Clock, store: &Store) -> Result<bool, StoreError> {
    if let Some(server) = store.server_time().await? {
        if (server - clock.now()).abs() > BOUND {
            clock.begin_at(server);
        }
        return Ok(false);
    }
    let Some(newest) = store.catalog().newest_reading().await? else {
        return Ok(false);
    };
    clock.begin_after(newest);
    Ok(clock.can_be_contradicted() && clock.now() - newest > LONG_STOP)
}

/// Asks every provider for the time, after a long stop and before any task uses the clock: nothing must be
/// charged for hours that a wrong clock added. A time on which two providers agree counts more than this
/// machine's, unless as many confirm it.
pub(crate) async fn ask_providers(broker: &Broker) {
    let now = broker.now();
    let links = broker.providers();
    let asked = links.iter().map(|link| async move {
        // Any answer shows the time; the tasks read the catalogue again.
        let read = link.adapter.read_catalog(&link.http, now);
        let _ = tokio::time::timeout(PATIENCE, read).await;
        link.http.shown_time()
    });
    let dates: Vec<_> = join_all(asked).await.into_iter().flatten().collect();
    let now = broker.now();
    if let Some(other) = outvoted(now, &dates) {
        let off_by = (now - other).num_seconds();
        error!(
            off_by_seconds = off_by,
            "The machine's clock is off by {off_by} s from those of the providers; the broker uses theirs. Set the clock right, or start with --trust-clock if it is right"
        );
        broker.clock().begin_at(other);
    }
}

/// The time on which more clocks agree than on `now`, and two at least; none where there is no such time.
fn outvoted(now: DateTime<Utc>, dates: &[DateTime<Utc>]) -> Option<DateTime<Utc>> {
    let agree = |at: &DateTime<Utc>| {
        let same = dates.iter().filter(|date| (**date - *at).abs() <= BOUND);
        same.count()
    };
    let most = dates.iter().max_by_key(|date| agree(date))?;
    let is_other = (*most - now).abs() > BOUND;
    (is_other && agree(most) >= PROVIDERS && agree(most) > agree(&now)).then_some(*most)
}

/// Accepts a jump that stands and that the database's server, or two providers, confirm.
pub(crate) async fn keep_checking(broker: Broker, stop: Stop) {
    while pause(&stop, LOOK).await {
        if let Some(doubt) = broker.clock().doubt()
            && doubt.stands_for >= STANDS
            && is_confirmed(&broker, &doubt).await
        {
            broker.clock().accept(&doubt);
        }
    }
}

async fn is_confirmed(broker: &Broker, doubt: &Doubt) -> bool {
    let shows_same = |at: DateTime<Utc>| (at - doubt.shows).abs() <= BOUND;
    let server = broker.store().server_time().await.ok().flatten();
    let links = broker.providers();
    let dates = links.iter().filter_map(|link| link.http.shown_time());
    server.is_some_and(shows_same) || dates.filter(|at| shows_same(*at)).count() >= PROVIDERS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_providers_outvote_a_clock_that_no_other_confirms() {
        let now = DateTime::from_timestamp(1_790_000_000, 0).expect("a moment");
        let (same, other) = (now + BOUND, now - TimeDelta::days(3));
        let third = now - TimeDelta::days(9);
        type Case<'a> = (&'a [DateTime<Utc>], Option<DateTime<Utc>>);
        let cases: [Case<'_>; 9] = [
            (&[], None),
            (&[other], None),
            (&[other, third], None),
            (&[other, other], Some(other)),
            (&[other, third, other], Some(other)),
            (&[other, other, same], Some(other)),
            (&[other, other, same, same], None),
            (&[same, same, other, other], None),
            (&[same, same], None),
        ];
        for (dates, expected) in cases {
            assert_eq!(outvoted(now, dates), expected, "{dates:?}");
        }
    }
}
