//! Places a hold: one transaction takes the quote and sets the stock aside, or does neither.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Demand};
use market::hold_rules::{self, HoldLength};
use market::ids::{
    OfferId, PlanId, PrincipalId, ProjectId, ProviderId, QuoteId, ReservationId, TenantId,
};
use market::quote::{Follows, QuoteLine, is_bounded};
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
use crate::events::NewEvent;
use crate::idempotency::{self, Completion};
use crate::reservations::{RequestedAction, Reservation, TenantReservations};
use crate::tx::transaction;
use crate::{Conflict, Store, StoreError};
use crate::{commands, coverage, events, followers, providers, quotes, spending, stock};

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
    /// The later start; `None`: from its confirmation on.
    pub starts_at: Option<DateTime<Utc>>,
    /// The run after which it starts, which is the tenant's.
    pub follows: Option<Follows<ReservationId>>,
    /// Until when we wait for its hand-off; `None`: without a limit. The hand-off sets its end.
    pub window_end: Option<DateTime<Utc>>,
    /// When the hold lapses unless it is confirmed; sooner where [`hold_rules`] require it.
    pub hold_expires_at: DateTime<Utc>,
    /// Whether it is confirmed in the same call: then the rules about waiting holds do not apply.
    pub confirmed_at_once: bool,
}

impl TenantReservations<'_> {
    /// Takes the quote and sets the stock aside. A reservation to be confirmed at once is confirmed with it,
    /// or not placed at all. One with bounds for prices starts later: it sets nothing aside, and stock,
    /// commitments and providers are checked when it is ordered.
    ///
    /// Errors: [`StoreError::LimitExceeded`] and [`StoreError::BudgetExceeded`], which are checked
    /// against all that the tenant has, also when several holds are placed at once;
    /// [`StoreError::OutOfStock`] when an offer has not so many nodes left;
    /// [`Conflict::CommitmentUsed`] when a commitment has not;
    /// [`Conflict::QuoteTaken`] and
    /// [`Conflict::QuoteLapsed`]; [`StoreError::NotFound`] for a
    /// quote, project or run that is not the tenant's;
    /// [`Conflict::RunOver`], [`Conflict::RunTooLate`] and [`Conflict::TooManyFollowers`] for a run that it
    /// cannot follow;
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
        let new = Placement::of(new, tenant, now);
        transaction!(store, |tx| {
            let (reservation, told) = place(tx, store, new.clone(), now).await?;
            idempotency::complete(tx, tenant, completion.as_ref(), &reservation).await?;
            events::append(tx, tenant, &told, now).await?;
            Ok(reservation)
        })
    }

    /// Takes the quotes of a run and of the fleet that follows it, both or neither. Their holds lapse
    /// together, at the earlier time.
    ///
    /// Errors: as [`TenantReservations::place_hold`].
    pub async fn place_pair(
        &self,
        [run, fleet]: [NewReservation; 2],
        now: DateTime<Utc>,
        completion: Option<Completion<'_, [Reservation; 2]>>,
    ) -> Result<[Reservation; 2], StoreError> {
        let (store, tenant) = (self.store, self.tenant);
        let run = Placement::of(run, tenant, now);
        let fleet = Placement::of(fleet, tenant, now);
        transaction!(store, |tx| {
            let (first, mut told) = place(tx, store, run.clone(), now).await?;
            let mut fleet = fleet.clone();
            let lapses = fleet.row.hold_expires_at.min(first.hold_expires_at.into());
            fleet.row.hold_expires_at = lapses;
            fleet.row.due_at = Some(lapses);
            let (second, more) = place(tx, store, fleet, now).await?;
            told.extend(more);
            let pair = [first, second];
            idempotency::complete(tx, tenant, completion.as_ref(), &pair).await?;
            events::append(tx, tenant, &told, now).await?;
            Ok(pair)
        })
    }
}

/// A hold about to be placed.
#[derive(Debug, Clone)]
struct Placement {
    row: reservations::Model,
    /// Whether it waits for its confirmation.
    waits: bool,
    sellers: BTreeSet<ProviderId>,
}

impl Placement {
    fn of(new: NewReservation, tenant: TenantId, now: DateTime<Utc>) -> Self {
        let sellers = new.lines.iter().map(|line| line.offer.provider.clone());
        Self {
            sellers: sellers.collect(),
            waits: !new.confirmed_at_once,
            row: new.into_row(tenant, now),
        }
    }
}

/// Places a hold within a transaction; returns it with its events.
async fn place(
    tx: &DatabaseTransaction,
    store: &Store,
    new: Placement,
    now: DateTime<Utc>,
) -> Result<(Reservation, Vec<NewEvent>), StoreError> {
    let Placement {
        mut row,
        waits,
        sellers,
    } = new;
    let tenant = row.tenant_id.0;
    let is_later = is_bounded(&row.lines.0);
    let needs = needs(&row.lines.0);
    own_project(tx, tenant, row.project_id.0).await?;
    quotes::take(tx, tenant, row.quote_id.0, row.id.0, now).await?;
    followers::join(tx, tenant, &mut row).await?;
    row.ends_at = row.latest_end().map(Moment::from);
    let nodes = match waits && !is_later {
        true => needs.values().sum(),
        false => 0,
    };
    if !is_later {
        providers::check_open(tx, &sellers, now).await?;
    }
    spending::check_hold(tx, store.limits, &row, waits.then_some(nodes), now).await?;
    if !waits {
        spending::check_confirm(tx, store.limits, &row, now).await?;
    }
    if !is_later {
        stock::check(tx, store.stock, row.id.0, &needs, now).await?;
    }
    if waits {
        shorten(tx, &mut row, (!is_later).then_some(&needs), now).await?;
    }
    let mut told = vec![events::reservation_moved(tx, &row, None).await?];
    if !waits {
        let from = row.state()?;
        let to = from.next(match is_later {
            true => ReservationEvent::ConfirmLater,
            false => ReservationEvent::Confirm,
        });
        commands::move_to(tx, &mut row, to.map_err(StoreError::corrupt)?, now).await?;
        row.version += 1;
        told.push(events::reservation_moved(tx, &row, Some(from)).await?);
    }
    reservations::Entity::insert(row.clone().into_active_model())
        .exec_without_returning(tx)
        .await?;
    if !is_later {
        set_aside(tx, &row, now).await?;
    }
    Ok((Reservation::try_from(row)?, told))
}

/// Sets the nodes of a reservation's lines aside, and their part of commitments; the caller checked the
/// stock.
///
/// Errors: [`Conflict::CommitmentUsed`].
pub(crate) async fn set_aside(
    tx: &DatabaseTransaction,
    row: &reservations::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let held = hold_rows(row.id.0, &row.lines.0)?;
    let held = held.into_iter().map(IntoActiveModel::into_active_model);
    holds::Entity::insert_many(held)
        .exec_without_returning(tx)
        .await?;
    coverage::take(tx, row.tenant_id.0, row.id.0, &row.lines.0, now).await
}

/// Lets a hold that waits for confirmation last as long as the rules allow, or refuses it. `needs` are the
/// nodes that others cannot take meanwhile; one that sets none aside is never short.
///
/// Errors: [`Conflict::TooManyUnused`].
async fn shorten(
    tx: &DatabaseTransaction,
    row: &mut reservations::Model,
    needs: Option<&BTreeMap<OfferId, u32>>,
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
        HoldLength::Short => needs.is_some(),
        HoldLength::Usual => match needs {
            Some(needs) => stock::takes_much(tx, tenant, needs).await?,
            None => false,
        },
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
pub(crate) fn needs(lines: &[QuoteLine]) -> BTreeMap<OfferId, u32> {
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
        let mut row = reservations::Model {
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
            gpus: None,
            units_per_hour: None,
            verification: Some(Word(self.verification)),
            starts_at: self.starts_at.map(Moment::from),
            ends_at: None,
            follows: self.follows.map(|follows| Text(follows.run)),
            staging_seconds: self.follows.map(|follows| follows.staging_seconds),
            notices: None,
        };
        spending::set_in_use(&mut row, &[]);
        row
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
