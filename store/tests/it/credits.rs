//! Credits: stored with their postings, for good.

use market::credit::Credit;
use market::ids::{ApiKeyId, CreditId, TenantId, TransactionId};
use market::ledger::{Account, LedgerUnit, Posting, Transaction, TransactionKind};
use market::money::{Currency, Money};
use store::fixture::{execute_raw, for_each_database};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, tenant};

const USD: LedgerUnit = LedgerUnit::Money(Currency::Usd);

fn credit(tenant: TenantId, units: i64, seconds: i64) -> Credit {
    Credit::try_new(
        CreditId::from_uuid(Uuid::now_v7()),
        tenant,
        Money::usd_units(units),
        "a node came late".to_owned(),
        ApiKeyId::from_uuid(Uuid::from_u128(1)),
        at(seconds),
    )
    .expect("a credit")
}

fn booking(credit: &Credit) -> Transaction {
    let amount = credit.amount.units();
    Transaction::try_new(
        TransactionId::from_uuid(Uuid::now_v7()),
        format!("credit/{}", credit.id),
        TransactionKind::Credit,
        credit.granted_at,
        vec![
            Posting::debit(Account::Credits(credit.tenant_id), USD, amount),
            Posting::credit(Account::Receivable(credit.tenant_id), USD, amount),
        ],
    )
    .expect("it balances")
}

async fn grant(store: &Store, tenant: TenantId, credit: &Credit) -> Result<(), StoreError> {
    let credits = store.credits().of(tenant);
    credits.grant(credit, &booking(credit), None).await
}

#[tokio::test]
async fn a_credit_is_kept_with_its_postings_and_once() {
    for_each_database(async |store| {
        let (acme, other) = (
            tenant(store, "acme").await.0,
            tenant(store, "other").await.0,
        );
        let (first, second) = (credit(acme, 500, 10), credit(acme, 700, 20));
        for one in [&first, &second] {
            grant(store, acme, one).await.expect("given");
        }
        let again = grant(store, acme, &first).await;
        assert!(
            matches!(again, Err(StoreError::Conflict(Conflict::Exists { .. }))),
            "{again:?}"
        );
        let strange = grant(store, other, &credit(acme, 1, 30)).await;
        assert!(
            matches!(strange, Err(StoreError::NotFound { .. })),
            "{strange:?}"
        );
        let mine = store.credits().of(acme);
        assert_eq!(
            mine.list().await.expect("reads"),
            [second.clone(), first.clone()]
        );
        assert_eq!(mine.between(at(0), at(20)).await.expect("reads"), [first]);
        assert_eq!(store.credits().of(other).list().await.expect("reads"), []);
        let everyone = store.credits().across_tenants();
        assert_eq!(
            everyone.between(at(20), at(21)).await.expect("reads"),
            [second]
        );
        let books = store.ledger().books().await.expect("reads");
        assert!(books.check.is_balanced());
        let amounts: Vec<_> = books.balances.iter().map(|row| row.amount).collect();
        assert_eq!((amounts, books.credits.len()), (vec![-1_200, 1_200], 2));
        for statement in ["UPDATE credits SET amount_units = 1", "DELETE FROM credits"] {
            let refusal = execute_raw(store, statement).await.expect_err(statement);
            assert!(refusal.contains("append-only"), "{refusal}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_transaction_of_no_known_kind_is_refused_by_the_database() {
    for_each_database(async |store| {
        let book = |kind: &str| {
            let moment = "2026-11-21T00:00:00+00:00";
            let row = format!("'txn_{kind}', '{kind}', '{kind}', '{moment}', '{moment}'");
            format!("INSERT INTO transactions VALUES ({row})")
        };
        for kind in ["charge", "provider_cost", "credit"] {
            execute_raw(store, &book(kind)).await.expect(kind);
        }
        let refusal = execute_raw(store, &book("nonsense")).await;
        refusal.expect_err("no such kind");
    })
    .await;
}
