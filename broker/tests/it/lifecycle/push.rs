//! Nodes that run no start-up script: the broker installs the agent over SSH, through a real server or that
//! of a pretend node.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use broker::flow::reserve;
use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState as S;
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::scene::{Scene, container, fleet};
use super::sshd::Sshd;
use super::tap::{Fate, Op, ServerPlace};

/// The key of the tenant of a scene, as its last word names it.
const TENANTS_KEY: &str = "laptop";

/// A scene with one machine of lambda that is up and proves itself, and the server in its place.
async fn one_node(store: &store::Store, sshd: &Sshd) -> (Scene, ReservationId) {
    let scene = Scene::open_pushed(store).await;
    scene.line.stand_in(sshd.place());
    let id = scene.reserve(fleet(1)).await;
    scene.work().await;
    assert_eq!(
        scene.line.scripts(),
        [""],
        "nothing of ours goes to the provider"
    );
    let lease = scene.leases(id).await.remove(0);
    assert_eq!(
        keys_let_in(sshd),
        [TENANTS_KEY, lease.client_token.as_str()]
    );
    scene.turn(300).await;
    (scene, id)
}

/// Waits in real time, because the agent is a process of its own, until the lease is no longer being
/// verified.
async fn until_judged(scene: &Scene, id: ReservationId) -> Lease {
    for look in 1..2_000 {
        scene.work().await;
        let lease = scene.leases(id).await.remove(0);
        if !matches!(lease.state, LeaseState::Booting | LeaseState::Verifying) {
            return lease;
        }
        // Slowly, so that its time is not over before a busy machine has done the work.
        scene.pass_seconds(i64::from(look % 5 == 0));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", scene.leases(id).await);
}

fn keys_let_in(sshd: &Sshd) -> Vec<String> {
    keys_in(&sshd.authorized_keys())
}

fn keys_in(file: &Path) -> Vec<String> {
    let keys = fs::read_to_string(file).expect("keys");
    let comment = |line: &str| line.split(' ').nth(2).unwrap_or_default().to_owned();
    keys.lines().map(comment).collect()
}

fn of_ours_in(sshd: &Sshd) -> Vec<String> {
    of_ours_at(sshd.home())
}

fn of_ours_at(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home).expect("a home");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with(".gpu-broker"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gets_its_agent_over_ssh_and_nothing_of_ours_stays_on_it() {
    let Some(sshd) = Sshd::private() else { return };
    for_usual_database(async |store| {
        let (scene, id) = one_node(store, &sshd).await;
        let lease = until_judged(&scene, id).await;
        assert_eq!(scene.state(id).await, S::Active, "{lease:?}");
        assert_eq!(keys_let_in(&sshd), [TENANTS_KEY]);
        assert!(of_ours_in(&sshd).is_empty(), "{:?}", of_ours_in(&sshd));
        let all = store.verifications().across_tenants();
        let over = all.of_lease(lease.id).await.expect("verifications");
        assert!(over.iter().all(|one| one.sealed_push.is_none()));
        let reach = store.reach().across_tenants();
        let known = reach.of_lease(lease.id).await.expect("what is known");
        assert_eq!(known[0].first_contact_key, Some(sshd.host_key()));
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_runs_no_script_gets_its_agent_over_ssh_and_is_handed_over() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed(store).await;
        let id = scene.reserve_until_active(container()).await;
        assert_eq!(scene.line.scripts(), [""], "it is sent no script");
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 1, "at the first try: {leases:?}");
        let all = store.verifications().across_tenants();
        let results = all.attestations_of(leases[0].id).await.expect("results");
        assert_eq!(results.len(), 1);
        assert!(results[0].verdict.is_pass());
        let reach = store.reach().across_tenants();
        let known = reach.of_lease(leases[0].id).await.expect("what is known");
        assert!(known[0].first_contact_key.is_some(), "{known:?}");
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_shows_another_host_key_than_at_first_contact_is_refused_and_named() {
    let Some(sshd) = Sshd::private() else { return };
    // It is pushed to again and again: its agent never begins to speak.
    sshd.forget_node();
    for_usual_database(async |store| {
        let (scene, id) = one_node(store, &sshd).await;
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(lease.state, LeaseState::Verifying);
        sshd.make_anew();
        scene.turn(15).await;
        let fallen = scene.leases(id).await.remove(0);
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::Failed));
        let note = format!(
            "node 0 of lease {}: other_key: it shows another host key than at first contact",
            fallen.id
        );
        assert_eq!(fallen.fall_note, Some(note));
        // The evidence of the first order does not count against the next one at the same address.
        scene.turn(60).await;
        scene.turn(300).await;
        let next = scene.leases(id).await.remove(1);
        assert_eq!(next.state, LeaseState::Verifying);
        let reach = store.reach().across_tenants();
        let known = reach.of_lease(next.id).await.expect("what is known");
        assert_eq!(known[0].first_contact_key, Some(sshd.host_key()));
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_be_pushed_to_are_named_given_up_and_replaced_in_time() {
    let Some(sshd) = Sshd::private() else { return };
    let right = sshd.place();
    let closed = ServerPlace {
        port: 9,
        ..right.clone()
    };
    let stranger = ServerPlace {
        authorized_keys: sshd.home().join("keys-of-another"),
        ..right
    };
    for (place, named) in [(closed, "no_answer"), (stranger, "key_refused")] {
        fs::write(sshd.authorized_keys(), "").expect("nobody is let in");
        for_usual_database(async |store| {
            let scene = Scene::open_pushed(store).await;
            scene.line.stand_in(place.clone());
            let id = scene.reserve(fleet(1)).await;
            scene.work().await;
            scene.turn(300).await;
            let trouble = scene.reservation(id).await.last_error.unwrap_or_default();
            let first = scene.leases(id).await[0].id;
            let why = format!("node 0 of lease {first}: {named}: ");
            assert!(trouble.starts_with(&why), "{trouble}");
            scene.turn(600).await;
            let leases = scene.leases(id).await;
            assert_eq!(leases[0].fall_reason, Some(LeaseEvent::TimedOut));
            let note = leases[0].fall_note.as_deref().unwrap_or_default();
            assert!(note.starts_with(&why), "{note}");
            scene.turn(60).await;
            assert_eq!(scene.leases(id).await.len(), 2, "another one is ordered");
            scene.close().await;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_answer_every_command_with_something_else_are_named_and_given_up() {
    let Some(sshd) = Sshd::private() else { return };
    for command in [
        // A line without end, lines without end, none at all, and a line that has the word in it.
        "/bin/sh -c \"while :; do printf aaaaaaaaaaaaaaaa; done\"",
        "/usr/bin/yes",
        "/bin/true",
        "/bin/sh -c \"echo not started\"",
    ] {
        sshd.answer_all_with(command);
        for_usual_database(async |store| {
            let (scene, id) = one_node(store, &sshd).await;
            let first = scene.leases(id).await.remove(0).id;
            let why =
                format!("node 0 of lease {first}: not_done: it does not carry out the command");
            let trouble = scene.reservation(id).await.last_error;
            assert_eq!(trouble.as_ref(), Some(&why), "{command}");
            scene.turn(600).await;
            let fallen = scene.leases(id).await.remove(0);
            assert_eq!(fallen.fall_reason, Some(LeaseEvent::TimedOut));
            let why = format!("{why}; node 0 of the lease never called");
            assert_eq!(fallen.fall_note, Some(why), "{command}");
            scene.close().await;
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_says_it_started_the_agent_and_did_not_is_given_up_as_one_that_never_called() {
    let Some(sshd) = Sshd::private() else { return };
    sshd.answer_all_with("/bin/sh -c \"echo started; exit 1\"");
    for_usual_database(async |store| {
        let (scene, id) = one_node(store, &sshd).await;
        assert_eq!(scene.reservation(id).await.last_error, None);
        scene.turn(600).await;
        let fallen = scene.leases(id).await.remove(0);
        assert_eq!(fallen.fall_reason, Some(LeaseEvent::TimedOut));
        let note = "its nodes did not prove themselves in time; node 0 of the lease never called";
        assert_eq!(fallen.fall_note.as_deref(), Some(note));
        scene.turn(60).await;
        assert_eq!(scene.leases(id).await.len(), 2, "another one is ordered");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_given_back_unproved_keeps_nothing_of_ours() {
    let Some(sshd) = Sshd::private() else { return };
    for_each_database(async |store| {
        let (scene, id) = one_node(store, &sshd).await;
        let cancelled = reserve::cancel(scene.broker(), scene.tenant, id, None);
        cancelled.await.expect("cancelled");
        let found = Arc::new(Mutex::new(None));
        let keep = Arc::clone(&found);
        let (keys, home) = (sshd.authorized_keys(), sshd.home().to_owned());
        scene.line.hook(move |call| {
            if call.op == Op::Release {
                *keep.lock().expect("not poisoned") = Some((keys_in(&keys), of_ours_at(&home)));
            }
            Fate::Forward
        });
        scene.work().await;
        let left = found.lock().expect("not poisoned").take();
        assert_eq!(left, Some((vec![TENANTS_KEY.to_owned()], Vec::new())));
        scene.close().await;
    })
    .await;
}
