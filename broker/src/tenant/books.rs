//! The ledger check: computes the ledger's balances again from charged usage and credits, and compares them.
//!
//! The store checks that each transaction sums to zero; `pricing` and `market::money` compute the cost of
//! usage. This module compares the two.

use std::collections::{BTreeMap, BTreeSet};

use market::ids::{ReservationId, TenantId};
use market::ledger::{Account, LedgerUnit};
use market::money::{Money, MoneyError, Rate};
use rust_decimal::Decimal;
use serde::Serialize;
use store::leases::Lease;
use store::ledger::Books;

use crate::flow::fulfil::stated;

/// A defect of the ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Where.
    pub what: String,
    /// The expected value.
    pub expected: String,
    /// The actual value.
    pub found: String,
}

/// A lease whose provider bills another price than was quoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MovedPrice {
    /// The lease.
    pub lease_id: String,
    /// The provider that bills.
    pub provider: String,
    /// US dollars for one node and hour, as quoted.
    pub quoted_usd: Money,
    /// US dollars for one node and hour, as billed.
    pub billed_usd: Money,
}

/// The balances of accounts. Debits above zero.
type Balances = BTreeMap<(Account, LedgerUnit), i128>;

/// Finds every difference between the ledger and the facts it books.
///
/// Errors: [`MoneyError::Overflow`] when the use of one line costs more than 64 bits hold.
pub fn differences(books: &Books) -> Result<Vec<Difference>, MoneyError> {
    let mut found = unbalanced(books);
    let lines = lines(books);
    for line in &lines {
        let cost = line.cost()?;
        if i128::from(cost.units()) != line.charged_units {
            found.push(Difference {
                what: format!("charges of line {} of {}", line.number, line.reservation),
                expected: cost.to_string(),
                found: shown(LedgerUnit::Money(cost.currency()), line.charged_units),
            });
        }
    }
    let is: Balances = books
        .balances
        .iter()
        .map(|row| ((row.account.clone(), row.unit), row.amount))
        .collect();
    let due = due(books, &lines, &is)?;
    let accounts: BTreeSet<_> = is
        .keys()
        .filter(|(account, _)| !is_cost(account))
        .chain(due.keys())
        .collect();
    for key in accounts {
        let amount_in = |balances: &Balances| balances.get(key).copied().unwrap_or(0);
        let (due, is, (account, unit)) = (amount_in(&due), amount_in(&is), key);
        if due != is {
            found.push(Difference {
                what: format!("account {account} in {unit}"),
                expected: shown(*unit, due),
                found: shown(*unit, is),
            });
        }
    }
    Ok(found)
}

/// The leases that are billed at another price than was quoted.
#[must_use]
pub fn moved_prices(leases: &[Lease]) -> Vec<MovedPrice> {
    let moved = leases.iter().filter_map(|lease| {
        let (quoted, billed) = (lease.offer.price_per_node_hour, lease.price_per_node_hour?);
        stated::differs(quoted, billed).then(|| MovedPrice {
            lease_id: lease.id.to_string(),
            provider: lease.offer.provider.to_string(),
            quoted_usd: quoted,
            billed_usd: billed,
        })
    });
    moved.collect()
}

/// An amount as people read it.
#[must_use]
pub fn shown(unit: LedgerUnit, amount: i128) -> String {
    match unit {
        LedgerUnit::GpuSeconds => amount.to_string(),
        LedgerUnit::Money(currency) => {
            Decimal::try_from_i128_with_scale(amount, currency.unit_decimals()).map_or_else(
                |_| format!("{amount} units"),
                |amount| amount.normalize().to_string(),
            )
        }
    }
}

fn unbalanced(books: &Books) -> Vec<Difference> {
    let transactions = books.check.unbalanced.iter().map(|id| Difference {
        what: format!("transaction {id}"),
        expected: "two postings or more that sum to zero".into(),
        found: "others".into(),
    });
    let totals = books.check.totals.iter().filter(|(_, total)| **total != 0);
    let totals = totals.map(|(unit, total)| Difference {
        what: format!("all postings in {unit}"),
        expected: "0".into(),
        found: shown(*unit, *total),
    });
    transactions.chain(totals).collect()
}

/// The usage and the charge under one line of a quote.
struct Line {
    reservation: ReservationId,
    number: u32,
    tenant: TenantId,
    rate: Money,
    gpu_seconds: i128,
    charged_units: i128,
}

impl Line {
    /// The cost of its use at the frozen rate, rounded once.
    fn cost(&self) -> Result<Money, MoneyError> {
        let gpu_seconds = i64::try_from(self.gpu_seconds).map_err(|_| MoneyError::Overflow)?;
        Rate::per_gpu_hour(self.rate).cost_of(gpu_seconds)
    }
}

fn lines(books: &Books) -> Vec<Line> {
    let mut lines: BTreeMap<_, Line> = BTreeMap::new();
    for charge in &books.charges {
        let usage = &charge.usage;
        let rate = charge.rate.money_per_gpu_hour();
        let key = (usage.reservation_id, usage.line, charge.tenant_id, rate);
        let line = lines.entry(key).or_insert(Line {
            reservation: usage.reservation_id,
            number: usage.line,
            tenant: charge.tenant_id,
            rate,
            gpu_seconds: 0,
            charged_units: 0,
        });
        line.gpu_seconds += i128::from(usage.gpu_seconds());
        line.charged_units += i128::from(charge.amount.units());
    }
    lines.into_values().collect()
}

/// The expected balances, computed from usage, credits and providers' costs.
fn due(books: &Books, lines: &[Line], is: &Balances) -> Result<Balances, MoneyError> {
    let mut due = Balances::new();
    let mut book = |account: Account, unit: LedgerUnit, amount: i128| {
        *due.entry((account, unit)).or_default() += amount;
    };
    for line in lines {
        let cost = line.cost()?;
        let (money, cost) = (LedgerUnit::Money(cost.currency()), i128::from(cost.units()));
        book(Account::Receivable(line.tenant), money, cost);
        book(Account::RevenueUsage, money, -cost);
        let seconds = LedgerUnit::GpuSeconds;
        book(Account::Used, seconds, line.gpu_seconds);
        book(
            Account::Delivered(line.reservation),
            seconds,
            -line.gpu_seconds,
        );
    }
    for credit in &books.credits {
        let money = LedgerUnit::Money(credit.amount.currency());
        let amount = i128::from(credit.amount.units());
        book(Account::Credits(credit.tenant_id), money, amount);
        book(Account::Receivable(credit.tenant_id), money, -amount);
    }
    for ((account, unit), amount) in is {
        if let Account::CogsUsage(provider)
        | Account::CogsPreHandoff(provider)
        | Account::CogsCompensation(provider)
        | Account::Disputed(provider) = account
        {
            book(Account::Payable(provider.clone()), *unit, -amount);
        }
    }
    Ok(due)
}

/// Whether the account holds a provider's charge, or its refund: no other fact tells its expected value.
const fn is_cost(account: &Account) -> bool {
    matches!(
        account,
        Account::CogsUsage(_)
            | Account::CogsPreHandoff(_)
            | Account::CogsCompensation(_)
            | Account::Disputed(_)
    )
}

#[cfg(test)]
mod tests;
