//! How much reservations use of commitments: nodes at a time, and node-hours in all.
//!
//! A covered line sets its nodes aside from the hold until the end of the quoted coverage. When its
//! reservation closes earlier, the rest is returned; where nothing was ever handed off, all of it is.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::capacity::{Commitment, OpenCommitment};
use market::ids::{CommitmentId, ReservationId, TenantId};
use market::quote::QuoteLine;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QuerySelect,
};

use crate::entity::column::{Moment, Text};
use crate::entity::coverages::{Column, Entity, Model};
use crate::entity::{commitments, reservations};
use crate::{Conflict, StoreError};

/// How much reservations use of a commitment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Used {
    /// Nodes that are set aside now.
    nodes: u32,
    /// Node-seconds that were used or are set aside.
    node_seconds: i64,
}

impl Used {
    /// The commitment with its remainder.
    pub(crate) fn leaves(self, commitment: Commitment) -> OpenCommitment {
        let bought = commitment.node_hours.map(|hours| i64::from(hours) * 3_600);
        OpenCommitment {
            nodes_left: commitment.nodes.saturating_sub(self.nodes),
            node_seconds_left: bought.map(|bought| (bought - self.node_seconds).max(0)),
            commitment,
        }
    }
}

/// How much of each of these commitments is used at `now`.
pub(crate) async fn used<C: ConnectionTrait>(
    db: &C,
    ids: impl Iterator<Item = Text<CommitmentId>>,
    now: DateTime<Utc>,
) -> Result<HashMap<CommitmentId, Used>, StoreError> {
    let mut all: HashMap<CommitmentId, Used> = HashMap::new();
    let rows = Entity::find()
        .filter(Column::CommitmentId.is_in(ids))
        .all(db)
        .await?;
    for row in rows {
        let nodes = u32::try_from(row.nodes).map_err(StoreError::corrupt)?;
        let used = all.entry(row.commitment_id.0).or_default();
        if row.live && row.until_at.at() > now {
            used.nodes = used.nodes.saturating_add(nodes);
        }
        let seconds = (row.until_at.at() - row.from_at.at()).num_seconds();
        let node_seconds = seconds.saturating_mul(i64::from(nodes));
        used.node_seconds = used.node_seconds.saturating_add(node_seconds);
    }
    Ok(all)
}

/// Sets aside the part of their commitments that the covered lines of a reservation use, within the
/// transaction that places its hold.
///
/// Errors: [`Conflict::CommitmentUsed`] where less is left than quoted, or it was withdrawn.
pub(crate) async fn take(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    reservation: ReservationId,
    lines: &[QuoteLine],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut covered: Vec<_> = lines
        .iter()
        .filter_map(|line| line.covered.map(|covered| (line, covered)))
        .collect();
    // In the order of ids, so that two reservations never wait for each other in a circle.
    covered.sort_by_key(|(line, covered)| (covered.commitment_id, line.line));
    for (line, covered) in covered {
        let id = covered.commitment_id;
        let refused = || StoreError::from(Conflict::CommitmentUsed { commitment: id });
        let row = commitments::Entity::find_by_id(Text(id))
            .filter(commitments::Column::TenantId.eq(Text(tenant)))
            .filter(commitments::Column::WithdrawnAt.is_null())
            .lock_exclusive()
            .one(tx)
            .await?
            .ok_or_else(refused)?;
        let commitment = Commitment::try_from(row)?;
        let used = used(tx, std::iter::once(Text(id)), now).await?;
        let open = used
            .get(&id)
            .copied()
            .unwrap_or_default()
            .leaves(commitment);
        let left = open.covers(line.nodes, now);
        if left.is_none_or(|until| until < covered.until) {
            return Err(refused());
        }
        let row = Model {
            reservation_id: Text(reservation),
            line: i32::try_from(line.line).map_err(StoreError::corrupt)?,
            commitment_id: Text(id),
            nodes: i32::try_from(line.nodes).map_err(StoreError::corrupt)?,
            from_at: now.into(),
            until_at: covered.until.into(),
            live: true,
        };
        Entity::insert(row.into_active_model())
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}

/// Returns the unused part of a reservation that closes.
pub(crate) async fn give_back(
    tx: &DatabaseTransaction,
    row: &reservations::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let of_it = Entity::find()
        .filter(Column::ReservationId.eq(row.id.clone()))
        .filter(Column::Live.eq(true))
        .all(tx)
        .await?;
    for coverage in of_it {
        // Nothing is charged before a hand-off, so nothing was used either.
        let used_until = match row.active_at {
            Some(_) => Moment::from(now).min(coverage.until_at),
            None => coverage.from_at,
        };
        Entity::update_many()
            .col_expr(Column::Live, Expr::value(false))
            .col_expr(Column::UntilAt, Expr::value(used_until))
            .filter(Column::ReservationId.eq(coverage.reservation_id))
            .filter(Column::Line.eq(coverage.line))
            .exec(tx)
            .await?;
    }
    Ok(())
}
