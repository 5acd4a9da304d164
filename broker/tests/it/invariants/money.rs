//! Charges: nothing before the hand-off (5), and a ledger that balances (7).

use market::ledger::Account;
use market::money::Money;
use market::reservation::ReservationState as S;
use rust_decimal::Decimal;
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};

use crate::lifecycle::scene::{Scene, fleet, training};

#[tokio::test(flavor = "multi_thread")]
async fn invariant_05_nothing_is_handed_off_unverified_or_charged_before_the_hand_off() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::SlowMemory);
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        let id = scene.reserve(training(8)).await;
        scene.work().await;
        let mut turns = 0;
        while scene.state(id).await != S::Active {
            turns += 1;
            assert!(turns < 120, "not handed off after four hours of the clock");
            assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
            for lease in scene.leases(id).await {
                assert!(lease.handed_off_at.is_none(), "{lease:?}");
            }
            scene.turn(120).await;
        }
        let leases = scene.leases(id).await;
        assert_eq!(leases.len(), 3, "one failed, one was silent, one passed");
        let all = store.verifications().across_tenants();
        for lease in &leases {
            let results = all.attestations_of(lease.id).await.expect("attestations");
            let passed = results.len() == 1 && results.iter().all(|one| one.verdict.is_pass());
            assert_eq!(passed, lease.handed_off_at.is_some());
        }
        scene.turn(1_000).await;
        let used = scene.broker().now() - leases[2].handed_off_at.expect("handed off");
        scene.release_and_close(id).await;
        assert_eq!(scene.charged(id).await.0, 8 * used.num_seconds());
        assert!(
            scene
                .charges(id)
                .await
                .iter()
                .all(|c| c.usage.lease_id == leases[2].id)
        );
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_07_the_books_balance_and_can_be_made_again_from_what_happened() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::LAMBDA, FaultKind::AcceptedThenFailed);
        let ids = [
            scene.reserve(training(16)).await,
            scene.reserve(fleet(3)).await,
        ];
        scene.work().await;
        for id in ids {
            scene.until(id, S::Active).await;
        }
        for seconds in [61, 3_599, 7, 86_401] {
            scene.turn(seconds).await;
            assert!(
                store
                    .ledger()
                    .check()
                    .await
                    .expect("a recount")
                    .is_balanced()
            );
        }
        for id in ids {
            scene.release_and_close(id).await;
        }
        scene.turn(60).await;
        // From the events alone, in decimals: seconds in the tenant's hands at the quoted rate,
        // and each machine's life at its provider's price.
        let (mut owed_to_us, mut owed_by_us) = (Decimal::ZERO, Decimal::ZERO);
        let per_second = |price: Money, seconds: i64| {
            price.to_decimal() * Decimal::from(seconds) / Decimal::from(3_600)
        };
        for id in ids {
            let reservation = scene.reservation(id).await;
            let mut gpu_seconds = 0;
            for lease in scene.leases(id).await {
                let gpus = i64::from(lease.nodes * lease.offer.gpus.as_whole().expect("whole"));
                if let Some(from) = lease.handed_off_at {
                    let asked_back_at = reservation.wish_at.expect("it was released");
                    gpu_seconds += gpus * (asked_back_at - from).num_seconds();
                }
                let from = lease.started_at.expect("each was made");
                let to = lease.release_accepted_at.expect("each was released");
                let seconds = i64::from(lease.nodes) * (to - from).num_seconds();
                owed_by_us += per_second(lease.offer.price_per_node_hour, seconds).round_dp(8);
            }
            let rate = reservation.lines[0].rate.money_per_gpu_hour();
            owed_to_us += per_second(rate, gpu_seconds).round_dp(8);
        }
        assert_eq!(
            scene.balance(&Account::Receivable(scene.tenant)).await,
            owed_to_us
        );
        let payable =
            scene.payable(Provider::LAMBDA).await + scene.payable(Provider::VOLTAGEPARK).await;
        assert_eq!(payable, owed_by_us);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}
