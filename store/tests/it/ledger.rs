use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use market::ids::TransactionId;
use market::ledger::{Account, LedgerUnit, Posting, Transaction, TransactionKind};
use market::money::Currency;
use market::offer::Availability;
use store::fixture::{count_rows, execute_raw, for_each_database};
use store::{Conflict, Store, StoreError};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::support::{at, offer, provider, provisioning, sell, tenant};

const USD: LedgerUnit = LedgerUnit::Money(Currency::Usd);

pub(crate) fn cost(key: &str, amount: i64, effective_at: DateTime<Utc>) -> Transaction {
    Transaction::try_new(
        TransactionId::from_uuid(Uuid::now_v7()),
        key.to_owned(),
        TransactionKind::ProviderCost,
        effective_at,
        vec![
            Posting::debit(Account::CogsUsage(provider()), USD, amount),
            Posting::credit(Account::Payable(provider()), USD, amount),
        ],
    )
    .expect("it balances")
}

/// Writes a row into every append-only table that has none yet.
pub async fn one_row_everywhere(store: &Store) {
    if count_rows(store, "attestations").await > 0 {
        return;
    }
    let offer = offer("a", Availability::exactly(2));
    sell(store, std::slice::from_ref(&offer), at(0)).await;
    let whose = tenant(store, "acme").await;
    let (reservation, lease) = provisioning(store, whose, &offer).await;
    store
        .ledger()
        .post(&[cost("a", 5, at(0))], at(1))
        .await
        .expect("posted");
    let id = |number: u128| Uuid::from_u128(number).simple().to_string();
    let charge = format!(
        "INSERT INTO charges VALUES ('usg_{}', '{}', '{}', '{}', '{lease}', 0, 'acme', 'H100-SXM',
         'gpus', 8, '2026-11-21T00:00:00+00:00', '2026-11-21T00:01:00+00:00', 480, 1, 1, 'USD',
         '{{}}', '{{}}', '2026-11-21T00:01:00+00:00')",
        id(1),
        whose.0,
        whose.1,
        reservation.id
    );
    let attestation = format!(
        "INSERT INTO attestations VALUES ('att_{}', 'ver_{}', '{}', '{lease}', 0, 'pass', {}, 'j',
         '2026-11-21T00:01:00+00:00')",
        id(2),
        id(3),
        whose.0,
        "TRUE"
    );
    execute_raw(store, &charge).await.expect("a charge");
    execute_raw(store, &attestation)
        .await
        .expect("an attestation");
}

#[tokio::test]
async fn a_transaction_is_posted_once_and_another_under_its_key_is_refused() {
    for_each_database(async |store| {
        let ledger = store.ledger();
        ledger
            .post(&[cost("lease-1", 7, at(0))], at(1))
            .await
            .expect("posted");
        ledger
            .post(&[cost("lease-1", 7, at(0))], at(2))
            .await
            .expect("the same, passed over");
        let different = [cost("lease-1", 8, at(0)), cost("lease-1", 7, at(1))];
        for transaction in different {
            // The balanced one is rolled back with the unbalanced one.
            let refusal = ledger
                .post(&[cost("lease-2", 1, at(0)), transaction], at(3))
                .await;
            let expected = Conflict::LedgerKey {
                key: "lease-1".to_owned(),
            };
            assert!(
                matches!(&refusal, Err(StoreError::Conflict(conflict)) if *conflict == expected),
                "{refusal:?}"
            );
        }
        assert_eq!(count_rows(store, "transactions").await, 1);
        assert_eq!(count_rows(store, "postings").await, 2);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn racing_posters_of_one_key_post_it_once() {
    for_each_database(async |store| {
        let mut posters = JoinSet::new();
        for _ in 0..16 {
            let store = store.clone();
            posters.spawn(async move {
                let batch = [cost("raced", 3, at(0)), cost("raced too", 4, at(0))];
                store
                    .ledger()
                    .post(&batch, at(1))
                    .await
                    .expect("posted or passed over");
            });
        }
        posters.join_all().await;
        assert_eq!(count_rows(store, "transactions").await, 2);
        let balance = store.ledger().books().await.expect("reads").balances;
        let amounts: Vec<_> = balance.iter().map(|row| row.amount).collect();
        assert_eq!(amounts, [-7, 7]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn posters_that_wait_for_each_other_in_a_circle_all_succeed_in_the_end() {
    for_each_database(async |store| {
        for round in 0..20 {
            let keys: Vec<_> = (0..12).map(|n| format!("circle-{round}-{n}")).collect();
            let batch = |keys: &[String]| -> Vec<_> {
                keys.iter().map(|key| cost(key, 1, at(0))).collect()
            };
            let forwards = batch(&keys);
            let backwards: Vec<_> = batch(&keys).into_iter().rev().collect();
            let mut posters = JoinSet::new();
            for batch in [forwards, backwards] {
                let store = store.clone();
                posters.spawn(async move { store.ledger().post(&batch, at(1)).await });
            }
            for outcome in posters.join_all().await {
                outcome.expect("a deadlock is tried again");
            }
        }
        assert_eq!(count_rows(store, "transactions").await, 240);
    })
    .await;
}

#[tokio::test]
async fn the_recount_sums_past_64_bits_and_finds_what_does_not_balance() {
    for_each_database(async |store| {
        let ledger = store.ledger();
        let largest = i64::MAX;
        let batch: Vec<_> = (0..3)
            .map(|n| cost(&format!("huge-{n}"), largest, at(n)))
            .collect();
        ledger.post(&batch, at(9)).await.expect("posted");
        let balance = ledger.books().await.expect("reads").balances;
        assert_eq!(balance[1].account, Account::CogsUsage(provider()));
        assert_eq!(balance[1].amount, 3 * i128::from(largest));
        let check = ledger.check().await.expect("reads");
        assert!(check.is_balanced());
        assert_eq!((check.transactions, check.postings), (3, 6));
        assert_eq!(check.totals, BTreeMap::from([(USD, 0)]));
        let forged = format!(
            "INSERT INTO postings VALUES ('{}', 9, 'used', 'USD', 1)",
            batch[1].id()
        );
        execute_raw(store, &forged)
            .await
            .expect("nothing but this program knows better");
        let check = ledger.check().await.expect("reads");
        assert!(!check.is_balanced());
        assert_eq!(check.unbalanced, [batch[1].id()]);
    })
    .await;
}
