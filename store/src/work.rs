//! Claim, work, apply: how a worker takes a reservation on and saves the result.
//!
//! A worker claims due rows, with a token of its own and an expiry; works with no transaction open; and
//! applies the result guarded by the token and by the states that it was computed from. When either no longer
//! matches, nothing is written and the result is dropped: another worker, or the tenant, changed the row.
//!
//! A nudge (a command, a node's last step of verification) makes a row due at once. One that
//! arrives while the row is claimed is not lost: the apply then leaves the row due.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use market::ids::{OfferId, ReservationId};
use sea_orm::sea_query::{Expr, LockBehavior, LockType};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, QueryFilter, QueryOrder, QuerySelect,
    QueryTrait,
};
use uuid::Uuid;

use crate::change::{Change, NewLease, WindowEnd};
use crate::entity::column::{Json, Moment, Text};
use crate::entity::reservations::{Column, Entity, Model};
use crate::leases::Lease;
use crate::reservations::Reservation;
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::{
    Store, StoreError, attempts, charges, commands, events, followers, hold, leases, ledger,
};
use crate::{providers, reservations, spending, stock, verifications};

/// The token of one claim: the caller makes a fresh one for every call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClaimToken(pub Uuid);

impl fmt::Display for ClaimToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.simple().fmt(f)
    }
}

impl FromStr for ClaimToken {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::try_parse(text).map(Self)
    }
}

/// The right to apply a change to a reservation, until another worker claims it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    reservation_id: ReservationId,
    token: ClaimToken,
    nudges: i64,
}

impl Claim {
    /// The reservation that is claimed.
    #[must_use]
    pub const fn reservation_id(&self) -> ReservationId {
        self.reservation_id
    }
}

/// A reservation that a worker has claimed.
#[derive(Debug, Clone, PartialEq)]
pub struct Claimed {
    /// The reservation.
    pub reservation: Reservation,
    /// All its leases, in the order of their creation.
    pub leases: Vec<Lease>,
    /// The right to apply a change to it.
    pub claim: Claim,
}

service_wide!(Work, work, "work that reservations wait for");

impl Work<'_> {
    /// Claims up to `limit` due reservations that no worker has claimed, the longest due first.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn claim_due(
        &self,
        token: ClaimToken,
        now: DateTime<Utc>,
        ttl_seconds: u32,
        limit: u64,
    ) -> Result<Vec<Claimed>, StoreError> {
        let due = Column::DueAt.lte(Moment::from(now));
        self.claim(Condition::all().add(due), token, now, ttl_seconds, limit)
            .await
    }

    /// Claims up to `limit` due reservations that are past the end of their window or being ended, as
    /// [`Self::claim_due`] does.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn claim_ending(
        &self,
        token: ClaimToken,
        now: DateTime<Utc>,
        ttl_seconds: u32,
        limit: u64,
    ) -> Result<Vec<Claimed>, StoreError> {
        let ending = Condition::any()
            .add(Column::WindowEnd.lte(Moment::from(now)))
            .add(Column::State.eq("releasing"));
        let due = Condition::all()
            .add(Column::DueAt.lte(Moment::from(now)))
            .add(Column::State.is_not_in(["held", "closed"]))
            .add(ending);
        self.claim(due, token, now, ttl_seconds, limit).await
    }

    /// Reads a claimed reservation again and extends the claim by another `ttl_seconds`.
    ///
    /// Errors: [`StoreError::Stale`] when another worker has claimed it meanwhile.
    pub async fn renew(
        &self,
        claim: &Claim,
        now: DateTime<Utc>,
        ttl_seconds: u32,
    ) -> Result<Claimed, StoreError> {
        transaction!(self.store, |tx| {
            let mut row = lock_claimed(tx, claim).await?;
            row.claim_expires_at = Some(expiry(now, ttl_seconds));
            commands::write(tx, row.clone()).await?;
            let leases = leases::of_reservations(tx, [claim.reservation_id]).await?;
            claimed(row, claim.token, leases)
        })
    }

    /// Claims up to `limit` of the reservations that `which` selects and that no worker has claimed.
    pub(crate) async fn claim(
        &self,
        which: Condition,
        token: ClaimToken,
        now: DateTime<Utc>,
        ttl_seconds: u32,
        limit: u64,
    ) -> Result<Vec<Claimed>, StoreError> {
        let free = Condition::any()
            .add(Column::ClaimExpiresAt.is_null())
            .add(Column::ClaimExpiresAt.lte(Moment::from(now)));
        let candidates = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(which)
            .filter(free)
            .order_by_asc(Column::DueAt)
            .limit(limit)
            // Rows that another worker is claiming at this moment are skipped, not waited for. SQLite has one
            // writer and ignores this.
            .lock_with_behavior(LockType::Update, LockBehavior::SkipLocked)
            .into_query();
        transaction!(self.store, |tx| {
            let rows = Entity::update_many()
                .col_expr(Column::ClaimToken, Expr::value(Text(token)))
                .col_expr(
                    Column::ClaimExpiresAt,
                    Expr::value(expiry(now, ttl_seconds)),
                )
                .filter(Column::Id.in_subquery(candidates.clone()))
                .exec_with_returning(tx)
                .await?;
            with_leases(tx, rows, token).await
        })
    }

    /// Saves the result of a round, all of it or nothing.
    ///
    /// Errors: [`StoreError::Stale`] when another worker has the reservation meanwhile, or a state
    /// is no longer what the change was computed from: drop the result.
    /// [`StoreError::OutOfStock`], and [`Conflict::ProviderDisabled`](crate::Conflict::ProviderDisabled)
    /// and [`Conflict::ProviderQuarantined`](crate::Conflict::ProviderQuarantined) unless it was held,
    /// for a new lease: take the next candidate.
    /// [`Conflict::LiveLeases`](crate::Conflict::LiveLeases) when it cannot be closed yet;
    /// [`Conflict::LedgerKey`](crate::Conflict::LedgerKey) when another transaction was posted
    /// under the same key.
    pub async fn apply(
        &self,
        claim: &Claim,
        change: &Change,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        #[cfg(feature = "fixture")]
        self.store.gate.pass().await;
        transaction!(self.store, |tx| apply(tx, self.store, claim, change, now)
            .await)
    }
}

fn expiry(now: DateTime<Utc>, ttl_seconds: u32) -> Moment {
    (now + TimeDelta::seconds(i64::from(ttl_seconds))).into()
}

async fn with_leases(
    tx: &DatabaseTransaction,
    mut rows: Vec<Model>,
    token: ClaimToken,
) -> Result<Vec<Claimed>, StoreError> {
    rows.sort_by_key(|row| (row.due_at, row.id.0));
    let mut by_reservation: HashMap<_, Vec<Lease>> = HashMap::new();
    for lease in leases::of_reservations(tx, rows.iter().map(|row| row.id.0)).await? {
        by_reservation
            .entry(lease.reservation_id)
            .or_default()
            .push(lease);
    }
    rows.into_iter()
        .map(|row| {
            let leases = by_reservation.remove(&row.id.0).unwrap_or_default();
            claimed(row, token, leases)
        })
        .collect()
}

fn claimed(row: Model, token: ClaimToken, leases: Vec<Lease>) -> Result<Claimed, StoreError> {
    let claim = Claim {
        reservation_id: row.id.0,
        token,
        nudges: row.nudges,
    };
    Ok(Claimed {
        reservation: Reservation::try_from(row)?,
        leases,
        claim,
    })
}

/// The claimed row, locked; it is stale once it has another token.
pub(crate) async fn lock_claimed(
    tx: &DatabaseTransaction,
    claim: &Claim,
) -> Result<Model, StoreError> {
    Entity::find_by_id(Text(claim.reservation_id))
        .lock_exclusive()
        .one(tx)
        .await?
        .filter(|row| row.claim_token == Some(Text(claim.token)))
        .ok_or(StoreError::Stale)
}

async fn apply(
    tx: &DatabaseTransaction,
    store: &Store,
    claim: &Claim,
    change: &Change,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut row = lock_claimed(tx, claim).await?;
    let nudged = row.nudges != claim.nudges;
    let end_before = followers::end_of(&row)?;
    if change
        .reservation
        .is_some_and(|step| row.state().ok() != Some(step.from))
    {
        return Err(StoreError::Stale);
    }
    let mut told = events::lease_sightings(tx, &change.lease_updates).await?;
    for update in &change.lease_updates {
        leases::update(tx, row.id.0, update, now).await?;
    }
    if change.lease_updates.iter().any(|one| one.facts.given_up) {
        spending::recount(tx, &mut row).await?;
    }
    let released = match change.holds_released {
        true => hold::release(tx, row.id.0).await?,
        false => BTreeMap::new(),
    };
    let needs = beyond(&change.new_leases, &released);
    providers::check_orders(tx, &change.new_leases, &needs, now).await?;
    stock::check(tx, store.stock, row.id.0, &needs, now).await?;
    for lease in &change.new_leases {
        leases::insert(tx, &row, lease, now).await?;
    }
    verifications::open(tx, &row, &change.verifications, now).await?;
    verifications::close(tx, &change.closed_verifications, now).await?;
    attempts::record(tx, &change.attempts).await?;
    charges::append(tx, &change.charges, now).await?;
    ledger::post(tx, &change.transactions, now).await?;
    told.extend(events::lease_moves(tx, &change.lease_updates).await?);
    match change.window_end {
        WindowEnd::AsIs => {}
        WindowEnd::At(end) => row.window_end = Some(end.into()),
        WindowEnd::Open => row.window_end = None,
    }
    row.last_error.clone_from(&change.last_error);
    if !change.keep_claim {
        row.claim_token = None;
        row.claim_expires_at = None;
    }
    let nudges = row.nudges;
    row.due_at = if nudged {
        Some(now.into())
    } else {
        change.due_at.map(Moment::from)
    };
    if let Some(step) = change.reservation {
        row.version += 1;
        let due_at = row.due_at;
        commands::move_to(tx, &mut row, step.to, now).await?;
        if !step.to.is_closed() {
            row.due_at = due_at;
        }
        row.nudges = nudges;
        told.push(events::reservation_moved(tx, &row, Some(step.from)).await?);
    }
    told.extend(events::leases_requested(&row, &change.new_leases));
    told.extend(change.events.iter().map(|said| {
        let mut event = events::reservation_said(&row, said.kind);
        said.details
            .iter()
            .for_each(|(field, value)| event.data[*field] = value.clone());
        event
    }));
    if let Some(notices) = &change.notices {
        row.notices = Some(Json(notices.clone()));
    }
    let tenant = row.tenant_id.0;
    commands::write(tx, row.clone()).await?;
    told.extend(followers::move_with(tx, &row, end_before, now).await?);
    events::append(tx, tenant, &told, now).await?;
    Ok(())
}

/// The nodes that new leases take of each offer beyond their reservation's holds.
fn beyond(new: &[NewLease], released: &BTreeMap<OfferId, u32>) -> BTreeMap<OfferId, u32> {
    let mut needs: BTreeMap<OfferId, u32> = BTreeMap::new();
    for lease in new {
        let nodes = needs.entry(lease.offer.offer_id).or_default();
        *nodes = nodes.saturating_add(lease.nodes);
    }
    for (offer, held) in released {
        if let Some(nodes) = needs.get_mut(offer) {
            *nodes = nodes.saturating_sub(*held);
        }
    }
    needs.retain(|_, nodes| *nodes > 0);
    needs
}

impl Work<'_> {
    /// Makes a reservation due at once, unless it is closed.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn nudge(&self, id: ReservationId, now: DateTime<Utc>) -> Result<(), StoreError> {
        transaction!(self.store, |tx| reservations::nudge(tx, id, now).await)
    }
}
