//! Random lives of reservations that start later, beside a naive twin that predicts every answer, state, start
//! and end, and after every step what is in use and what is committed.

mod life;
mod steps;
mod twin;

use market::offer::{Availability, AvailabilityLevel};
use market::quantity::GpuCount;
use store::Store;
use store::fixture::TestDatabase;

use crate::support::{at, offer, sell};
use life::{Life, Tally};

/// Later starts that are placed in each life.
const PLACED: usize = 50;

async fn live(store: &Store, seeds: std::ops::Range<u64>) -> Tally {
    let enough = Availability {
        level: AvailabilityLevel::Present,
        nodes: Some(1),
        at_least: true,
    };
    let mut offers = [offer("one", enough), offer("eight", enough)];
    offers[0].gpus = GpuCount::whole(1).expect("a count");
    sell(store, &offers, at(0)).await;
    let mut tally = Tally::new();
    for seed in seeds {
        let mut life = Life::begin(store, offers.clone(), seed).await;
        if seed % 5 == 0 {
            life.leave_unused().await;
        }
        while life.placed < PLACED {
            life.step().await;
            assert!(life.log.len() < 2_000, "{} places too little", life.log[0]);
        }
        life.compare_at_the_end().await;
        for (kind, count) in life.tally {
            *tally.entry(kind).or_default() += count;
        }
    }
    eprintln!("{tally:?}");
    tally
}

async fn live_on_sqlite(seeds: std::ops::Range<u64>) {
    let sqlite = TestDatabase::sqlite().await;
    let tally = live(&sqlite.store, seeds).await;
    sqlite.remove().await;
    for kind in [
        "place later Err(Limit)",
        "place later Err(Budget)",
        "place later Err(Other)",
        "place pair Err(Limit)",
        "place Err(Budget)",
        "confirm Err(Budget)",
        "start Ok(())",
        "start Err(Limit)",
        "start Err(Budget)",
        "hand off Ok(())",
        "extend Ok(())",
        "extend Err(Budget)",
        "extend Err(FleetFollows { ordered: false })",
        "extend Err(FleetFollows { ordered: true })",
        "release Ok(())",
        "fail Ok(())",
        "miss Ok(())",
    ] {
        assert!(tally.contains_key(kind), "{kind} never happened: {tally:?}");
    }
}

#[tokio::test]
async fn five_hundred_later_starts_do_what_a_naive_twin_predicts() {
    live_on_sqlite(0..10).await;
}

#[tokio::test]
async fn five_hundred_other_later_starts_do_what_a_naive_twin_predicts() {
    live_on_sqlite(10..20).await;
}

#[tokio::test]
async fn a_hundred_later_starts_on_postgresql_do_what_a_naive_twin_predicts() {
    if let Some(postgres) = TestDatabase::postgres().await {
        live(&postgres.store, 100..102).await;
        postgres.remove().await;
    }
}
