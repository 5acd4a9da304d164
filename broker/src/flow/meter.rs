//! Use becomes charges, and providers' time becomes cost.
//!
//! A lease in the tenant's hands is charged up to its last proof of life; a lost or repairing one
//! meters nothing. Charge and postings go into the same transaction as the lease's new mark. How
//! much, and between which accounts, is `pricing`'s business; the next stage is [`crate::flow::report`].

use std::ops::Range;

use chrono::{DateTime, Utc};
use market::ids::{TransactionId, UsageId};
use market::lease::LeaseEvent;
use market::ledger::Transaction;
use market::money::{Money, Rate};
use market::usage::UsageRecord;
use pricing::PriceError;
use pricing::meter::{RunningTotal, Sale};
use pricing::postings::{
    LeaseLife, charge_transaction, provider_cost as book_provider_cost,
    returned_cost as book_returned_cost,
};
use store::StoreError;
use store::change::{Change, LeaseFacts};
use store::leases::Lease;
use store::reservations::Reservation;

use crate::flow::fulfil::FulfilError;
use crate::platform::app::Broker;

/// Charges the use of a lease from its last mark up to `until`, whole seconds only.
///
/// The charge, its postings and the new mark are added to `change` and `facts`.
/// Errors: [`FulfilError::Price`], [`FulfilError::Store`].
pub(crate) async fn charge(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
    until: DateTime<Utc>,
    change: &mut Change,
    facts: &mut LeaseFacts,
) -> Result<(), FulfilError> {
    let (Some(from), Some(handed_off_at)) = (lease.metered_to, lease.handed_off_at) else {
        return Ok(());
    };
    // Counted in whole seconds from the hand-off, so that no slicing loses a fraction.
    let until = handed_off_at + chrono::TimeDelta::seconds((until - handed_off_at).num_seconds());
    if until <= from {
        return Ok(());
    }
    let line = reservation
        .lines
        .iter()
        .find(|line| line.line == lease.line)
        .ok_or_else(|| corrupt(format!("lease {} names no line of its quote", lease.id)))?;
    for (span, rate) in line.rates_between(handed_off_at, from, until) {
        charge_at(broker, reservation, lease, (span, rate), change).await?;
    }
    facts.metered_to = Some(until);
    Ok(())
}

/// Charges one span of a lease's use at one rate.
async fn charge_at(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
    (span, rate): (Range<DateTime<Utc>>, Rate),
    change: &mut Change,
) -> Result<(), FulfilError> {
    let so_far = broker
        .store()
        .charges()
        .across_tenants()
        .charged_so_far(reservation.id, lease.line, rate)
        .await?;
    // Charges of this very change, of other leases on the same line, are part of the total.
    let pending = || {
        change
            .charges
            .iter()
            .filter(|charge| charge.usage.line == lease.line && charge.rate == rate)
    };
    let gpu_seconds: i64 = pending().map(|charge| charge.usage.gpu_seconds()).sum();
    let amount: i64 = pending().map(|charge| charge.amount.units()).sum();
    let currency = rate.money_per_gpu_hour().currency();
    let mut total = RunningTotal::resume(
        rate,
        so_far.gpu_seconds + gpu_seconds,
        Money::from_units(so_far.amount_units + amount, currency),
    )?;
    let usage = UsageRecord {
        id: UsageId::from_uuid(broker.new_uuid()),
        reservation_id: reservation.id,
        lease_id: lease.id,
        line: lease.line,
        gpus: lease.nodes * lease.offer.gpus.as_whole().unwrap_or(1),
        from: span.start,
        to: span.end,
    };
    let sale = Sale {
        tenant_id: reservation.tenant_id,
        project_id: reservation.project_id,
        provider: lease.offer.provider.clone(),
        gpu: lease.offer.gpu.to_string(),
        workload: reservation.kind,
        tags: reservation.tags.clone(),
        attribution: reservation.attribution.clone(),
    };
    let charge = total.charge(usage, sale)?;
    let id = TransactionId::from_uuid(broker.new_uuid());
    change.transactions.push(charge_transaction(&charge, id)?);
    change.charges.push(charge);
    Ok(())
}

/// The amount owed to the provider for a lease that is gone: nothing for one that never was.
///
/// Errors: [`PriceError`].
pub(crate) fn provider_cost(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
    facts: &LeaseFacts,
) -> Result<Vec<Transaction>, PriceError> {
    let Some(life) = life(broker, reservation, lease, facts) else {
        return Ok(Vec::new());
    };
    book_provider_cost(&life, || TransactionId::from_uuid(broker.new_uuid()))
}

/// The further amount owed to the provider for a lease that counted as gone, while its machine ran on until
/// now.
///
/// Errors: [`PriceError`].
pub(crate) fn returned_cost(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
) -> Result<Option<Transaction>, PriceError> {
    let Some(life) = life(broker, reservation, lease, &LeaseFacts::default()) else {
        return Ok(None);
    };
    let id = TransactionId::from_uuid(broker.new_uuid());
    book_returned_cost(&life, broker.now(), id)
}

/// The life of a lease that is gone; `None` of one that never began.
fn life(
    broker: &Broker,
    reservation: &Reservation,
    lease: &Lease,
    facts: &LeaseFacts,
) -> Option<LeaseLife> {
    let started_at = lease.started_at.or(facts.started_at)?;
    // The provider bills until it accepted the end of the lease. If it ended the lease by itself, it billed
    // at most until we saw that the lease was gone, or until none of its lists showed it. Metered use proves
    // that the lease existed until then.
    let used_until = lease.metered_to.max(facts.metered_to);
    let missing_since = lease.missing.map(|missing| missing.since);
    let vanished_at = missing_since.map(|since| used_until.map_or(since, |used| used.max(since)));
    let gone_at = facts
        .release_accepted_at
        .or(lease.release_accepted_at)
        .or(vanished_at)
        .or(facts.gone_at)
        .unwrap_or_else(|| broker.now())
        .max(started_at);
    let handed_off_at = lease.handed_off_at.map(|at| at.max(started_at));
    Some(LeaseLife {
        lease_id: lease.id,
        provider: lease.offer.provider.clone(),
        // The provider's price may have changed between the quote and the launch.
        price_per_node_hour: lease
            .price_per_node_hour
            .or(facts.price_per_node_hour)
            .unwrap_or(lease.offer.price_per_node_hour),
        covered: covered(reservation, lease),
        nodes: lease.nodes,
        started_at,
        handed_off_at,
        use_ended_at: handed_off_at
            .and(lease.metered_to)
            .map(|at| at.min(gone_at)),
        gone_at,
        failed: matches!(
            lease.fall_reason.or(facts.fall_reason),
            Some(LeaseEvent::Failed | LeaseEvent::Mismatched)
        ),
    })
}

/// The provider's price for a node and hour under a commitment of the tenant's, and its end: only for the
/// committed offer, and not for a replacement elsewhere.
fn covered(reservation: &Reservation, lease: &Lease) -> Option<(Money, DateTime<Utc>)> {
    let mut lines = reservation.lines.iter();
    let line = lines.find(|line| line.line == lease.line)?;
    let covered = line
        .covered
        .filter(|_| line.offer.offer_id == lease.offer.offer_id)?;
    let gpus = i64::from(lease.offer.gpus.as_whole()?);
    let price = covered.rate_usd_gpu_hour.money_per_gpu_hour();
    Some((price.checked_mul(gpus).ok()?, covered.until))
}

fn corrupt(detail: String) -> FulfilError {
    FulfilError::Store(StoreError::Corrupt { detail })
}
