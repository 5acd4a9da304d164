//! One tenant's life: every answer is compared with that of the twin, and after every step what both have.

use std::collections::BTreeMap;

use market::event::{Event, EventType};
use market::ids::{BudgetId, PlanId, ProjectId, TenantId};
use market::money::Money;
use market::offer::Offer;
use market::spending::{Budget, BudgetMode, BudgetPeriod, BudgetTerms, SpendingLimits};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use store::events::EventFilter;
use store::reservations::{Reservation, ReservationFilter};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use super::twin::{Refusal, Twin, Verdict, months};
use crate::support::{at, quote_at, tenant};

/// How often each kind of step had each answer.
pub(super) type Tally = BTreeMap<String, usize>;

pub(super) struct Life<'a> {
    pub(super) store: &'a Store,
    pub(super) whose: (TenantId, ProjectId),
    /// One with a GPU a node, one with eight.
    pub(super) offers: [Offer; 2],
    pub(super) plan: PlanId,
    pub(super) budget: Budget,
    pub(super) twin: Twin,
    /// Its open reservations as last read.
    pub(super) read: Vec<Reservation>,
    pub(super) placed: usize,
    pub(super) random: StdRng,
    pub(super) log: Vec<String>,
    pub(super) tally: Tally,
}

fn verdict<T>(answer: Result<T, StoreError>) -> Verdict {
    match answer {
        Ok(_) => Ok(()),
        Err(StoreError::LimitExceeded(_)) => Err(Refusal::Limit),
        Err(StoreError::BudgetExceeded(_)) => Err(Refusal::Budget),
        Err(StoreError::Conflict(Conflict::FleetFollows { ordered, .. })) => {
            Err(Refusal::FleetFollows { ordered })
        }
        Err(StoreError::Conflict(
            Conflict::RunOver { .. }
            | Conflict::RunTooLate { .. }
            | Conflict::TooManyFollowers { .. }
            | Conflict::TooManyUnused { .. },
        )) => Err(Refusal::Other),
        Err(other) => panic!("nothing predicts {other:?}"),
    }
}

pub(super) fn terms(cap: i64) -> BudgetTerms {
    BudgetTerms {
        period: BudgetPeriod::Month,
        cap: Money::usd_units(cap),
        mode: BudgetMode::BlockNew,
        thresholds_percent: Vec::new(),
        grace_seconds: 0,
    }
}

impl<'a> Life<'a> {
    pub(super) async fn begin(store: &'a Store, offers: [Offer; 2], seed: u64) -> Self {
        let whose = tenant(store, &format!("acme-{seed}")).await;
        let plan = quote_at(store, whose.0, &offers[0], 1, at(0)).await.plan_id;
        let (id, cap) = (BudgetId::from_uuid(Uuid::now_v7()), 100_000_000_000_000);
        let budgets = store.budgets().of(whose.0);
        let budget = budgets.add(id, None, terms(cap), at(0), None).await;
        Self {
            store,
            whose,
            offers,
            plan,
            budget: budget.expect("a budget"),
            twin: Twin {
                now: at(0),
                rows: Vec::new(),
                limits: SpendingLimits::default(),
                cap,
            },
            read: Vec::new(),
            placed: 0,
            random: StdRng::seed_from_u64(seed),
            log: vec![format!("seed {seed}")],
            tally: Tally::new(),
        }
    }

    /// Compares an answer with the twin's; the twin goes on where it allows the step.
    #[track_caller]
    pub(super) fn check<T>(
        &mut self,
        step: &str,
        about: impl std::fmt::Debug,
        answer: Result<T, StoreError>,
        predict: impl FnOnce(&mut Twin) -> Verdict,
    ) {
        let mut twin = self.twin.clone();
        let predicted = predict(&mut twin);
        let why = answer.as_ref().err().map(ToString::to_string);
        let answered = verdict(answer);
        let line = format!("{} {step} {about:?}: {answered:?}", twin.now);
        self.log.push(line);
        assert_eq!(answered, predicted, "{why:?} after {}", self.tail());
        *self
            .tally
            .entry(format!("{step} {answered:?}"))
            .or_default() += 1;
        if predicted.is_ok() {
            self.twin = twin;
        }
    }

    pub(super) fn tail(&self) -> String {
        let tail = self.log.len().saturating_sub(40).max(1);
        format!("{}:\n{}\n", self.log[0], self.log[tail..].join("\n"))
    }

    pub(super) async fn compare(&mut self) {
        let (now, place) = (self.twin.now, self.tail());
        let filter = ReservationFilter {
            open_only: true,
            ..ReservationFilter::default()
        };
        let mine = self.store.reservations().of(self.whose.0);
        self.read = mine.list(&filter, None, 1_000).await.expect("lists");
        let open = self.twin.rows.iter().filter(|row| !row.state.is_closed());
        assert_eq!(self.read.len(), open.clone().count(), "{place}");
        for row in open {
            let read = self.read.iter().find(|read| read.id == row.new.id);
            let read = read.unwrap_or_else(|| panic!("{row:?} is missing, {place}"));
            let times = (read.starts_at, read.window_end, read.hold_expires_at);
            let new = &row.new;
            let predicted = (new.starts_at, new.window_end, new.hold_expires_at);
            assert_eq!(times, predicted, "{row:?}, {place}");
            assert_eq!(read.state, row.state, "{row:?}, {place}");
        }
        let spending = self.store.spending().of(self.whose.0);
        let summed = spending.in_use(None, now).await.expect("sums");
        assert_eq!(summed, self.twin.in_use(), "{place}");
        let spending = spending.read(now).await.expect("reads");
        assert_eq!(spending.in_use(None, now), summed, "{place}");
        for month in months(now, 4) {
            let open = spending.open_within(None, month);
            assert_eq!(open, self.twin.open_within(month), "{month:?}, {place}");
        }
    }

    /// The closed rows, and how often events reported moved starts and failed runs.
    pub(super) async fn compare_at_the_end(&self) {
        let mine = self.store.reservations().of(self.whose.0);
        let all = mine.list(&ReservationFilter::default(), None, 1_000).await;
        let all = all.expect("lists");
        let events = self.store.events().of(self.whose.0);
        let events = events.list(&EventFilter::default(), 100_000).await;
        let events = events.expect("lists");
        for (number, row) in self.twin.rows.iter().enumerate() {
            let id = row.new.id;
            let read = all.iter().find(|read| read.id == id).expect("a row");
            assert_eq!(read.state, row.state, "{}", self.log[0]);
            let of = |kind| {
                let is_it = |event: &&Event| event.reservation_id == Some(id) && event.kind == kind;
                events.iter().filter(is_it).count()
            };
            let (moved, failed) = (
                EventType::ReservationStartMoved,
                EventType::ReservationRunFailed,
            );
            let log = || self.log.join("\n");
            assert_eq!((of(moved), of(failed)), row.events, "{number}: {}", log());
        }
    }
}
