//! Tenants' reports on nodes that they have in use, and their consequences: appended, never changed.
//!
//! A report is its tenant's claim. It can only lead to the replacement of a lease of the tenant's own, and
//! only so often; the evidence against a provider is measured elsewhere.

use chrono::{DateTime, TimeDelta, Utc};
use market::attestation::{FindingCode, Verdict};
use market::event::EventType;
use market::ids::{LeaseId, NodeReportId, PrincipalId, ReservationId, TenantId};
use market::lease::LeaseState;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::leases;
use crate::entity::node_reports::{Column, Entity, Model};
use crate::events::{self, NewEvent};
use crate::idempotency::{self, Completion};
use crate::repairs;
use crate::reservations::{self, lock_of_tenant};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{Conflict, StoreError};

/// The period in which reports count. Units: hours.
pub(crate) const WITHIN_HOURS: i64 = 24;
/// How many reports on nodes of one reservation are accepted within that period.
pub const REPORTS: u64 = 20;
/// How many leases of one reservation are replaced on reports and re-checks within that period.
pub const REPAIRS: usize = 3;

/// The consequence of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Follows {
    /// The lease of the node is given up and replaced.
    Repair,
    /// Nothing: it shows no failure.
    NothingFailed,
    /// Nothing: the nodes of a gang in use are not replaced one by one.
    Gang,
    /// Nothing more: the lease is already being replaced.
    Already,
    /// Nothing: the most leases allowed for the reservation were recently replaced for this reason.
    TooOften,
}

impl Follows {
    /// Every consequence.
    pub const ALL: [Self; 5] = [
        Self::Repair,
        Self::NothingFailed,
        Self::Gang,
        Self::Already,
        Self::TooOften,
    ];
}

/// A report.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeReport {
    /// Its id.
    pub id: NodeReportId,
    /// The tenant that has the node.
    pub tenant_id: TenantId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The lease that the node belonged to.
    pub lease_id: LeaseId,
    /// The node's number within the reservation, from 0.
    pub node: u32,
    /// The principal that reported it.
    pub reported_by: PrincipalId,
    /// What is wrong, in the tenant's words.
    pub reason: Option<String>,
    /// The verdict of the result that came with it.
    pub verdict: Option<Verdict>,
    /// The checks that failed by that result.
    pub failed: Vec<FindingCode>,
    /// The ids of GPUs that were handed over and that are missing from the result.
    pub missing: Vec<String>,
    /// The ids of GPUs that are in the result beside some that were handed over, but were not handed over.
    pub foreign: Vec<String>,
    /// The result, as it arrived.
    pub result: Option<Value>,
    /// Its consequence.
    pub follows: Follows,
    /// When it arrived.
    pub reported_at: DateTime<Utc>,
}

/// A report to store.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNodeReport {
    /// Its id.
    pub id: NodeReportId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The lease that the node belongs to.
    pub lease_id: LeaseId,
    /// The node's number within the reservation, from 0.
    pub node: u32,
    /// The principal that reports it.
    pub reported_by: PrincipalId,
    /// What is wrong, in the tenant's words.
    pub reason: Option<String>,
    /// The verdict of the result that comes with it.
    pub verdict: Option<Verdict>,
    /// The checks that failed by that result.
    pub failed: Vec<FindingCode>,
    /// The ids of GPUs that were handed over and that are missing from the result.
    pub missing: Vec<String>,
    /// The ids of GPUs that are in the result beside some that were handed over, but were not handed over.
    pub foreign: Vec<String>,
    /// The result, as it arrived.
    pub result: Option<Value>,
}

impl NewNodeReport {
    /// Whether it is evidence of a failure.
    #[must_use]
    pub fn shows_failure(&self) -> bool {
        let changed = !self.missing.is_empty() || !self.foreign.is_empty();
        self.verdict == Some(Verdict::Fail) || changed
    }

    fn row(
        &self,
        tenant: TenantId,
        follows: Follows,
        now: DateTime<Utc>,
    ) -> Result<Model, StoreError> {
        Ok(Model {
            id: Text(self.id),
            tenant_id: Text(tenant),
            reservation_id: Text(self.reservation_id),
            lease_id: Text(self.lease_id),
            node: i32::try_from(self.node).map_err(StoreError::corrupt)?,
            reported_by: Text(self.reported_by),
            reason: self.reason.clone(),
            verdict: self.verdict.map(Word),
            failed: Json(self.failed.clone()),
            missing: Json(self.missing.clone()),
            foreign_gpus: Some(Json(self.foreign.clone())),
            result: self.result.clone().map(Json),
            follows: Word(follows),
            reported_at: now.into(),
        })
    }
}

impl TryFrom<Model> for NodeReport {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            reservation_id: row.reservation_id.0,
            lease_id: row.lease_id.0,
            node: u32::try_from(row.node).map_err(StoreError::corrupt)?,
            reported_by: row.reported_by.0,
            reason: row.reason,
            verdict: row.verdict.map(|verdict| verdict.0),
            failed: row.failed.0,
            missing: row.missing.0,
            foreign: row.foreign_gpus.map(|gpus| gpus.0).unwrap_or_default(),
            result: row.result.map(|result| result.0),
            follows: row.follows.0,
            reported_at: row.reported_at.at(),
        })
    }
}

tenant_scoped!(
    NodeReports,
    node_reports,
    TenantNodeReports,
    AllNodeReports,
    "reports on nodes in use"
);

impl TenantNodeReports<'_> {
    /// Stores a report on a node of the tenant's, sends its event, and decides its consequence: where its
    /// lease is to be replaced, the reservation is due at once.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when the lease is no longer in the
    /// tenant's hands, or `completion` was taken over; [`Conflict::TooManyReports`].
    pub async fn add(
        &self,
        new: &NewNodeReport,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, NodeReport>>,
    ) -> Result<NodeReport, StoreError> {
        transaction!(self.store, |tx| {
            // Locked, so that of two simultaneous reports one counts the other.
            let reservation = lock_of_tenant(tx, self.tenant, new.reservation_id).await?;
            let lease = leases::Entity::find_by_id(Text(new.lease_id))
                .filter(leases::Column::ReservationId.eq(Text(new.reservation_id)))
                .filter(leases::Column::State.eq(Word(LeaseState::HandedOff)))
                .one(tx)
                .await?
                .ok_or(StoreError::Stale)?;
            let follows = settle(tx, new, reservation.gang, now).await?;
            let row = new.row(self.tenant, follows, now)?;
            Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            if follows == Follows::Repair {
                reservations::nudge(tx, new.reservation_id, now).await?;
            }
            let report = NodeReport::try_from(row)?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &report).await?;
            let told = told(&report, &lease);
            events::append(tx, self.tenant, &[told], now).await?;
            Ok(report)
        })
    }

    /// The reports on one node of the tenant's reservation, through any of its leases, the newest first: at
    /// most `limit`, older than `after`.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_node(
        &self,
        reservation: ReservationId,
        node: u32,
        after: Option<NodeReportId>,
        limit: u64,
    ) -> Result<Vec<NodeReport>, StoreError> {
        let node = i32::try_from(node).map_err(StoreError::corrupt)?;
        let wanted = Condition::all()
            .add(Column::TenantId.eq(Text(self.tenant)))
            .add(Column::ReservationId.eq(Text(reservation)))
            .add(Column::Node.eq(node))
            .add_option(after.map(|after| Column::Id.lt(Text(after))));
        find(&self.store.read, wanted, Some(limit)).await
    }
}

impl AllNodeReports<'_> {
    /// The report that causes the replacement of a lease, of any tenant.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn repairing(&self, lease: LeaseId) -> Result<Option<NodeReport>, StoreError> {
        let wanted = Condition::all()
            .add(Column::LeaseId.eq(Text(lease)))
            .add(Column::Follows.eq(Word(Follows::Repair)));
        Ok(find(&self.store.read, wanted, Some(1)).await?.pop())
    }
}

/// The consequence of a report on a lease in its tenant's hands.
async fn settle(
    tx: &DatabaseTransaction,
    new: &NewNodeReport,
    gang: bool,
    now: DateTime<Utc>,
) -> Result<Follows, StoreError> {
    let window = TimeDelta::hours(WITHIN_HOURS);
    let wanted = Condition::all()
        .add(Column::ReservationId.eq(Text(new.reservation_id)))
        .add(Column::ReportedAt.gt(Moment::from(now - window)));
    let lately = find(tx, wanted, None).await?;
    if lately.len() as u64 >= REPORTS {
        let again_at = lately
            .last()
            .map_or(now, |oldest| oldest.reported_at + window);
        return Err(Conflict::TooManyReports {
            most: REPORTS,
            hours: WITHIN_HOURS,
            again_in_seconds: u64::try_from((again_at - now).num_seconds())
                .unwrap_or(0)
                .max(1),
        }
        .into());
    }
    if !new.shows_failure() {
        return Ok(Follows::NothingFailed);
    }
    let reservation = (new.reservation_id, gang);
    repairs::of_failed_node(tx, reservation, new.lease_id, now).await
}

fn told(report: &NodeReport, lease: &leases::Model) -> NewEvent {
    NewEvent {
        kind: EventType::NodeReported,
        reservation_id: Some(report.reservation_id),
        data: json!({
            "report_id": report.id,
            "lease_id": report.lease_id,
            "provider": lease.provider_id.0,
            "node": report.node,
            "verdict": report.verdict,
            "failed": report.failed,
            "missing_gpus": report.missing.len(),
            "foreign_gpus": report.foreign.len(),
            "follows": report.follows,
        }),
    }
}

async fn find<C: ConnectionTrait>(
    db: &C,
    wanted: Condition,
    limit: Option<u64>,
) -> Result<Vec<NodeReport>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_desc(Column::Id)
        .limit(limit)
        .all(db)
        .await?;
    rows.into_iter().map(NodeReport::try_from).collect()
}
