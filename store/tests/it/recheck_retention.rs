//! Re-checks of nodes in use that passed are deleted in time, and nothing else of them.

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::{AttestationId, TenantId};
use store::Store;
use store::fixture::{count_rows, execute_raw, for_each_database, statements_of};
use store::verifications::Interruption;
use uuid::Uuid;

use crate::node_reports::fleet;
use crate::rechecks::{allowed, enrol, look};
use crate::support::at;

const DAY: i64 = 86_400;

fn day(number: i64) -> DateTime<Utc> {
    at(number * DAY)
}

async fn is_kept(store: &Store, tenant: TenantId, id: AttestationId) -> bool {
    let mine = store.verifications().of(tenant);
    mine.attestation(id).await.expect("reads").is_some()
}

/// Rows of everything that re-checks of nodes in use leave behind.
async fn rows(store: &Store) -> Vec<i64> {
    let mut rows = Vec::new();
    for table in [
        "attestations",
        "node_rechecks",
        "let_go_rechecks",
        "agent_keys",
        "node_sessions",
        "verifications",
    ] {
        rows.push(count_rows(store, table).await);
    }
    rows
}

#[tokio::test]
async fn what_was_passed_long_ago_goes_and_what_failed_and_the_last_of_each_node_stay() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 2).await;
        let (busy, idle) = (leases[0], leases[1]);
        let id = allowed(store, tenant, reservation, busy).await;
        use Verdict::{Fail, Inconclusive, Pass, PassWithWarnings};
        let verdicts = [Pass, Inconclusive, PassWithWarnings, Fail, Pass, Pass, Pass];
        let mut looks = Vec::new();
        for (verdict, number) in verdicts.into_iter().zip(1..) {
            let seen = look(store, id, verdict, number * DAY).await;
            looks.push(seen.expect("a look"));
        }
        let id = allowed(store, tenant, reservation, idle).await;
        let only = look(store, id, Pass, DAY).await.expect("a look");
        let before = rows(store).await;
        let last = async |lease| {
            let mine = store.rechecks().of(tenant);
            mine.last_of_lease(lease).await.expect("reads")
        };
        let (last_of_busy, last_of_idle) = (last(busy).await, last(idle).await);

        let retention = store.retention();
        let prune = async |number| {
            let pruned = retention.prune_rechecks((day(number), day(99)), 2);
            let (gone, sent) = statements_of(pruned).await;
            (gone.expect("prunes"), sent.len())
        };
        assert_eq!(prune(1).await, (0, 1), "none is older");
        // The first and the third.
        assert_eq!(prune(6).await, (2, 4));
        assert_eq!(rows(store).await[..3], [before[0] - 2, before[1] - 2, 2]);
        assert_eq!(prune(6).await, (1, 4));
        assert_eq!(prune(6).await, (0, 1), "again there is nothing");
        let mut kept = Vec::new();
        for one in &looks {
            kept.push(is_kept(store, tenant, *one).await);
        }
        assert_eq!(kept, [false, true, false, true, false, true, true]);
        assert!(is_kept(store, tenant, only).await, "the last of its node");
        // However old.
        assert_eq!(prune(1_000).await, (1, 4));
        assert_eq!(prune(1_000).await, (0, 1));
        assert!(is_kept(store, tenant, looks[6]).await && is_kept(store, tenant, only).await);
        assert_eq!(last(busy).await, last_of_busy);
        assert_eq!(last(idle).await, last_of_idle);
        let all = store.rechecks().across_tenants();
        let repairing = all.repairing(busy).await.expect("reads");
        assert_eq!(repairing.expect("the one that failed").verdict, Fail);

        let mine = store.rechecks().of(tenant);
        let stays = mine.let_go(looks[2]).await.expect("reads").expect("a row");
        assert_eq!(
            (
                stays.lease_id,
                stays.verdict,
                stays.checked_at,
                stays.let_go_at
            ),
            (busy, PassWithWarnings, day(3), day(99))
        );
        assert_eq!(mine.let_go(looks[3]).await.expect("reads"), None);
        let stranger = store.rechecks().of(TenantId::from_uuid(Uuid::now_v7()));
        assert_eq!(stranger.let_go(looks[2]).await.expect("reads"), None);
    })
    .await;
}

#[tokio::test]
async fn the_database_itself_lets_go_of_no_other_look_and_of_no_document() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 1).await;
        let id = allowed(store, tenant, reservation, leases[0]).await;
        let mut looks = Vec::new();
        for (verdict, number) in [(Verdict::Fail, 1), (Verdict::Pass, 2)] {
            let seen = look(store, id, verdict, number * DAY).await;
            looks.push(seen.expect("a look"));
        }
        let unknown = AttestationId::from_uuid(Uuid::now_v7());
        for (one, why) in [(looks[0], "failed"), (looks[1], "last"), (unknown, "none")] {
            let say = format!(
                "INSERT INTO let_go_rechecks SELECT '{one}', tenant_id, lease_id, node_index, 'pass', \
                 checked_at, checked_at FROM node_rechecks LIMIT 1"
            );
            let refusal = execute_raw(store, &say).await.expect_err(why);
            assert!(refusal.contains("only a re-check that passed"), "{why}: {refusal}");
        }
        for statement in [
            "DELETE FROM attestations",
            "DELETE FROM node_rechecks",
            "UPDATE attestations SET verdict = 'pass'",
            "UPDATE node_rechecks SET verdict = 'pass'",
            "UPDATE agent_keys SET recheck = recheck",
        ] {
            let refusal = execute_raw(store, statement).await.expect_err(statement);
            assert!(refusal.contains("append-only"), "{refusal}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_ends_in_the_middle_of_a_batch_loses_nothing_and_is_done_the_next_time() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 1).await;
        let id = allowed(store, tenant, reservation, leases[0]).await;
        let mut looks = Vec::new();
        for number in 1..=3 {
            let seen = look(store, id, Verdict::Pass, number * DAY).await;
            looks.push(seen.expect("a look"));
        }
        let before = rows(store).await;
        // Its last statement fails.
        for statement in [
            "CREATE TABLE clings (id VARCHAR(40) REFERENCES attestations (id))".to_owned(),
            format!("INSERT INTO clings VALUES ('{}')", looks[1]),
        ] {
            execute_raw(store, &statement).await.expect("made");
        }
        let retention = store.retention();
        let prune = || retention.prune_rechecks((day(9), day(99)), 9);
        prune().await.expect_err("refused");
        assert_eq!(rows(store).await, before);
        for one in &looks {
            assert!(is_kept(store, tenant, *one).await);
        }
        execute_raw(store, "DROP TABLE clings").await.expect("gone");
        assert_eq!(prune().await.expect("prunes"), 2);
        assert_eq!(prune().await.expect("prunes"), 0);
    })
    .await;
}

#[tokio::test]
async fn a_verification_that_is_over_goes_with_its_session_once_nothing_of_it_is_kept() {
    for_each_database(async |store| {
        let (tenant, reservation, leases) = fleet(store, "acme", 3).await;
        let old = allowed(store, tenant, reservation, leases[0]).await;
        for number in 1..=2 {
            let seen = look(store, old, Verdict::Pass, number * DAY).await;
            seen.expect("a look");
        }
        // One was cut off, so that a trace of it stays, and one went silent.
        let cut_off = allowed(store, tenant, reservation, leases[1]).await;
        let silent = allowed(store, tenant, reservation, leases[2]).await;
        for (id, agent) in [(cut_off, "cut off"), (silent, "silent")] {
            enrol(store, id, agent, DAY).await.expect("enrols");
        }
        let all = store.verifications().across_tenants();
        let cut = all.interrupt(cut_off, "cut off", 1, day(1)).await;
        assert_eq!(cut.expect("ends"), Interruption::Ended);
        // All are over with the next token.
        let new = allowed(store, tenant, reservation, leases[0]).await;
        for lease in &leases[1..] {
            allowed(store, tenant, reservation, *lease).await;
        }
        let retention = store.retention();
        let keys = async || {
            let pruned = retention.prune_agent_keys(day(9), 3);
            let (gone, sent) = statements_of(pruned).await;
            (gone.expect("prunes"), sent.len())
        };
        let verifications = async || {
            let pruned = retention.prune_recheck_verifications(day(9), 1);
            let (gone, sent) = statements_of(pruned).await;
            (gone.expect("prunes"), sent.len())
        };
        let documents = async || {
            let pruned = retention.prune_rechecks((day(9), day(99)), 9);
            pruned.await.expect("prunes")
        };
        assert_eq!(verifications().await, (0, 1), "their keys are kept");
        assert_eq!((keys().await, keys().await), ((3, 1), (1, 1)));
        assert_eq!(keys().await, (0, 1));
        assert_eq!(documents().await, 1);
        assert_eq!(verifications().await, (1, 3), "the silent one");
        assert!(all.find(silent).await.expect("reads").is_none());
        assert_eq!(verifications().await, (0, 1), "its last document is kept");
        let seen = look(store, new, Verdict::Pass, 3 * DAY).await;
        seen.expect("a look");
        assert_eq!(documents().await, 1);
        assert_eq!(verifications().await, (1, 3));
        assert_eq!(verifications().await, (0, 1));
        assert!(all.find(old).await.expect("reads").is_none());
        assert_eq!(all.nodes(old).await.expect("reads"), []);
        for kept in [new, cut_off] {
            assert!(all.find(kept).await.expect("reads").is_some());
        }
        assert_eq!(all.nodes(new).await.expect("reads").len(), 1);
    })
    .await;
}
