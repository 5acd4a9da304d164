//! Whether the machine's clock is right after all: asked of other clocks, at the start and while it is
//! doubted.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use store::{Store, StoreError};

use crate::app::Broker;
use crate::background::{Stop, pause};
use crate::clock::{BOUND, Clock, Doubt};

/// How long a jump stands before other clocks are asked about it.
const STANDS: TimeDelta = TimeDelta::minutes(10);
/// How often a clock that is doubted is looked at.
const LOOK: Duration = Duration::from_secs(30);
/// How many providers must show the same.
const PROVIDERS: usize = 2;

/// Sets the clock by what the database says, before anything is done by it: by the clock of its server,
/// where that is another machine, else by the newest reading in it.
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
