//! Reservations past their end are ended without the rest of the work: beside the service, or in its place.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use market::ids::ReservationId;
use store::StoreError;
use store::work::ClaimToken;

use super::{BATCH, CLAIM_SECONDS, round};
use crate::platform::app::Broker;

/// What was done for reservations past their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EndsReport {
    /// How many reservations were worked on.
    pub worked_on: usize,
    /// How many of them are not closed yet: their providers have still to end a machine.
    pub open: usize,
    /// The open ones whose last round met an error.
    pub in_trouble: Vec<ReservationId>,
}

/// Works once on every due reservation that is past the end of its window or being ended, and on nothing else.
/// Nothing is ordered: what is past its end is released, charged up to it and closed, as the service does. It may
/// run beside the service or in its place; what another worker has claimed is left to it.
///
/// Errors: the database's. An error of one reservation is logged and reported.
pub async fn work_on_ends(broker: &Broker) -> Result<EndsReport, StoreError> {
    let mut ids = BTreeSet::new();
    loop {
        let (now, token) = (broker.now(), ClaimToken(broker.new_uuid()));
        let work = broker.store().work();
        let due = work.claim_ending(token, now, CLAIM_SECONDS, BATCH).await?;
        let before = ids.len();
        ids.extend(due.iter().map(|claimed| claimed.reservation.id));
        join_all(due.into_iter().map(|claimed| round(broker, claimed, now))).await;
        // One that is due again waits for its provider: the next call goes on with it.
        if ids.len() == before {
            break;
        }
    }
    let mut report = EndsReport {
        worked_on: ids.len(),
        ..EndsReport::default()
    };
    for id in ids {
        let all = broker.store().reservations().across_tenants();
        let Some(open) = all.find(id).await?.filter(|row| !row.state.is_closed()) else {
            continue;
        };
        report.open += 1;
        if open.last_error.is_some() {
            report.in_trouble.push(id);
        }
    }
    Ok(report)
}
