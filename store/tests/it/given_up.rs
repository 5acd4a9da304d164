//! Callers that are dropped halfway: a client that hangs up, a worker that is killed.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use chrono::DateTime;
use market::ids::{ProjectId, TenantId};
use store::Store;
use store::fixture::{TestDatabase, count_rows, execute_raw};
use uuid::Uuid;

/// Polls `work` this many times, each when it asked for it, and then drops it.
async fn give_up_after(polls: u32, work: impl Future) {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 || work.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        left -= 1;
        // The last time nobody waits for the answer.
        if left == 0 {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

async fn writes_of_the_next_are_kept(test: &TestDatabase) {
    let store = &test.store;
    for round in 0..60_u128 {
        let (tenant, project) = (Uuid::from_u128(round + 1), Uuid::from_u128(round + 1_000));
        let (tenant, project) = (TenantId::from_uuid(tenant), ProjectId::from_uuid(project));
        let tenants = store.tenants();
        let name = format!("tenant {round}");
        let write = tenants.ensure(&name, tenant, project, DateTime::UNIX_EPOCH);
        give_up_after(u32::try_from(round % 6).expect("small"), write).await;
    }
    // Statements outside of transactions, on any connection: another handle on the database sees them only
    // when no transaction was left open around them.
    let other = Store::connect(test.database.clone()).await.expect("opens");
    for number in 0..40 {
        let table = format!("probe_{number}");
        let made = execute_raw(store, &format!("CREATE TABLE {table} (id INTEGER)")).await;
        made.expect("made");
        assert_eq!(
            count_rows(&other, &table).await,
            0,
            "{table} is there for everyone"
        );
    }
    other.close().await.expect("closes");
}

#[tokio::test]
async fn a_transaction_that_is_given_up_leaves_its_connection_to_the_next_one_as_it_was() {
    let sqlite = TestDatabase::sqlite().await;
    writes_of_the_next_are_kept(&sqlite).await;
    sqlite.remove().await;
    if let Some(postgres) = TestDatabase::postgres().await {
        writes_of_the_next_are_kept(&postgres).await;
        postgres.remove().await;
    }
}
