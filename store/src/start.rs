//! Orders a scheduled reservation: the price is settled, and the stock set aside as for a hold that is confirmed
//! at once.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use market::quote::Quote;
use market::reservation::{ReservationEvent, ReservationState};
use market::verification::Level;
use sea_orm::ActiveValue::{Set, Unchanged};
use sea_orm::EntityTrait;

use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::reservations::{ActiveModel, Entity};
use crate::tx::transaction;
use crate::work::{Claim, Work, lock_claimed};
use crate::{StoreError, commands, events, hold, providers, quotes, spending, stock};

/// What is ordered for a scheduled reservation.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStart {
    /// The start for which it was decided.
    pub starts_at: Option<DateTime<Utc>>,
    /// The quote with frozen rates: an open one, or the reservation's own where its lines cost what was quoted.
    pub quote: Quote,
    /// Whether it fails and is replaced as one.
    pub gang: bool,
    /// The verification level of its nodes.
    pub verification: Level,
    /// The public SSH keys that its machines get, in OpenSSH form.
    pub ssh_public_keys: Vec<String>,
}

impl Work<'_> {
    /// Sets aside what is ordered for a claimed, scheduled reservation, and confirms it; the claim is kept.
    ///
    /// Errors: [`StoreError::Stale`] when it is not scheduled for that start any more, or another worker has
    /// it; [`StoreError::LimitExceeded`] and [`StoreError::BudgetExceeded`];
    /// [`StoreError::OutOfStock`], and the conflicts of a hold over quotes, providers and commitments.
    pub async fn start(
        &self,
        claim: &Claim,
        start: &NewStart,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        #[cfg(feature = "fixture")]
        self.store.gate.pass().await;
        let store = self.store;
        transaction!(store, |tx| {
            let mut row = lock_claimed(tx, claim).await?;
            let from = row.state()?;
            let is_same = row.starts_at.map(Moment::at) == start.starts_at;
            if from != ReservationState::Scheduled || !is_same {
                return Err(StoreError::Stale);
            }
            let to = from
                .next(ReservationEvent::StartDue)
                .map_err(StoreError::corrupt)?;
            let (tenant, quote) = (row.tenant_id.0, &start.quote);
            if row.quote_id.0 != quote.id {
                quotes::take(tx, tenant, quote.id, row.id.0, now).await?;
            }
            row.quote_id = Text(quote.id);
            row.plan_id = Text(quote.plan_id);
            row.lines = Json(quote.lines.clone());
            row.gang = start.gang;
            row.verification = Some(Word(start.verification));
            row.ssh_public_keys = Json(start.ssh_public_keys.clone());
            spending::set_in_use(&mut row, &[]);
            spending::check_start(tx, store.limits, &row, now).await?;
            let sellers = quote.lines.iter().map(|line| line.offer.provider.clone());
            let sellers: BTreeSet<ProviderId> = sellers.collect();
            providers::check_open(tx, &sellers, now).await?;
            let needs = hold::needs(&quote.lines);
            stock::check(tx, store.stock, row.id.0, &needs, now).await?;
            hold::set_aside(tx, &row, now).await?;
            commands::move_to(tx, &mut row, to, now).await?;
            row.version += 1;
            let told = events::reservation_moved(tx, &row, Some(from)).await?;
            let sold = ActiveModel {
                id: Unchanged(row.id.clone()),
                quote_id: Set(row.quote_id.clone()),
                plan_id: Set(row.plan_id.clone()),
                lines: Set(row.lines.clone()),
                gang: Set(row.gang),
                verification: Set(row.verification.clone()),
                ssh_public_keys: Set(row.ssh_public_keys.clone()),
                ..ActiveModel::default()
            };
            Entity::update(sold).exec_without_returning(tx).await?;
            commands::write(tx, row).await?;
            events::append(tx, tenant, &[told], now).await?;
            Ok(())
        })
    }
}
