//! Orders: never without a row (2), never twice (3), for a gang all or nothing (4).

use std::collections::BTreeSet;

use broker::flow::{fulfil, reconcile};
use market::lease::LeaseState;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use simulator::{FaultKind, Provider};
use store::fixture::{for_each_database, for_usual_database};

use crate::eventually::in_time;
use crate::lifecycle::scene::{Scene, fleet, training};
use crate::lifecycle::tap::{Fate, Op};

#[tokio::test(flavor = "multi_thread")]
async fn invariant_02_a_row_stands_before_the_call_and_no_machine_without_one() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let id = scene.reserve(training(8)).await;
        scene.line.hook(|call| {
            if call.op == Op::Request {
                Fate::HangBefore
            } else {
                Fate::Forward
            }
        });
        tokio::select! {
            () = in_time("a call that hangs", scene.line.hangs()) => {}
            _ = fulfil::work_until_idle(scene.broker()) => panic!("the order goes out"),
        }
        let lease = scene.leases(id).await.remove(0);
        assert_eq!(
            (lease.state, lease.attempts),
            (LeaseState::Requested, 1),
            "saved, not yet sent"
        );
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), 0);
        scene.line.unhook();
        scene.restart().await;
        scene.pass_seconds(i64::from(fulfil::CLAIM_SECONDS) + 1);
        scene.turn(60).await;
        scene.until(id, S::Active).await;
        scene.assert_sound().await;
        scene.release_and_close(id).await;
        scene.assert_settled().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_03_two_workers_at_once_and_work_repeated_make_one_machine_per_order() {
    for_each_database(async |store| {
        let mut scene = Scene::open(store).await;
        let first = scene.broker().clone();
        scene.restart().await;
        let second = scene.broker().clone();
        let ids = [
            scene.reserve(training(16)).await,
            scene.reserve(fleet(3)).await,
        ];
        for _ in 0..8 {
            for id in ids {
                store.work().nudge(id, first.now()).await.expect("a nudge");
            }
            let (one, two) = tokio::join!(
                fulfil::work_until_idle(&first),
                fulfil::work_until_idle(&second)
            );
            one.expect("the database answers");
            two.expect("the database answers");
            scene.turn(300).await;
        }
        for id in ids {
            assert_eq!(scene.state(id).await, S::Active);
            assert!(
                scene
                    .leases(id)
                    .await
                    .iter()
                    .all(|lease| lease.attempts == 1)
            );
        }
        assert_eq!(scene.made_at(Provider::VOLTAGEPARK), 1);
        assert_eq!(scene.made_at(Provider::LAMBDA), 3);
        scene.assert_sound().await;
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invariant_03_a_worker_whose_claim_ran_out_changes_nothing_any_more() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let id = scene.reserve(training(8)).await;
        scene.line.hook(|call| match (call.op, call.number) {
            (Op::Request, 0) => Fate::Wait,
            _ => Fate::Forward,
        });
        // The first worker's order is on its way for longer than its claim lasts; a second one finds nothing
        // under the mark, on lists that are empty for long enough to prove it. The machine that the first
        // then reports must not be lost.
        let (worked, ()) = tokio::join!(fulfil::work_until_idle(scene.broker()), async {
            in_time("a call that waits", scene.line.hangs()).await;
            for seconds in [i64::from(fulfil::CLAIM_SECONDS) + 1, 600] {
                scene.pass_seconds(seconds);
                fulfil::work_until_idle(scene.broker())
                    .await
                    .expect("the database answers");
            }
            scene.line.go_on();
        });
        worked.expect("the database answers");
        scene.line.unhook();
        let swept = reconcile::sweep(scene.broker()).await.expect("an answer");
        assert_eq!(swept.ended, 1, "the late machine of a lease that is over");
        scene.until(id, S::Active).await;
        scene.assert_sound().await;
        scene.release_and_close(id).await;
        scene.assert_ended().await;
        scene.close().await;
    })
    .await;
}

// S65
#[tokio::test(flavor = "multi_thread")]
async fn invariant_04_a_gang_gets_every_node_or_keeps_none_and_pays_nothing() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        for refused in 0..3 {
            // Three orders make the gang; the one of this number is refused, everywhere.
            let mut orders = 0;
            scene.line.hook(move |call| {
                if call.op != Op::Request {
                    return Fate::Forward;
                }
                orders += 1;
                if (orders - 1) % 3 == refused {
                    Fate::Refuse
                } else {
                    Fate::Forward
                }
            });
            let id = scene.reserve(training(24)).await;
            scene.work().await;
            assert_eq!(
                scene
                    .leases(id)
                    .await
                    .iter()
                    .filter(|l| l.replaced_by.is_none())
                    .count(),
                3
            );
            scene.until(id, S::Closed(CloseReason::NoCapacity)).await;
            assert_eq!(scene.charged(id).await, (0, Decimal::ZERO));
            assert!(
                scene
                    .leases(id)
                    .await
                    .iter()
                    .all(|lease| lease.handed_off_at.is_none())
            );
            scene.assert_settled().await;
            scene.line.unhook();
            scene.turn(2_000).await;
        }
        scene.close().await;
    })
    .await;
}

// S65
#[tokio::test(flavor = "multi_thread")]
async fn invariant_04_a_gang_in_which_one_node_fails_is_replaced_as_a_whole_in_one_offer() {
    for_usual_database(async |store| {
        let scene = Scene::open_node_by_node(store).await;
        for kind in [FaultKind::SlowMemory, FaultKind::AcceptedThenFailed] {
            scene.break_next(Provider::VOLTAGEPARK, kind);
            let id = scene.reserve_until_active(training(16)).await;
            let leases = scene.leases(id).await;
            assert_eq!(leases.len(), 4, "{leases:?}");
            let (old, new): (Vec<_>, Vec<_>) = leases.iter().partition(|l| l.replaced_by.is_some());
            assert!(old.iter().all(|lease| lease.handed_off_at.is_none()));
            let offers: BTreeSet<_> = new.iter().map(|lease| lease.offer.offer_id).collect();
            assert_eq!(offers.len(), 1, "one fabric");
            let gone_at = old
                .iter()
                .map(|lease| lease.gone_at)
                .max()
                .expect("two")
                .expect("gone");
            assert!(new.iter().all(|lease| lease.requested_at >= gone_at));
            let handed_off: BTreeSet<_> = new.iter().map(|lease| lease.handed_off_at).collect();
            assert_eq!(handed_off.len(), 1, "all at once");
            scene.release_and_close(id).await;
            scene.assert_settled().await;
            scene.turn(2_000).await;
        }
        scene.close().await;
    })
    .await;
}
