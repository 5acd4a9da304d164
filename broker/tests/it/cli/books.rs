//! `broker ledger check`, over a correct ledger and over ledgers that were tampered with.

use std::path::Path;

use broker::service::start;
use chrono::Utc;
use market::credit::Credit;
use market::ids::{ApiKeyId, CreditId, ProjectId, TenantId, TransactionId};
use market::money::Money;
use pricing::postings::credit_transaction;
use serde_json::Value;
use store::Store;
use store::fixture::execute_raw;
use uuid::Uuid;

use super::Place;

/// Runs something on the database that a command keeps here.
fn on_database(dir: &Path, work: impl AsyncFnOnce(&Store)) {
    let config = broker::platform::config::Config::embedded(dir).expect("the defaults");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let store = start::open_store(&config).await.expect("opens");
        work(&store).await;
        store.close().await.expect("closes");
    });
}

async fn give_credit(store: &Store) {
    let ids = (
        TenantId::from_uuid(Uuid::now_v7()),
        ProjectId::from_uuid(Uuid::now_v7()),
    );
    let tenants = store.tenants();
    let tenant = tenants.ensure("acme", ids.0, ids.1, Utc::now()).await;
    let tenant = tenant.expect("a tenant").id;
    let credit = Credit::try_new(
        CreditId::from_uuid(Uuid::now_v7()),
        tenant,
        Money::usd_units(1_250_000_000),
        "a node came late".into(),
        ApiKeyId::from_uuid(Uuid::now_v7()),
        Utc::now(),
    )
    .expect("a credit");
    let id = TransactionId::from_uuid(Uuid::now_v7());
    let booking = credit_transaction(&credit, id).expect("balances");
    let credits = store.credits().of(tenant);
    credits.grant(&credit, &booking, None).await.expect("given");
}

#[test]
fn ledger_check_says_that_the_books_balance_and_where_they_do_not() {
    let place = Place::new();
    let check = || place.broker(["ledger", "check", "--json", "--data-dir", "kept"]);
    let created = place.broker(["token", "create", "--tenant", "acme", "--data-dir", "kept"]);
    assert_eq!(created.status, Some(0));
    let empty = check();
    assert_eq!((empty.status, empty.stderr.as_str()), (Some(0), ""));

    let dir = place.path().join("kept");
    on_database(&dir, give_credit);
    let right = check();
    let books: Value = serde_json::from_str(&right.stdout).expect("one object");
    assert_eq!(right.status, Some(0), "{}", right.stderr);
    assert_eq!(books["balanced"], true);
    assert_eq!(
        (
            &books["transactions"],
            &books["credits"],
            &books["totals"]["USD"]
        ),
        (&1.into(), &1.into(), &"0".into())
    );
    let accounts = books["accounts"].as_array().expect("accounts");
    let amounts: Vec<_> = accounts.iter().map(|row| row["amount"].as_str()).collect();
    assert_eq!(amounts, [Some("-12.5"), Some("12.5")]);
    let told = place.broker(["ledger", "check", "--data-dir", "kept"]);
    assert!(
        told.stdout.contains("the ledger balances"),
        "{}",
        told.stdout
    );

    on_database(&dir, async |store| {
        let forged = "INSERT INTO postings
             SELECT id, 9, 'revenue/usage', 'USD', -1 FROM transactions";
        execute_raw(store, forged).await.expect("behind our back");
    });
    let wrong = check();
    let books: Value = serde_json::from_str(&wrong.stdout).expect("one object");
    assert_eq!((wrong.status, &books["balanced"]), (Some(1), &false.into()));
    assert!(
        wrong.stderr.contains("wrong in 3 places"),
        "{}",
        wrong.stderr
    );
    let places: Vec<_> = books["differences"]
        .as_array()
        .expect("differences")
        .iter()
        .map(|one| one["what"].as_str().expect("a place"))
        .collect();
    assert!(places[0].starts_with("transaction txn_"), "{places:?}");
    assert_eq!(
        places[1..],
        ["all postings in USD", "account revenue/usage in USD"]
    );
}

#[test]
fn ledger_check_makes_no_database() {
    let place = Place::new();
    let ended = place.broker(["ledger", "check", "--data-dir", "mistyped"]);
    assert_eq!(ended.status, Some(2));
    assert!(ended.stderr.contains("--data-dir"), "{}", ended.stderr);
    assert!(!place.path().join("mistyped").exists());
}
