//! Replacing the lease of a node in use because the node failed: by its tenant's report, or by a re-check.
//! Both count together, so that a tenant gets only so many replacements.

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{LeaseId, ReservationId};
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, PaginatorTrait, QueryFilter};

use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{node_rechecks, node_reports};
use crate::node_reports::{Follows, REPAIRS, WITHIN_HOURS};

/// The consequence of a failed node of a lease in its tenant's hands, within the transaction that stores the
/// evidence; the reservation is locked.
pub(crate) async fn of_failed_node(
    tx: &DatabaseTransaction,
    (reservation, gang): (ReservationId, bool),
    lease: LeaseId,
    now: DateTime<Utc>,
) -> Result<Follows, StoreError> {
    if gang {
        return Ok(Follows::Gang);
    }
    let of_lease = reports_that_repair()
        .filter(node_reports::Column::LeaseId.eq(Text(lease)))
        .count(tx)
        .await?
        + rechecks_that_repair()
            .filter(node_rechecks::Column::LeaseId.eq(Text(lease)))
            .count(tx)
            .await?;
    if of_lease > 0 {
        return Ok(Follows::Already);
    }
    let since = Moment::from(now - TimeDelta::hours(WITHIN_HOURS));
    let lately = reports_that_repair()
        .filter(node_reports::Column::ReservationId.eq(Text(reservation)))
        .filter(node_reports::Column::ReportedAt.gt(since))
        .count(tx)
        .await?
        + rechecks_that_repair()
            .filter(node_rechecks::Column::ReservationId.eq(Text(reservation)))
            .filter(node_rechecks::Column::CheckedAt.gt(since))
            .count(tx)
            .await?;
    Ok(match lately >= REPAIRS as u64 {
        true => Follows::TooOften,
        false => Follows::Repair,
    })
}

fn reports_that_repair() -> sea_orm::Select<node_reports::Entity> {
    node_reports::Entity::find().filter(node_reports::Column::Follows.eq(Word(Follows::Repair)))
}

fn rechecks_that_repair() -> sea_orm::Select<node_rechecks::Entity> {
    node_rechecks::Entity::find().filter(node_rechecks::Column::Follows.eq(Word(Follows::Repair)))
}
