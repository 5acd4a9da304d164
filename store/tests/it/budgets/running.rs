//! Budgets of reservations in use: extensions, and the review of spent budgets.

use super::*;

/// Confirms a hold and hands it off to the tenant, to end at `end`.
pub(super) async fn hand_off(
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
pub(super) struct Running {
    pub(super) reservation: Reservation,
    pub(super) lease: LeaseId,
    pub(super) end: Option<DateTime<Utc>>,
    pub(super) metered_to: DateTime<Utc>,
    pub(super) gpu_seconds: i64,
}

impl Running {
    pub(super) fn gpus(&self) -> u32 {
        8 * self.reservation.lines[0].nodes
    }

    pub(super) fn rate(&self) -> Rate {
        self.reservation.lines[0].rate
    }

    pub(super) fn cost(&self, gpu_seconds: i64) -> i64 {
        let cost = self.rate().cost_of(gpu_seconds).expect("it fits");
        cost.units()
    }

    /// Charges its use up to `until`, as the meter does.
    pub(super) async fn meter(&mut self, store: &Store, until: DateTime<Utc>) {
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
    pub(super) async fn close(mut self, store: &Store, now: DateTime<Utc>) {
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
