//! Reachability of nodes in the tenants' hands, by the prober's results, and the host keys that nodes showed
//! at first contact.
//!
//! A row has the present state of a node. Changes for its tenant become events in the transaction of the
//! result. One event reports a node that does not answer, once it has been silent for as long as the prober
//! allows, and another one its return.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::ids::{LeaseId, TenantId};
use market::lease::LeaseState;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::entity::column::{Moment, Text, Word};
use crate::entity::leases;
use crate::entity::node_reach::{Column, Entity, Model};
use crate::events::{self, NewEvent};
use crate::scope::tenant_scoped;
use crate::tx::transaction;
use crate::{StoreError, reservations};

/// Why a node could not be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeFailure {
    /// Nothing answers, or not as an SSH server does.
    NoAnswer,
    /// The server at its address has another host key than the node.
    OtherKey,
    /// Its address is not public, so it is not probed at all.
    NotPublic,
}

/// The result of a probe of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// It answers with one of its own keys.
    Reached {
        /// The key, where none was known before: a kind and its key.
        first_contact_key: Option<String>,
    },
    /// It cannot be reached.
    Failed(ProbeFailure),
}

/// The reachability of a node in its tenant's hands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeReach {
    /// The lease.
    pub lease_id: LeaseId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The host key that it showed first, where it had not reported any before.
    pub first_contact_key: Option<String>,
    /// When it was last probed.
    pub probed_at: DateTime<Utc>,
    /// When it last answered with one of its own keys.
    pub last_reachable_at: Option<DateTime<Utc>>,
    /// Since when it has not answered.
    pub unreachable_since: Option<DateTime<Utc>>,
    /// Why the last probe failed.
    pub failure: Option<ProbeFailure>,
    /// Whether an event has reported it unreachable, and none yet its return.
    pub told: bool,
}

impl TryFrom<Model> for NodeReach {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        Ok(Self {
            lease_id: row.lease_id.0,
            node_index: u32::try_from(row.node_index).map_err(StoreError::corrupt)?,
            first_contact_key: row.first_contact_key,
            probed_at: row.probed_at.at(),
            last_reachable_at: row.last_reachable_at.map(Moment::at),
            unreachable_since: row.unreachable_since.map(Moment::at),
            failure: row.failure.map(|failure| failure.0),
            told: row.told,
        })
    }
}

impl NodeReach {
    /// The state before the first probe.
    fn unseen(lease_id: LeaseId, node_index: u32, now: DateTime<Utc>) -> Self {
        Self {
            lease_id,
            node_index,
            first_contact_key: None,
            probed_at: now,
            last_reachable_at: None,
            unreachable_since: None,
            failure: None,
            told: false,
        }
    }

    /// The state after a probe, and the events for its tenant.
    fn after(
        &self,
        probe: &Probe,
        patience: TimeDelta,
        now: DateTime<Utc>,
    ) -> (Self, Vec<EventType>) {
        let mut next = Self {
            probed_at: now,
            ..self.clone()
        };
        let mut told = Vec::new();
        match probe {
            Probe::Reached { first_contact_key } => {
                if next.first_contact_key.is_none() {
                    next.first_contact_key.clone_from(first_contact_key);
                }
                next.last_reachable_at = Some(now);
                next.unreachable_since = None;
                next.failure = None;
                if next.told {
                    next.told = false;
                    told.push(EventType::NodeReachable);
                }
            }
            Probe::Failed(failure) => {
                let since = *next.unreachable_since.get_or_insert(now);
                if *failure == ProbeFailure::OtherKey && self.failure != Some(*failure) {
                    told.push(EventType::NodeHostKeyChanged);
                }
                next.failure = Some(*failure);
                if !next.told && now - since >= patience {
                    next.told = true;
                    told.push(EventType::NodeUnreachable);
                }
            }
        }
        (next, told)
    }

    fn row(&self, tenant: &Text<TenantId>) -> Result<Model, StoreError> {
        Ok(Model {
            lease_id: Text(self.lease_id),
            node_index: i32::try_from(self.node_index).map_err(StoreError::corrupt)?,
            tenant_id: tenant.clone(),
            first_contact_key: self.first_contact_key.clone(),
            probed_at: self.probed_at.into(),
            last_reachable_at: self.last_reachable_at.map(Moment::from),
            unreachable_since: self.unreachable_since.map(Moment::from),
            failure: self.failure.map(Word),
            told: self.told,
        })
    }
}

tenant_scoped!(TenantScope, reach, TenantReach, AllReach, "reach of nodes");

impl TenantReach<'_> {
    /// The reachability of the nodes of the tenant's lease, in order.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_lease(&self, lease: LeaseId) -> Result<Vec<NodeReach>, StoreError> {
        let wanted = of_lease(lease).add(Column::TenantId.eq(Text(self.tenant)));
        find(&self.store.read, wanted).await
    }
}

impl AllReach<'_> {
    /// The reachability of the nodes of a lease, of any tenant, in order.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_lease(&self, lease: LeaseId) -> Result<Vec<NodeReach>, StoreError> {
        find(&self.store.read, of_lease(lease)).await
    }

    /// The host key that this node showed at first contact: the stored one, else `shown`, which is then
    /// stored.
    ///
    /// Shape: a kind and its key.
    /// Errors: [`StoreError::NotFound`] for a lease that does not exist; [`StoreError::Database`],
    /// [`StoreError::Corrupt`].
    pub async fn first_contact(
        &self,
        lease: LeaseId,
        node_index: u32,
        shown: &str,
        now: DateTime<Utc>,
    ) -> Result<String, StoreError> {
        transaction!(self.store, |tx| first_contact(
            tx, lease, node_index, shown, now
        )
        .await)
    }

    /// Stores the result of a probe, and sends its tenant the events; returns their types. A node that has
    /// been silent for `patience` makes its reservation due at once. A lease that is no longer in its
    /// tenant's hands is left alone.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn record(
        &self,
        lease: LeaseId,
        node_index: u32,
        probe: &Probe,
        patience: TimeDelta,
        now: DateTime<Utc>,
    ) -> Result<Vec<EventType>, StoreError> {
        transaction!(self.store, |tx| record(
            tx, lease, node_index, probe, patience, now
        )
        .await)
    }
}

async fn first_contact(
    tx: &DatabaseTransaction,
    lease: LeaseId,
    node_index: u32,
    shown: &str,
    now: DateTime<Utc>,
) -> Result<String, StoreError> {
    // Locked, so that of two simultaneous ones one is first.
    let row = leases::Entity::find_by_id(Text(lease))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "lease" })?;
    let known = find(tx, of_lease(lease)).await?;
    let known = known
        .into_iter()
        .find(|known| known.node_index == node_index);
    if let Some(key) = known.and_then(|known| known.first_contact_key) {
        return Ok(key);
    }
    let node = NodeReach {
        first_contact_key: Some(shown.to_owned()),
        ..NodeReach::unseen(lease, node_index, now)
    };
    Entity::insert(node.row(&row.tenant_id)?.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(shown.to_owned())
}

async fn record(
    tx: &DatabaseTransaction,
    lease: LeaseId,
    node_index: u32,
    probe: &Probe,
    patience: TimeDelta,
    now: DateTime<Utc>,
) -> Result<Vec<EventType>, StoreError> {
    // Locked, so that two probers count a silence once.
    let in_use = leases::Entity::find_by_id(Text(lease))
        .filter(leases::Column::State.eq(Word(LeaseState::HandedOff)))
        .lock_exclusive();
    let Some(row) = in_use.one(tx).await? else {
        return Ok(Vec::new());
    };
    let known = find(tx, of_lease(lease)).await?;
    let known = known
        .into_iter()
        .find(|known| known.node_index == node_index)
        .unwrap_or_else(|| NodeReach::unseen(lease, node_index, now));
    let (next, told) = known.after(probe, patience, now);
    let kept = next.row(&row.tenant_id)?.into_active_model();
    let changing = [
        Column::FirstContactKey,
        Column::ProbedAt,
        Column::LastReachableAt,
        Column::UnreachableSince,
        Column::Failure,
        Column::Told,
    ];
    let mut known_already = OnConflict::columns([Column::LeaseId, Column::NodeIndex]);
    Entity::insert(kept)
        .on_conflict(known_already.update_columns(changing).to_owned())
        .exec_without_returning(tx)
        .await?;
    if told.contains(&EventType::NodeUnreachable) {
        reservations::nudge(tx, row.reservation_id.0, now).await?;
    }
    let said: Vec<_> = told.iter().map(|kind| event(*kind, &row, &next)).collect();
    events::append(tx, row.tenant_id.0, &said, now).await?;
    Ok(told)
}

fn event(kind: EventType, lease: &leases::Model, node: &NodeReach) -> NewEvent {
    let number = i64::from(lease.node_base) + i64::from(node.node_index);
    NewEvent {
        kind,
        reservation_id: Some(lease.reservation_id.0),
        data: json!({
            "lease_id": lease.id.0,
            "provider": lease.provider_id.0,
            "node": number,
            "reason": node.failure,
            "unreachable_since": node.unreachable_since,
            "last_reachable_at": node.last_reachable_at,
        }),
    }
}

fn of_lease(lease: LeaseId) -> Condition {
    Condition::all().add(Column::LeaseId.eq(Text(lease)))
}

async fn find<C: ConnectionTrait>(db: &C, wanted: Condition) -> Result<Vec<NodeReach>, StoreError> {
    let rows = Entity::find()
        .filter(wanted)
        .order_by_asc(Column::NodeIndex)
        .all(db)
        .await?;
    rows.into_iter().map(NodeReach::try_from).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const PATIENCE: TimeDelta = TimeDelta::minutes(10);

    fn at(minute: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::minutes(minute)
    }

    /// Probes a node at these minutes; returns the events of each.
    fn told(looks: &[(i64, Probe)]) -> Vec<(i64, EventType)> {
        let lease = LeaseId::from_uuid(Uuid::from_u128(1));
        let mut node = NodeReach::unseen(lease, 0, at(0));
        let mut all = Vec::new();
        for (minute, probe) in looks {
            let (next, told) = node.after(probe, PATIENCE, at(*minute));
            all.extend(told.into_iter().map(|kind| (*minute, kind)));
            node = next;
        }
        all
    }

    fn reached(key: Option<&str>) -> Probe {
        Probe::Reached {
            first_contact_key: key.map(str::to_owned),
        }
    }

    #[test]
    fn a_silence_is_told_once_when_it_has_lasted_and_so_is_its_end() {
        let silent = Probe::Failed(ProbeFailure::NoAnswer);
        let looks = [
            (0, reached(None)),
            (5, silent.clone()),
            (14, silent.clone()),
            (15, silent.clone()),
            (60, silent.clone()),
            (61, reached(None)),
            (62, reached(None)),
            (63, silent.clone()),
            (72, silent),
        ];
        assert_eq!(
            told(&looks),
            [
                (15, EventType::NodeUnreachable),
                (61, EventType::NodeReachable)
            ]
        );
    }

    #[test]
    fn another_key_is_told_at_once_and_counts_as_silence() {
        let other = Probe::Failed(ProbeFailure::OtherKey);
        let looks = [
            (0, reached(None)),
            (1, other.clone()),
            (2, other.clone()),
            (11, other),
        ];
        assert_eq!(
            told(&looks),
            [
                (1, EventType::NodeHostKeyChanged),
                (11, EventType::NodeUnreachable)
            ]
        );
    }

    #[test]
    fn the_key_of_the_first_contact_stays() {
        let lease = LeaseId::from_uuid(Uuid::from_u128(1));
        let node = NodeReach::unseen(lease, 0, at(0));
        let (node, _) = node.after(&reached(Some("one")), PATIENCE, at(0));
        let (node, _) = node.after(&reached(Some("other")), PATIENCE, at(1));
        assert_eq!(node.first_contact_key.as_deref(), Some("one"));
        assert_eq!(node.last_reachable_at, Some(at(1)));
    }
}
