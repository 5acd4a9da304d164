//! The events of steps of reservations and leases.

use market::event::EventType;
use market::reservation::ReservationState;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, QueryFilter};
use serde_json::json;

use super::NewEvent;
use crate::change::{LeaseUpdate, NewLease};
use crate::entity::column::{Moment, Text};
use crate::entity::{leases, reservations};
use crate::{StoreError, charges};

/// A reservation entered the state of its row, from `previous`.
pub(crate) async fn reservation_moved(
    tx: &DatabaseTransaction,
    row: &reservations::Model,
    previous: Option<ReservationState>,
) -> Result<NewEvent, StoreError> {
    let state = row.state()?;
    let mut event = reservation_said(row, EventType::of_reservation(state));
    event.data["previous_state"] = json!(previous.map(ReservationState::as_str));
    if state.is_closed() {
        event.data["charged_usd"] = json!(charges::total_of(tx, row.id.0).await?);
    }
    Ok(event)
}

/// Another event of a reservation.
pub(crate) fn reservation_said(row: &reservations::Model, kind: EventType) -> NewEvent {
    let nodes: u64 = row.lines.0.iter().map(|line| u64::from(line.nodes)).sum();
    NewEvent {
        kind,
        reservation_id: Some(row.id.0),
        data: json!({
            "project_id": row.project_id.0,
            "name": row.name,
            "state": row.state,
            "reason": row.reason.as_ref().map(|why| why.0.as_str()),
            "nodes": nodes,
            "starts_at": row.starts_at.map(Moment::at),
            "window_end": row.window_end.map(Moment::at),
            "stopped_by": row.stopped_by.as_ref().map(|budget| budget.0),
        }),
    }
}

/// Leases took steps, which are already written; leases in the same state make no event.
pub(crate) async fn lease_moves(
    tx: &DatabaseTransaction,
    updates: &[LeaseUpdate],
) -> Result<Vec<NewEvent>, StoreError> {
    let moved: Vec<_> = updates.iter().filter(|step| step.from != step.to).collect();
    if moved.is_empty() {
        return Ok(Vec::new());
    }
    let ids = moved.iter().map(|step| Text(step.id));
    let rows = leases::Entity::find()
        .filter(leases::Column::Id.is_in(ids))
        .all(tx)
        .await?;
    let of_step = |step: &&LeaseUpdate| {
        let row = rows.iter().find(|row| row.id.0 == step.id)?;
        let fall = step.facts.fall_reason;
        let data = json!({
            "lease_id": step.id,
            "provider": row.provider_id.0,
            "nodes": row.nodes,
            "state": step.to,
            "previous_state": step.from,
            "reason": fall,
        });
        Some(NewEvent {
            kind: EventType::of_lease(step.to, fall),
            reservation_id: Some(row.reservation_id.0),
            data,
        })
    };
    Ok(moved.iter().filter_map(of_step).collect())
}

/// Accepted leases that are still needed are missing from now on, or listed again; called before the change is
/// written.
pub(crate) async fn lease_sightings(
    tx: &DatabaseTransaction,
    updates: &[LeaseUpdate],
) -> Result<Vec<NewEvent>, StoreError> {
    let is_seen_to = |update: &&LeaseUpdate| update.facts.missing.is_some();
    let mut said = Vec::new();
    for update in updates.iter().filter(is_seen_to) {
        let missing = update.facts.missing.flatten();
        let row = leases::Entity::find_by_id(Text(update.id)).one(tx).await?;
        let changes = |row: &leases::Model| row.missing_since.is_some() != missing.is_some();
        let Some(row) = row.filter(|row| row.state.0.is_accepted() && changes(row)) else {
            continue;
        };
        said.push(NewEvent {
            kind: match missing {
                Some(_) => EventType::LeaseMissing,
                None => EventType::LeaseShown,
            },
            reservation_id: Some(row.reservation_id.0),
            data: json!({
                "lease_id": update.id,
                "provider": row.provider_id.0,
                "nodes": row.nodes,
                "state": row.state.0,
                "missing_since": missing.map(|missing| missing.since),
            }),
        });
    }
    Ok(said)
}

/// Leases were saved, and their orders are about to be sent.
pub(crate) fn leases_requested(row: &reservations::Model, new: &[NewLease]) -> Vec<NewEvent> {
    let of_lease = |lease: &NewLease| NewEvent {
        kind: EventType::LeaseRequested,
        reservation_id: Some(row.id.0),
        data: json!({
            "lease_id": lease.id,
            "provider": lease.offer.provider,
            "nodes": lease.nodes,
            "state": "requested",
            "replaces": lease.replaces,
        }),
    };
    new.iter().map(of_lease).collect()
}
