use std::fmt::Display;

use market::lease::{LeaseEvent, LeaseState};
use market::offer::{Availability, Tenancy, Terms};
use market::reservation::ReservationState;
use store::fixture::{TestDatabase, contents, count_rows, execute_raw, for_each_database};
use store::settings::DatabaseMode;
use store::{Store, StoreError};

use crate::support::{at, offer, provisioning, sell, tenant};

#[tokio::test]
async fn the_schema_goes_up_and_down_and_up_again() {
    for_each_database(async |store| {
        let applied = async || {
            let status = store.migration_status().await.expect("a status");
            (
                status.iter().filter(|change| change.applied).count(),
                status.len(),
            )
        };
        let (up, all) = applied().await;
        assert_eq!(up, all);
        crate::ledger::one_row_everywhere(store).await;
        assert!(count_rows(store, "postings").await > 0);
        for step in 1..=all {
            store.migrate_down(1).await.expect("one step down");
            assert_eq!(applied().await.0, all - step);
        }
        store.migrate_up().await.expect("up again");
        store.migrate_up().await.expect("nothing more to do");
        assert_eq!(applied().await, (all, all));
        assert_eq!(count_rows(store, "postings").await, 0);
    })
    .await;
}

/// Runs `statements`, and expects that the whole store then refuses the database for its schema and leaves it
/// unchanged.
async fn is_refused(test: &TestDatabase, statements: &str, is_so: impl Fn(&StoreError) -> bool) {
    let store = &test.store;
    crate::ledger::one_row_everywhere(store).await;
    execute_raw(store, statements).await.expect(statements);
    let before = contents(store).await;
    for refusal in [
        store.migrate_up().await,
        store.migrate_down(1).await,
        store.migration_status().await.map(drop),
        Store::connect(test.database.clone()).await.map(drop),
    ] {
        let refusal = refusal.expect_err("refused");
        assert!(is_so(&refusal), "{refusal:?}");
        let words = refusal.to_string();
        assert!(words.contains("nothing was changed"), "{words}");
    }
    assert_eq!(contents(store).await, before);
}

async fn on_each(test: impl AsyncFn(&TestDatabase)) {
    let sqlite = TestDatabase::sqlite().await;
    test(&sqlite).await;
    sqlite.remove().await;
    if let Some(postgres) = TestDatabase::postgres().await {
        test(&postgres).await;
        postgres.remove().await;
    }
}

#[tokio::test]
async fn a_database_from_before_the_schema_was_rewritten_is_refused_and_stays_as_it_was() {
    on_each(async |test| {
        let before = "DELETE FROM seaql_migrations;
             INSERT INTO seaql_migrations VALUES ('m20261121_000001_settings', 1);
             INSERT INTO seaql_migrations VALUES ('m20261125_000050_refused_messages', 1);";
        let is_first = |change: &str| change == "m20261121_000001_settings";
        is_refused(
            test,
            before,
            |refusal| matches!(refusal, StoreError::OlderSchema { change } if is_first(change)),
        )
        .await;
    })
    .await;
}

#[tokio::test]
async fn a_database_that_a_newer_version_upgraded_is_refused_and_stays_as_it_was() {
    on_each(async |test| {
        let newer = "INSERT INTO seaql_migrations VALUES ('m20991231_000001_later', 1)";
        is_refused(test, newer, |refusal| {
            matches!(refusal, StoreError::NewerSchema { change } if change == "m20991231_000001_later")
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn two_processes_migrating_at_once_both_succeed() {
    let race = async |fresh: &TestDatabase| {
        let open = || Store::connect(fresh.database.clone());
        let (one, other) = (open().await.expect("opens"), open().await.expect("opens"));
        let steps = one.migration_status().await.expect("a status").len();
        one.migrate_down(u32::try_from(steps).expect("few"))
            .await
            .expect("empty");
        let (first, second) = tokio::join!(one.migrate_up(), other.migrate_up());
        first.expect("up");
        second.expect("up too");
        one.close().await.expect("closes");
        other.close().await.expect("closes");
    };
    on_each(race).await;
}

// S91, S109
#[tokio::test]
async fn history_refuses_to_be_rewritten_by_raw_sql() {
    for_each_database(async |store| {
        for table in [
            "readings",
            "offer_history",
            "attestations",
            "transactions",
            "postings",
            "charges",
            "events",
        ] {
            // A row trigger needs a row, with any contents.
            crate::ledger::one_row_everywhere(store).await;
            let key = if table == "postings" { "leg" } else { "1" };
            let column = match table {
                "readings" => "offers",
                "offer_history" => "generation",
                "attestations" => "node_index",
                "transactions" => "idempotency_key",
                "events" => "sequence",
                "postings" => "amount",
                _ => "amount_units",
            };
            let before = count_rows(store, table).await;
            assert!(before > 0, "{table} is empty");
            for statement in [
                format!("UPDATE {table} SET {column} = {column} WHERE {key} >= 0"),
                format!("DELETE FROM {table}"),
            ] {
                let refusal = execute_raw(store, &statement).await.expect_err(&statement);
                assert!(refusal.contains("append-only"), "{refusal}");
            }
            assert_eq!(count_rows(store, table).await, before);
        }
    })
    .await;
}

#[tokio::test]
async fn a_database_keeps_the_mode_that_it_was_made_for() {
    for_each_database(async |store| {
        let settings = store.settings();
        assert_eq!(settings.mode().await.expect("reads"), None);
        settings
            .settle_mode(DatabaseMode::Simulation, at(0))
            .await
            .expect("settles");
        settings
            .settle_mode(DatabaseMode::Simulation, at(1))
            .await
            .expect("the same again");
        let refusal = settings.settle_mode(DatabaseMode::Production, at(2)).await;
        assert!(
            matches!(
                refusal,
                Err(StoreError::ModeMismatch {
                    is: DatabaseMode::Simulation,
                    wanted: DatabaseMode::Production
                })
            ),
            "{refusal:?}"
        );
        assert_eq!(
            settings.mode().await.expect("reads"),
            Some(DatabaseMode::Simulation)
        );
    })
    .await;
}

/// Writes each word into a column of the present rows, and one word that is not allowed.
async fn accepts(store: &Store, table: &str, column: &str, words: &[impl Display]) {
    assert!(count_rows(store, table).await > 0, "{table} is empty");
    let write = |word: &dyn Display| format!("UPDATE {table} SET {column} = '{word}'");
    for word in words {
        execute_raw(store, &write(word))
            .await
            .unwrap_or_else(|no| panic!("{word}: {no}"));
    }
    execute_raw(store, &write(&"nonsense"))
        .await
        .expect_err("no word of the market");
}

#[tokio::test]
async fn every_word_of_the_market_may_stand_in_its_column_and_no_other() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        provisioning(store, whose, &offer).await;
        accepts(store, "leases", "state", &LeaseState::ALL).await;
        for event in LeaseEvent::ALL {
            let word = serde_json::to_value(event).expect("json");
            assert!(
                word.as_str().is_some_and(|word| word.len() <= 24),
                "{word} fits its column"
            );
        }
        for state in ReservationState::all() {
            let reason = state
                .reason()
                .map_or("NULL".into(), |why| format!("'{}'", why.as_str()));
            let word = state.as_str();
            let write = format!("UPDATE reservations SET state = '{word}', reason = {reason}");
            execute_raw(store, &write)
                .await
                .unwrap_or_else(|no| panic!("{state}: {no}"));
        }
        let unreasoned = "UPDATE reservations SET state = 'closed', reason = NULL";
        execute_raw(store, unreasoned)
            .await
            .expect_err("closed for no reason");
        let kinds = ["gpus", "train", "serve_realtime", "serve_batch", "hybrid"];
        accepts(store, "reservations", "kind", &kinds).await;
        let terms = [
            Terms::OnDemand,
            Terms::Spot,
            Terms::Reserved,
            Terms::Window,
            Terms::Floor,
        ];
        accepts(store, "offers", "terms", &terms).await;
        let tenancies = [
            Tenancy::BareMetal,
            Tenancy::Vm,
            Tenancy::Container,
            Tenancy::Managed,
        ];
        accepts(store, "offers", "tenancy", &tenancies).await;
        let levels = ["none", "low", "medium", "high", "present", "unknown"];
        accepts(store, "offers", "level", &levels).await;
    })
    .await;
}

#[tokio::test]
async fn a_database_is_of_one_deployment_whichever_replica_named_it() {
    for_each_database(async |store| {
        let (first, second) = (uuid::Uuid::from_u128(1), uuid::Uuid::from_u128(2));
        let settings = store.settings();
        let named = settings.settle_deployment(first, at(0)).await;
        let named = named.expect("settles");
        assert_eq!(named, first.simple().to_string());
        let again = settings.settle_deployment(second, at(1)).await;
        assert_eq!(again.expect("settled"), named);
    })
    .await;
}
