//! What happens at every provider alike, through the adapter of each.

use market::offer::{Availability, Offer};
use rust_decimal::Decimal;
use simulator::{Fault, FaultKind, Operation};

use crate::bench::Bench;

/// How much of each offer is free.
fn room(offers: &[Offer]) -> Vec<Availability> {
    let offers = offers.iter();
    offers.map(|offer| offer.availability).collect()
}

#[tokio::test]
async fn a_status_that_nobody_knows_is_shown_until_it_is_cleared_and_a_release_works() {
    for bench in Bench::all().await {
        let (provider, lease) = (bench.provider, bench.order().await);
        let known = bench.status(&lease.id).await;
        bench.simulator.show_unknown_state(&lease.id.0).unwrap();
        assert_ne!(bench.status(&lease.id).await, known, "{provider}");
        bench.simulator.clear_unknown_state(&lease.id.0).unwrap();
        assert_eq!(bench.status(&lease.id).await, known, "{provider}");
        bench.simulator.show_unknown_state(&lease.id.0).unwrap();
        let odd = bench.status(&lease.id).await;
        assert!(bench.release(&lease.id).await, "{provider}");
        assert_eq!(bench.simulator.running_machines(), [], "{provider}");
        assert_ne!(bench.status(&lease.id).await, odd, "{provider}");
        assert!(bench.simulator.show_unknown_state(&lease.id.0).is_err());
    }
}

#[tokio::test]
async fn a_launch_for_which_there_is_no_machine_after_all_takes_no_room_and_is_billed_for_its_boot()
{
    for bench in Bench::all().await {
        let provider = bench.provider;
        let free = bench.read_catalog().await.offers;
        if !bench.breaks(FaultKind::LateNoCapacity, 1) {
            continue;
        }
        let lease = bench.order().await;
        let booting = bench.status(&lease.id).await;
        assert_eq!(bench.simulator.running_machines().len(), 1, "{provider}");
        bench.boot();
        assert_eq!(bench.simulator.running_machines(), [], "{provider}");
        let ended = bench.status(&lease.id).await;
        assert!(ended.is_some() && ended != booting, "{provider}: {ended:?}");
        bench.clock.turn(3_600);
        let seconds = bench.simulator.bill(provider).lines[0].seconds;
        assert_eq!(seconds, i64::from(provider.timing().boot_seconds));
        assert!(bench.release(&lease.id).await, "{provider}");
        let now = bench.read_catalog().await.offers;
        assert_eq!(room(&now), room(&free), "{provider}");
    }
}

#[tokio::test]
async fn a_machine_that_is_taken_back_ends_by_itself_and_frees_its_nodes() {
    for bench in Bench::all().await {
        let free = bench.read_catalog().await.offers;
        let (provider, lease) = (bench.provider, bench.order().await);
        bench.boot();
        let running = bench.status(&lease.id).await;
        bench.clock.turn(60);
        bench.simulator.preempt(&lease.id.0).unwrap();
        assert!(bench.simulator.preempt(&lease.id.0).is_err(), "{provider}");
        assert_eq!(bench.simulator.running_machines(), [], "{provider}");
        assert_ne!(bench.status(&lease.id).await, running, "{provider}");
        let billed = bench.simulator.bill(provider);
        bench.clock.turn(3_600);
        let later = bench.simulator.bill(provider);
        assert!(billed.total_usd > Decimal::ZERO, "{provider}");
        assert_eq!(billed.total_usd, later.total_usd, "{provider}");
        assert!(bench.release(&lease.id).await, "{provider}");
        bench.clock.turn(3_600);
        let now = bench.read_catalog().await.offers;
        assert_eq!(room(&now), room(&free), "{provider}");
    }
}

#[tokio::test]
async fn a_machine_that_boots_cannot_be_ended_as_often_as_said() {
    for bench in Bench::all().await {
        if !bench.breaks(FaultKind::CannotDeleteYet, 2) {
            continue;
        }
        let (provider, lease) = (bench.provider, bench.order().await);
        for _ in 0..2 {
            // Whether the adapter has a word for that or not.
            bench.release(&lease.id).await;
            assert_eq!(bench.simulator.running_machines().len(), 1, "{provider}");
        }
        assert!(bench.release(&lease.id).await, "{provider}");
        assert_eq!(bench.simulator.running_machines(), [], "{provider}");
        let stray = Fault::new(provider, FaultKind::CannotDeleteYet).on(Operation::Read);
        assert!(bench.simulator.break_next(stray).is_err(), "{provider}");
    }
}

#[tokio::test]
async fn one_record_that_nobody_can_read_stands_beside_the_good_ones() {
    for bench in Bench::all().await {
        let provider = bench.provider;
        let usual = bench.read_catalog().await;
        if !bench.breaks(FaultKind::OddRecord, 1) {
            continue;
        }
        let odd = bench.read_catalog().await;
        assert_eq!(odd.offers.len(), usual.offers.len(), "{provider}");
        assert!(odd.skipped.len() > usual.skipped.len(), "{provider}");
        let again = bench.read_catalog().await;
        assert_eq!(again.skipped.len(), usual.skipped.len(), "{provider}");
    }
}
