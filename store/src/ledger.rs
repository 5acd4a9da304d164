//! The ledger: transactions appended once each, and their sums.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use market::credit::Credit;
use market::ids::TransactionId;
use market::ledger::{Account, LedgerUnit, Transaction};
use market::usage::Charge;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, Condition, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel,
    QueryFilter, QueryOrder,
};

use crate::entity::column::{Moment, Text, Word};
use crate::entity::{postings, transactions};
use crate::scope::service_wide;
use crate::tx::transaction;
use crate::{Conflict, StoreError, charges, credits};

/// The sum of an account in one unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccountBalance {
    /// The account.
    pub account: Account,
    /// The unit of the amount.
    pub unit: LedgerUnit,
    /// Debits less credits.
    pub amount: i128,
}

/// The result of a recount of the whole ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerCheck {
    /// Transactions counted.
    pub transactions: u64,
    /// Postings counted.
    pub postings: u64,
    /// The sum of all postings in each unit: zero when the ledger balances.
    pub totals: BTreeMap<LedgerUnit, i128>,
    /// Transactions whose postings do not sum to zero in each unit, or that have fewer than two.
    pub unbalanced: Vec<TransactionId>,
}

impl LedgerCheck {
    /// Whether the ledger balances, each transaction and in all.
    #[must_use]
    pub fn is_balanced(&self) -> bool {
        self.unbalanced.is_empty() && self.totals.values().all(|total| *total == 0)
    }
}

/// The whole ledger beside the charges and credits that it books, as of one moment.
#[derive(Debug, Clone, PartialEq)]
pub struct Books {
    /// The recount of the postings.
    pub check: LedgerCheck,
    /// The balance of every account, in order of account and unit.
    pub balances: Vec<AccountBalance>,
    /// Every charge, in order of time.
    pub charges: Vec<Charge>,
    /// Every credit, in order of time.
    pub credits: Vec<Credit>,
}

service_wide!(Ledger, ledger, "ledger");

impl Ledger<'_> {
    /// Posts transactions, all or none; one that was posted before under its key is skipped.
    ///
    /// Errors: [`Conflict::LedgerKey`] when another transaction was posted under the same key.
    pub async fn post(
        &self,
        transactions: &[Transaction],
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| post(tx, transactions, now).await)
    }

    /// Recounts the whole ledger from its postings.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn check(&self) -> Result<LedgerCheck, StoreError> {
        recount(&self.store.snapshot().await?).await
    }

    /// The whole ledger and the items that it books, for comparison.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn books(&self) -> Result<Books, StoreError> {
        let tx = self.store.snapshot().await?;
        Ok(Books {
            check: recount(&tx).await?,
            balances: balances(&tx).await?,
            charges: charges::find(&tx, Condition::all()).await?,
            credits: credits::find(&tx, Condition::all()).await?,
        })
    }
}

async fn balances<C: ConnectionTrait>(db: &C) -> Result<Vec<AccountBalance>, StoreError> {
    let mut sums: BTreeMap<(Account, LedgerUnit), i128> = BTreeMap::new();
    // Summed here: a sum in SQL has another type on each database, and may wrap or fail.
    for leg in postings::Entity::find().all(db).await? {
        *sums.entry((leg.account.0, leg.unit.0)).or_default() += i128::from(leg.amount);
    }
    Ok(sums
        .into_iter()
        .map(|((account, unit), amount)| AccountBalance {
            account,
            unit,
            amount,
        })
        .collect())
}

async fn recount(tx: &DatabaseTransaction) -> Result<LedgerCheck, StoreError> {
    let heads = transactions::Entity::find().all(tx).await?;
    let legs = postings::Entity::find().all(tx).await?;
    let mut check = LedgerCheck {
        transactions: heads.len() as u64,
        postings: legs.len() as u64,
        ..LedgerCheck::default()
    };
    let mut sums: BTreeMap<TransactionId, (u32, BTreeMap<LedgerUnit, i128>)> = heads
        .into_iter()
        .map(|head| (head.id.0, Default::default()))
        .collect();
    for leg in legs {
        let amount = i128::from(leg.amount);
        *check.totals.entry(leg.unit.0).or_default() += amount;
        let (count, units) = sums.entry(leg.transaction_id.0).or_default();
        *count += 1;
        *units.entry(leg.unit.0).or_default() += amount;
    }
    let unbalanced: BTreeSet<_> = sums
        .into_iter()
        .filter(|(_, (count, units))| *count < 2 || units.values().any(|sum| *sum != 0))
        .map(|(id, _)| id)
        .collect();
    check.unbalanced = unbalanced.into_iter().collect();
    Ok(check)
}

/// Posts transactions, within the transaction of the items that they book.
///
/// Errors: [`Conflict::LedgerKey`].
pub(crate) async fn post(
    tx: &DatabaseTransaction,
    transactions: &[Transaction],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for transaction in transactions {
        post_one(tx, transaction, now).await?;
    }
    Ok(())
}

async fn post_one(
    tx: &DatabaseTransaction,
    transaction: &Transaction,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let head = transactions::Model {
        id: Text(transaction.id()),
        idempotency_key: transaction.idempotency_key().to_owned(),
        kind: Word(transaction.kind()),
        effective_at: transaction.effective_at().into(),
        posted_at: now.into(),
    };
    let by_key = OnConflict::column(transactions::Column::IdempotencyKey)
        .do_nothing()
        .to_owned();
    let posted = transactions::Entity::insert(head.into_active_model())
        .on_conflict(by_key)
        .exec_without_returning(tx)
        .await?;
    if posted == 0 {
        return same_as_posted(tx, transaction).await;
    }
    let legs = legs(transaction.id(), transaction)?;
    let legs = legs.into_iter().map(IntoActiveModel::into_active_model);
    postings::Entity::insert_many(legs)
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

fn legs(id: TransactionId, transaction: &Transaction) -> Result<Vec<postings::Model>, StoreError> {
    let numbered = (0_i32..).zip(transaction.postings());
    Ok(numbered
        .map(|(leg, posting)| postings::Model {
            transaction_id: Text(id),
            leg,
            account: Text(posting.account.clone()),
            unit: Text(posting.unit),
            amount: posting.amount,
        })
        .collect())
}

/// Compares a transaction with the one posted under its key; only the ids may differ.
async fn same_as_posted(
    tx: &DatabaseTransaction,
    transaction: &Transaction,
) -> Result<(), StoreError> {
    let key = transaction.idempotency_key();
    let posted = transactions::Entity::find()
        .filter(transactions::Column::IdempotencyKey.eq(key))
        .one(tx)
        .await?
        .ok_or(StoreError::Stale)?;
    let posted_legs = postings::Entity::find()
        .filter(postings::Column::TransactionId.eq(posted.id.clone()))
        .order_by_asc(postings::Column::Leg)
        .all(tx)
        .await?;
    let same = posted.kind.0 == transaction.kind()
        && posted.effective_at == Moment::from(transaction.effective_at())
        && posted_legs == legs(posted.id.0, transaction)?;
    if same {
        Ok(())
    } else {
        Err(Conflict::LedgerKey {
            key: key.to_owned(),
        }
        .into())
    }
}
