//! Reservations: the tenant's claims. `hold` places one; `commands` and `work` move it.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::demand::{Ceiling, Demand, DemandKind};
use market::identity::Projects;
use market::ids::{BudgetId, PlanId, PrincipalId, ProjectId, QuoteId, ReservationId, TenantId};
use market::quote::{Follows, QuoteLine};
use market::reservation::{CloseReason, ReservationState};
use market::tags::{Attribution, Tags};
use market::verification::Level;
use sea_orm::sea_query::{Expr, ExprTrait, SimpleExpr};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::reservations::{Column, Entity, Model};
use crate::idempotency::{self, Completion};
use crate::scope::tenant_scoped;
use crate::tx::transaction;

/// The tenant's request for a reservation that a worker may be busy with.
///
/// It is written beside the state, never over it, so that the worker's results (such as the id of a new
/// machine) are kept; the worker takes it up at its next claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestedAction {
    /// Nothing: continue.
    None,
    /// To end it before the hand-off.
    Cancel,
    /// To end it.
    Release,
}

/// The notices that a tenant got. Of a start and an end it is the last, with the moment that it was about, so
/// that a moment that is moved is announced again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notices {
    /// The start, and how long before it. Units: minutes.
    pub start: Option<(DateTime<Utc>, u32)>,
    /// The end, and how long before it. Units: minutes.
    pub end: Option<(DateTime<Utc>, u32)>,
    /// Why a due start was held back so far.
    #[serde(default)]
    pub held_back: BTreeSet<HoldBackReason>,
}

/// Why a due start is held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldBackReason {
    /// A cap that blocks new spending.
    Budget,
    /// A limit on what is in use at once.
    Limit,
    /// Nothing can be ordered under its ceiling.
    NoCapacity,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq)]
pub struct Reservation {
    /// Its id.
    pub id: ReservationId,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project.
    pub project_id: ProjectId,
    /// The principal that placed it; `None` for those older than this field.
    pub created_by: Option<PrincipalId>,
    /// The tenant's name for it.
    pub name: String,
    /// The kind of its demand.
    pub kind: DemandKind,
    /// Its state.
    pub state: ReservationState,
    /// It grows whenever its state, its labels or its wish change.
    pub version: i64,
    /// The demand.
    pub demand: Demand,
    /// The plan it comes from.
    pub plan_id: PlanId,
    /// The quote it took.
    pub quote_id: QuoteId,
    /// The sold lines: at frozen rates, or under bounds until a later start is ordered.
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
    /// When it starts, where that was later than its confirmation; `None`: from its confirmation on.
    pub starts_at: Option<DateTime<Utc>>,
    /// The run after which it starts.
    pub follows: Option<Follows<ReservationId>>,
    /// The notices of it that its tenant got.
    pub notices: Notices,
    /// When it ends by itself; before the hand-off, when it is given up; `None` while that is open.
    pub window_end: Option<DateTime<Utc>>,
    /// When the hold lapses unless it is confirmed.
    pub hold_expires_at: DateTime<Utc>,
    /// When it was placed.
    pub created_at: DateTime<Utc>,
    /// When it was confirmed.
    pub confirmed_at: Option<DateTime<Utc>>,
    /// When it was first handed off.
    pub active_at: Option<DateTime<Utc>>,
    /// When it was closed.
    pub closed_at: Option<DateTime<Utc>>,
    /// The tenant's wish.
    pub wish: RequestedAction,
    /// When the tenant made the wish: use after this is not charged.
    pub wish_at: Option<DateTime<Utc>>,
    /// The budget that ended it, if one did.
    pub stopped_by: Option<BudgetId>,
    /// When a worker should look next; `None` once it is closed.
    pub due_at: Option<DateTime<Utc>>,
    /// The error of the worker's last round.
    pub last_error: Option<String>,
}

impl TryFrom<Model> for Reservation {
    type Error = StoreError;

    fn try_from(row: Model) -> Result<Self, StoreError> {
        let state = row.state()?;
        Ok(Self {
            id: row.id.0,
            tenant_id: row.tenant_id.0,
            project_id: row.project_id.0,
            created_by: row.created_by.map(|principal| principal.0),
            name: row.name,
            kind: row.kind.0,
            state,
            version: row.version,
            demand: row.demand.0,
            plan_id: row.plan_id.0,
            quote_id: row.quote_id.0,
            lines: row.lines.0,
            gang: row.gang,
            ceiling: row.ceiling.map(|ceiling| ceiling.0),
            verification: row.verification.map_or(Level::Standard, |level| level.0),
            ssh_public_keys: row.ssh_public_keys.0,
            tags: row.tags.0,
            attribution: row.attribution.0,
            starts_at: row.starts_at.map(Moment::at),
            follows: row.follows.map(|run| Follows {
                run: run.0,
                staging_seconds: row.staging_seconds.unwrap_or(0),
            }),
            notices: row
                .notices
                .map_or_else(Notices::default, |notices| notices.0),
            window_end: row.window_end.map(Moment::at),
            hold_expires_at: row.hold_expires_at.at(),
            created_at: row.created_at.at(),
            confirmed_at: row.confirmed_at.map(Moment::at),
            active_at: row.active_at.map(Moment::at),
            closed_at: row.closed_at.map(Moment::at),
            wish: row.wish.0,
            wish_at: row.wish_at.map(Moment::at),
            stopped_by: row.stopped_by.map(|budget| budget.0),
            due_at: row.due_at.map(Moment::at),
            last_error: row.last_error,
        })
    }
}

impl Model {
    /// The state of its two words.
    pub(crate) fn state(&self) -> Result<ReservationState, StoreError> {
        let reason = self.reason.as_ref().map(|why| why.0.as_str());
        ReservationState::parse(&self.state, reason).map_err(StoreError::corrupt)
    }

    /// Writes a state into its two words.
    pub(crate) fn set_state(&mut self, state: ReservationState) {
        state.as_str().clone_into(&mut self.state);
        self.reason = state.reason().map(Word::<CloseReason>);
    }

    /// The latest that it can end, as far as its window limits that.
    pub(crate) fn latest_end(&self) -> Option<DateTime<Utc>> {
        let window_end = self.window_end.map(Moment::at);
        if self.active_at.is_some() {
            return window_end;
        }
        // Before the hand-off the row has the time that we wait for it, and the demand the length of use
        // after it.
        let window = self.demand.0.shared().window?;
        window_end.map_or(window.end, |given_up_at| window.end_from(given_up_at))
    }

    /// Makes it due at once, even when a worker has claimed it.
    pub(crate) fn nudge(&mut self, now: DateTime<Utc>) {
        self.due_at = Some(now.into());
        self.nudges += 1;
    }
}

/// A filter for a list of reservations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReservationFilter {
    /// Only those in this state, by its word.
    pub state: Option<String>,
    /// Only those that are not closed.
    pub open_only: bool,
    /// Only those of this project.
    pub project: Option<ProjectId>,
    /// Only those of this kind.
    pub kind: Option<DemandKind>,
    /// Only those in these projects.
    pub within: Projects,
}

/// New labels of a reservation; `None` leaves a field unchanged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// The name.
    pub name: Option<String>,
    /// All the free tags.
    pub tags: Option<Tags>,
}

tenant_scoped!(
    Reservations,
    reservations,
    TenantReservations,
    AllReservations,
    "reservations"
);

impl TenantReservations<'_> {
    /// The tenant's reservation with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: ReservationId) -> Result<Option<Reservation>, StoreError> {
        let row = Entity::find_by_id(Text(id))
            .filter(Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        row.map(Reservation::try_from).transpose()
    }

    /// The tenant's reservations, the newest first, at most `limit`, those after `after` in that order.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(
        &self,
        filter: &ReservationFilter,
        after: Option<ReservationId>,
        limit: u64,
    ) -> Result<Vec<Reservation>, StoreError> {
        let whose = Condition::all().add(Column::TenantId.eq(Text(self.tenant)));
        list(self.store, whose, filter, after, limit).await
    }

    /// Changes the name or the tags. Existing charges keep the old ones.
    ///
    /// Errors: [`StoreError::NotFound`]; [`StoreError::Stale`] when `completion` was taken over.
    pub async fn update_labels(
        &self,
        id: ReservationId,
        labels: Labels,
        completion: Option<Completion<'_, Reservation>>,
    ) -> Result<Reservation, StoreError> {
        transaction!(self.store, |tx| {
            let mut row = lock_of_tenant(tx, self.tenant, id).await?;
            row.version += 1;
            if let Some(name) = &labels.name {
                row.name.clone_from(name);
            }
            if let Some(tags) = &labels.tags {
                row.tags = Json(tags.clone());
            }
            Entity::update_many()
                .col_expr(Column::Version, Expr::value(row.version))
                .col_expr(Column::Name, Expr::value(row.name.as_str()))
                .col_expr(Column::Tags, Expr::value(row.tags.clone()))
                .filter(Column::Id.eq(Text(id)))
                .exec(tx)
                .await?;
            let reservation = Reservation::try_from(row)?;
            idempotency::complete(tx, self.tenant, completion.as_ref(), &reservation).await?;
            Ok(reservation)
        })
    }
}

impl AllReservations<'_> {
    /// The reservation with this id, of any tenant.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: ReservationId) -> Result<Option<Reservation>, StoreError> {
        let row = Entity::find_by_id(Text(id)).one(&self.store.read).await?;
        row.map(Reservation::try_from).transpose()
    }

    /// All tenants' reservations, the newest first, at most `limit`, those after `after` in that order.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn list(
        &self,
        filter: &ReservationFilter,
        after: Option<ReservationId>,
        limit: u64,
    ) -> Result<Vec<Reservation>, StoreError> {
        list(self.store, Condition::all(), filter, after, limit).await
    }
}

async fn list(
    store: &crate::Store,
    whose: Condition,
    filter: &ReservationFilter,
    after: Option<ReservationId>,
    limit: u64,
) -> Result<Vec<Reservation>, StoreError> {
    let closed = "closed";
    let wanted = whose
        .add_option(filter.state.as_deref().map(|state| Column::State.eq(state)))
        .add_option(filter.open_only.then(|| Column::State.ne(closed)))
        .add_option(
            filter
                .project
                .map(|project| Column::ProjectId.eq(Text(project))),
        )
        .add_option(filter.kind.map(|kind| Column::Kind.eq(Word(kind))))
        .add_option(filter.within.named().map(is_in))
        .add_option(after.map(|last| Column::Id.lt(Text(last))));
    let rows = Entity::find()
        .filter(wanted)
        .order_by_desc(Column::Id)
        .limit(limit)
        .all(&store.read)
        .await?;
    rows.into_iter().map(Reservation::try_from).collect()
}

/// Whether a reservation is in one of these projects.
pub(crate) fn is_in(projects: &BTreeSet<ProjectId>) -> SimpleExpr {
    Column::ProjectId.is_in(projects.iter().copied().map(Text))
}

/// The tenant's reservation, locked until the end of the transaction.
pub(crate) async fn lock_of_tenant(
    tx: &DatabaseTransaction,
    tenant: TenantId,
    id: ReservationId,
) -> Result<Model, StoreError> {
    Entity::find_by_id(Text(id))
        .filter(Column::TenantId.eq(Text(tenant)))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound {
            what: "reservation",
        })
}

/// Makes a reservation due at once, unless it is closed.
pub(crate) async fn nudge(
    tx: &DatabaseTransaction,
    id: ReservationId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    Entity::update_many()
        .col_expr(Column::DueAt, Expr::value(Moment::from(now)))
        .col_expr(Column::Nudges, Expr::col(Column::Nudges).add(1))
        .filter(Column::Id.eq(Text(id)))
        .filter(Column::State.ne("closed"))
        .exec(tx)
        .await?;
    Ok(())
}
