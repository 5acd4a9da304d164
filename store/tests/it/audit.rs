use market::identity::Role;
use market::ids::{PrincipalId, ProjectId, TenantId};
use store::Store;
use store::audit::{
    Actor, AuditFilter, AuditNote, AuditOutcome, AuditPosition, ChainFault, CredentialKind,
    NewAuditEntry, SERVICE_CHAIN,
};
use store::fixture::{count_rows, execute_raw, for_each_database};
use store::idempotency::{Answer, Completion};
use store::tenants::Project;
use uuid::Uuid;

use crate::support::{at, tenant};

fn entry(tenant: Option<TenantId>, operation: &str, seconds: i64) -> NewAuditEntry {
    NewAuditEntry {
        tenant,
        at: at(seconds),
        actor: Actor {
            principal: Some(PrincipalId::from_uuid(Uuid::from_u128(7))),
            own_tenant: tenant,
            role: Some(Role::Member),
            credential: CredentialKind::ApiKey,
            key_prefix: Some("gpb_abcd".to_owned()),
            issuer: None,
            subject: None,
        },
        operation: operation.to_owned(),
        target: Some("rsv_1".to_owned()),
        outcome: AuditOutcome::Done,
        status: Some(200),
        code: None,
        peer: Some("127.0.0.1".to_owned()),
        request_id: Some("r1".to_owned()),
    }
}

/// Drops the triggers, as an intruder with access to the database would.
async fn unprotect(store: &Store) {
    let sqlite = [
        "DROP TRIGGER audit_entries_no_update",
        "DROP TRIGGER audit_entries_no_delete",
    ];
    let postgres = ["ALTER TABLE audit_entries DISABLE TRIGGER ALL"];
    if execute_raw(store, sqlite[0]).await.is_ok() {
        execute_raw(store, sqlite[1]).await.expect("dropped");
    } else {
        execute_raw(store, postgres[0]).await.expect("disabled");
    }
}

async fn fault(store: &Store) -> Option<(i64, ChainFault)> {
    let checked = store.audit().check().await.expect("reads");
    checked.err().map(|broken| (broken.seq, broken.fault))
}

#[tokio::test]
async fn each_tenant_has_a_chain_that_holds_and_the_service_has_one() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        let (other, _) = tenant(store, "other").await;
        for (whose, operation, seconds) in [
            (Some(acme), "confirm_reservation", 1),
            (None, "keys rotate", 2),
            (Some(other), "cancel_reservation", 3),
            (Some(acme), "cancel_reservation", 4),
        ] {
            let made = store.audit().append(entry(whose, operation, seconds)).await;
            made.expect("appended");
        }
        let ends = store.audit().check().await.expect("reads").expect("holds");
        let mut known: Vec<_> = ends
            .iter()
            .map(|end| (end.chain.clone(), end.entries))
            .collect();
        known.sort();
        let mut expected = vec![
            (acme.to_string(), 2),
            (other.to_string(), 1),
            (SERVICE_CHAIN.to_owned(), 1),
        ];
        expected.sort();
        assert_eq!(known, expected);

        let all = store.audit().list(&AuditFilter::default(), None, 50).await;
        let all = all.expect("reads");
        let operations: Vec<_> = all.iter().map(|entry| entry.operation.as_str()).collect();
        assert_eq!(
            operations,
            [
                "cancel_reservation",
                "cancel_reservation",
                "keys rotate",
                "confirm_reservation"
            ]
        );
        let (mut seen, mut after) = (Vec::new(), None);
        loop {
            let page = store
                .audit()
                .list(&AuditFilter::default(), after.as_ref(), 1)
                .await;
            let Some(one) = page.expect("reads").pop() else {
                break;
            };
            after = Some(AuditPosition(one.at, one.chain.clone(), one.seq));
            seen.push(one);
        }
        assert_eq!(seen, all, "page by page");
        let of_acme = AuditFilter {
            tenant: Some(acme),
            operation: Some("cancel_reservation".to_owned()),
            ..AuditFilter::default()
        };
        let found = store.audit().list(&of_acme, None, 50).await.expect("reads");
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].seq, found[0].role.as_deref()),
            (2, Some("member"))
        );
    })
    .await;
}

// S91
#[tokio::test]
async fn whatever_is_done_to_the_audit_log_behind_its_back_is_found() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        for seconds in 1..=4 {
            let made = entry(Some(acme), "confirm_reservation", seconds);
            store.audit().append(made).await.expect("appended");
        }
        for statement in [
            "UPDATE audit_entries SET operation = 'x' WHERE seq = 2",
            "DELETE FROM audit_entries",
        ] {
            let refusal = execute_raw(store, statement).await.expect_err(statement);
            assert!(refusal.contains("append-only"), "{refusal}");
        }
        assert_eq!(fault(store).await, None);
        unprotect(store).await;
        for (damage, mend, expected) in [
            (
                "UPDATE audit_entries SET operation = 'x' WHERE seq = 2",
                "UPDATE audit_entries SET operation = 'confirm_reservation'",
                (2, ChainFault::Altered),
            ),
            (
                "UPDATE audit_entries SET peer = NULL WHERE seq = 3",
                "UPDATE audit_entries SET peer = '127.0.0.1'",
                (3, ChainFault::Altered),
            ),
        ] {
            execute_raw(store, damage).await.expect(damage);
            assert_eq!(fault(store).await, Some(expected), "{damage}");
            execute_raw(store, mend).await.expect(mend);
            assert_eq!(fault(store).await, None, "{mend}");
        }
        // Two entries change places.
        for (from, to) in [(2, 20), (3, 2), (20, 3)] {
            let swap = format!("UPDATE audit_entries SET seq = {to} WHERE seq = {from}");
            execute_raw(store, &swap).await.expect("swapped");
        }
        assert_eq!(fault(store).await, Some((2, ChainFault::Altered)));
        for (from, to) in [(2, 20), (3, 2), (20, 3)] {
            let swap = format!("UPDATE audit_entries SET seq = {to} WHERE seq = {from}");
            execute_raw(store, &swap).await.expect("swapped back");
        }
        assert_eq!(fault(store).await, None);
        // One is removed from the middle, then all that follow it too: the end of the chain shows it.
        let middle = "DELETE FROM audit_entries WHERE seq = 2";
        execute_raw(store, middle).await.expect(middle);
        assert_eq!(fault(store).await, Some((2, ChainFault::Missing)));
        let tail = "DELETE FROM audit_entries WHERE seq > 1";
        execute_raw(store, tail).await.expect(tail);
        assert_eq!(fault(store).await, Some((2, ChainFault::Missing)));
        let heads = "DELETE FROM audit_heads";
        execute_raw(store, heads).await.expect(heads);
        assert_eq!(fault(store).await, Some((1, ChainFault::Beyond)));
    })
    .await;
}

#[tokio::test]
async fn an_entry_stands_with_its_effect_or_not_at_all() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        let render = |project: &Project| Answer {
            status: 201,
            body: serde_json::json!({ "id": project.id }).to_string(),
        };
        let add = async |name: &str, note: &AuditNote| {
            let id = ProjectId::from_uuid(Uuid::now_v7());
            let completion = Completion {
                mark: None,
                audit: Some(note),
                render: &render,
            };
            let tenants = store.tenants();
            tenants
                .add_project(acme, name, id, at(1), Some(completion))
                .await
        };
        let new = || {
            AuditNote::new(NewAuditEntry {
                target: None,
                ..entry(Some(acme), "make_project", 1)
            })
        };
        let note = new();
        let made = add("llm", &note).await.expect("made");
        assert!(note.was_taken());
        let note = new();
        add("llm", &note).await.expect_err("it exists");
        assert!(!note.was_taken());
        let all = store.audit().list(&AuditFilter::default(), None, 50).await;
        let all = all.expect("reads");
        assert_eq!(all.len(), 1);
        let target = made.id.to_string();
        assert_eq!(
            (all[0].target.as_deref(), all[0].status),
            (Some(target.as_str()), Some(201))
        );
        assert_eq!(count_rows(store, "audit_heads").await, 1);
    })
    .await;
}

#[tokio::test]
async fn entries_appended_at_once_form_one_chain() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        let mut writers = tokio::task::JoinSet::new();
        for seconds in 0..24 {
            let store = store.clone();
            writers.spawn(async move {
                let made = entry(Some(acme), "confirm_reservation", seconds);
                store.audit().append(made).await
            });
        }
        for done in writers.join_all().await {
            done.expect("appended");
        }
        let ends = store.audit().check().await.expect("reads").expect("holds");
        assert_eq!(ends[0].entries, 24);
    })
    .await;
}
