//! An offer that fails again and again goes into cool-down: plans report that, and its quotes cannot be held.

use std::sync::Arc;

use broker::flow::cooldown::CoolingDown;
use broker::flow::ingest;
use broker::flow::plan::{self, PlanRecord};
use broker::flow::quote::{self, QuoteError};
use broker::flow::reserve::{self, Particulars, ReserveError};
use market::identity::TenantScope;
use market::ids::{OfferId, ProviderId, ReservationId};
use market::lease::LeaseState;
use market::reservation::{CloseReason, ReservationState};
use matcher::{OfferOutcome, ReasonCode};
use simulator::{Fault, FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};
use store::leases::Lease;

use super::scene::{Scene, fleet};

/// Longer than the cool-down of an offer here.
const COOL_DOWN_SECONDS: i64 = 8_000;

async fn plan(scene: &Scene) -> Arc<PlanRecord> {
    let demand = serde_json::from_value(fleet(1)).expect("a demand");
    let whose = TenantScope::whole(scene.tenant);
    let made = plan::make_plan(scene.broker(), &whose, demand).await;
    made.expect("a plan")
}

/// The rank of the candidate with this offer, and no other.
fn rank_of(record: &PlanRecord, offer: OfferId) -> Option<usize> {
    let mut candidates = record.plan.candidates.iter();
    let with = candidates.find(|one| one.lines[0].offer.offer_id == offer);
    with.map(|one| one.rank)
}

/// So many orders of one fleet are taken and never come up.
async fn fail(scene: &Scene, times: u32) -> ReservationId {
    let fault = Fault::new(Provider::LAMBDA, FaultKind::AcceptedThenFailed).times(times);
    scene.simulator().break_next(fault).expect("a fault");
    let id = scene.reserve(fleet(times)).await;
    let fell = |leases: &[Lease]| {
        let fallen = leases.iter().filter(|lease| lease.fall_reason.is_some());
        fallen.count() >= times as usize
    };
    for _ in 0..100 {
        scene.work().await;
        if fell(&scene.leases(id).await) {
            break;
        }
        scene.turn(30).await;
    }
    assert!(fell(&scene.leases(id).await), "they fell");
    id
}

async fn cancel(scene: &Scene, id: ReservationId) {
    let cancelled = reserve::cancel(scene.broker(), scene.tenant, id, None).await;
    cancelled.expect("cancelled");
    let closed = ReservationState::Closed(CloseReason::Cancelled);
    scene.until(id, closed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_that_failed_a_tenant_three_times_rests_for_it_until_it_has_cooled_down() {
    for_usual_database(async |store| {
        let mut scene = Scene::open(store).await;
        // Three reservations and their ends take longer than half an hour.
        let patient =
            |config: &mut broker::platform::config::Config| config.sales.cooldown_seconds = 7_200;
        scene.restart_as(patient, |_| true).await;
        let whose = TenantScope::whole(scene.tenant);
        let began = scene.broker().now();
        let before = plan(&scene).await;
        let offer = before.plan.candidates[0].lines[0].offer.offer_id;
        assert_ne!(before.plan.eligible, 1, "another is left");
        // As often as one reservation sees it fail, it fails once.
        for orders in [2, 1] {
            let failed = fail(&scene, orders).await;
            cancel(&scene, failed).await;
        }
        let twice = plan(&scene).await;
        let rank = rank_of(&twice, offer).expect("twice is not too often");
        let quoted = quote::make_quote(scene.broker(), &whose, twice.id, rank, None);
        let quoted = quoted.await.expect("a quote");
        let third = fail(&scene, 1).await;

        // Earlier plans and quotes cannot be used.
        let again = quote::make_quote(scene.broker(), &whose, twice.id, rank, None).await;
        let Err(QuoteError::CoolingDown(CoolingDown {
            offer: named,
            until,
        })) = again
        else {
            panic!("{again:?}");
        };
        assert_eq!(named, offer);
        assert!(until > scene.broker().now());
        let held = reserve::hold(
            scene.broker(),
            &whose,
            quoted.id,
            Particulars::default(),
            None,
        );
        let refused = held.await.expect_err("it rests");
        assert!(matches!(refused, ReserveError::CoolingDown(_)), "{refused}");

        cancel(&scene, third).await;
        let resting = plan(&scene).await;
        let records = store.attempts().acceptance_since(began).await;
        let records: Vec<_> = records.expect("an answer").into_values().collect();
        let [record] = records.as_slice() else {
            panic!("{records:?}");
        };
        // Stand-ins may have passed meanwhile.
        let failed = (record.boot_failed, record.outcomes() - record.passed);
        assert_eq!(failed, (3, 3), "each reservation is one there too");
        assert_eq!(rank_of(&resting, offer), None);
        assert_eq!(resting.plan.rejected.by_reason[&ReasonCode::CoolingDown], 1);
        let told = plan::ask(scene.broker(), &whose, resting.id, offer).await;
        let told = told.expect("a verdict").remove(0);
        let reason = (told.outcome, told.reason);
        assert_eq!(
            reason,
            (OfferOutcome::Refused, Some(ReasonCode::CoolingDown))
        );
        assert!(told.why.contains("cool-down until"), "{}", told.why);
        // In one call another one is had.
        let other = scene.reserve_until_active(fleet(1)).await;
        let leases = scene.leases(other).await;
        assert_eq!((leases.len(), leases[0].state), (1, LeaseState::HandedOff));
        assert_ne!(leases[0].offer.offer_id, offer);
        scene.release_and_close(other).await;

        scene.turn(COOL_DOWN_SECONDS).await;
        let rested = plan(&scene).await;
        assert!(rank_of(&rested, offer).is_some(), "{:?}", rested.plan);
        scene.close().await;
    })
    .await;
}

/// Five minutes, for which the counts are good, and a second.
const COUNTED_ANEW_SECONDS: i64 = 301;
const DAY_SECONDS: i64 = 86_400;

#[tokio::test(flavor = "multi_thread")]
async fn plans_know_within_minutes_how_orders_ended_and_forget_it_after_thirty_days() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let provider = ProviderId::parse(Provider::LAMBDA.as_str()).expect("a provider");
        let failed_there = async || {
            let refreshed = ingest::refresh_snapshot(scene.broker()).await;
            refreshed.expect("the database answers");
            let snapshot = scene.broker().snapshot();
            let view = snapshot.provider(&provider).expect("it is known");
            view.acceptance.boot_failed
        };
        assert_eq!(failed_there().await, 0);
        let failed = fail(&scene, 1).await;
        cancel(&scene, failed).await;
        scene.pass_seconds(COUNTED_ANEW_SECONDS);
        assert_eq!(failed_there().await, 1);
        scene.pass_seconds(29 * DAY_SECONDS);
        assert_eq!(failed_there().await, 1);
        scene.pass_seconds(2 * DAY_SECONDS);
        assert_eq!(failed_there().await, 0);
        // Failures counted before the clock was set back are in the future.
        scene.pass_seconds(-5 * DAY_SECONDS);
        assert_eq!(failed_there().await, 1);
        scene.close().await;
    })
    .await;
}
