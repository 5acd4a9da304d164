//! Charges and providers' costs as double entry. `market::ledger` checks the balance; the store keeps each
//! transaction once.
//!
//! The idempotency key of a transaction is made of the item that it books, so that booking the same charge or
//! the same lease again books nothing.

use chrono::{DateTime, Utc};
use market::credit::Credit;
use market::ids::{LeaseId, ProviderId, TransactionId};
use market::ledger::{Account, LedgerUnit, Posting, Transaction, TransactionKind};
use market::money::{Money, MoneyError, Rate};
use market::usage::Charge;

use crate::PriceError;

/// Books a charge: the tenant owes, we earned; the GPU-seconds are delivered and used.
///
/// Effective at the end of the usage. Key: `charge/{usage id}`.
/// Errors: [`PriceError::Ledger`].
pub fn charge_transaction(charge: &Charge, id: TransactionId) -> Result<Transaction, PriceError> {
    let money = LedgerUnit::Money(charge.amount.currency());
    let amount = charge.amount.units();
    let seconds = charge.usage.gpu_seconds();
    let delivered = Account::Delivered(charge.usage.reservation_id);
    Ok(Transaction::try_new(
        id,
        format!("charge/{}", charge.usage.id),
        TransactionKind::Charge,
        charge.usage.to,
        vec![
            Posting::debit(Account::Receivable(charge.tenant_id), money, amount),
            Posting::credit(Account::RevenueUsage, money, amount),
            Posting::debit(Account::Used, LedgerUnit::GpuSeconds, seconds),
            Posting::credit(delivered, LedgerUnit::GpuSeconds, seconds),
        ],
    )?)
}

/// Books a credit: the tenant owes us less, and we bear it.
///
/// Revenue and GPU-seconds stay: the sale was at the quoted rate. Effective when it was
/// given. Key: `credit/{credit id}`.
/// Errors: [`PriceError::Ledger`].
pub fn credit_transaction(credit: &Credit, id: TransactionId) -> Result<Transaction, PriceError> {
    let money = LedgerUnit::Money(credit.amount.currency());
    let amount = credit.amount.units();
    let tenant = credit.tenant_id;
    Ok(Transaction::try_new(
        id,
        format!("credit/{}", credit.id),
        TransactionKind::Credit,
        credit.granted_at,
        vec![
            Posting::debit(Account::Credits(tenant), money, amount),
            Posting::credit(Account::Receivable(tenant), money, amount),
        ],
    )?)
}

/// The life of a lease that is gone, as its provider bills it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseLife {
    /// The lease.
    pub lease_id: LeaseId,
    /// The provider that bills it.
    pub provider: ProviderId,
    /// The provider's price for one node and hour: as it stated at the launch, or as ordered.
    pub price_per_node_hour: Money,
    /// Its price instead while a commitment of the tenant's pays, and until when.
    pub covered: Option<(Money, DateTime<Utc>)>,
    /// Nodes of the lease.
    pub nodes: u32,
    /// When the provider's clock started.
    pub started_at: DateTime<Utc>,
    /// When the tenant got it; `None` when that never happened.
    pub handed_off_at: Option<DateTime<Utc>>,
    /// When its use ended: the accepted release request, or the moment it was lost. `None` when the tenant
    /// had it until it was gone.
    pub use_ended_at: Option<DateTime<Utc>>,
    /// When the provider's clock stopped.
    pub gone_at: DateTime<Utc>,
    /// Whether it was proved not to be as sold.
    pub failed: bool,
}

/// The part of a lease's life that a sum was paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Segment {
    /// Between the provider's start and the hand-off.
    BeforeHandoff,
    /// In the tenant's hands.
    Use,
    /// Between the end of use and the provider's end.
    AfterUse,
    /// A life that served no tenant.
    Compensation,
}

impl Segment {
    const fn key(self) -> &'static str {
        match self {
            Self::BeforeHandoff => "before_handoff",
            Self::Use => "use",
            Self::AfterUse => "after_use",
            Self::Compensation => "compensation",
        }
    }

    fn account(self, provider: ProviderId) -> Account {
        match self {
            Self::BeforeHandoff | Self::AfterUse => Account::CogsPreHandoff(provider),
            Self::Use => Account::CogsUsage(provider),
            Self::Compensation => Account::CogsCompensation(provider),
        }
    }
}

/// Books the provider's cost of a lease that is gone.
///
/// A lease that was never handed off is all compensation. Where it was proved not to be as sold, all of that
/// is claimed back: the cost is in dispute instead. A lease that was handed off is split at the hand-off and
/// at the end of use; the time before and after is `cogs/pre_handoff`, the time between is `cogs/usage`.
/// Parts without a whole second are left out. The parts are differences of rounded running totals, so they
/// sum to one rounding of the whole life.
///
/// Units: whole seconds since the provider's start, times nodes, at a price per node and hour.
/// Keys: `lease/{lease id}/{part}`, for the claim `lease/{lease id}/claim`. Each part is effective at its
/// end.
/// Errors: [`PriceError::TimesOutOfOrder`] when the four times do not follow each other,
/// [`PriceError::Money`] when a sum exceeds 64 bits, [`PriceError::Ledger`].
pub fn provider_cost(
    lease: &LeaseLife,
    mut new_id: impl FnMut() -> TransactionId,
) -> Result<Vec<Transaction>, PriceError> {
    let currency = LedgerUnit::Money(lease.price_per_node_hour.currency());
    let mut transactions = Vec::new();
    let mut booked = 0;
    let mut booked_seconds = 0;
    for (segment, until) in segments(lease)? {
        let seconds = (until - lease.started_at).num_seconds();
        if seconds == booked_seconds {
            continue;
        }
        let total = cost_until(lease, seconds)?.units();
        let amount = total - booked;
        (booked, booked_seconds) = (total, seconds);
        transactions.push(Transaction::try_new(
            new_id(),
            format!("lease/{}/{}", lease.lease_id, segment.key()),
            TransactionKind::ProviderCost,
            until,
            vec![
                Posting::debit(segment.account(lease.provider.clone()), currency, amount),
                Posting::credit(Account::Payable(lease.provider.clone()), currency, amount),
            ],
        )?);
        if lease.failed && segment == Segment::Compensation {
            transactions.push(Transaction::try_new(
                new_id(),
                format!("lease/{}/claim", lease.lease_id),
                TransactionKind::ProviderCost,
                until,
                vec![
                    Posting::debit(Account::Disputed(lease.provider.clone()), currency, amount),
                    Posting::credit(segment.account(lease.provider.clone()), currency, amount),
                ],
            )?);
        }
    }
    Ok(transactions)
}

/// Books the cost of a machine that still runs though its lease was considered gone: from then on until its
/// provider accepted the release. It counts as time after the release. `None` without a whole second of it.
///
/// Effective at its end. Key: `lease/{lease id}/returned`.
/// Errors: as [`provider_cost`].
pub fn returned_cost(
    lease: &LeaseLife,
    until: DateTime<Utc>,
    id: TransactionId,
) -> Result<Option<Transaction>, PriceError> {
    let seconds = |at: DateTime<Utc>| (at - lease.started_at).num_seconds();
    let (booked, all) = (seconds(lease.gone_at), seconds(until));
    if all <= booked {
        return Ok(None);
    }
    let [booked, all] = [cost_until(lease, booked)?, cost_until(lease, all)?];
    let amount = all.units() - booked.units();
    let currency = LedgerUnit::Money(lease.price_per_node_hour.currency());
    let (account, payable) = (
        Segment::AfterUse.account(lease.provider.clone()),
        Account::Payable(lease.provider.clone()),
    );
    let transaction = Transaction::try_new(
        id,
        format!("lease/{}/returned", lease.lease_id),
        TransactionKind::ProviderCost,
        until,
        vec![
            Posting::debit(account, currency, amount),
            Posting::credit(payable, currency, amount),
        ],
    )?;
    Ok(Some(transaction))
}

/// The parts of a lease's life, each with its end, in order.
fn segments(lease: &LeaseLife) -> Result<Vec<(Segment, DateTime<Utc>)>, PriceError> {
    let Some(handed_off_at) = lease.handed_off_at else {
        if lease.gone_at < lease.started_at {
            return Err(PriceError::TimesOutOfOrder(
                "the lease is gone before it started",
            ));
        }
        return Ok(vec![(Segment::Compensation, lease.gone_at)]);
    };
    let use_ended_at = lease.use_ended_at.unwrap_or(lease.gone_at);
    if handed_off_at < lease.started_at {
        return Err(PriceError::TimesOutOfOrder(
            "the lease is handed off before it started",
        ));
    }
    if use_ended_at < handed_off_at {
        return Err(PriceError::TimesOutOfOrder(
            "the use ends before the hand-off",
        ));
    }
    if lease.gone_at < use_ended_at {
        return Err(PriceError::TimesOutOfOrder(
            "the lease is gone before its use ended",
        ));
    }
    Ok(vec![
        (Segment::BeforeHandoff, handed_off_at),
        (Segment::Use, use_ended_at),
        (Segment::AfterUse, lease.gone_at),
    ])
}

/// The cost of all nodes from the start for this many seconds, rounded half to even once at each price.
fn cost_until(lease: &LeaseLife, seconds: i64) -> Result<Money, PriceError> {
    let cost = |price: Money, seconds: i64| {
        let node_seconds = seconds
            .checked_mul(i64::from(lease.nodes))
            .ok_or(MoneyError::Overflow)?;
        // The arithmetic of a rate: a price per hour times seconds, here for nodes instead of GPUs.
        Rate::per_gpu_hour(price).cost_of(node_seconds)
    };
    let Some((paid, until)) = lease.covered else {
        return Ok(cost(lease.price_per_node_hour, seconds)?);
    };
    let covered = (until - lease.started_at).num_seconds().clamp(0, seconds);
    let rest = cost(lease.price_per_node_hour, seconds - covered)?;
    Ok(cost(paid, covered)?.checked_add(rest)?)
}

#[cfg(test)]
mod tests;
