//! Providers' faults, one at a time: the order is found or replaced, the tenant pays for its own use and for
//! nothing else.

use market::ids::ReservationId;
use market::lease::{LeaseEvent, LeaseState};
use market::ledger::Account;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use simulator::{Fault, FaultKind, Operation, Provider};
use store::fixture::{for_each_database, for_usual_database};

use super::scene::{Scene, anything_at, training};

/// Longer than the cool-down of an offer.
const COOL_DOWN_SECONDS: i64 = 2_000;

/// Uses the active machines for an hour, releases them, and checks that the tenant was charged for that hour
/// and nothing else.
async fn use_for_an_hour(scene: &Scene, id: ReservationId) {
    scene.turn(3_600).await;
    let lease = scene.leases(id).await.pop().expect("a lease");
    let from = lease.handed_off_at.expect("handed off");
    let used = (scene.broker().now() - from).num_seconds();
    scene.release_and_close(id).await;
    let gpus = i64::from(lease.nodes * lease.offer.gpus.as_whole().expect("whole GPUs"));
    assert_eq!(scene.charged(id).await.0, gpus * used);
}

/// The first lease failed by this event. Another one, ordered when nothing ran any more, replaced it; the
/// tenant pays for that one alone.
async fn assert_replaced(scene: &Scene, id: ReservationId, event: LeaseEvent) {
    let leases = scene.leases(id).await;
    assert_eq!(leases.len(), 2, "{leases:?}");
    assert_eq!(
        (leases[0].state, leases[0].fall_reason),
        (LeaseState::Gone, Some(event))
    );
    assert_eq!(leases[0].replaced_by, Some(leases[1].id));
    assert!(leases[0].handed_off_at.is_none());
    if scene.reservation(id).await.gang {
        assert!(
            leases[1].requested_at >= leases[0].gone_at.expect("gone"),
            "one after the other"
        );
    }
    assert!(
        scene
            .charges(id)
            .await
            .iter()
            .all(|charge| charge.usage.lease_id == leases[1].id)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_whose_reply_was_lost_is_found_by_its_mark_and_not_sent_again() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            scene.break_next(provider, FaultKind::ReplyLostAfterCreate);
            let id = scene.reserve(anything_at(provider)).await;
            scene.work().await;
            let lease = scene.leases(id).await.remove(0);
            assert_eq!(
                (lease.state, lease.provider_lease_id),
                (LeaseState::Requested, None)
            );
            assert_eq!(scene.made_at(provider), 1, "it was made all the same");
            scene.turn(10).await;
            assert_eq!(scene.leases(id).await[0].state, LeaseState::Booting);
            scene.until(id, S::Active).await;
            use_for_an_hour(&scene, id).await;
            let leases = scene.leases(id).await;
            assert_eq!((leases.len(), leases[0].attempts), (1, 1));
            assert_eq!(scene.made_at(provider), 1);
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_was_lost_on_its_way_is_replaced_once_the_provider_had_time_to_list_it() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for (provider, kind) in [
            (Provider::VOLTAGEPARK, FaultKind::ReplyLostBeforeCreate),
            (Provider::LAMBDA, FaultKind::InternalError),
        ] {
            scene.break_next(provider, kind);
            let id = scene.reserve(anything_at(provider)).await;
            scene.work().await;
            // Lists that are empty prove something when they are so for ten minutes.
            for (seconds, why) in [
                (30, "it may be listed yet"),
                (90, "one list"),
                (590, "empty"),
            ] {
                scene.turn(seconds).await;
                let state = scene.leases(id).await[0].state;
                assert_eq!(state, LeaseState::Requested, "{why}");
            }
            scene.turn(10).await;
            assert_eq!(scene.leases(id).await[0].state, LeaseState::Gone);
            scene.until(id, S::Active).await;
            assert_eq!(scene.made_at(provider), 1);
            use_for_an_hour(&scene, id).await;
            assert_replaced(&scene, id, LeaseEvent::NotFound).await;
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_is_never_answered_is_given_up_and_looked_up() {
    for_usual_database(async |store| {
        let scene = Scene::open_impatient(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::Hang);
        let id = scene.reserve(training(8)).await;
        scene.work().await;
        assert_eq!(scene.leases(id).await[0].state, LeaseState::Requested);
        scene.until(id, S::Active).await;
        use_for_an_hour(&scene, id).await;
        assert_replaced(&scene, id, LeaseEvent::NotFound).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_never_comes_up_is_ended_and_replaced_at_our_cost() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            scene.break_next(provider, FaultKind::AcceptedThenFailed);
            let id = scene.reserve_until_active(anything_at(provider)).await;
            use_for_an_hour(&scene, id).await;
            assert_replaced(&scene, id, LeaseEvent::BootFailed).await;
            let account =
                Account::CogsCompensation(scene.link(provider).adapter.profile().provider_id());
            assert!(
                scene.balance(&account).await > Decimal::ZERO,
                "booked, not hidden"
            );
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_that_comes_too_soon_is_sent_again_when_the_provider_said_and_not_before() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            let launches = || scene.simulator().call_counts()[&(provider, Operation::Launch)];
            scene.break_next(
                provider,
                FaultKind::TooManyRequests {
                    retry_after_seconds: Some(40),
                },
            );
            let id = scene.reserve(anything_at(provider)).await;
            scene.work().await;
            let refused = launches();
            assert_eq!(scene.leases(id).await[0].state, LeaseState::Requested);
            assert_eq!(scene.leases(id).await[0].attempts, 0, "nothing was made");
            scene.turn(39).await;
            assert_eq!(launches(), refused);
            scene.turn(1).await;
            assert_eq!(launches(), refused + 1);
            scene.until(id, S::Active).await;
            use_for_an_hour(&scene, id).await;
            assert_eq!(
                (scene.leases(id).await.len(), scene.made_at(provider)),
                (1, 1)
            );
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_a_provider_in_use_and_at_the_end_are_waited_out() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            let id = scene.reserve_until_active(anything_at(provider)).await;
            let errors = |operation, times| {
                let fault = Fault::new(provider, FaultKind::InternalError)
                    .on(operation)
                    .times(times);
                scene
                    .simulator()
                    .break_next(fault)
                    .expect("a fault that fits");
            };
            let handed_off_at = scene.leases(id).await[0].handed_off_at.expect("handed off");
            errors(Operation::Read, 3);
            scene.turn(600).await;
            assert_eq!(
                scene.state(id).await,
                S::Active,
                "an error is no proof of loss"
            );
            scene.turn(600).await;
            errors(Operation::Release, 2);
            scene.release(id).await;
            let used = (scene.broker().now() - handed_off_at).num_seconds();
            scene.work().await;
            assert_eq!(scene.state(id).await, S::Releasing(CloseReason::Released));
            for _ in 0..4 {
                scene.turn(60).await;
            }
            assert_eq!(scene.state(id).await, S::Closed(CloseReason::Released));
            let lease = scene.leases(id).await.remove(0);
            let gpus = i64::from(lease.offer.gpus.as_whole().expect("whole GPUs"));
            assert_eq!(
                scene.charged(id).await.0,
                gpus * used,
                "not for our troubles in ending it"
            );
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_whose_reply_was_lost_is_given_again_without_harm() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for provider in Provider::DEMONSTRATION {
            let id = scene.reserve_until_active(anything_at(provider)).await;
            let lost = Fault::new(provider, FaultKind::ReplyLostAfterCreate).on(Operation::Release);
            scene
                .simulator()
                .break_next(lost)
                .expect("a fault that fits");
            scene.release(id).await;
            scene.until(id, S::Closed(CloseReason::Released)).await;
            scene.assert_ended().await;
            assert!(scene.payable(provider).await >= scene.billed_by(provider));
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_billed_is_the_rate_quoted_whatever_the_price_does_at_the_launch() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for (provider, price) in [(Provider::LAMBDA, 199), (Provider::VOLTAGEPARK, 321)] {
            let id = scene.hold(anything_at(provider)).await;
            let quoted = scene.reservation(id).await.lines[0].rate;
            scene.break_next(
                provider,
                FaultKind::PriceChange {
                    price_usd_hour: Decimal::new(price, 2),
                },
            );
            scene.confirm(id).await;
            scene.work().await;
            scene.until(id, S::Active).await;
            use_for_an_hour(&scene, id).await;
            assert_eq!(scene.reservation(id).await.lines[0].rate, quoted);
            assert!(
                scene
                    .charges(id)
                    .await
                    .iter()
                    .all(|charge| charge.rate == quoted)
            );
            // Our debt moved with the provider's price, and is reported.
            let lease = scene.leases(id).await.remove(0);
            let bills = lease.price_per_node_hour.expect("the provider states it");
            assert_ne!(bills, lease.offer.price_per_node_hour);
            let attempts = scene.store().attempts();
            let notes = attempts.of_lease(lease.id).await.expect("attempts");
            let told = notes
                .iter()
                .filter_map(|attempt| attempt.note.as_deref())
                .any(|note| note.contains(&bills.to_string()) && note.contains("quoted"));
            assert!(told, "{notes:?}");
            scene.assert_settled().await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_that_is_not_what_was_sold_fails_its_verification_and_is_replaced() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let provider = Provider::VOLTAGEPARK;
        for kind in [
            FaultKind::SlowMemory,
            FaultKind::MissingGpu,
            FaultKind::WrongModel,
        ] {
            let billed = scene.link(provider).adapter.profile().provider_id();
            let claimed = scene.balance(&Account::Disputed(billed.clone())).await;
            scene.break_next(provider, kind.clone());
            let id = scene.reserve_until_active(training(8)).await;
            use_for_an_hour(&scene, id).await;
            assert_replaced(&scene, id, LeaseEvent::Failed).await;
            let claims = scene.balance(&Account::Disputed(billed.clone())).await;
            assert!(claims > claimed, "the provider owes it back: {claims}");
            let ours = scene.balance(&Account::CogsCompensation(billed)).await;
            assert_eq!(ours, Decimal::ZERO, "until it refuses");
            let leases = scene.leases(id).await;
            let all = store.verifications().across_tenants();
            let failed = all
                .attestations_of(leases[0].id)
                .await
                .expect("attestations");
            assert_eq!(
                (failed.len(), failed[0].verdict.is_pass()),
                (1, false),
                "{kind:?}"
            );
            let passed = all
                .attestations_of(leases[1].id)
                .await
                .expect("attestations");
            assert_eq!((passed.len(), passed[0].verdict.is_pass()), (1, true));
            scene.assert_settled().await;
            scene.turn(COOL_DOWN_SECONDS).await;
        }
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rental_of_fewer_nodes_than_ordered_is_ended_before_it_is_up_and_replaced() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::FewerNodes);
        let id = scene.reserve(training(16)).await;
        scene.work().await;
        scene.turn(30).await;
        assert_eq!(scene.leases(id).await[0].state, LeaseState::Releasing);
        scene.until(id, S::Active).await;
        use_for_an_hour(&scene, id).await;
        // The answer to the order does not state how many there are; the first look at it does.
        assert_replaced(&scene, id, LeaseEvent::BootFailed).await;
        let fallen = scene.leases(id).await.remove(0);
        assert_eq!(
            fallen.fall_note.as_deref(),
            Some("2 nodes were ordered and 1 were made")
        );
        scene.assert_ended().await;
        assert!(
            scene.payable(Provider::VOLTAGEPARK).await >= scene.billed_by(Provider::VOLTAGEPARK)
        );
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_never_calls_home_is_given_up_at_its_deadline_and_replaced() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        scene.break_next(Provider::VOLTAGEPARK, FaultKind::NeverCallsHome);
        let id = scene.reserve(training(8)).await;
        scene.work().await;
        scene.turn(900).await;
        assert_eq!(scene.leases(id).await[0].state, LeaseState::Verifying);
        scene.turn(599).await;
        assert_eq!(
            scene.leases(id).await[0].state,
            LeaseState::Verifying,
            "until its deadline"
        );
        scene.turn(15).await;
        assert_eq!(scene.leases(id).await[0].state, LeaseState::Releasing);
        scene.until(id, S::Active).await;
        use_for_an_hour(&scene, id).await;
        assert_replaced(&scene, id, LeaseEvent::TimedOut).await;
        // Nothing was shown of it: we pay its cost.
        let provider = scene.link(Provider::VOLTAGEPARK).adapter.profile();
        let [claims, ours] = [Account::Disputed, Account::CogsCompensation]
            .map(|account| account(provider.provider_id()));
        assert_eq!(scene.balance(&claims).await, Decimal::ZERO);
        assert!(scene.balance(&ours).await > Decimal::ZERO);
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

/// Offers of a provider that are live, and why it is stale if it is.
async fn supply(scene: &Scene, provider: Provider) -> (usize, Option<String>) {
    let snapshot = scene.broker().snapshot();
    let offers = snapshot
        .offers()
        .filter(|o| o.provider().as_str() == provider.as_str())
        .count();
    let rows = scene.store().providers().list().await.expect("providers");
    let row = rows
        .into_iter()
        .find(|row| row.id.as_str() == provider.as_str());
    (offers, row.expect("a provider").stale_reason)
}

/// Whether something of its last reading could not be read.
async fn unread(scene: &Scene, provider: Provider) -> bool {
    let rows = scene.store().providers().list().await.expect("providers");
    let mut rows = rows.iter();
    let row = rows.find(|row| row.id.as_str() == provider.as_str());
    let skipped = &row.expect("a provider").skipped;
    skipped.iter().any(|record| record.is_unread())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_price_list_that_is_broken_empty_or_cut_short_delists_nothing_and_harms_no_other() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        for (broken, other) in [
            (Provider::LAMBDA, Provider::VOLTAGEPARK),
            (Provider::VOLTAGEPARK, Provider::LAMBDA),
        ] {
            let (before, of_other) = (supply(&scene, broken).await.0, supply(&scene, other).await);
            // An error is tried three times in all, an answer is taken as it is.
            for (kind, times) in [
                (FaultKind::TruncatedJson, 1),
                (FaultKind::EmptyCatalog, 1),
                (FaultKind::PartialCatalog, 1),
                (FaultKind::InternalError, 3),
                // The second in all, and not in a row.
                (FaultKind::PartialCatalog, 1),
            ] {
                let fault = Fault::new(broken, kind.clone())
                    .on(Operation::Catalog)
                    .times(times);
                scene
                    .simulator()
                    .break_next(fault)
                    .expect("a fault that fits");
                scene.pass_seconds(60);
                let failures = scene.read_providers().await;
                let (offers, stale) = supply(&scene, broken).await;
                // Voltage Park states how many pages there are: the pages that were read are taken, and the
                // rest is named.
                let is_named = broken == Provider::VOLTAGEPARK && kind == FaultKind::PartialCatalog;
                let failed = usize::from(!is_named);
                assert_eq!(failures.len(), failed, "{kind:?} at {broken}: {failures:?}");
                assert_eq!(stale.is_none(), is_named, "{kind:?} at {broken}");
                assert_eq!(
                    unread(&scene, broken).await,
                    is_named,
                    "{kind:?} at {broken}"
                );
                assert_eq!(offers, before, "{kind:?} at {broken}");
                assert_eq!(
                    supply(&scene, other).await,
                    of_other,
                    "{kind:?} at {broken}"
                );
                scene.pass_seconds(60);
                assert_eq!(scene.read_providers().await.len(), 0);
                assert_eq!(supply(&scene, broken).await, (before, None));
            }
        }
        scene.close().await;
    })
    .await;
}
