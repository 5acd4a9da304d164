//! A budget is spent: the broker reports it, announces the end, and ends running reservations as their tenant
//! would.

use broker::tenant::spending::{self, Watched};
use market::event::EventType;
use market::ids::BudgetId;
use market::money::Money;
use market::reservation::{CloseReason, ReservationState as S};
use market::spending::{Budget, BudgetMode, BudgetPeriod, BudgetTerms};
use store::events::EventFilter;
use store::fixture::for_each_database;

use super::scene::{Scene, fleet};

const GRACE_SECONDS: u32 = 900;

async fn budget(scene: &Scene, cap: Money) -> Budget {
    let terms = BudgetTerms {
        period: BudgetPeriod::Month,
        cap,
        mode: BudgetMode::StopRunning,
        thresholds_percent: vec![50],
        grace_seconds: GRACE_SECONDS,
    };
    let (budgets, broker) = (scene.store().budgets(), scene.broker());
    let id = BudgetId::from_uuid(broker.new_uuid());
    let mine = budgets.of(scene.tenant);
    let made = mine.add(id, None, terms, broker.now(), None).await;
    made.expect("a budget")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spent_budget_ends_what_runs_after_its_grace_and_metering_ends_there() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let watch = async || spending::watch(scene.broker()).await.expect("watched");
        let quiet = Watched::default();
        let running = scene.reserve_until_active(fleet(1)).await;
        let held = scene.hold(fleet(1)).await;
        let rate = scene.reservation(running).await.lines[0].rate;
        let hourly = rate.money_per_gpu_hour();
        let charged = scene.charged(running).await.0;
        // Its use so far, and an hour.
        let cap = rate.cost_of(charged + 3_600).expect("it fits");
        let budget = budget(&scene, cap).await;
        assert_eq!(watch().await, quiet);

        let balance = spending::balance(scene.broker(), scene.tenant).await;
        let total = balance.expect("a balance").total;
        assert_eq!(total.burn_per_hour, hourly);
        let (tightest, hours) = total.tightest.expect("a cap");
        assert_eq!(
            (tightest, hours.0),
            (budget.id, 100),
            "an hour at this rate"
        );

        scene.turn(2_700).await;
        assert_eq!(watch().await, Watched { told: 1, ..quiet }, "the threshold");
        scene.turn(900).await;
        assert_eq!(
            watch().await,
            Watched { told: 1, ..quiet },
            "the announcement"
        );
        scene.turn(i64::from(GRACE_SECONDS) - 1).await;
        assert_eq!(watch().await, quiet);
        assert_eq!(scene.state(running).await, S::Active);
        scene.pass_seconds(1);
        let ended = Watched {
            told: 1,
            ended: 1 + usize::from(scene.state(held).await == S::Held),
            ..quiet
        };
        assert_eq!(watch().await, ended, "the stop");
        assert_eq!(watch().await, quiet, "nothing twice");
        scene.pass_seconds(77);
        scene.work().await;

        scene.until(running, S::Closed(CloseReason::Released)).await;
        assert!(scene.state(held).await.is_closed());
        assert_eq!(scene.reservation(running).await.stopped_by, Some(budget.id));
        let used = scene.charged(running).await.0 - charged;
        assert_eq!(
            used,
            3_600 + i64::from(GRACE_SECONDS),
            "and not a second more"
        );
        let events = store.events().of(scene.tenant);
        let filter = EventFilter {
            reservation: Some(running),
            kinds: vec![EventType::ReservationReleaseRequested],
            ..EventFilter::default()
        };
        let told = events.list(&filter, 9).await.expect("reads");
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].data["stopped_by"], budget.id.to_string());
        let again = scene
            .try_hold(fleet(1))
            .await
            .expect_err("the cap is spent");
        assert!(again.to_string().contains("could not be kept"), "{again}");
        let refusal = broker::chain(&again);
        assert!(refusal.contains(&budget.id.to_string()), "{refusal}");
        assert_eq!(watch().await, quiet);
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}
