//! Re-checks of nodes in use: who may run them, and the result of each, appended and never changed. Re-checks
//! that passed are deleted in time (`retention`).
//!
//! A re-check is a verification of one node that stays open as long as its lease is in use: one token serves
//! many conversations, one after the other. Verifications before a hand-off differ (`verifications`).

use chrono::{DateTime, TimeDelta, Utc};
use market::attestation::{FindingCode, Verdict};
use market::event::EventType;
use market::ids::{AttestationId, LeaseId, ReservationId, TenantId, VerificationId};
use market::lease::LeaseState;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    ModelTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait,
};
use serde_json::json;

use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::node_rechecks::{Column, Entity, Model};
use crate::entity::{interrupted_sessions, leases, let_go_rechecks, node_sessions, verifications};
use crate::events::{self, NewEvent};
use crate::idempotency::{self, Completion};
use crate::node_reports::Follows;
use crate::repairs;
use crate::reservations::{self, lock_of_tenant};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::verifications::{NewAttestation, VerificationState};
use crate::{Conflict, StoreError};

/// The least time between the starts of two conversations with a node in use. Units: minutes.
pub const EVERY_MINUTES: i64 = 10;

/// Permission to re-check a node in use, by a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPermit {
    /// The verification of the token.
    pub id: VerificationId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The lease that the node belongs to.
    pub lease_id: LeaseId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The hash of the token, at most 64 characters.
    pub token_hash: String,
    /// Until when the token is valid, if the lease lasts that long.
    pub until: DateTime<Utc>,
}

/// The stored part of a re-check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRecheck {
    /// The node's number within the reservation, from 0.
    pub node: u32,
    /// The checks that failed.
    pub failed: Vec<FindingCode>,
    /// Whether it shows other GPUs than were handed over.
    pub pinned_set_changed: bool,
}

/// The result of a re-check of a node in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recheck {
    /// The signed result.
    pub attestation_id: AttestationId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The node's number within the reservation, from 0.
    pub node: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// The checks that failed.
    pub failed: Vec<FindingCode>,
    /// Whether it showed other GPUs than were handed over.
    pub pinned_set_changed: bool,
    /// Its consequence.
    pub follows: Follows,
    /// The time.
    pub checked_at: DateTime<Utc>,
}

impl TryFrom<Model> for Recheck {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            attestation_id: row.attestation_id.0,
            reservation_id: row.reservation_id.0,
            lease_id: row.lease_id.0,
            node_index: u32::try_from(row.node_index).map_err(StoreError::corrupt)?,
            node: u32::try_from(row.node).map_err(StoreError::corrupt)?,
            verdict: row.verdict.0,
            failed: row.failed.0,
            pinned_set_changed: row.pinned_set_changed,
            follows: row.follows.0,
            checked_at: row.checked_at.at(),
        })
    }
}

/// A re-check of a node in use that passed, and whose document was deleted in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LetGo {
    /// The lease.
    pub lease_id: LeaseId,
    /// The verdict.
    pub verdict: Verdict,
    /// When it ran.
    pub checked_at: DateTime<Utc>,
    /// When it was deleted.
    pub let_go_at: DateTime<Utc>,
}

tenant_scoped!(
    Rechecks,
    rechecks,
    TenantRechecks,
    AllRechecks,
    "re-checks of nodes in use"
);

impl TenantRechecks<'_> {
    /// Lets a node of the tenant's be re-checked by a token; the one before becomes invalid.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when the lease is not in the tenant's
    /// hands.
    pub async fn permit(
        &self,
        new: &NewPermit,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, NewPermit>>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            lock_of_tenant(tx, self.tenant, new.reservation_id).await?;
            let lease = leases::Entity::find_by_id(Text(new.lease_id))
                .filter(leases::Column::ReservationId.eq(Text(new.reservation_id)))
                .filter(leases::Column::State.eq(Word(LeaseState::HandedOff)))
                .one(tx)
                .await?
                .ok_or(StoreError::Stale)?;
            let node = i32::try_from(new.node_index).map_err(StoreError::corrupt)?;
            end(tx, new.lease_id, node, now).await?;
            let row = verifications::Model {
                id: Text(new.id),
                lease_id: Text(new.lease_id),
                reservation_id: Text(new.reservation_id),
                tenant_id: Text(self.tenant),
                enrol_hash: new.token_hash.clone(),
                nodes: lease.nodes,
                state: Word(VerificationState::Open),
                created_at: now.into(),
                deadline: new.until.into(),
                closed_at: None,
                sealed_push: None,
                recheck_node: Some(node),
            };
            verifications::Entity::insert(row.into_active_model())
                .exec_without_returning(tx)
                .await?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), new).await
        })
    }

    /// Revokes the token of a node of the tenant's.
    ///
    /// Errors: [`StoreError::NotFound`] where there is no such reservation, or no valid token.
    pub async fn revoke(
        &self,
        reservation: ReservationId,
        (lease, node_index): (LeaseId, u32),
        now: DateTime<Utc>,
        completion: Option<Completion<'_, ()>>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| {
            lock_of_tenant(tx, self.tenant, reservation).await?;
            let node = i32::try_from(node_index).map_err(StoreError::corrupt)?;
            if end(tx, lease, node, now).await? == 0 {
                let what = "token for re-checks of this node";
                return Err(StoreError::NotFound { what });
            }
            idempotency::complete(tx, self.tenant, completion.as_ref(), &()).await
        })
    }

    /// The last re-check of each node of a lease of the tenant's that has one.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn last_of_lease(&self, lease: LeaseId) -> Result<Vec<Recheck>, StoreError> {
        let of_lease = Condition::all()
            .add(Column::TenantId.eq(Text(self.tenant)))
            .add(Column::LeaseId.eq(Text(lease)));
        // Ids of results grow in the order of their creation.
        let last = Entity::find()
            .select_only()
            .expr(Column::AttestationId.max())
            .filter(of_lease)
            .group_by(Column::NodeIndex)
            .into_query();
        let wanted = Condition::all().add(Column::AttestationId.in_subquery(last));
        find(&self.store.read, wanted).await
    }
}

impl TenantRechecks<'_> {
    /// The short row that stays of a deleted re-check of a node of the tenant's.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn let_go(&self, id: AttestationId) -> Result<Option<LetGo>, StoreError> {
        let row = let_go_rechecks::Entity::find_by_id(Text(id))
            .filter(let_go_rechecks::Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        Ok(row.map(|row| LetGo {
            lease_id: row.lease_id.0,
            verdict: row.verdict.0,
            checked_at: row.checked_at.at(),
            let_go_at: row.let_go_at.at(),
        }))
    }
}

impl AllRechecks<'_> {
    /// The re-check that causes the replacement of a lease, of any tenant.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn repairing(&self, lease: LeaseId) -> Result<Option<Recheck>, StoreError> {
        let wanted = Condition::all()
            .add(Column::LeaseId.eq(Text(lease)))
            .add(Column::Follows.eq(Word(Follows::Repair)));
        Ok(find(&self.store.read, wanted).await?.pop())
    }
}

async fn find<C: ConnectionTrait>(db: &C, wanted: Condition) -> Result<Vec<Recheck>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_asc(Column::NodeIndex)
        .all(db)
        .await?;
    rows.into_iter().map(Recheck::try_from).collect()
}

/// Ends the permissions to re-check a node; returns how many there were.
async fn end(
    tx: &DatabaseTransaction,
    lease: LeaseId,
    node: i32,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    use verifications::Column;
    let ended = verifications::Entity::update_many()
        .col_expr(
            Column::State,
            Expr::value(Word(VerificationState::Abandoned)),
        )
        .col_expr(Column::ClosedAt, Expr::value(Moment::from(now)))
        .filter(Column::LeaseId.eq(Text(lease)))
        .filter(Column::RecheckNode.eq(node))
        .filter(Column::State.eq(Word(VerificationState::Open)))
        .exec(tx)
        .await?;
    Ok(ended.rows_affected)
}

/// Makes room for another conversation with a node in use, within the transaction that enrols it.
///
/// A token that replaces another one gains no re-check by that, and neither does a conversation that is cut
/// off.
pub(crate) async fn begin_anew(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
    before: Option<&node_sessions::Model>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let every = TimeDelta::minutes(EVERY_MINUTES);
    let last = last_begun(tx, verification).await?;
    if let Some(again_at) = last.map(|last| last + every).filter(|at| now < *at) {
        let seconds = u64::try_from((again_at - now).num_seconds()).unwrap_or(0);
        return Err(Conflict::RecheckedLately {
            again_in_seconds: seconds.max(1),
        }
        .into());
    }
    if let Some(before) = before {
        before.clone().delete(tx).await?;
    }
    Ok(())
}

/// When the last conversation with the node of a re-check began, by any token, cut off or not: a client that
/// controls the node can cut it off by going silent.
async fn last_begun(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
) -> Result<Option<DateTime<Utc>>, StoreError> {
    use verifications::Column;
    let of_node = verifications::Entity::find()
        .select_only()
        .column(Column::Id)
        .filter(Column::LeaseId.eq(verification.lease_id.clone()))
        .filter(Column::RecheckNode.eq(verification.recheck_node))
        .into_query();
    let last = node_sessions::Entity::find()
        .filter(node_sessions::Column::VerificationId.in_subquery(of_node.clone()))
        .order_by_desc(node_sessions::Column::StartedAt)
        .one(tx)
        .await?;
    let cut_off = interrupted_sessions::Entity::find()
        .filter(interrupted_sessions::Column::VerificationId.in_subquery(of_node))
        .order_by_desc(interrupted_sessions::Column::StartedAt)
        .one(tx)
        .await?;
    let last = last.map(|session| session.started_at.at());
    Ok(last.max(cut_off.map(|trace| trace.started_at.at())))
}

/// Stores the result of a re-check, sends its event and decides its consequence, within the transaction of
/// the node's last step, which has locked the reservation.
pub(crate) async fn keep(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
    (node_index, result): (i32, &NewAttestation),
    new: &NewRecheck,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let tenant: TenantId = verification.tenant_id.0;
    let id = verification.reservation_id.0;
    let reservation = lock_of_tenant(tx, tenant, id).await?;
    let lease = leases::Entity::find_by_id(verification.lease_id.clone())
        .filter(leases::Column::State.eq(Word(LeaseState::HandedOff)))
        .one(tx)
        .await?
        .ok_or(Conflict::VerificationClosed)?;
    let follows = match result.verdict {
        Verdict::Fail => {
            repairs::of_failed_node(tx, (id, reservation.gang), lease.id.0, now).await?
        }
        _ => Follows::NothingFailed,
    };
    let row = Model {
        attestation_id: Text(result.id),
        tenant_id: Text(tenant),
        reservation_id: Text(id),
        lease_id: lease.id.clone(),
        node_index,
        node: i32::try_from(new.node).map_err(StoreError::corrupt)?,
        verdict: Word(result.verdict),
        failed: Json(new.failed.clone()),
        pinned_set_changed: new.pinned_set_changed,
        follows: Word(follows),
        checked_at: now.into(),
    };
    Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    if follows == Follows::Repair {
        reservations::nudge(tx, id, now).await?;
    }
    let told = NewEvent {
        kind: EventType::NodeRechecked,
        reservation_id: Some(id),
        data: json!({
            "attestation_id": result.id,
            "lease_id": lease.id.0,
            "provider": lease.provider_id.0,
            "node": new.node,
            "verdict": result.verdict,
            "failed": new.failed,
            "pinned_set_changed": new.pinned_set_changed,
            "follows": follows,
        }),
    };
    events::append(tx, tenant, &[told], now).await?;
    Ok(())
}
