//! The broker is killed at every step of a reservation's life, restarted, and reconciled once. The result
//! must always be the same: one machine per order, none leaked, a ledger that balances.
//!
//! A kill drops the future: nothing after that point happens, and an open transaction is rolled back.

mod cut;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use broker::flow::{fulfil, reconcile};
use chrono::{Datelike as _, TimeDelta};
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use store::fixture::{TestDatabase, for_each_database, for_usual_database, interrupt_after};

use super::scene::{Scene, fleet, training};
use super::tap::{Fate, Op};

/// Longer than a claim lasts, so that a dead worker's claims are free again.
const CLAIM_RUNS_OUT_SECONDS: i64 = fulfil::CLAIM_SECONDS as i64 + 1;
/// Between two scenarios: longer than the cool-down of an offer.
const COOL_DOWN_SECONDS: i64 = 2_000;

/// Where lives are killed: in part by default, everywhere with CRASH_POINTS=all, as `cargo xtask check --full`
/// has it.
struct Thoroughness {
    /// Each kind of life is killed at so many of its awaits.
    kills: usize,
    /// Of its calls and saves, at one of so many.
    one_of: usize,
    /// At which one first: another one every day.
    first: usize,
}

fn thoroughness() -> Thoroughness {
    let all = std::env::var("CRASH_POINTS").is_ok_and(|points| points == "all");
    let [kills, one_of] = if all { [12, 1] } else { [6, 3] };
    let first = chrono::Utc::now().ordinal() as usize % one_of;
    Thoroughness {
        kills,
        one_of,
        first,
    }
}

/// A life has fewer calls and saves than this.
const MOST_POINTS: usize = 1_000;
/// Multiples of this share of a life come close to no earlier one.
const GOLDEN_PERMILLE: usize = 618;

/// Works at one moment of the clock, under a killer. `None` once the worker was killed.
trait Killer {
    async fn work(&self, scene: &Scene) -> Option<()>;
}

/// Lets a call to a provider hang, and kills the worker that waits for it.
struct AtCall;

impl Killer for AtCall {
    async fn work(&self, scene: &Scene) -> Option<()> {
        tokio::select! {
            biased;
            () = scene.line.hangs() => None,
            done = fulfil::work_until_idle(scene.broker()) => {
                done.expect("the database answers");
                Some(())
            }
        }
    }
}

/// Kills the worker that is about to save the result of its round, where the gate is closed.
struct AtSave;

impl Killer for AtSave {
    async fn work(&self, scene: &Scene) -> Option<()> {
        tokio::select! {
            biased;
            () = scene.store().gate().hangs() => None,
            done = fulfil::work_until_idle(scene.broker()) => {
                done.expect("the database answers");
                Some(())
            }
        }
    }
}

/// Kills the worker when it has reached its await points so many times.
struct AtAwait {
    left: AtomicUsize,
    seen: AtomicUsize,
}

impl AtAwait {
    const fn after(awaits: usize) -> Self {
        Self {
            left: AtomicUsize::new(awaits),
            seen: AtomicUsize::new(0),
        }
    }
}

impl Killer for AtAwait {
    async fn work(&self, scene: &Scene) -> Option<()> {
        let mut work = pin!(fulfil::work_until_idle(scene.broker()));
        poll_fn(|cx| {
            if self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
                .is_err()
            {
                return Poll::Ready(None);
            }
            self.seen.fetch_add(1, Ordering::Relaxed);
            work.as_mut().poll(cx).map(|done| {
                done.expect("the database answers");
                Some(())
            })
        })
        .await
    }
}

/// Interrupts a write of the worker's after so many steps of the embedded database's machine, which rolls
/// back by itself then.
struct AtWrite {
    steps: usize,
}

impl Killer for AtWrite {
    async fn work(&self, scene: &Scene) -> Option<()> {
        let has_struck = interrupt_after(scene.store(), self.steps).await;
        // A round that failed runs again.
        let _ = fulfil::work_until_idle(scene.broker()).await;
        // Nothing else is interrupted.
        interrupt_after(scene.store(), usize::MAX).await;
        (!has_struck.load(Ordering::Relaxed)).then_some(())
    }
}

/// The scenario under a killer: the demand, and its leases where every node is an order of its own.
struct Life {
    demand: Value,
    leases: usize,
    gpus_per_lease: i64,
    provider: Provider,
    /// How long after its confirmation it starts, where that is later.
    starts_in: Option<TimeDelta>,
}

/// A gang of so many nodes with eight GPUs, whose provider states when a machine was made.
fn gang(nodes: u32) -> Life {
    Life {
        demand: training(8 * nodes),
        leases: nodes as usize,
        gpus_per_lease: 8,
        provider: Provider::VOLTAGEPARK,
        starts_in: None,
    }
}

/// A fleet of so many small machines, whose provider does not state that and takes a while to end them.
fn small(nodes: u32) -> Life {
    Life {
        demand: fleet(nodes),
        leases: nodes as usize,
        gpus_per_lease: 1,
        provider: Provider::LAMBDA,
        starts_in: None,
    }
}

/// A small machine that starts later, as the fleet behind a run does.
fn later() -> Life {
    Life {
        starts_in: Some(TimeDelta::hours(3)),
        ..small(1)
    }
}

/// One step of the life: works under the killer. After a kill the broker restarts when the dead worker's
/// claim has run out, reconciles once and works on; returns whether that happened.
async fn step(scene: &mut Scene, killer: &impl Killer) -> bool {
    let killed = killer.work(scene).await.is_none();
    if killed {
        scene.line.unhook();
        scene.store().gate().open();
        scene.restart().await;
        scene.pass_seconds(CLAIM_RUNS_OUT_SECONDS);
        scene.read_providers().await;
        // A machine that a row names is not stray, even before a worker has handled it.
        let swept = reconcile::sweep(scene.broker())
            .await
            .expect("the database answers");
        assert_eq!((swept.unreadable, swept.foreign, swept.ended), (0, 0, 0));
        scene.work().await;
        scene.assert_sound().await;
    }
    killed
}

/// A whole life under a killer, from confirmed to closed; returns whether the killer struck.
async fn live(scene: &mut Scene, life: &Life, killer: &impl Killer) -> bool {
    let owed = scene.payable(life.provider).await - scene.billed_by(life.provider);
    let starts_at = life.starts_in.map(|wait| scene.broker().now() + wait);
    let mut demand = life.demand.clone();
    if let Some(starts_at) = starts_at {
        demand["window"] = json!({ "start_earliest": starts_at });
    }
    let id = scene.reserve(demand).await;
    let mut killed = step(scene, killer).await;
    if let Some(starts_at) = starts_at {
        // It is ordered somewhat less than an hour before.
        let ordered_at = starts_at - TimeDelta::hours(1);
        scene.pass_seconds((ordered_at - scene.broker().now()).num_seconds());
        scene.read_providers().await;
        killed |= step(scene, killer).await;
    }
    for _ in 0..12 {
        if scene.state(id).await == S::Active {
            break;
        }
        scene.pass_seconds(450);
        scene.read_providers().await;
        killed |= step(scene, killer).await;
        scene.simulator().settle().await;
        killed |= step(scene, killer).await;
    }
    assert_eq!(
        scene.state(id).await,
        S::Active,
        "{:?}",
        scene.leases(id).await
    );
    if let Some(starts_at) = starts_at {
        let reservation = scene.reservation(id).await;
        assert_eq!(reservation.starts_at, Some(starts_at), "its date is kept");
        let late = reservation.active_at.expect("in use") - starts_at;
        let most = if killed { CLAIM_RUNS_OUT_SECONDS } else { 0 };
        let most = TimeDelta::seconds(450 + most);
        assert!(late >= TimeDelta::zero() && late <= most, "{late}");
    }
    scene.pass_seconds(1_000);
    killed |= step(scene, killer).await;
    let released_at = scene.broker().now();
    scene.release(id).await;
    for _ in 0..12 {
        killed |= step(scene, killer).await;
        if scene.state(id).await.is_closed() {
            break;
        }
        scene.pass_seconds(60);
    }
    assert_eq!(scene.state(id).await, S::Closed(CloseReason::Released));
    let leases = scene.leases(id).await;
    let delivered = leases.iter().filter(|l| l.handed_off_at.is_some()).count();
    assert_eq!(delivered, life.leases, "{leases:?}");
    let used: i64 = leases
        .iter()
        .filter_map(|lease| lease.handed_off_at)
        .map(|from| (released_at - from).num_seconds())
        .sum();
    assert_eq!(
        scene.charged(id).await.0,
        life.gpus_per_lease * used,
        "each second of use is charged once"
    );
    scene.assert_ended().await;

    // A word that a provider took and a dead worker did not write down counts as given when it is
    // given again: we may owe a little more than is billed, never less.
    let per_hour = leases[0].offer.price_per_node_hour.to_decimal();
    let most = per_hour * Decimal::from(CLAIM_RUNS_OUT_SECONDS + 60) / Decimal::from(3_600);
    let most = most * Decimal::from(leases.len());
    let more = scene.payable(life.provider).await - scene.billed_by(life.provider) - owed;
    let most = if killed { most } else { Decimal::ZERO };
    assert!(more >= Decimal::ZERO && more <= most, "{more} of {most}");
    // An offer that failed is in cool-down for a while.
    scene.pass_seconds(COOL_DOWN_SECONDS);
    scene.read_providers().await;
    killed
}

/// Kills the worker at each call to the provider in turn; returns how many such calls there are.
async fn kill_at_calls(scene: &mut Scene, life: &Life, parts: &Thoroughness) -> usize {
    let mut points = 0;
    for fate in [Fate::HangBefore, Fate::HangAfter] {
        for number in (parts.first..).step_by(parts.one_of) {
            let mut met = 0;
            scene.line.hook(move |call| {
                if call.op == Op::Catalog {
                    return Fate::Forward;
                }
                met += 1;
                if met == number + 1 {
                    fate
                } else {
                    Fate::Forward
                }
            });
            if !live(scene, life, &AtCall).await {
                break;
            }
            points += parts.one_of;
            assert!(points < MOST_POINTS, "a life that never ends");
        }
    }
    points
}

async fn survives_a_kill_at_any_call(life: Life) {
    for_usual_database(async |store| {
        let mut scene = Scene::open_node_by_node(store).await;
        let parts = thoroughness();
        let points = kill_at_calls(&mut scene, &life, &parts).await;
        let Thoroughness { first, one_of, .. } = parts;
        let at = life.provider;
        eprintln!("killed at call {first} and each {one_of} further of {points} to {at}");
        assert!(points >= 10 * life.leases, "only {points}");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_or_after_any_call_for_a_gang_of_two_leases_leaves_one_each() {
    survives_a_kill_at_any_call(gang(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_or_after_any_call_for_a_fleet_of_two_leaves_one_each() {
    survives_a_kill_at_any_call(small(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_or_after_any_call_of_a_later_start_leaves_one_machine() {
    survives_a_kill_at_any_call(later()).await;
}

/// Kills the worker before each save in turn; returns how many saves there are.
async fn kill_before_saves(scene: &mut Scene, life: &Life, parts: &Thoroughness) -> usize {
    let mut saves = parts.first;
    loop {
        scene.store().gate().close_after(saves);
        if !live(scene, life, &AtSave).await {
            return saves;
        }
        saves += parts.one_of;
        assert!(saves < MOST_POINTS, "a life that never ends");
    }
}

async fn survives_a_kill_before_any_save(life: Life) {
    for_each_database(async |store| {
        let mut scene = Scene::open_node_by_node(store).await;
        let parts = thoroughness();
        let saves = kill_before_saves(&mut scene, &life, &parts).await;
        let Thoroughness { first, one_of, .. } = parts;
        let at = life.provider;
        eprintln!("killed before save {first} and each {one_of} further of {saves} at {at}");
        assert!(saves >= 8 * life.leases, "only {saves}");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_any_save_of_a_gang_leaves_one_machine_per_order() {
    survives_a_kill_before_any_save(gang(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_any_save_of_a_fleet_leaves_one_machine_per_order() {
    survives_a_kill_before_any_save(small(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_before_any_save_of_a_later_start_keeps_its_date_and_leaves_one_machine() {
    survives_a_kill_before_any_save(later()).await;
}

async fn survives_a_kill_at_any_await(life: Life) {
    let most = thoroughness().kills;
    for_usual_database(async |store| {
        let mut scene = Scene::open_node_by_node(store).await;
        let never = AtAwait::after(usize::MAX);
        live(&mut scene, &life, &never).await;
        let mut awaits = never.seen.into_inner();
        let (mut lives, mut kills) = (0, 0);
        while kills < most && lives < 2 * most {
            lives += 1;
            // Spread over the whole life, wherever the loop ends.
            let killer = AtAwait::after((lives * GOLDEN_PERMILLE % 1_000) * awaits / 1_000);
            if live(&mut scene, &life, &killer).await {
                kills += 1;
            } else {
                // The number of awaits of a life varies with the load of the machine.
                awaits = awaits.min(killer.seen.into_inner());
            }
        }
        eprintln!("killed at {kills} of about {awaits} awaits");
        assert!(kills + 3 > most, "only {kills}");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_at_any_await_for_a_gang_of_two_leases_leaves_one_machine_per_order() {
    survives_a_kill_at_any_await(gang(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_at_any_await_for_a_fleet_of_two_leaves_one_machine_per_order() {
    survives_a_kill_at_any_await(small(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_writes_are_interrupted_leaves_one_machine_per_order() {
    let test = TestDatabase::sqlite().await;
    let mut scene = Scene::open_node_by_node(&test.store).await;
    let Thoroughness { kills, .. } = thoroughness();
    for life in [gang(1), small(2)] {
        let mut struck = 0;
        for number in 0..kills {
            // Ever later among the writes: from the first claim to the last charge.
            let killer = AtWrite {
                steps: number * number * 20,
            };
            struck += usize::from(live(&mut scene, &life, &killer).await);
        }
        assert!(struck >= kills - 1, "only {struck}");
    }
    scene.close().await;
    test.remove().await;
}
