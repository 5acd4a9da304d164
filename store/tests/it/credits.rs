//! Credits: kept with their postings, for good, and gone only with the schema that holds them.

use market::credit::Credit;
use market::ids::{ApiKeyId, CreditId, TenantId, TransactionId};
use market::ledger::{Account, LedgerUnit, Posting, Transaction, TransactionKind};
use market::money::{Currency, Money};
use store::fixture::{count_rows, execute_raw, for_each_database};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, provider, tenant};

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
async fn taking_back_the_schema_of_credits_loses_them_and_nothing_else() {
    for_each_database(async |store| {
        let acme = tenant(store, "acme").await.0;
        let cost = Transaction::try_new(
            TransactionId::from_uuid(Uuid::now_v7()),
            "lease".to_owned(),
            TransactionKind::ProviderCost,
            at(0),
            vec![
                Posting::debit(Account::CogsUsage(provider()), USD, 5),
                Posting::credit(Account::Payable(provider()), USD, 5),
            ],
        )
        .expect("it balances");
        store.ledger().post(&[cost], at(1)).await.expect("posted");
        grant(store, acme, &credit(acme, 500, 10)).await.expect("given");
        let nonsense = "INSERT INTO transactions
             VALUES ('txn_1', 'k', 'nonsense', '2026-11-21T00:00:00+00:00', '2026-11-21T00:00:00+00:00')";
        execute_raw(store, nonsense).await.expect_err("no such kind");

        let changes = store.migration_status().await.expect("a status");
        let from = changes.iter().position(|change| change.name.ends_with("_credits"));
        let steps = changes.len() - from.expect("the change that made them");
        store
            .migrate_down(u32::try_from(steps).expect("few"))
            .await
            .expect("down");
        assert_eq!(count_rows(store, "transactions").await, 1);
        assert_eq!(count_rows(store, "postings").await, 2);
        let unknown = nonsense.replace("nonsense", "credit");
        execute_raw(store, &unknown).await.expect_err("no such kind any more");
        for table in ["transactions", "postings"] {
            let statement = format!("DELETE FROM {table}");
            let refusal = execute_raw(store, &statement).await.expect_err(table);
            assert!(refusal.contains("append-only"), "{refusal}");
        }
        store.migrate_up().await.expect("up again");
        assert!(store.ledger().check().await.expect("reads").is_balanced());
        grant(store, acme, &credit(acme, 1, 20)).await.expect("given");
        assert_eq!(count_rows(store, "transactions").await, 2);
    })
    .await;
}
