//! Budgets: what may be committed, which events are sent, and how the sums are built.

mod life;
mod running;

use std::num::NonZeroU32;

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Demand, DemandKind, Window};
use market::event::EventType;
use market::ids::{BudgetId, LeaseId, ProjectId, ReservationId, TenantId, UsageId};
use market::lease::LeaseState;
use market::money::{Money, Rate};
use market::offer::Offer;
use market::reservation::{CloseReason, ReservationState};
use market::spending::{Budget, BudgetMode, BudgetPeriod, BudgetTerms};
use market::tags::Attribution;
use market::usage::{Charge, UsageRecord};
use store::budgets::Reviewed;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease, ReservationMove, WindowEnd};
use store::commands::Command;
use store::events::EventFilter;
use store::fixture::{count_rows, for_each_database};
use store::reservations::{RequestedAction, Reservation};
use store::{Conflict, Store, StoreError};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::limits::{plenty, second_project};
use crate::support::{at, claim, hold, new_reservation, quote_at, tenant};

/// The cost of a node from [`at`]`(1)` to the end of its day, which is 35199 seconds later.
const NODE_TO_MIDNIGHT: i64 = 23_387_780_000;

fn terms(period: BudgetPeriod, cap: i64, mode: BudgetMode) -> BudgetTerms {
    BudgetTerms {
        period,
        cap: Money::usd_units(cap),
        mode,
        thresholds_percent: vec![50, 80, 100],
        grace_seconds: 600,
    }
}

async fn budget(
    store: &Store,
    tenant: TenantId,
    project: Option<ProjectId>,
    terms: BudgetTerms,
) -> Budget {
    let id = BudgetId::from_uuid(Uuid::now_v7());
    let budgets = store.budgets().of(tenant);
    let made = budgets.add(id, project, terms, at(0), None);
    made.await.expect("a budget")
}

/// The end of the day of [`at`]`(0)`.
fn midnight() -> DateTime<Utc> {
    BudgetPeriod::Day.around(at(0)).end
}

/// Quotes and holds this many nodes of an offer, until `end` at the latest.
async fn hold_until(
    store: &Store,
    whose: (TenantId, ProjectId),
    offer: &Offer,
    nodes: u32,
    (now, end): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Reservation, StoreError> {
    hold_within(store, whose, offer, nodes, (now, Some(end))).await
}

/// Quotes and holds this many nodes of an offer, with or without an end.
async fn hold_within(
    store: &Store,
    (tenant, project): (TenantId, ProjectId),
    offer: &Offer,
    nodes: u32,
    (now, end): (DateTime<Utc>, Option<DateTime<Utc>>),
) -> Result<Reservation, StoreError> {
    let window = Window {
        end,
        ..Window::default()
    };
    hold_in(store, (tenant, project), offer, nodes, (now, None), &window).await
}

/// Quotes and holds this many nodes of an offer in a window, and gives up at `given_up`.
async fn hold_in(
    store: &Store,
    (tenant, project): (TenantId, ProjectId),
    offer: &Offer,
    nodes: u32,
    (now, given_up): (DateTime<Utc>, Option<DateTime<Utc>>),
    window: &Window,
) -> Result<Reservation, StoreError> {
    let quote = quote_at(store, tenant, offer, nodes, now).await;
    let mut new = new_reservation(project, &quote);
    new.hold_expires_at = now + TimeDelta::seconds(300);
    new.window_end = given_up;
    let Demand::Gpus(demand) = &mut new.demand else {
        panic!("no demand for GPUs: {:?}", new.demand)
    };
    demand.window = Some(window.clone());
    let mine = store.reservations().of(tenant);
    mine.place_hold(new, now, None).await
}

#[track_caller]
fn is_exceeded<T: std::fmt::Debug>(outcome: &Result<T, StoreError>) -> bool {
    match outcome {
        Ok(_) => false,
        Err(StoreError::BudgetExceeded(_)) => true,
        Err(other) => panic!("no budget refused it: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_racing_holds_that_each_fit_and_together_do_not_one_succeeds() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let cap = NODE_TO_MIDNIGHT * 2 - 1;
        let terms = terms(BudgetPeriod::Day, cap, BudgetMode::BlockNew);
        budget(store, whose.0, None, terms).await;
        let mut tasks = JoinSet::new();
        for _ in 0..16 {
            let (store, offer) = (store.clone(), offer.clone());
            let today = (at(1), midnight());
            tasks.spawn(async move { hold_until(&store, whose, &offer, 1, today).await });
        }
        let outcomes = tasks.join_all().await;
        let refused = outcomes.iter().filter(|outcome| is_exceeded(outcome));
        assert_eq!(refused.count(), 15);
        assert_eq!(count_rows(store, "holds").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_cap_lets_through_what_reaches_it_and_not_a_unit_more() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        for (cap, fits) in [(NODE_TO_MIDNIGHT - 1, false), (NODE_TO_MIDNIGHT, true)] {
            let terms = terms(BudgetPeriod::Day, cap, BudgetMode::BlockNew);
            let made = budget(store, whose.0, None, terms).await;
            let held = hold_until(store, whose, &offer, 1, (at(1), midnight())).await;
            assert_eq!(!is_exceeded(&held), fits, "{held:?}");
            let budgets = store.budgets().of(whose.0);
            budgets.delete(made.id, None).await.expect("forgotten");
        }
    })
    .await;
}

#[tokio::test]
async fn what_runs_on_into_a_later_period_is_held_against_its_cap_too() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        // Four hours of one node in any one day.
        let node_hour = 2_392_000_000;
        let terms = terms(BudgetPeriod::Day, 4 * node_hour, BudgetMode::BlockNew);
        budget(store, whose.0, None, terms).await;
        let late = midnight() - TimeDelta::hours(1);
        let until = async |hours: i64, more: i64| {
            let end = midnight() + TimeDelta::hours(hours) + TimeDelta::seconds(more);
            hold_until(store, whose, &offer, 1, (late, end)).await
        };
        let endless = hold_within(store, whose, &offer, 1, (late, None)).await;
        for refused in [until(4, 1).await, endless] {
            let Err(StoreError::BudgetExceeded(refused)) = refused else {
                panic!("not refused: {refused:?}")
            };
            assert_eq!(refused.began, midnight().date_naive(), "tomorrow");
            assert_eq!(refused.open, Money::usd_units(0));
        }
        until(3, 0).await.expect("an hour today and three tomorrow");
        assert!(is_exceeded(&until(2, 0).await), "two more tomorrow");
        until(1, 0).await.expect("to the last unit");
    })
    .await;
}

#[tokio::test]
async fn a_duration_is_held_against_the_periods_in_which_it_may_be_had() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        // One node per day, and one is used for three days.
        let node_hour = 2_392_000_000;
        let terms = terms(BudgetPeriod::Day, 24 * node_hour, BudgetMode::BlockNew);
        budget(store, whose.0, None, terms).await;
        let ends = midnight() + TimeDelta::days(3);
        let held = hold_until(store, whose, &offer, 1, (at(1), ends)).await;
        held.expect("the whole cap from tomorrow on");
        let three_hours = Window {
            duration_hours: NonZeroU32::new(3),
            ..Window::default()
        };
        let ask = async |given_up| {
            let time = (at(1), Some(given_up));
            hold_in(store, whose, &offer, 1, time, &three_hours).await
        };
        let today = midnight() - TimeDelta::hours(3);
        ask(today).await.expect("over by midnight");
        let refused = ask(today + TimeDelta::seconds(1)).await;
        let Err(StoreError::BudgetExceeded(refused)) = refused else {
            panic!("not refused: {refused:?}")
        };
        assert_eq!(refused.began, midnight().date_naive(), "tomorrow");
    })
    .await;
}

#[tokio::test]
async fn a_hold_that_lapsed_while_it_waited_to_be_confirmed_is_not() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let lapses = hold(store, whose, &offer, 1, at(1)).await.expect("held");
        let mine = store.reservations().of(whose.0);
        let confirm = async |held: &Reservation| {
            let confirm = Command::Move(ReservationState::Confirmed);
            let done = mine.command(held.id, held.version, confirm, at(299), None);
            done.await
        };
        let stands = hold_until(store, whose, &offer, 1, (at(299), midnight())).await;
        confirm(&lapses).await.expect("both were counted");
        let lapses = stands.expect("held");
        // The other one has lapsed at the time of this hold, which does not count it.
        let after = (lapses.hold_expires_at, midnight());
        hold_until(store, whose, &offer, 1, after)
            .await
            .expect("held");
        let refused = confirm(&lapses).await.expect_err("refused");
        let lapsed = matches!(refused, StoreError::Conflict(Conflict::HoldLapsed));
        assert!(lapsed, "{refused:?}");
    })
    .await;
}

#[tokio::test]
async fn only_budgets_that_block_and_cover_the_project_refuse() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let (acme, first) = tenant(store, "acme").await;
        let second = second_project(store, acme).await;
        let notify = terms(BudgetPeriod::Day, 1, BudgetMode::Notify);
        budget(store, acme, None, notify).await;
        let blocks = terms(BudgetPeriod::Month, 1, BudgetMode::StopRunning);
        let own = budget(store, acme, Some(first), blocks).await;
        hold(store, (acme, second), &offer, 1, at(1))
            .await
            .expect("neither stands in its way");
        let refusal = hold(store, (acme, first), &offer, 1, at(1)).await;
        let Err(StoreError::BudgetExceeded(refusal)) = refusal else {
            panic!("{refusal:?}")
        };
        assert_eq!((refusal.budget, refusal.project), (own.id, Some(first)));
        assert_eq!(refusal.charged, Money::usd_units(0));
        assert_eq!(refusal.open, Money::usd_units(0), "the other project's");
    })
    .await;
}

#[tokio::test]
async fn a_hold_whose_budget_is_used_up_since_is_not_confirmed() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let today = async || hold_until(store, whose, &offer, 1, (at(1), midnight())).await;
        let (first, second) = (today().await.expect("held"), today().await.expect("held"));
        let mine = store.reservations().of(whose.0);
        let confirm = async |held: &Reservation| {
            let confirm = Command::Move(ReservationState::Confirmed);
            let done = mine.command(held.id, held.version, confirm, at(1), None);
            done.await
        };
        let terms = |cap| terms(BudgetPeriod::Day, cap, BudgetMode::BlockNew);
        let made = budget(store, whose.0, None, terms(NODE_TO_MIDNIGHT - 1)).await;
        assert!(is_exceeded(&confirm(&first).await));
        let change = async |from, to| {
            let budgets = store.budgets().of(whose.0);
            let changed = budgets.change(made.id, &terms(from), terms(to), None).await;
            changed.expect("changed");
        };
        // There is room for one of them, but not for both.
        change(NODE_TO_MIDNIGHT - 1, NODE_TO_MIDNIGHT).await;
        confirm(&first).await.expect("the other one may lapse");
        assert!(is_exceeded(&confirm(&second).await));
        let still = mine.find(second.id).await.expect("reads").expect("there");
        assert_eq!(still.state, ReservationState::Held, "it may fit later");
        change(NODE_TO_MIDNIGHT, 2 * NODE_TO_MIDNIGHT).await;
        confirm(&second).await.expect("it fits now");
    })
    .await;
}

#[tokio::test]
async fn a_budget_belongs_to_its_tenant_and_is_changed_as_it_was_read() {
    for_each_database(async |store| {
        let (acme, _) = tenant(store, "acme").await;
        let (other, strange) = tenant(store, "other").await;
        let old = terms(BudgetPeriod::Day, 500, BudgetMode::Notify);
        let made = budget(store, acme, None, old.clone()).await;
        let (mine, theirs) = (store.budgets().of(acme), store.budgets().of(other));
        assert_eq!(mine.find(made.id).await.expect("reads"), Some(made.clone()));
        assert_eq!(theirs.find(made.id).await.expect("reads"), None);
        assert_eq!(theirs.list().await.expect("reads"), []);
        let new = terms(BudgetPeriod::Day, 700, BudgetMode::BlockNew);
        let foreign = theirs.change(made.id, &old, new.clone(), None).await;
        assert!(matches!(foreign, Err(StoreError::NotFound { .. })));
        let changed = mine.change(made.id, &old, new.clone(), None).await;
        assert_eq!(changed.expect("changed").terms, new);
        let late = mine.change(made.id, &old, new.clone(), None).await;
        assert!(matches!(late, Err(StoreError::Stale)));
        let id = BudgetId::from_uuid(Uuid::now_v7());
        let strange = mine.add(id, Some(strange), new, at(0), None).await;
        assert!(matches!(
            strange,
            Err(StoreError::NotFound { what: "project" })
        ));
        let foreign = theirs.delete(made.id, None).await;
        assert!(matches!(foreign, Err(StoreError::NotFound { .. })));
        mine.delete(made.id, None).await.expect("forgotten");
        assert_eq!(mine.list().await.expect("reads"), []);
    })
    .await;
}
