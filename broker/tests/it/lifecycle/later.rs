//! Reservations that start later: nothing is taken before they are ordered, they are handed off on their date,
//! and they are missed where nothing can be ordered by their latest start.

use broker::flow::reserve::{self, ReserveError};
use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::ids::{BudgetId, ReservationId, SshKeyId};
use market::ledger::Account;
use market::money::{Currency, Money, Rate};
use market::quote::QuoteLine;
use market::reservation::{CloseReason, ReservationState as S};
use market::spending::{BudgetMode, BudgetPeriod, BudgetTerms};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use store::events::EventFilter;
use store::fixture::{for_each_database, for_usual_database};
use store::ssh_keys::NewSshKey;

use super::scene::{Scene, fleet};

/// With no orders to learn from, boot and verification as configured: 45 and 10 minutes.
pub(super) const LEAD: TimeDelta = TimeDelta::minutes(55);
/// The longest time between two looks.
pub(super) const LOOK: TimeDelta = TimeDelta::minutes(5);

/// One small machine at lambda from then on.
fn from(starts_at: DateTime<Utc>, window: Value) -> Value {
    let mut demand = fleet(1);
    demand["window"] = window;
    demand["window"]["start_earliest"] = json!(starts_at);
    demand
}

/// Moves the clock to a time, reads the providers there, and does the due work.
pub(super) async fn turn_to(scene: &Scene, time: DateTime<Utc>) {
    scene
        .turn((time - scene.broker().now()).num_seconds())
        .await;
}

/// The events of these kinds of a reservation, in order.
pub(super) async fn events(scene: &Scene, id: ReservationId, kinds: &[EventType]) -> Vec<Value> {
    let filter = EventFilter {
        reservation: Some(id),
        kinds: kinds.to_vec(),
        ..EventFilter::default()
    };
    let all = scene.store().events().of(scene.tenant);
    let events = all.list(&filter, 200).await.expect("events");
    events.into_iter().map(|event| event.data).collect()
}

// S121, S85
#[tokio::test(flavor = "multi_thread")]
async fn a_later_start_takes_nothing_before_its_order_and_is_handed_off_on_its_date() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::days(3);
        let id = scene
            .hold(from(starts_at, json!({ "duration_hours": 2 })))
            .await;
        let held = scene.reservation(id).await;
        assert_eq!(held.starts_at, Some(starts_at));
        assert_eq!(held.window_end, Some(starts_at + TimeDelta::days(1)));
        let held_nodes = store.catalog().held_nodes().await.expect("a sum");
        let taken = held_nodes.get(&held.lines[0].offer.offer_id).copied();
        assert_eq!(taken.unwrap_or(0), 0, "nothing is set aside");
        scene.confirm(id).await;
        scene.work().await;
        assert_eq!(scene.state(id).await, S::Scheduled);
        let again = reserve::confirm(scene.broker(), scene.tenant, id, None).await;
        assert!(
            matches!(again, Err(ReserveError::Illegal { .. })),
            "{again:?}"
        );
        assert_eq!(scene.state(id).await, S::Scheduled);

        turn_to(&scene, starts_at - LEAD - TimeDelta::seconds(1)).await;
        assert_eq!(scene.state(id).await, S::Scheduled);
        assert_eq!(scene.made_at(Provider::LAMBDA), 0);
        turn_to(&scene, starts_at - LEAD).await;
        assert_eq!(scene.state(id).await, S::Provisioning);
        let ordered = scene.reservation(id).await;
        assert_eq!(ordered.quote_id, held.quote_id, "it costs what was quoted");
        assert_eq!(ordered.lines[0].rate_at_most, None, "the price is frozen");
        // Its machine passes early and waits.
        turn_to(&scene, starts_at - TimeDelta::seconds(1)).await;
        assert_eq!(scene.state(id).await, S::Provisioning);
        assert_eq!(scene.made_at(Provider::LAMBDA), 1);
        assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
        turn_to(&scene, starts_at).await;
        assert_eq!(scene.state(id).await, S::Active);
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(lease.handed_off_at, Some(starts_at));
        let end = scene.reservation(id).await.window_end;
        assert_eq!(end, Some(starts_at + TimeDelta::hours(2)));

        turn_to(&scene, starts_at + TimeDelta::hours(2)).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.charged(id).await.0, 2 * 3_600);
        let provider = lease.offer.provider.clone();
        let waited = scene.balance(&Account::CogsPreHandoff(provider)).await;
        assert!(waited > Decimal::ZERO, "the wait is the broker's cost");
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_is_near_is_sold_at_once_and_waits_for_its_date_all_the_same() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + LEAD;
        let id = scene.reserve(from(starts_at, json!({}))).await;
        let sold = scene.reservation(id).await;
        assert_eq!(
            (sold.state, sold.lines[0].rate_at_most),
            (S::Confirmed, None)
        );
        scene.work().await;
        turn_to(&scene, starts_at - TimeDelta::seconds(1)).await;
        assert_eq!(scene.state(id).await, S::Provisioning);
        turn_to(&scene, starts_at).await;
        assert_eq!(scene.leases(id).await[0].handed_off_at, Some(starts_at));
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lead_is_learned_from_the_last_orders_of_the_same_sku() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for _ in 0..10 {
            let id = scene.reserve_until_active(fleet(1)).await;
            scene.release_and_close(id).await;
        }
        let attempts = store.attempts();
        let offer = scene.hold(fleet(1)).await;
        let offer = scene.reservation(offer).await.lines.remove(0).offer;
        let times = attempts
            .times_to_pass(&offer.provider, &offer.sku, 50)
            .await;
        let mut times = times.expect("times");
        assert_eq!(times.len(), 10);
        times.sort_unstable();
        let lead = times[8];
        assert!(lead < LEAD, "{lead}");
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let id = scene.reserve(from(starts_at, json!({}))).await;
        scene.work().await;
        turn_to(&scene, starts_at - lead - TimeDelta::seconds(1)).await;
        assert_eq!(scene.state(id).await, S::Scheduled);
        turn_to(&scene, starts_at - lead).await;
        assert_ne!(scene.state(id).await, S::Scheduled);
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

/// Changes the price of the SKU of a line, in whole cents per node and hour.
fn reprice(scene: &Scene, line: &QuoteLine, cents: i64) {
    let price = line.offer.price_per_node_hour.to_decimal() + Decimal::new(cents, 2);
    scene
        .simulator()
        .set_price(Provider::LAMBDA, &line.offer.sku, price)
        .expect("a SKU");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_is_ordered_at_the_price_of_its_day_and_never_above_its_bound() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        // Cheaper by then: a quote of its own, at the lower rate.
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let id = scene
            .reserve(from(starts_at, json!({ "duration_hours": 1 })))
            .await;
        let quoted = scene.reservation(id).await;
        let line = quoted.lines[0].clone();
        assert_eq!(line.rate_at_most, Some(line.rate), "no ceiling was given");
        reprice(&scene, &line, -30);
        turn_to(&scene, starts_at - LEAD).await;
        let ordered = scene.reservation(id).await;
        assert_ne!(ordered.quote_id, quoted.quote_id);
        let cents = |rate: Rate| rate.money_per_gpu_hour().to_decimal() * Decimal::from(100);
        let more = cents(ordered.lines[0].rate) - cents(line.rate);
        assert_eq!(more, Decimal::from(-30));
        let quote = store.quotes().of(scene.tenant).find(ordered.quote_id).await;
        let quote = quote.expect("an answer").expect("the quote");
        assert_eq!(
            (quote.taken_by, &quote.quote.lines),
            (Some(id), &ordered.lines)
        );
        turn_to(&scene, starts_at).await;
        turn_to(&scene, starts_at + TimeDelta::hours(1)).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;
        assert_eq!(scene.charged(id).await.0, 3_600);

        // Dearer by then, and nothing else is under the bound: it is held back, told once, and missed.
        reprice(&scene, &line, 0);
        scene.read_providers().await;
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let latest = starts_at + TimeDelta::hours(1);
        let id = scene
            .reserve(from(starts_at, json!({ "start_latest": latest })))
            .await;
        reprice(&scene, &line, 1);
        turn_to(&scene, starts_at - LEAD).await;
        assert_eq!(scene.state(id).await, S::Scheduled);
        turn_to(&scene, starts_at).await;
        let held_back = events(&scene, id, &[EventType::ReservationStartHeldBack]).await;
        assert_eq!(held_back.len(), 1, "{held_back:?}");
        assert_eq!(held_back[0]["held_back_by"], "no_capacity");
        turn_to(&scene, latest).await;
        assert_eq!(scene.state(id).await, S::Closed(CloseReason::NoCapacity));
        assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));

        // Under a ceiling that allows it, the same demand is planned again.
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let mut demand = from(starts_at, json!({}));
        reprice(&scene, &line, 0);
        scene.read_providers().await;
        demand["ceiling"] = json!({ "usd_per_gpu_hour": "50.00" });
        let id = scene.reserve(demand).await;
        let bound = scene.reservation(id).await.lines[0].rate_at_most;
        assert_eq!(bound.expect("a bound").to_string(), "50.00");
        reprice(&scene, &line, 40);
        turn_to(&scene, starts_at - LEAD).await;
        let ordered = scene.reservation(id).await;
        assert_eq!(ordered.state, S::Provisioning);
        let more = cents(ordered.lines[0].rate) - cents(line.rate);
        assert_eq!(more, Decimal::from(40));
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

/// A monthly cap of a cent, which blocks all new spending.
async fn a_cent(scene: &Scene) -> BudgetId {
    let terms = BudgetTerms {
        period: BudgetPeriod::Month,
        cap: Money::parse("0.01", Currency::Usd).expect("a cent"),
        mode: BudgetMode::BlockNew,
        thresholds_percent: Vec::new(),
        grace_seconds: 0,
    };
    let id = BudgetId::from_uuid(scene.broker().new_uuid());
    let budgets = scene.store().budgets().of(scene.tenant);
    let made = budgets
        .add(id, None, terms, scene.broker().now(), None)
        .await;
    made.expect("a budget").id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_that_blocks_new_spending_holds_a_start_back_until_it_is_missed_or_the_cap_is_gone() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let latest = starts_at + TimeDelta::hours(2);
        let window = json!({ "start_latest": latest, "duration_hours": 10 });
        let missed = scene.reserve(from(starts_at, window)).await;
        let waits = scene.reserve(from(starts_at, json!({}))).await;
        let budget = a_cent(&scene).await;
        turn_to(&scene, starts_at).await;
        scene.turn(600).await;
        for id in [missed, waits] {
            assert_eq!(scene.state(id).await, S::Scheduled);
            let held_back = events(&scene, id, &[EventType::ReservationStartHeldBack]).await;
            assert_eq!(held_back.len(), 1, "{held_back:?}");
            assert_eq!(held_back[0]["held_back_by"], "budget");
        }
        turn_to(&scene, latest).await;
        let no_capacity = S::Closed(CloseReason::NoCapacity);
        assert_eq!(scene.state(missed).await, no_capacity);
        assert_eq!(scene.state(waits).await, S::Scheduled);
        assert_eq!(scene.made_at(Provider::LAMBDA), 0, "nothing was ordered");

        let budgets = store.budgets().of(scene.tenant);
        budgets.delete(budget, None).await.expect("deleted");
        // The longest time between two tries.
        scene.turn(15 * 60).await;
        assert_eq!(scene.state(waits).await, S::Provisioning);
        scene.until(waits, S::Active).await;
        scene.release_and_close(waits).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_deleted_since_the_hold_is_not_installed() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let id = scene.reserve(from(starts_at, json!({}))).await;
        let keys = store.ssh_keys().of(scene.tenant);
        let old = keys.list().await.expect("keys").remove(0);
        let new = NewSshKey {
            id: SshKeyId::from_uuid(scene.broker().new_uuid()),
            name: "desk".into(),
            public_key: format!("{} desk", old.public_key),
            fingerprint: "SHA256:desk".into(),
        };
        let added = keys.add(new.clone(), scene.broker().now(), None).await;
        added.expect("a key");
        keys.delete(old.id, None).await.expect("deleted");
        turn_to(&scene, starts_at - LEAD).await;
        let ordered = scene.reservation(id).await;
        assert_eq!(ordered.state, S::Provisioning);
        assert_eq!(ordered.ssh_public_keys, [new.public_key]);
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_pass_by_its_latest_start_is_not_ordered_for_nothing() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::days(1);
        let latest = starts_at + TimeDelta::minutes(10);
        let id = scene
            .reserve(from(starts_at, json!({ "start_latest": latest })))
            .await;
        let budget = a_cent(&scene).await;
        turn_to(&scene, starts_at - LEAD).await;
        let budgets = store.budgets().of(scene.tenant);
        budgets.delete(budget, None).await.expect("deleted");
        // It takes 55 minutes, and 40 are left.
        turn_to(&scene, starts_at - TimeDelta::minutes(15)).await;
        assert_eq!(scene.state(id).await, S::Scheduled);
        let held_back = events(&scene, id, &[EventType::ReservationStartHeldBack]).await;
        assert_eq!(held_back.len(), 2, "one for each reason: {held_back:?}");
        turn_to(&scene, latest).await;
        assert_eq!(scene.state(id).await, S::Closed(CloseReason::NoCapacity));
        assert_eq!(scene.made_at(Provider::LAMBDA), 0);
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_and_an_end_are_announced_an_hour_and_ten_minutes_before() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let starts_at = scene.broker().now() + TimeDelta::hours(3);
        let id = scene
            .reserve(from(starts_at, json!({ "duration_hours": 2 })))
            .await;
        scene.work().await;
        let told = async |kind| {
            let told = events(&scene, id, &[kind]).await;
            told.iter()
                .map(|data| data["minutes_left"].clone())
                .collect::<Vec<_>>()
        };
        let starts = EventType::ReservationStartsSoon;
        let ends = EventType::ReservationEndsSoon;
        turn_to(&scene, starts_at - TimeDelta::minutes(61)).await;
        assert_eq!(told(starts).await, [0; 0]);
        for minutes in [60, 50, 10, 9, 0] {
            turn_to(&scene, starts_at - TimeDelta::minutes(minutes)).await;
        }
        assert_eq!(told(starts).await, [60, 10]);
        assert_eq!(scene.state(id).await, S::Active);
        let end = starts_at + TimeDelta::hours(2);
        turn_to(&scene, end - TimeDelta::minutes(60)).await;
        // The end is moved: the new one is announced, too.
        let end = end + TimeDelta::hours(2);
        let extended = reserve::extend(scene.broker(), scene.tenant, id, end, None);
        extended.await.expect("extended");
        turn_to(&scene, end - TimeDelta::minutes(30)).await;
        turn_to(&scene, end - TimeDelta::minutes(10)).await;
        turn_to(&scene, end - TimeDelta::minutes(1)).await;
        assert_eq!(told(ends).await, [60, 30, 10]);
        turn_to(&scene, end).await;
        scene.until(id, S::Closed(CloseReason::WindowEnded)).await;

        // Confirmed later than an announcement: that one is skipped.
        let starts_at = scene.broker().now() + TimeDelta::minutes(59);
        let id = scene.reserve(from(starts_at, json!({}))).await;
        scene.work().await;
        turn_to(&scene, starts_at - TimeDelta::minutes(30)).await;
        assert_eq!(events(&scene, id, &[starts]).await, [json!(null); 0]);
        turn_to(&scene, starts_at - TimeDelta::minutes(10)).await;
        assert_eq!(events(&scene, id, &[starts]).await.len(), 1);
        scene.until(id, S::Active).await;
        scene.release_and_close(id).await;
        scene.close().await;
    })
    .await;
}
