//! Use under a commitment is charged at the commitment's remaining cost, and after its end at the offer's own
//! rate; the ledger balances, and so does the amount owed to the provider.

use chrono::{DateTime, TimeDelta, Utc};
use market::capacity::{Commitment, OwnScope};
use market::ids::CommitmentId;
use market::ledger::Account;
use market::money::Money;
use market::reservation::{CloseReason, ReservationState as S};
use rust_decimal::Decimal;
use simulator::Provider;
use store::fixture::{for_each_database, for_usual_database};

use super::scene::{Scene, fleet};

/// Registers a commitment for A10s at lambda.
async fn pay_for(
    scene: &Scene,
    (nodes, node_hours): (u32, Option<u32>),
    expires_at: DateTime<Utc>,
) -> CommitmentId {
    let id = CommitmentId::from_uuid(scene.broker().new_uuid());
    let commitment = Commitment {
        id,
        name: "contract".into(),
        provider: "lambda".parse().expect("an id"),
        scope: OwnScope {
            sku: None,
            gpu: Some("A10".parse().expect("a GPU")),
            gpus: Some(1),
            country: None,
            region: None,
        },
        nodes,
        node_hours,
        price_per_node_hour: Money::usd_units(0),
        expires_at,
        created_at: scene.broker().now(),
    };
    let all = scene.store().commitments().of(scene.tenant);
    all.add(commitment, None).await.expect("kept");
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_for_costs_nothing_until_it_ends_and_the_books_balance() {
    for_usual_database(async |store| {
        let scene = Scene::open(store).await;
        let ends = scene.broker().now() + TimeDelta::seconds(2_000);
        pay_for(&scene, (1, None), ends).await;
        let id = scene.reserve_until_active(fleet(2)).await;
        let lines = scene.reservation(id).await.lines;
        assert_eq!(lines.len(), 2, "one node is paid for, the other is not");
        assert_eq!(lines[0].covered.map(|covered| covered.until), Some(ends));
        assert!(lines[1].covered.is_none());
        let handed_off_at = scene.leases(id).await[0].handed_off_at.expect("in use");
        for _ in 0..5 {
            scene.turn(600).await;
        }
        scene.release(id).await;
        scene.until(id, S::Closed(CloseReason::Released)).await;

        let charges = scene.charges(id).await;
        let seconds = |line: u32, free: bool| {
            let of_line = charges.iter().filter(|charge| charge.usage.line == line);
            let of_rate =
                of_line.filter(|charge| (charge.rate.money_per_gpu_hour().units() == 0) == free);
            of_rate
                .map(|charge| charge.usage.gpu_seconds())
                .sum::<i64>()
        };
        let covered = (ends - handed_off_at).num_seconds();
        assert!(covered > 0, "it ends while it is in use");
        assert_eq!(seconds(0, true), covered);
        assert_eq!(seconds(0, false), seconds(1, false) - covered);
        assert_eq!(seconds(1, true), 0);
        let paid = lines[0].rate.cost_of(seconds(0, false) + seconds(1, false));
        let (_, usd) = scene.charged(id).await;
        let units = paid.expect("a sum").units();
        assert!((usd - Decimal::new(units, 8)).abs() <= Decimal::new(1, 8));
        assert_eq!(scene.balance(&Account::Receivable(scene.tenant)).await, usd);
        assert_eq!(scene.balance(&Account::RevenueUsage).await, -usd);
        scene.assert_ended().await;
        let books = store.ledger().books().await.expect("the books");
        assert_eq!(broker::tenant::books::differences(&books), Ok(Vec::new()));
        // The simulated provider knows of no contract and bills all of its time. Nobody owes the committed
        // part of that.
        let node = lines[0].offer.price_per_node_hour.to_decimal();
        let owed = scene.payable(Provider::LAMBDA).await;
        let hours = scene.leases(id).await.into_iter().map(|lease| {
            let started = lease.started_at.expect("it ran");
            let gone = lease
                .release_accepted_at
                .or(lease.gone_at)
                .expect("it ended");
            let from = if lease.line == 0 {
                started.max(ends)
            } else {
                started
            };
            Decimal::from((gone - from).num_seconds()) / Decimal::from(3_600)
        });
        let due = hours.sum::<Decimal>() * node;
        assert!(owed < scene.billed_by(Provider::LAMBDA));
        // Parts of seconds are not booked.
        let two_seconds = node / Decimal::from(1_800);
        assert!((owed - due).abs() < two_seconds, "{owed}, not {due}");
        scene.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn node_hours_are_set_aside_and_what_is_not_used_is_given_back() {
    for_each_database(async |store| {
        let scene = Scene::open(store).await;
        let far = scene.broker().now() + TimeDelta::days(300);
        let commitment = pay_for(&scene, (4, Some(10)), far).await;
        let left = async || {
            let all = scene.store().commitments().of(scene.tenant);
            let found = all.find(commitment, scene.broker().now()).await;
            let open = found.expect("reads").expect("there");
            (open.nodes_left, open.node_seconds_left.expect("counted"))
        };
        assert_eq!(left().await, (4, 36_000));
        let held_at = scene.broker().now();
        let id = scene.reserve_until_active(fleet(2)).await;
        let covered = scene.reservation(id).await.lines[0].covered;
        let until = covered.expect("paid for").until;
        assert_eq!(
            until,
            held_at + TimeDelta::hours(5),
            "ten hours for two nodes"
        );
        assert_eq!(left().await, (2, 0), "all of it is set aside");
        scene.turn(600).await;
        scene.release(id).await;
        scene.until(id, S::Closed(CloseReason::Released)).await;
        let used = (scene.reservation(id).await.closed_at.expect("closed") - held_at).num_seconds();
        assert_eq!(left().await, (4, 36_000 - 2 * used));
        scene.close().await;
    })
    .await;
}
