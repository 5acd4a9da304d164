//! The database after a failure of the disk or of the connection: all acknowledged writes, and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::Ordering;

use market::ids::{ProjectId, TenantId};
use store::fixture::{Cut, TestDatabase, Wire, interrupt_after, leave_pages};
use store::tenants::DEFAULT_PROJECT;
use store::{Database, Store, StoreError};
use uuid::Uuid;

use crate::support::{at, tenant};

/// More pages than a test writes.
const ROOM: u32 = 1 << 20;

async fn add(store: &Store, tenant: TenantId, name: &str) -> Result<(), StoreError> {
    let id = ProjectId::from_uuid(Uuid::now_v7());
    let tenants = store.tenants();
    let added = tenants.add_project(tenant, name, id, at(1), None).await;
    added.map(|_| ())
}

async fn names(store: &Store, tenant: TenantId) -> BTreeSet<String> {
    let projects = store.tenants().projects(tenant).await.expect("reads");
    projects.into_iter().map(|project| project.name).collect()
}

/// What another process finds after this one was killed here.
async fn after_a_kill(test: &TestDatabase, tenant: TenantId) -> BTreeSet<String> {
    let Database::Sqlite { path } = &test.database else {
        panic!("SQLite")
    };
    let folder = tempfile::tempdir().expect("a folder");
    let copy = folder.path().join("copy.db");
    fs::copy(path, &copy).expect("the file");
    // The index beside them is rebuilt from these two.
    let log = path.with_extension("db-wal");
    fs::copy(log, copy.with_extension("db-wal")).expect("the write-ahead log");
    let store = Store::connect(Database::Sqlite { path: copy }).await;
    let store = store.expect("opens");
    let found = names(&store, tenant).await;
    store.close().await.expect("closes");
    found
}

#[tokio::test]
async fn on_a_full_disk_all_that_was_answered_is_there_and_nothing_else() {
    let test = TestDatabase::sqlite().await;
    let (tenant, _) = tenant(&test.store, "acme").await;
    let mut answered = BTreeSet::from([DEFAULT_PROJECT.to_owned()]);
    let mut refused = 0;
    for number in 0..200 {
        let name = format!("{number}-{}", "x".repeat(80));
        leave_pages(&test.store, 0).await;
        match add(&test.store, tenant, &name).await {
            Ok(()) => {}
            Err(StoreError::Unavailable { .. }) => {
                refused += 1;
                assert_eq!(names(&test.store, tenant).await, answered);
                leave_pages(&test.store, ROOM).await;
                add(&test.store, tenant, &name)
                    .await
                    .expect("there is room");
            }
            Err(other) => panic!("{other:?}"),
        }
        answered.insert(name);
        test.store.prove_writes().await.expect("writes arrive");
    }
    assert!(refused >= 10, "the disk was full {refused} times");
    assert_eq!(names(&test.store, tenant).await, answered);
    assert_eq!(after_a_kill(&test, tenant).await, answered);
    test.remove().await;
}

#[tokio::test]
async fn a_write_that_is_interrupted_at_any_step_leaves_nothing_and_the_next_one_arrives() {
    let test = TestDatabase::sqlite().await;
    let (tenant, _) = tenant(&test.store, "acme").await;
    let mut answered = BTreeSet::from([DEFAULT_PROJECT.to_owned()]);
    for steps in (0..).step_by(7) {
        let has_struck = interrupt_after(&test.store, steps).await;
        let name = format!("interrupted after {steps}");
        let outcome = add(&test.store, tenant, &name).await;
        let has_struck = has_struck.load(Ordering::Relaxed);
        // It interrupts no other write.
        interrupt_after(&test.store, usize::MAX).await;
        match outcome {
            Ok(()) => _ = answered.insert(name),
            Err(StoreError::Unavailable { .. }) => assert!(has_struck),
            // It was interrupted when all was done, or just before.
            Err(StoreError::OutcomeUnknown { .. }) => {
                assert!(has_struck);
                answered.extend(names(&test.store, tenant).await.take(&name));
            }
            Err(other) => panic!("{other:?}"),
        }
        let next = format!("after {steps}");
        add(&test.store, tenant, &next).await.expect("writes");
        answered.insert(next);
        assert_eq!(names(&test.store, tenant).await, answered);
        if !has_struck {
            assert!(steps > 10, "only {steps} steps");
            break;
        }
    }
    assert_eq!(after_a_kill(&test, tenant).await, answered);
    test.remove().await;
}

#[tokio::test]
async fn a_connection_that_is_cut_at_any_statement_leaves_all_that_was_answered_and_nothing_else() {
    let Some(test) = TestDatabase::postgres().await else {
        return;
    };
    let wire = Wire::to(&test.database);
    let store = Store::connect(wire.database()).await.expect("connects");
    let (tenant, _) = tenant(&test.store, "acme").await;
    let mut answered = BTreeSet::from([DEFAULT_PROJECT.to_owned()]);
    let mut last = 0;
    for cut in [Cut::Before, Cut::After] {
        for trips in 0.. {
            let name = format!("{cut:?} {trips}");
            wire.cut_after(trips, cut);
            let outcome = add(&store, tenant, &name).await;
            let was_cut = !wire.mend();
            match outcome {
                Ok(()) => {
                    // The last statement is the COMMIT, and the database shows whether it committed.
                    assert!(!was_cut || cut == Cut::After, "after {trips}: {cut:?}");
                    answered.insert(name);
                }
                Err(StoreError::Unavailable { .. }) => assert!(was_cut),
                Err(other) => panic!("after {trips}, {cut:?}: {other:?}"),
            }
            assert_eq!(names(&test.store, tenant).await, answered);
            if !was_cut {
                last = trips.checked_sub(1).expect("some were cut");
                break;
            }
        }
    }
    assert!(answered.contains(&format!("{:?} {last}", Cut::After)));

    let mut unknown = Vec::new();
    for trips in 0..=last {
        let name = format!("for good after {trips}");
        wire.cut_after(trips, Cut::AfterForGood);
        let outcome = add(&store, tenant, &name).await;
        wire.mend();
        match outcome {
            Ok(()) | Err(StoreError::Unavailable { .. }) => {}
            Err(StoreError::OutcomeUnknown { .. }) => unknown.push(name),
            Err(other) => panic!("after {trips}: {other:?}"),
        }
    }
    // The one of the COMMIT, which succeeded.
    assert_eq!(unknown.len(), 1, "{unknown:?}");
    assert!(names(&test.store, tenant).await.contains(&unknown[0]));
    store.close().await.expect("closes");
    test.remove().await;
}
