//! Budgets: what may be committed, which events are sent, and how the sums are built.

mod life;

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

/// Confirms a hold and hands it off to the tenant, to end at `end`.
async fn hand_off(
    store: &Store,
    held: &Reservation,
    offer: &Offer,
    end: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> LeaseId {
    use ReservationState as S;
    let mine = store.reservations().of(held.tenant_id);
    mine.command(
        held.id,
        held.version,
        Command::Move(S::Confirmed),
        now,
        None,
    )
    .await
    .expect("confirmed");
    let lease = NewLease {
        id: LeaseId::from_uuid(Uuid::now_v7()),
        line: 0,
        offer: offer.clone(),
        nodes: held.lines[0].nodes,
        node_base: 0,
        replaces: None,
    };
    let id = lease.id;
    let ordered = Change {
        new_leases: vec![lease],
        holds_released: true,
        ..Change::default()
    };
    let delivered = Change {
        reservation: Some(ReservationMove {
            from: S::Confirmed,
            to: S::Active,
        }),
        window_end: end.map_or(WindowEnd::Open, WindowEnd::At),
        lease_updates: vec![LeaseUpdate {
            id,
            from: LeaseState::Requested,
            to: LeaseState::HandedOff,
            facts: LeaseFacts {
                accepted_at: Some(now),
                handed_off_at: Some(now),
                metered_to: Some(now),
                ..LeaseFacts::default()
            },
        }],
        ..Change::default()
    };
    for change in [ordered, delivered] {
        apply(store, held.id, &change, now).await;
    }
    id
}

async fn apply(store: &Store, id: ReservationId, change: &Change, now: DateTime<Utc>) {
    let claimed = claim(store, id, now).await;
    let applied = store.work().apply(&claimed.claim, change, now).await;
    applied.expect("applied");
}

/// A reservation in the tenant's hands.
struct Running {
    reservation: Reservation,
    lease: LeaseId,
    end: Option<DateTime<Utc>>,
    metered_to: DateTime<Utc>,
    gpu_seconds: i64,
}

impl Running {
    fn gpus(&self) -> u32 {
        8 * self.reservation.lines[0].nodes
    }

    fn rate(&self) -> Rate {
        self.reservation.lines[0].rate
    }

    fn cost(&self, gpu_seconds: i64) -> i64 {
        let cost = self.rate().cost_of(gpu_seconds).expect("it fits");
        cost.units()
    }

    /// Charges its use up to `until`, as the meter does.
    async fn meter(&mut self, store: &Store, until: DateTime<Utc>) {
        let until = self.end.map_or(until, |end| end.min(until));
        if until <= self.metered_to {
            return;
        }
        let usage = UsageRecord {
            id: UsageId::from_uuid(Uuid::now_v7()),
            reservation_id: self.reservation.id,
            lease_id: self.lease,
            line: 0,
            gpus: self.gpus(),
            from: self.metered_to,
            to: until,
        };
        let total = self.gpu_seconds + usage.gpu_seconds();
        let amount = self.cost(total) - self.cost(self.gpu_seconds);
        let charge = Charge {
            usage,
            tenant_id: self.reservation.tenant_id,
            project_id: self.reservation.project_id,
            provider: crate::support::provider(),
            gpu: "H100-SXM".to_owned(),
            workload: DemandKind::Gpus,
            rate: self.rate(),
            amount: Money::usd_units(amount),
            tags: self.reservation.tags.clone(),
            attribution: Attribution::default(),
        };
        let change = Change {
            charges: vec![charge],
            lease_updates: vec![LeaseUpdate {
                id: self.lease,
                from: LeaseState::HandedOff,
                to: LeaseState::HandedOff,
                facts: LeaseFacts {
                    metered_to: Some(until),
                    ..LeaseFacts::default()
                },
            }],
            ..Change::default()
        };
        apply(store, self.reservation.id, &change, until).await;
        (self.metered_to, self.gpu_seconds) = (until, total);
    }

    /// Charges the rest and closes it.
    async fn close(mut self, store: &Store, now: DateTime<Utc>) {
        self.meter(store, now).await;
        let close = Change {
            reservation: Some(ReservationMove {
                from: ReservationState::Active,
                to: ReservationState::Closed(CloseReason::Released),
            }),
            lease_updates: vec![LeaseUpdate {
                id: self.lease,
                from: LeaseState::HandedOff,
                to: LeaseState::Gone,
                facts: LeaseFacts::default(),
            }],
            ..Change::default()
        };
        apply(store, self.reservation.id, &close, now).await;
    }
}

#[tokio::test]
async fn an_extension_that_could_pass_a_cap_is_refused() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let hour = |hours: i64| at(1 + 3_600 * hours);
        hand_off(store, &held, &offer, Some(hour(1)), at(1)).await;
        // Three hours of one node.
        let cap = 3 * 2_392_000_000;
        let terms = terms(BudgetPeriod::Day, cap, BudgetMode::BlockNew);
        budget(store, whose.0, None, terms).await;
        let mine = store.reservations().of(whose.0);
        let extend = async |hours: i64| {
            let read = mine.find(held.id).await.expect("reads").expect("is there");
            let end = hour(hours) + TimeDelta::seconds(i64::from(hours == 4));
            let command = Command::Extend(end);
            mine.command(held.id, read.version, command, at(2), None)
                .await
        };
        extend(3).await.expect("to the last unit");
        assert!(is_exceeded(&extend(4).await));
        let read = mine.find(held.id).await.expect("reads").expect("is there");
        assert_eq!(
            read.window_end,
            Some(hour(3)),
            "the refused one left nothing"
        );
    })
    .await;
}

async fn told(store: &Store, tenant: TenantId) -> Vec<(EventType, serde_json::Value)> {
    let kinds = vec![
        EventType::BudgetThresholdReached,
        EventType::BudgetStopAnnounced,
        EventType::BudgetStopped,
    ];
    let filter = EventFilter {
        kinds,
        ..EventFilter::default()
    };
    let events = store.events().of(tenant).list(&filter, 100).await;
    let events = events.expect("reads").into_iter();
    events.map(|event| (event.kind, event.data)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_looks_at_a_spent_budget_each_thing_is_told_once_in_a_period() {
    for_each_database(async |store| {
        let offer = plenty(store).await;
        let whose = tenant(store, "acme").await;
        let held = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let waiting = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let lease = hand_off(store, &held, &offer, None, at(1)).await;
        let mut running = Running {
            reservation: held.clone(),
            lease,
            end: None,
            metered_to: at(1),
            gpu_seconds: 0,
        };
        // An hour of the node.
        let terms = terms(BudgetPeriod::Day, 2_392_000_000, BudgetMode::StopRunning);
        let budget = budget(store, whose.0, None, terms.clone()).await;
        let review = async |budget: &Budget, now: DateTime<Utc>| {
            let mut tasks = JoinSet::new();
            for _ in 0..4 {
                let (store, budget) = (store.clone(), budget.clone());
                tasks.spawn(async move {
                    let all = store.budgets().across_tenants();
                    all.review(&budget, now).await.expect("reviewed")
                });
            }
            let all = tasks.join_all().await;
            let told: usize = all.iter().map(|one| one.told).sum();
            (told, all[0].to_stop.clone())
        };
        assert_eq!(review(&budget, at(2)).await, (0, vec![]));
        running.meter(store, at(1 + 1_800)).await;
        assert_eq!(review(&budget, at(1_801)).await, (1, vec![]));
        assert_eq!(review(&budget, at(1_802)).await, (0, vec![]));
        running.meter(store, at(1 + 3_600)).await;
        assert_eq!(
            review(&budget, at(3_601)).await,
            (3, vec![]),
            "80, 100, announced"
        );
        assert_eq!(review(&budget, at(4_200)).await, (0, vec![]));
        let both = vec![held.id, waiting.id];
        assert_eq!(review(&budget, at(4_201)).await, (1, both.clone()));
        assert_eq!(review(&budget, at(4_202)).await, (0, both));

        let mine = store.reservations().of(whose.0);
        let wish = Command::RequestedAction(RequestedAction::Release);
        let read = mine.find(held.id).await.expect("reads").expect("is there");
        let ended = mine.stop(held.id, read.version, wish, budget.id, at(4_203));
        let ended = ended.await.expect("ended");
        assert_eq!(
            (ended.stopped_by, ended.wish),
            (Some(budget.id), RequestedAction::Release)
        );
        assert_eq!(review(&budget, at(4_204)).await.1, [waiting.id]);

        let events = told(store, whose.0).await;
        let kinds: Vec<_> = events.iter().map(|(kind, _)| *kind).collect();
        let threshold = EventType::BudgetThresholdReached;
        assert_eq!(
            kinds,
            [
                threshold,
                threshold,
                threshold,
                EventType::BudgetStopAnnounced,
                EventType::BudgetStopped
            ]
        );
        assert_eq!(events[0].1["threshold_percent"], 50);
        assert_eq!(events[0].1["charged_usd"], "11.96");
        assert_eq!(events[3].1["stop_at"], serde_json::json!(at(4_201)));

        // Raising a cap ends the stopping, and the announcement starts again when it is reached.
        let mut higher = terms.clone();
        higher.cap = Money::usd_units(2_392_000_001);
        let budgets = store.budgets().of(whose.0);
        let raised = budgets.change(budget.id, &terms, higher, None).await;
        let raised = raised.expect("raised");
        assert_eq!(review(&raised, at(4_205)).await, (0, vec![]));
        running.meter(store, at(1 + 3_700)).await;
        assert_eq!(
            review(&raised, at(4_206)).await,
            (1, vec![]),
            "announced again"
        );
        assert_eq!(review(&raised, at(4_806)).await.1, [waiting.id]);
        // The next day is not affected.
        assert_eq!(review(&raised, at(86_400)).await, (0, vec![]));
        let all = store.budgets().across_tenants();
        budgets.delete(budget.id, None).await.expect("forgotten");
        let gone = all.review(&raised, at(90_000)).await.expect("reviewed");
        assert_eq!(gone, Reviewed::default());
    })
    .await;
}
