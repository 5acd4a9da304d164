//! Places a hold: one transaction takes the quote and sets the stock aside, or does neither.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Demand};
use market::hold_rules::{self, HoldLength};
use market::ids::{
    OfferId, PlanId, PrincipalId, ProjectId, ProviderId, QuoteId, ReservationId, TenantId,
};
use market::quote::QuoteLine;
use market::reservation::{ReservationEvent, ReservationState};
use market::tags::{Attribution, Tags};
use market::verification::Level;
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QuerySelect,
};

use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::{holds, projects, reservations};
use crate::idempotency::{self, Completion};
use crate::reservations::{RequestedAction, Reservation, TenantReservations};
use crate::tx::transaction;
use crate::{Conflict, StoreError, commands, coverage, events, providers, quotes, spending, stock};

/// A reservation to be placed. Its holds are for the nodes of its lines.
#[derive(Debug, Clone, PartialEq)]
pub struct NewReservation {
    /// Its id.
    pub id: ReservationId,
    /// The project of the tenant.
    pub project_id: ProjectId,
    /// The principal that places it; `None` when nobody of the tenant does.
    pub created_by: Option<PrincipalId>,
    /// The tenant's name for it.
    pub name: String,
    /// The demand.
    pub demand: Demand,
    /// The plan it comes from.
    pub plan_id: PlanId,
    /// The quote it takes.
    pub quote_id: QuoteId,
    /// The sold lines: those of the quote.
    pub lines: Vec<QuoteLine>,
    /// Whether it fails and is replaced as one.
    pub gang: bool,
    /// The highest price to accept, also for a replacement.
    pub ceiling: Option<Ceiling>,
    /// The verification level of its nodes.
    pub verification: Level,
    /// The public SSH keys that its machines get, in OpenSSH form.
    pub ssh_public_keys: Vec<String>,
    /// Free tags.
    pub tags: Tags,
    /// The fixed fields for finance.
    pub attribution: Attribution,
    /// Until when we wait for its hand-off; `None`: without a limit. The hand-off sets its end.
    pub window_end: Option<DateTime<Utc>>,
    /// When the hold lapses unless it is confirmed; sooner where [`hold_rules`] require it.
    pub hold_expires_at: DateTime<Utc>,
    /// Whether it is confirmed in the same call: then the rules about waiting holds do not apply.
    pub confirmed_at_once: bool,
}

impl TenantReservations<'_> {
    /// Takes the quote and sets the stock aside. A reservation to be confirmed at once is confirmed with it,
    /// or not placed at all.
    ///
    /// Errors: [`StoreError::LimitExceeded`] and [`StoreError::BudgetExceeded`], which are checked
    /// against all that the tenant has, also when several holds are placed at once;
    /// [`StoreError::OutOfStock`] when an offer has not so many nodes left;
    /// [`Conflict::CommitmentUsed`] when a commitment has not;
    /// [`Conflict::QuoteTaken`] and
    /// [`Conflict::QuoteLapsed`]; [`StoreError::NotFound`] for a
    /// quote or project that is not the tenant's;
    /// [`Conflict::ProviderDisabled`] and
    /// [`Conflict::ProviderQuarantined`];
    /// [`Conflict::TooManyUnused`], or, where it is confirmed at once,
    /// [`Conflict::TooManyCancelled`];
    /// [`StoreError::Stale`] when `completion` was taken over.
    pub async fn place_hold(
        &self,
        new: NewReservation,
        now: DateTime<Utc>,
        completion: Option<Completion<'_, Reservation>>,
    ) -> Result<Reservation, StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        let needs = needs(&new.lines);
        let sellers = new.lines.iter().map(|line| line.offer.provider.clone());
        let sellers: BTreeSet<ProviderId> = sellers.collect();
        let held = hold_rows(new.id, &new.lines)?;
        let waits = !new.confirmed_at_once;
        let nodes = if waits { needs.values().sum() } else { 0 };
        let placed = new.into_row(tenant, now);
        transaction!(store, |tx| {
            let mut row = placed.clone();
            own_project(tx, tenant, row.project_id.0).await?;
            quotes::take(tx, tenant, row.quote_id.0, row.id.0, now).await?;
            providers::check_open(tx, &sellers, now).await?;
            spending::check_hold(tx, store.limits, &row, waits.then_some(nodes), now).await?;
            if !waits {
                spending::check_confirm(tx, store.limits, &row, now).await?;
            }
            stock::check(tx, store.stock, row.id.0, &needs, now).await?;
            if waits {
                shorten(tx, &mut row, &needs, now).await?;
            }
            let mut told = vec![events::reservation_moved(tx, &row, None).await?];
            if !waits {
                let from = row.state()?;
                let to = from.next(ReservationEvent::Confirm);
                commands::move_to(tx, &mut row, to.map_err(StoreError::corrupt)?, now).await?;
                row.version += 1;
                told.push(events::reservation_moved(tx, &row, Some(from)).await?);
            }
            reservations::Entity::insert(row.clone().into_active_model())
                .exec_without_returning(tx)
                .await?;
            let held = held.iter().cloned().map(IntoActiveModel::into_active_model);
            holds::Entity::insert_many(held)
                .exec_without_returning(tx)
                .await?;
            coverage::take(tx, tenant, row.id.0, &row.lines.0, now).await?;
            let reservation = Reservation::try_from(row.clone())?;
            idempotency::complete(tx, tenant, completion.as_ref(), &reservation).await?;
            events::append(tx, tenant, &told, now).await?;
            Ok(reservation)
        })
    }
}

/// Lets a hold that waits for confirmation last as long as the rules allow, or refuses it.
///
/// Errors: [`Conflict::TooManyUnused`].
async fn shorten(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
    needs: &BTreeMap<OfferId, u32>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let tenant = row.tenant_id.0;
    let is_short = match hold_rules::length(unused(tx, tenant, now).await?, now) {
        HoldLength::RefusedUntil(again_at) => {
            let again_in_seconds = hold_rules::seconds_until(again_at, now);
            return Err(Conflict::TooManyUnused {
                again_at,
                again_in_seconds,
            }
            .into());
        }
        HoldLength::Short => true,
        HoldLength::Usual => stock::takes_much(tx, tenant, needs).await?,
    };
    if is_short {
        let short = now + TimeDelta::seconds(hold_rules::SHORT_SECONDS);
        row.hold_expires_at = row.hold_expires_at.min(short.into());
        row.due_at = Some(row.hold_expires_at);
    }
    Ok(())
}

/// When holds of a tenant lapsed or were cancelled unconfirmed, within the period that counts.
async fn unused(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    now: DateTime<Utc>,
) -> Result<Vec<DateTime<Utc>>, StoreError> {
    use reservations::Column;
    let since = Moment::from(now - TimeDelta::seconds(hold_rules::REMEMBERED_SECONDS));
    let lapsed = Condition::all()
        .add(Column::State.eq(ReservationState::Held.as_str()))
        .add(Column::HoldExpiresAt.lte(Moment::from(now)));
    let rows: Vec<(Moment, Option<Moment>)> = reservations::Entity::find()
        .select_only()
        .columns([Column::HoldExpiresAt, Column::ClosedAt])
        .filter(Column::TenantId.eq(Text(tenant)))
        .filter(Column::ConfirmedAt.is_null())
        // A stop by a budget is not the tenant's doing.
        .filter(Column::StoppedBy.is_null())
        // A hold that was closed in the last hour lapses no earlier than that.
        .filter(Column::HoldExpiresAt.gt(since))
        .filter(Condition::any().add(Column::State.eq("closed")).add(lapsed))
        .into_tuple()
        .all(tx)
        .await?;
    let ended = |(lapses, closed): (Moment, Option<Moment>)| {
        closed.map_or(lapses, |closed| closed.min(lapses)).at()
    };
    Ok(rows.into_iter().map(ended).collect())
}

/// Nodes wanted of each offer; two lines may name the same one.
fn needs(lines: &[QuoteLine]) -> BTreeMap<OfferId, u32> {
    let mut needs = BTreeMap::new();
    for line in lines {
        let nodes: &mut u32 = needs.entry(line.offer.offer_id).or_default();
        *nodes = nodes.saturating_add(line.nodes);
    }
    needs
}

fn hold_rows(id: ReservationId, lines: &[QuoteLine]) -> Result<Vec<holds::Model>, StoreError> {
    lines
        .iter()
        .map(|line| {
            Ok(holds::Model {
                reservation_id: Text(id),
                line: i32::try_from(line.line).map_err(StoreError::corrupt)?,
                offer_id: Text(line.offer.offer_id),
                nodes: i32::try_from(line.nodes).map_err(StoreError::corrupt)?,
                live: true,
            })
        })
        .collect()
}

impl NewReservation {
    fn into_row(self, tenant: TenantId, now: DateTime<Utc>) -> reservations::Model {
        let in_use = spending::of_lines(&self.lines, &[]);
        reservations::Model {
            id: Text(self.id),
            tenant_id: Text(tenant),
            project_id: Text(self.project_id),
            name: self.name,
            kind: Word(self.demand.kind()),
            state: ReservationState::Held.as_str().to_owned(),
            reason: None,
            version: 1,
            demand: Json(self.demand),
            plan_id: Text(self.plan_id),
            quote_id: Text(self.quote_id),
            lines: Json(self.lines),
            gang: self.gang,
            ceiling: self.ceiling.map(Json),
            ssh_public_keys: Json(self.ssh_public_keys),
            tags: Json(self.tags),
            attribution: Json(self.attribution),
            window_end: self.window_end.map(Moment::from),
            hold_expires_at: self.hold_expires_at.into(),
            created_at: now.into(),
            confirmed_at: None,
            active_at: None,
            closed_at: None,
            wish: Word(RequestedAction::None),
            wish_at: None,
            due_at: Some(self.hold_expires_at.into()),
            nudges: 0,
            claim_token: None,
            claim_expires_at: None,
            last_error: None,
            created_by: self.created_by.map(Text),
            stopped_by: None,
            gpus: in_use.map(|(gpus, _)| gpus),
            units_per_hour: in_use.map(|(_, units)| units),
            verification: Some(Word(self.verification)),
        }
    }
}

pub(crate) async fn own_project(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    project: ProjectId,
) -> Result<(), StoreError> {
    projects::Entity::find_by_id(Text(project))
        .filter(projects::Column::TenantId.eq(Text(tenant)))
        .one(tx)
        .await?
        .map(|_| ())
        .ok_or(StoreError::NotFound { what: "project" })
}

/// The nodes that a reservation held, by offer, and no longer holds.
pub(crate) async fn release(
    tx: &DatabaseTransaction,
    reservation: ReservationId,
) -> Result<BTreeMap<OfferId, u32>, StoreError> {
    let live = holds::Entity::find()
        .filter(holds::Column::ReservationId.eq(Text(reservation)))
        .filter(holds::Column::Live.eq(true))
        .all(tx)
        .await?;
    holds::Entity::update_many()
        .col_expr(holds::Column::Live, Expr::value(false))
        .filter(holds::Column::ReservationId.eq(Text(reservation)))
        .exec(tx)
        .await?;
    let mut released = BTreeMap::new();
    for hold in live {
        let nodes: &mut u32 = released.entry(hold.offer_id.0).or_default();
        *nodes += u32::try_from(hold.nodes).map_err(StoreError::corrupt)?;
    }
    Ok(released)
}
