//! Double entry: every transaction sums to zero in each unit it touches.
//!
//! Debits are above zero, credits below. GPU-seconds are booked like a currency, so that hours can be neither
//! lost nor invented. `pricing` defines the postings of a sale; the store keeps them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{ProviderId, ReservationId, TenantId, TransactionId};
use crate::money::Currency;

/// The unit of an amount: money, or GPU-seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LedgerUnit {
    /// Units of a currency (USD 1e-8).
    Money(Currency),
    /// Whole seconds of one GPU.
    GpuSeconds,
}

impl fmt::Display for LedgerUnit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Money(currency) => f.write_str(currency.code()),
            Self::GpuSeconds => f.write_str("GPU_SECONDS"),
        }
    }
}

/// A word that is no unit of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no unit of the ledger")]
pub struct UnknownLedgerUnit(pub String);

impl FromStr for LedgerUnit {
    type Err = UnknownLedgerUnit;

    fn from_str(word: &str) -> Result<Self, UnknownLedgerUnit> {
        if word == "GPU_SECONDS" {
            return Ok(Self::GpuSeconds);
        }
        word.parse()
            .map(Self::Money)
            .map_err(|_| UnknownLedgerUnit(word.to_owned()))
    }
}

/// An account of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Account {
    /// What a tenant owes us.
    Receivable(TenantId),
    /// What we earned by use.
    RevenueUsage,
    /// Credits given to a tenant: what it need not pay of what it was charged.
    Credits(TenantId),
    /// What we owe a provider.
    Payable(ProviderId),
    /// What a provider charges for time that tenants paid for.
    CogsUsage(ProviderId),
    /// What a provider charges between its start and the hand-off, and after the release.
    CogsPreHandoff(ProviderId),
    /// What a provider charges for leases that never served a tenant, or failed.
    CogsCompensation(ProviderId),
    /// What a provider owes us back, until it grants or refuses that: its charges for machines that were
    /// proved not to be as sold.
    Disputed(ProviderId),
    /// GPU-seconds delivered under a reservation.
    Delivered(ReservationId),
    /// GPU-seconds used, over all reservations.
    Used,
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Receivable(tenant) => write!(f, "receivable/{tenant}"),
            Self::RevenueUsage => f.write_str("revenue/usage"),
            Self::Credits(tenant) => write!(f, "credits/{tenant}"),
            Self::Payable(provider) => write!(f, "payable/{provider}"),
            Self::CogsUsage(provider) => write!(f, "cogs/usage/{provider}"),
            Self::CogsPreHandoff(provider) => write!(f, "cogs/pre_handoff/{provider}"),
            Self::CogsCompensation(provider) => write!(f, "cogs/compensation/{provider}"),
            Self::Disputed(provider) => write!(f, "disputed/{provider}"),
            Self::Delivered(reservation) => write!(f, "delivered/{reservation}"),
            Self::Used => f.write_str("used"),
        }
    }
}

/// A name that is no account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no account of the ledger")]
pub struct UnknownAccount(pub String);

impl FromStr for Account {
    type Err = UnknownAccount;

    fn from_str(text: &str) -> Result<Self, UnknownAccount> {
        let unknown = || UnknownAccount(text.to_owned());
        let (kind, owner) = text.rsplit_once('/').unwrap_or((text, ""));
        let provider = || ProviderId::parse(owner).map_err(|_| unknown());
        let tenant = || owner.parse().map_err(|_| unknown());
        match kind {
            "receivable" => Ok(Self::Receivable(tenant()?)),
            "credits" => Ok(Self::Credits(tenant()?)),
            "payable" => Ok(Self::Payable(provider()?)),
            "cogs/usage" => Ok(Self::CogsUsage(provider()?)),
            "cogs/pre_handoff" => Ok(Self::CogsPreHandoff(provider()?)),
            "cogs/compensation" => Ok(Self::CogsCompensation(provider()?)),
            "disputed" => Ok(Self::Disputed(provider()?)),
            "delivered" => Ok(Self::Delivered(owner.parse().map_err(|_| unknown())?)),
            "revenue" if owner == "usage" => Ok(Self::RevenueUsage),
            "used" if owner.is_empty() => Ok(Self::Used),
            _ => Err(unknown()),
        }
    }
}

/// One leg of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Posting {
    /// The account.
    pub account: Account,
    /// The unit of the amount.
    pub unit: LedgerUnit,
    /// The amount: debit above zero, credit below.
    pub amount: i64,
}

impl Posting {
    /// A debit.
    #[must_use]
    pub const fn debit(account: Account, unit: LedgerUnit, amount: i64) -> Self {
        Self {
            account,
            unit,
            amount,
        }
    }

    /// A credit.
    ///
    /// `amount` is given above zero and booked below.
    #[must_use]
    pub const fn credit(account: Account, unit: LedgerUnit, amount: i64) -> Self {
        Self {
            account,
            unit,
            amount: -amount,
        }
    }
}

/// The kind of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransactionKind {
    /// A tenant's use, priced.
    Charge,
    /// A provider's time, as a lease accrued it, or a claim back of it.
    ProviderCost,
    /// A credit given to a tenant.
    Credit,
}

impl TransactionKind {
    /// The word in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Charge => "charge",
            Self::ProviderCost => "provider_cost",
            Self::Credit => "credit",
        }
    }
}

/// Why a set of postings is no transaction.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// Fewer than two legs.
    #[error("a transaction has at least two postings, not {0}")]
    TooFewPostings(usize),
    /// The legs of one unit do not sum to zero.
    #[error("the postings in {unit} sum to {sum}, not to zero")]
    Unbalanced {
        /// The unit.
        unit: LedgerUnit,
        /// Their sum.
        sum: i128,
    },
}

/// A set of postings that balances. Only [`Transaction::try_new`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    id: TransactionId,
    idempotency_key: String,
    kind: TransactionKind,
    effective_at: DateTime<Utc>,
    postings: Vec<Posting>,
}

impl Transaction {
    /// Checks that the postings balance in every unit.
    ///
    /// A second transaction with the same `idempotency_key` is not kept by the store.
    /// Errors: [`LedgerError`].
    pub fn try_new(
        id: TransactionId,
        idempotency_key: String,
        kind: TransactionKind,
        effective_at: DateTime<Utc>,
        postings: Vec<Posting>,
    ) -> Result<Self, LedgerError> {
        if postings.len() < 2 {
            return Err(LedgerError::TooFewPostings(postings.len()));
        }
        if let Some((unit, sum)) = sums(&postings).into_iter().find(|(_, sum)| *sum != 0) {
            return Err(LedgerError::Unbalanced { unit, sum });
        }
        Ok(Self {
            id,
            idempotency_key,
            kind,
            effective_at,
            postings,
        })
    }

    /// The transaction's id.
    #[must_use]
    pub const fn id(&self) -> TransactionId {
        self.id
    }

    /// The key under which it is posted once.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        &self.idempotency_key
    }

    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> TransactionKind {
        self.kind
    }

    /// The time that it belongs to.
    #[must_use]
    pub const fn effective_at(&self) -> DateTime<Utc> {
        self.effective_at
    }

    /// Its legs.
    #[must_use]
    pub fn postings(&self) -> &[Posting] {
        &self.postings
    }
}

/// Sums postings by unit.
#[must_use]
pub fn sums<'a>(postings: impl IntoIterator<Item = &'a Posting>) -> BTreeMap<LedgerUnit, i128> {
    let mut sums = BTreeMap::new();
    for posting in postings {
        *sums.entry(posting.unit).or_insert(0) += i128::from(posting.amount);
    }
    sums
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    const USD: LedgerUnit = LedgerUnit::Money(Currency::Usd);

    fn transaction(postings: Vec<Posting>) -> Result<Transaction, LedgerError> {
        Transaction::try_new(
            TransactionId::from_uuid(Uuid::from_u128(1)),
            "key".into(),
            TransactionKind::Charge,
            DateTime::UNIX_EPOCH,
            postings,
        )
    }

    #[test]
    fn postings_that_do_not_balance_are_no_transaction() {
        let legs = vec![
            Posting::debit(Account::Used, USD, 5),
            Posting::credit(Account::RevenueUsage, USD, 4),
        ];
        assert_eq!(
            transaction(legs),
            Err(LedgerError::Unbalanced { unit: USD, sum: 1 })
        );
    }

    #[test]
    fn two_units_never_balance_each_other() {
        let legs = vec![
            Posting::debit(Account::Used, USD, 5),
            Posting::credit(Account::RevenueUsage, LedgerUnit::GpuSeconds, 5),
        ];
        assert!(transaction(legs).is_err());
    }

    #[test]
    fn every_unit_reads_back_as_it_was_written() {
        for unit in [USD, LedgerUnit::GpuSeconds] {
            assert_eq!(unit.to_string().parse(), Ok(unit));
        }
        assert!("gold".parse::<LedgerUnit>().is_err());
    }

    #[test]
    fn every_account_reads_back_as_it_was_written() {
        let tenant = TenantId::from_uuid(Uuid::from_u128(3));
        let provider = ProviderId::parse("lambda").expect("a provider");
        let reservation = ReservationId::from_uuid(Uuid::from_u128(4));
        for account in [
            Account::Receivable(tenant),
            Account::RevenueUsage,
            Account::Credits(tenant),
            Account::Payable(provider.clone()),
            Account::CogsUsage(provider.clone()),
            Account::CogsPreHandoff(provider.clone()),
            Account::CogsCompensation(provider.clone()),
            Account::Disputed(provider),
            Account::Delivered(reservation),
            Account::Used,
        ] {
            assert_eq!(account.to_string().parse(), Ok(account));
        }
    }

    proptest! {
        #[test]
        fn a_transaction_is_made_exactly_when_each_unit_sums_to_zero(
            amounts in proptest::collection::vec((any::<i32>(), any::<bool>()), 2..8)
        ) {
            let legs: Vec<_> = amounts
                .iter()
                .map(|(amount, money)| Posting {
                    account: Account::Used,
                    unit: if *money { USD } else { LedgerUnit::GpuSeconds },
                    amount: i64::from(*amount),
                })
                .collect();
            let balanced = [true, false].into_iter().all(|wanted| {
                amounts.iter().filter(|(_, m)| *m == wanted).map(|(a, _)| i64::from(*a)).sum::<i64>() == 0
            });
            prop_assert_eq!(transaction(legs).is_ok(), balanced);
        }
    }
}
