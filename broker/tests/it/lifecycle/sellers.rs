//! A machine of each seller, alone in its market: planned, quoted, ordered, verified, handed off, charged,
//! released, and gone with everything that was made beside it; and one that a seller accepted and did not have.

use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::order::ClientToken;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use serde_json::json;
use simulator::{FaultKind, Provider};
use store::Store;
use store::fixture::for_usual_database;

use super::scene::Scene;
use broker::flow::reconcile::sweep;

/// Holds the smallest machine that is to be had, of any GPU.
async fn hold_anything(scene: &Scene) -> ReservationId {
    for count in [1, 2, 4, 8] {
        let demand = json!({ "kind": "gpus", "gpu": "any", "count": count });
        if let Ok(held) = scene.try_hold(demand).await {
            return held.id;
        }
    }
    panic!("nothing is to be had");
}

/// Marked things beside the machines of a provider.
fn marked(scene: &Scene, provider: Provider) -> Vec<String> {
    let things = scene.simulator().things(provider).into_iter();
    // A mark, or one with a word after it.
    let mark = |name: &str| {
        name.get(..ClientToken::PREFIX.len() + 32)?
            .parse::<ClientToken>()
            .ok()
    };
    let marked = things.filter(|thing| mark(&thing.name).is_some());
    marked
        .map(|thing| format!("{} {}", thing.kind, thing.name))
        .collect()
}

async fn lives(store: &Store, provider: Provider) {
    let scene = Scene::open_at(store, provider).await;
    let id = hold_anything(&scene).await;
    scene.confirm(id).await;
    scene.work().await;
    scene.until(id, S::Active).await;
    let lease = scene.leases(id).await.remove(0);
    assert_eq!(lease.offer.provider.as_str(), provider.as_str());
    assert_eq!(lease.state, LeaseState::HandedOff, "{provider}");
    scene.turn(1_237).await;
    scene.release_and_close(id).await;
    let (seconds, usd) = scene.charged(id).await;
    assert!(
        seconds >= 1_237 && usd > Decimal::ZERO,
        "{provider}: {seconds} s, {usd} USD"
    );
    scene.assert_settled().await;
    assert!(scene.payable(provider).await > Decimal::ZERO, "{provider}");
    // What an order left is taken away once the provider's lists can no longer lag behind its end.
    scene.turn(3_600).await;
    sweep(scene.broker()).await.expect("the database answers");
    assert_eq!(marked(&scene, provider), Vec::<String>::new(), "{provider}");
    scene.close().await;
}

/// The provider accepts, and then has nothing: another machine takes the place, or the reservation ends.
async fn has_nothing_after_all(store: &Store, provider: Provider) {
    let scene = Scene::open_at(store, provider).await;
    scene.break_next(provider, FaultKind::LateNoCapacity);
    let id = hold_anything(&scene).await;
    scene.confirm(id).await;
    scene.work().await;
    let lease = scene.leases(id).await.remove(0);
    for _ in 0..12 {
        if matches!(scene.state(id).await, S::Active | S::Closed(_)) {
            break;
        }
        scene.turn(300).await;
    }
    match scene.state(id).await {
        // Another offer of it took its place.
        S::Active => scene.release_and_close(id).await,
        S::Closed(CloseReason::NoCapacity) => {}
        other => panic!("{provider}: {other}"),
    }
    let first = scene
        .leases(id)
        .await
        .into_iter()
        .find(|one| one.id == lease.id);
    let first = first.expect("it stays on record");
    // A seller without a word for it shows a machine that failed.
    let reason = first.fall_reason.expect("it did not come up");
    let expected = [
        LeaseEvent::NoCapacity,
        LeaseEvent::BootFailed,
        LeaseEvent::Lost,
    ];
    assert!(expected.contains(&reason), "{provider}: {reason:?}");
    if provider == Provider::VERDA {
        assert_eq!(reason, LeaseEvent::NoCapacity, "it has a word for it");
    }
    scene.assert_ended().await;
    scene.close().await;
}

// S117
#[tokio::test(flavor = "multi_thread")]
async fn a_machine_of_every_seller_lives_from_plan_to_bill_and_leaves_nothing() {
    for provider in Provider::ALL {
        for_usual_database(async |store| lives(store, provider).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_seller_that_accepts_and_has_no_machine_leaves_nothing_running() {
    for provider in Provider::ALL {
        for_usual_database(async |store| has_nothing_after_all(store, provider).await).await;
    }
}
