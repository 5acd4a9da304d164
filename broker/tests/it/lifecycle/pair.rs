//! A training run and the fleet that follows it: the fleet starts when the run has really ended.

use broker::flow::quote::QuoteError;
use broker::flow::reserve::{self, Particulars, ReserveError};
use broker::flow::{plan, quote};
use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::identity::TenantScope;
use market::ids::ReservationId;
use market::money::Money;
use market::reservation::{CloseReason, ReservationState as S};
use matcher::HybridBill;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use store::fixture::{for_each_database, for_usual_database};
use store::{Conflict, StoreError};

use super::later::{LEAD, LOOK, events, turn_to};
use super::scene::Scene;

/// How long the fleet serves.
const SERVES: TimeDelta = TimeDelta::hours(24);

/// A run on two nodes, and a fleet elsewhere for a day.
fn hybrid(run: Value, fleet: Value) -> Value {
    let mut serve = json!({ "duration_hours": SERVES.num_hours() });
    let more = fleet.as_object().expect("an object").clone();
    serve.as_object_mut().expect("an object").extend(more);
    json!({
        "kind": "hybrid",
        "train": {
            "model": "Llama 3 8B", "tokens": 1_000_000_000_u64, "gpus": 16, "window": run,
        },
        "serve": {
            "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
            "input_tokens": 1024, "output_tokens": 256, "window": serve,
            "policy": { "deny_providers": ["voltagepark"] },
        },
    })
}

/// A pair that was reserved, with its plan.
struct Pair {
    run: ReservationId,
    fleet: ReservationId,
    bill: HybridBill,
}

impl Pair {
    fn staging(&self) -> TimeDelta {
        let seconds = self.bill.staging.iter().map(|leg| leg.seconds);
        TimeDelta::seconds(seconds.sum())
    }
}

/// Plans, quotes and holds the best pair that can be ordered.
async fn hold(scene: &Scene, demand: Value) -> Pair {
    let (broker, whose) = (scene.broker(), TenantScope::whole(scene.tenant));
    let demand = serde_json::from_value(demand).expect("a demand");
    let record = plan::make_plan(broker, &whose, demand)
        .await
        .expect("a plan");
    let pairs = &record.plan.hybrid.as_ref().expect("pairs").pairs;
    for (rank, pair) in (1..).zip(pairs) {
        let Ok(quotes) = quote::make_pair(broker, &whose, record.id, rank, None).await else {
            continue;
        };
        assert!(quotes[1].starts_at >= Some(pair.bill.serves_from));
        let starts_at = quotes[1].starts_at;
        assert_eq!(
            quotes[1].follows.map(|follows| follows.run),
            Some(quotes[0].id)
        );
        // In any order.
        let [run, fleet] = quotes.map(|quote| quote.id);
        let particulars = Particulars::default();
        let held = reserve::hold_pair(broker, &whose, [fleet, run], particulars, None).await;
        let [run, fleet] = held.expect("a pair of holds");
        assert_eq!(run.hold_expires_at, fleet.hold_expires_at);
        assert_eq!(fleet.follows.map(|follows| follows.run), Some(run.id));
        assert_eq!(fleet.starts_at, starts_at);
        return Pair {
            run: run.id,
            fleet: fleet.id,
            bill: pair.bill.clone(),
        };
    }
    panic!("no pair can be ordered");
}

/// Reserves the pair and goes on until the run is in use; returns when it was handed off.
async fn reserve_until_active(scene: &Scene, demand: Value) -> (Pair, DateTime<Utc>) {
    let pair = hold(scene, demand).await;
    let ids = [pair.run, pair.fleet];
    let confirmed = reserve::confirm_all(scene.broker(), scene.tenant, &ids, None).await;
    let states = confirmed
        .expect("confirmed")
        .into_iter()
        .map(|row| row.state);
    assert_eq!(states.collect::<Vec<_>>(), [S::Confirmed, S::Scheduled]);
    scene.work().await;
    scene.until(pair.run, S::Active).await;
    let leases = scene.leases(pair.run).await;
    let handed_off = leases.iter().find_map(|lease| lease.handed_off_at);
    (pair, handed_off.expect("handed off"))
}

/// What was charged, and what was planned. US dollars.
fn assert_to_the_cent(charged: Decimal, planned: Money) {
    let off = (charged - planned.to_decimal()).abs();
    assert!(off < Decimal::new(1, 2), "{charged} is not {planned}");
}

async fn fleet_starts_at(scene: &Scene, pair: &Pair) -> DateTime<Utc> {
    let fleet = scene.reservation(pair.fleet).await;
    fleet.starts_at.expect("a start")
}

// S17, S121
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_starts_at_the_end_of_its_run_and_moves_with_an_extension() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let demand = hybrid(json!({ "duration_hours": 6 }), json!({}));
        let (pair, from) = reserve_until_active(&scene, demand).await;
        let staging = pair.staging();
        assert!(staging > TimeDelta::zero(), "the weights take time");
        let end = from + TimeDelta::hours(6);
        assert_eq!(fleet_starts_at(&scene, &pair).await, end + staging);

        let end = end + TimeDelta::hours(2);
        let extended = reserve::extend(scene.broker(), scene.tenant, pair.run, end, None).await;
        extended.expect("extended");
        let starts_at = end + staging;
        assert_eq!(fleet_starts_at(&scene, &pair).await, starts_at);
        let window_end = scene.reservation(pair.fleet).await.window_end;
        assert_eq!(window_end, Some(starts_at + TimeDelta::days(1)));
        let moved = events(&scene, pair.fleet, &[EventType::ReservationStartMoved]).await;
        assert_eq!(moved.len(), 2, "{moved:?}");

        turn_to(&scene, starts_at - LEAD).await;
        assert_eq!(scene.state(pair.fleet).await, S::Provisioning);
        // Its machines are ordered, so they wait no longer than that.
        let longer = end + TimeDelta::hours(1);
        let refused = reserve::extend(scene.broker(), scene.tenant, pair.run, longer, None).await;
        assert!(
            matches!(
                &refused,
                Err(ReserveError::Store(StoreError::Conflict(Conflict::FleetFollows {
                    fleet, most, ordered: true, ..
                }))) if (*fleet, *most) == (pair.fleet, end)
            ),
            "{refused:?}"
        );
        turn_to(&scene, end).await;
        assert_eq!(scene.charged(pair.fleet).await, (0, Decimal::ZERO));
        turn_to(&scene, starts_at).await;
        let active_at = scene.reservation(pair.fleet).await.active_at;
        assert_eq!(active_at, Some(starts_at));

        turn_to(&scene, starts_at + SERVES).await;
        let over = S::Closed(CloseReason::WindowEnded);
        scene.until(pair.fleet, over).await;
        assert_eq!(scene.state(pair.run).await, over);
        assert_to_the_cent(scene.charged(pair.fleet).await.1, pair.bill.serve_usd);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

// S17, S19, S121
#[tokio::test(flavor = "multi_thread")]
async fn a_hybrid_whose_run_takes_as_long_as_planned_costs_what_was_planned() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        // Its end is open: the tenant releases it when it is done.
        let (pair, from) = reserve_until_active(&scene, hybrid(json!({}), json!({}))).await;
        let planned = fleet_starts_at(&scene, &pair).await;
        assert_eq!(planned, pair.bill.serves_from);
        assert_eq!(planned, pair.bill.trained_at + pair.staging());
        // The second that is nearest to the planned GPU-seconds.
        let run = (pair.bill.train_gpu_seconds + 8) / 16;
        // While the run goes on, the fleet is not ordered, even past its planned date.
        turn_to(&scene, planned + TimeDelta::minutes(5)).await;
        assert_eq!(scene.state(pair.fleet).await, S::Scheduled);
        let end = from + TimeDelta::seconds(run);
        turn_to(&scene, end).await;
        assert_eq!(scene.state(pair.fleet).await, S::Scheduled);
        scene.release(pair.run).await;
        assert_eq!(fleet_starts_at(&scene, &pair).await, end + pair.staging());
        scene.work().await;
        scene.until(pair.fleet, S::Active).await;
        let active_at = scene.reservation(pair.fleet).await.active_at;
        let gap = active_at.expect("active") - end;
        assert!(gap >= pair.staging(), "the weights arrive first: {gap}");
        assert!(gap <= LEAD + pair.staging() + LOOK, "{gap}");
        turn_to(&scene, active_at.expect("active") + SERVES).await;
        scene
            .until(pair.fleet, S::Closed(CloseReason::WindowEnded))
            .await;
        scene
            .until(pair.run, S::Closed(CloseReason::Released))
            .await;
        assert_to_the_cent(scene.charged(pair.run).await.1, pair.bill.train_usd);
        assert_to_the_cent(scene.charged(pair.fleet).await.1, pair.bill.serve_usd);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_latest_start_that_was_given_does_not_move_and_refuses_a_later_end() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let latest = scene.broker().now() + TimeDelta::hours(12);
        let demand = hybrid(
            json!({ "duration_hours": 6 }),
            json!({ "start_latest": latest }),
        );
        let (pair, from) = reserve_until_active(&scene, demand).await;
        let most = latest - pair.staging() - TimeDelta::seconds(1);
        let extend =
            async |end| reserve::extend(scene.broker(), scene.tenant, pair.run, end, None).await;
        let refused = extend(most + TimeDelta::seconds(1)).await;
        let refused = refused.expect_err("past the latest start");
        let said = refused.to_string();
        assert!(
            matches!(
                refused,
                ReserveError::Store(StoreError::Conflict(Conflict::FleetFollows { .. }))
            ),
            "{said}"
        );
        let end = scene.reservation(pair.run).await.window_end;
        assert_eq!(end, Some(from + TimeDelta::hours(6)), "nothing is written");
        extend(most).await.expect("up to it");
        let starts_at = fleet_starts_at(&scene, &pair).await;
        assert_eq!(starts_at, latest - TimeDelta::seconds(1));
        assert_eq!(scene.reservation(pair.fleet).await.window_end, Some(latest));
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_whose_run_is_cancelled_keeps_its_date_and_the_failure_is_reported_once() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let pair = hold(&scene, hybrid(json!({}), json!({}))).await;
        let ids = [pair.run, pair.fleet];
        let confirmed = reserve::confirm_all(scene.broker(), scene.tenant, &ids, None).await;
        confirmed.expect("confirmed");
        scene.work().await;
        assert_eq!(scene.state(pair.run).await, S::Provisioning);
        let cancelled = reserve::cancel(scene.broker(), scene.tenant, pair.run, None).await;
        cancelled.expect("cancelled");
        let soonest = scene.broker().now() + TimeDelta::hours(1);
        scene.work().await;
        scene
            .until(pair.run, S::Closed(CloseReason::Cancelled))
            .await;
        let told = events(&scene, pair.fleet, &[EventType::ReservationRunFailed]).await;
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0]["run"], json!(pair.run));
        let starts_at = fleet_starts_at(&scene, &pair).await;
        assert_eq!(starts_at, pair.bill.serves_from.max(soonest));
        assert_eq!(scene.state(pair.fleet).await, S::Scheduled);
        let free = reserve::cancel(scene.broker(), scene.tenant, pair.fleet, None).await;
        assert_eq!(
            free.expect("cancelled").state,
            S::Closed(CloseReason::Cancelled)
        );
        scene.turn(7_200).await;
        assert_eq!(scene.charged(pair.fleet).await, (0, Decimal::ZERO));
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pair_whose_run_is_kept_past_the_latest_start_of_its_fleet_is_not_quoted() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let (broker, whose) = (scene.broker(), TenantScope::whole(scene.tenant));
        let latest = broker.now() + TimeDelta::hours(12);
        let fleet = json!({ "start_latest": latest });
        let demand = hybrid(json!({ "duration_hours": 13 }), fleet);
        let demand = serde_json::from_value(demand).expect("a demand");
        let record = plan::make_plan(broker, &whose, demand).await;
        let id = record.expect("its run is predicted to be done in time").id;
        let refused = quote::make_pair(broker, &whose, id, 1, None).await;
        assert!(
            matches!(refused, Err(QuoteError::RunTooLong { .. })),
            "{refused:?}"
        );
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_starts_later_is_ordered_then_and_its_fleet_after_it() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::days(2);
        let window = json!({ "start_earliest": starts_at, "duration_hours": 6 });
        let pair = hold(&scene, hybrid(window, json!({}))).await;
        assert!(pair.bill.trained_at > starts_at);
        let ids = [pair.run, pair.fleet];
        let confirmed = reserve::confirm_all(scene.broker(), scene.tenant, &ids, None).await;
        let states = confirmed
            .expect("confirmed")
            .into_iter()
            .map(|row| row.state);
        assert_eq!(states.collect::<Vec<_>>(), [S::Scheduled, S::Scheduled]);
        turn_to(&scene, starts_at - LEAD - TimeDelta::seconds(1)).await;
        assert_eq!(scene.state(pair.run).await, S::Scheduled);
        turn_to(&scene, starts_at - LEAD).await;
        assert_eq!(scene.state(pair.run).await, S::Provisioning);
        turn_to(&scene, starts_at).await;
        assert_eq!(scene.reservation(pair.run).await.active_at, Some(starts_at));
        let end = starts_at + TimeDelta::hours(6);
        assert_eq!(fleet_starts_at(&scene, &pair).await, end + pair.staging());
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_holds_of_a_pair_lapse_together() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let pair = hold(&scene, hybrid(json!({}), json!({}))).await;
        let lapses = scene.reservation(pair.fleet).await.hold_expires_at;
        turn_to(&scene, lapses).await;
        for id in [pair.run, pair.fleet] {
            assert_eq!(scene.state(id).await, S::Closed(CloseReason::Expired));
        }
        let ids = [pair.run, pair.fleet];
        let late = reserve::confirm_all(scene.broker(), scene.tenant, &ids, None).await;
        let late = late.expect_err("it lapsed").to_string();
        assert!(late.contains(&pair.run.to_string()), "{late}");
        let told = events(&scene, pair.fleet, &[EventType::ReservationRunFailed]).await;
        assert_eq!(told, [Value::Null; 0], "nothing was confirmed");
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}
