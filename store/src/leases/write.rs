//! Saves leases and new facts about them, for `work`.

use chrono::{DateTime, Utc};
use market::ids::ReservationId;
use market::lease::LeaseState;
use market::order::ClientToken;
use sea_orm::ActiveValue::{Set, Unchanged};
use sea_orm::sea_query::Expr;
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter};

use crate::StoreError;
use crate::change::{LeaseFacts, LeaseUpdate, NewLease};
use crate::entity::column::{Json, Text, Word};
use crate::entity::leases::{ActiveModel, Column, Entity, Model};
use crate::entity::reservations;

/// Saves a lease in `Requested`, within the transaction that checked its stock.
pub(crate) async fn insert(
    tx: &DatabaseTransaction,
    reservation: &reservations::Model,
    lease: &NewLease,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let whole = |number: u32| i32::try_from(number).map_err(StoreError::corrupt);
    let row = Model {
        id: Text(lease.id),
        reservation_id: reservation.id.clone(),
        tenant_id: reservation.tenant_id.clone(),
        line: whole(lease.line)?,
        provider_id: Text(lease.offer.provider.clone()),
        offer_id: Text(lease.offer.offer_id),
        offer: Json(lease.offer.clone()),
        nodes: whole(lease.nodes)?,
        node_base: whole(lease.node_base)?,
        state: Word(LeaseState::Requested),
        client_token: Text(ClientToken::of(lease.id)),
        provider_lease_id: None,
        provider_nodes: Json(Vec::new()),
        attempts: 0,
        requested_at: now.into(),
        accepted_at: None,
        started_at: None,
        up_at: None,
        verify_deadline: None,
        handed_off_at: None,
        metered_to: None,
        release_accepted_at: None,
        gone_at: None,
        fell_at: None,
        fall_reason: None,
        fall_note: None,
        replaces: lease.replaces.map(Text),
        replaced_by: None,
        given_up: false,
        price_units: None,
        price_currency: None,
        missing_since: None,
        lacked_since: None,
        seen_credential: None,
        returned_at: None,
    };
    Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    let Some(fallen) = lease.replaces else {
        return Ok(());
    };
    Entity::update_many()
        .col_expr(Column::ReplacedBy, Expr::value(Text(lease.id)))
        .filter(Column::Id.eq(Text(fallen)))
        .filter(Column::ReservationId.eq(reservation.id.clone()))
        .exec(tx)
        .await?;
    Ok(())
}

/// Applies a lease's step, with new facts.
///
/// Errors: [`StoreError::Stale`] when it is no longer in the state that the step starts from.
pub(crate) async fn update(
    tx: &DatabaseTransaction,
    reservation: ReservationId,
    update: &LeaseUpdate,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut changed = facts(&update.facts)?;
    changed.id = Unchanged(Text(update.id));
    changed.state = Set(Word(update.to));
    if update.facts.fall_reason.is_some() {
        changed.fell_at = Set(Some(now.into()));
    }
    let written = Entity::update_many()
        .set(changed)
        .filter(Column::Id.eq(Text(update.id)))
        .filter(Column::ReservationId.eq(Text(reservation)))
        .filter(Column::State.eq(Word(update.from)))
        .exec(tx)
        .await?;
    if written.rows_affected == 1 {
        Ok(())
    } else {
        Err(StoreError::Stale)
    }
}

/// The columns of the new facts.
fn facts(facts: &LeaseFacts) -> Result<ActiveModel, StoreError> {
    let mut row = ActiveModel::default();
    let moments = [
        (&mut row.accepted_at, facts.accepted_at),
        (&mut row.started_at, facts.started_at),
        (&mut row.up_at, facts.up_at),
        (&mut row.verify_deadline, facts.verify_deadline),
        (&mut row.handed_off_at, facts.handed_off_at),
        (&mut row.metered_to, facts.metered_to),
        (&mut row.release_accepted_at, facts.release_accepted_at),
        (&mut row.gone_at, facts.gone_at),
    ];
    for (column, moment) in moments {
        if let Some(moment) = moment {
            *column = Set(Some(moment.into()));
        }
    }
    if let Some(id) = &facts.provider_lease_id {
        row.provider_lease_id = Set(Some(id.0.clone()));
    }
    if let Some(nodes) = &facts.provider_nodes {
        row.provider_nodes = Set(Json(nodes.clone()));
    }
    if let Some(price) = facts.price_per_node_hour {
        row.price_units = Set(Some(price.units()));
        row.price_currency = Set(Some(Text(price.currency())));
    }
    if let Some(attempts) = facts.attempts {
        row.attempts = Set(i32::try_from(attempts).map_err(StoreError::corrupt)?);
    }
    if let Some(reason) = facts.fall_reason {
        row.fall_reason = Set(Some(Word(reason)));
    }
    if let Some(note) = &facts.fall_note {
        row.fall_note = Set(Some(note.clone()));
    }
    if facts.given_up {
        row.given_up = Set(true);
    }
    if let Some(missing) = facts.missing {
        row.missing_since = Set(missing.map(|missing| missing.since.into()));
        row.lacked_since = Set(missing
            .and_then(|missing| missing.lacked_since)
            .map(Into::into));
    }
    if let Some(credential) = &facts.seen_credential {
        row.seen_credential = Set(Some(credential.clone()));
    }
    Ok(row)
}
