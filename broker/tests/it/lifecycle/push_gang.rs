//! A gang of several orders whose nodes run no start-up script: the broker installs the agent over SSH on
//! each node as it boots, and the agent waits there for the others. The agent and all our files are gone
//! before anybody else gets the node.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use broker::flow::fulfil;
use chrono::TimeDelta;
use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::reservation::ReservationState;
use simulator::{FaultKind, Provider};
use store::fixture::{execute_raw, for_usual_database};
use store::leases::Lease;

use super::gang_orders::{assert_measured_together, checks, fallen_and_standing, falls};
use super::scene::{Scene, training};
use super::tap::{Call, Fate, Op};

/// The message about an order whose node nobody could log in to.
const UNREACHED: &str = "node 0 of lease LEASE: no_answer: nobody answers at its SSH port; \
                         node 0 of the lease never called";

/// The only node of a lease, as its machine has it.
#[derive(Clone)]
struct Node {
    machine: String,
    home: PathBuf,
}

/// The nodes of leases that have come up.
fn nodes(scene: &Scene, leases: &[Lease]) -> Vec<Node> {
    let machines = scene.simulator().running_machines();
    let node = |lease: &Lease| {
        let of_lease = |machine: &&simulator::Machine| machine.name == lease.client_token.as_str();
        let machine = machines.iter().find(of_lease)?.id.clone();
        let home = scene.simulator().node_home(&machine, 0)?;
        Some(Node { machine, home })
    };
    leases.iter().filter_map(node).collect()
}

/// Our traces on a node: directories, keys with our mark, and processes.
fn of_ours_on(home: &Path) -> Vec<String> {
    let names = fs::read_dir(home).expect("a home");
    let names = names.map(|entry| entry.expect("an entry").file_name());
    let mut found: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(".gpu-broker"))
        .collect();
    let keys = fs::read_to_string(home.join(".ssh/authorized_keys")).expect("keys");
    let marked = keys.lines().filter(|line| line.contains(" gpb-"));
    found.extend(marked.map(str::to_owned));
    let at_home = format!("HOME={}", home.display());
    let is_there = |environment: &[u8]| {
        let mut words = environment.split(|byte| *byte == 0);
        words.any(|word| word == at_home.as_bytes())
    };
    for process in fs::read_dir("/proc").expect("processes").flatten() {
        let environment = fs::read(process.path().join("environ")).unwrap_or_default();
        if is_there(&environment) {
            found.push(format!("process {}", process.file_name().display()));
        }
    }
    found
}

/// How long the agents of a node may live, in the order of their arrival. Units: seconds.
fn lifetimes(scene: &Scene, node: &Node) -> Vec<i64> {
    let said = scene.simulator().node_output(&node.machine, 0);
    let said = said.expect("it runs").stderr;
    let seconds = |line: &str| {
        let seconds = line.strip_prefix("has ")?.strip_suffix(" seconds")?;
        seconds.parse().ok()
    };
    said.lines().filter_map(seconds).collect()
}

/// From now on the first order does not go out, until another hook is set.
fn hold_first_order_back(scene: &Scene) {
    let mut sent = 0;
    scene.line.hook(move |call| {
        sent += usize::from(call.op == Op::Request);
        match call.op == Op::Request && sent != 2 && sent != 3 {
            true => Fate::Fail,
            false => Fate::Forward,
        }
    });
}

/// A gang of three orders, of which the first does not go out until [`hold_first_order_back`]'s hook is gone,
/// and agents wait for it on the nodes of the others.
async fn reserve_with_one_to_come(scene: &Scene) -> ReservationId {
    hold_first_order_back(scene);
    let id = scene.reserve(training(24)).await;
    scene.work().await;
    for _ in 0..4 {
        scene.turn(290).await;
    }
    let waiting = nodes(scene, &scene.leases(id).await[1..]);
    assert_eq!(waiting.len(), 2);
    for node in waiting {
        assert!(!of_ours_on(&node.home).is_empty(), "its agent waits");
    }
    id
}

/// Records the files and processes left on these nodes whenever the provider is asked to end a machine.
fn look_at_release(scene: &Scene, nodes: Vec<Node>) -> Arc<Mutex<Vec<Vec<String>>>> {
    let found = Arc::new(Mutex::new(Vec::new()));
    let keep = Arc::clone(&found);
    scene.line.hook(move |call: &Call| {
        if call.op == Op::Release {
            let left = nodes.iter().flat_map(|node| of_ours_on(&node.home));
            keep.lock().expect("not poisoned").push(left.collect());
        }
        Fate::Forward
    });
    found
}

async fn assert_handed_over_clean(scene: &Scene, leases: &[Lease]) {
    assert_measured_together(scene, leases).await;
    let nodes = nodes(scene, leases);
    assert_eq!(nodes.len(), leases.len());
    for node in nodes {
        assert_eq!(of_ours_on(&node.home), [""; 0]);
        assert_eq!(lifetimes(scene, &node).len(), 1, "one agent reached it");
    }
}

fn reasons(leases: &[Lease]) -> Vec<Option<LeaseEvent>> {
    leases.iter().map(|lease| lease.fall_reason).collect()
}

fn notes(leases: &[Lease]) -> Vec<&str> {
    let notes = leases.iter().map(|lease| lease.fall_note.as_deref());
    notes.map(Option::unwrap_or_default).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_several_orders_are_pushed_to_measured_together_and_left() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed_node_by_node(store).await;
        let id = scene.reserve_until_active(training(24)).await;
        assert_eq!(scene.line.scripts(), [""; 3], "they are sent no script");
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 3, "these fell: {:?}", falls(&leases));
        assert_handed_over_clean(&scene, &leases).await;
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_that_were_pushed_wait_for_an_order_that_comes_up_much_later() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed_node_by_node(store).await;
        hold_first_order_back(&scene);
        let id = scene.reserve(training(24)).await;
        scene.work().await;
        for _ in 0..8 {
            scene.turn(290).await;
        }
        scene.line.unhook();
        let leases = scene.leases(id).await;
        let states: Vec<_> = leases.iter().map(|lease| lease.state).collect();
        use LeaseState::{Requested, Verifying};
        assert_eq!(states, [Requested, Verifying, Verifying]);
        assert_eq!(checks(&scene, &leases).await, 0, "nothing to measure yet");
        let early = nodes(&scene, &leases[1..]);
        assert_eq!(early.len(), 2);
        for (node, lease) in early.iter().zip(&leases[1..]) {
            assert!(!of_ours_on(&node.home).is_empty(), "its agent waits");
            let (up, over) = (lease.up_at, lease.verify_deadline);
            let (up, own) = (up.expect("up"), over.expect("a time") - up.expect("up"));
            // The last order may go out, come up, and prove itself, each at the last moment.
            let boot = scene.broker().config().verifier.boot_seconds;
            let last = lease.requested_at + TimeDelta::seconds(2 * i64::from(boot)) + own;
            let [seconds] = lifetimes(&scene, node)[..] else {
                panic!("one agent reaches it: {:?}", lifetimes(&scene, node));
            };
            let ended = up + TimeDelta::seconds(seconds);
            assert!(ended >= last, "{ended} is before {last}");
            assert!(ended <= last + TimeDelta::hours(1), "{ended}: for ever");
        }
        scene.until(id, ReservationState::Active).await;
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 3, "these fell: {:?}", falls(&leases));
        assert_handed_over_clean(&scene, &leases).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_nodes_of_one_order_are_all_pushed_to_before_any_of_them_is_proved() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed(store).await;
        let id = scene.reserve_until_active(training(24)).await;
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 1, "these fell: {:?}", falls(&leases));
        assert_eq!(leases[0].nodes, 3);
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

/// Whether the order that failed states its reason, and the others state that they failed with it.
fn assert_told(fallen: &[Lease], culprit: usize, (reason, words): (LeaseEvent, &str)) {
    assert_eq!(fallen.len(), 3);
    let id = fallen[culprit].id.to_string();
    for (number, lease) in fallen.iter().enumerate() {
        let expected = match number == culprit {
            true => (reason, words.replace("LEASE", &id)),
            false => (
                LeaseEvent::Unwanted,
                format!("its gang failed with lease {id}"),
            ),
        };
        let found = (lease.fall_reason, lease.fall_note.clone());
        assert_eq!(found, (Some(expected.0), Some(expected.1)), "{number}");
    }
}

async fn assert_falls_and_is_left(store: &store::Store, fault: FaultKind, why: (LeaseEvent, &str)) {
    let scene = Scene::open_pushed_node_by_node(store).await;
    let id = reserve_with_one_to_come(&scene).await;
    let waiting = nodes(&scene, &scene.leases(id).await[1..]);
    scene.break_next(Provider::VOLTAGEPARK, fault);
    let found = look_at_release(&scene, waiting);
    scene.until(id, ReservationState::Active).await;
    let found = found.lock().expect("not poisoned").clone();
    // The order that failed is the first to be ended.
    assert!(found.len() >= 3, "{found:?}");
    for left in &found[1..] {
        assert_eq!(left, &[""; 0], "nothing of ours was left on them");
    }
    let (fallen, standing) = fallen_and_standing(&scene, id).await;
    assert_told(&fallen, 0, why);
    assert_handed_over_clean(&scene, &standing).await;
    scene.assert_sound().await;
    scene.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_never_comes_up_takes_the_others_along_and_their_nodes_are_left_first() {
    let timed_out = (LeaseEvent::TimedOut, UNREACHED);
    let never = FaultKind::NeverCallsHome;
    for_usual_database(async |store| {
        assert_falls_and_is_left(store, never.clone(), timed_out).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_cannot_be_pushed_to_is_named_when_its_own_time_is_over_though_others_have_more()
 {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed_node_by_node(store).await;
        // Of the orders that go out at once the first, which is the second of all.
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        hold_first_order_back(&scene);
        let id = scene.reserve(training(24)).await;
        scene.work().await;
        scene.turn(580).await;
        scene.line.unhook();
        scene.turn(60).await;
        scene.until(id, ReservationState::Active).await;
        let (fallen, _) = fallen_and_standing(&scene, id).await;
        let deadline = |lease: usize| fallen[lease].verify_deadline;
        assert!(deadline(0) > deadline(1), "{fallen:?}");
        assert_told(&fallen, 1, (LeaseEvent::TimedOut, UNREACHED));
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_fails_at_its_provider_takes_the_others_along_and_their_nodes_are_left_first()
{
    let failed = (LeaseEvent::BootFailed, "the provider says `Failed`");
    for_usual_database(async |store| {
        assert_falls_and_is_left(store, FaultKind::AcceptedThenFailed, failed).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_pair_of_nodes_that_were_pushed_to_falls_with_both_orders_named() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed_node_by_node(store).await;
        // Of the first order, whose node sends slowly to the second.
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowLink);
        let id = scene.reserve(training(24)).await;
        scene.work().await;
        scene.until(id, ReservationState::Active).await;
        let (fallen, standing) = fallen_and_standing(&scene, id).await;
        let (failed, unwanted) = (Some(LeaseEvent::Failed), Some(LeaseEvent::Unwanted));
        assert_eq!(reasons(&fallen), [failed, failed, unwanted]);
        let notes = notes(&fallen);
        for (note, lease) in notes.iter().zip(&fallen[..2]) {
            assert!(note.starts_with("node 0 of the lease: fail"), "{note}");
            assert!(notes[2].contains(&lease.id.to_string()), "{notes:?}");
        }
        assert_handed_over_clean(&scene, &standing).await;
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

/// Ends all processes on a node, like a loss of power.
fn kill_all_on(home: &Path) {
    let found = of_ours_on(home);
    let processes = found.iter().filter_map(|one| one.strip_prefix("process "));
    for number in processes {
        let mut kill = Command::new("kill");
        // It may have ended with another one.
        let _ = kill.args(["-9", number]).stderr(Stdio::null()).status();
    }
}

/// Does the due work, without waiting for the nodes, until their joint measurement has begun.
async fn until_measured(scene: &Scene, leases: &[Lease]) {
    for _ in 0..3_000 {
        let broker = scene.broker();
        fulfil::work_until_idle(broker).await.expect("an answer");
        let all = scene.store().verifications().across_tenants();
        let first = all.newest_of(leases[0].id).await.expect("an answer");
        let check = all.gang_check(first.expect("it is up").id).await;
        if check
            .expect("an answer")
            .is_some_and(|check| check.stage > 0)
        {
            return;
        }
        // The agent is a process of its own, in real time.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{:?}", scene.leases(leases[0].reservation_id).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_keep_the_others_waiting_are_to_blame_though_nothing_can_be_pushed_any_more() {
    for_usual_database(async |store| {
        let scene = Scene::open_pushed_node_by_node(store).await;
        let id = reserve_with_one_to_come(&scene).await;
        let leases = scene.leases(id).await;
        for node in nodes(&scene, &leases[1..]) {
            kill_all_on(&node.home);
        }
        scene.line.unhook();
        scene.turn(60).await;
        scene.pass_seconds(950);
        scene.simulator().tick();
        until_measured(&scene, &leases).await;
        // The secrets for the nodes are lost meanwhile.
        let spoil = "UPDATE verifications SET sealed_push = substr(sealed_push, 2)";
        execute_raw(store, spoil).await.expect("spoilt");
        let last = scene.leases(id).await;
        let deadlines = last.iter().map(|lease| lease.verify_deadline.expect("up"));
        let over = deadlines.max().expect("three") - scene.broker().now();
        scene.pass_seconds(over.num_seconds() + 1);
        let broker = scene.broker();
        fulfil::work_until_idle(broker).await.expect("an answer");
        let fallen = scene.leases(id).await;
        // It depends on the machine which agents called before the clock was advanced. Nodes whose agent had
        // not called are to blame, and the others are not.
        let (reasons, notes) = (reasons(&fallen[..3]), notes(&fallen[..3]));
        let failed = Some(LeaseEvent::Failed);
        assert!(reasons.contains(&failed), "{notes:?}");
        for (reason, note) in reasons.iter().zip(&notes) {
            match note.contains("step.timed_out") {
                true => assert_eq!(*reason, failed, "{note}"),
                false => assert_eq!(*reason, Some(LeaseEvent::TimedOut), "{note}"),
            }
        }
        scene.close().await;
    })
    .await;
}
