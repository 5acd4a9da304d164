//! The latency of a reader while every price changes: searches beside a thread that makes and swaps one
//! snapshot after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::market::offer::Offer;
use arc_swap::ArcSwap;
use matcher::{Held, SearchOptions};
use serde::Serialize;

use super::requests::{Request, Requests, TOP};
use super::{SEED, Scene, Times};

/// The measurements while every price changed.
#[derive(Debug, Clone, Serialize)]
pub struct Repriced {
    /// Offers on sale.
    pub offers: usize,
    /// A narrow search while nothing changes. Units: microseconds.
    pub idle_p50_us: f64,
    /// The same, of all but one in a hundred.
    pub idle_p99_us: f64,
    /// A narrow search while another thread sets every price over and over.
    pub busy_p50_us: f64,
    /// The same, of all but one in a hundred.
    pub busy_p99_us: f64,
    /// Snapshots put in place meanwhile.
    pub swaps: usize,
    /// How long one took to make at the median. Units: milliseconds.
    pub patch_p50_ms: f64,
}

/// Times narrow searches for so long while nothing changes, and as long while all offers are
/// repriced.
///
/// Errors: a market that cannot be made, a search that fails.
pub fn measure_reprice(
    offers: usize,
    list: Vec<Offer>,
    each: Duration,
) -> anyhow::Result<Repriced> {
    let Scene {
        market,
        count,
        snapshot,
    } = Scene::new(offers, list)?;
    let requests = Requests::of(&market, SEED)?;
    let demands: Vec<_> = requests.narrow.iter().map(Request::demand).collect();
    let turns: Vec<Vec<Offer>> = (1..3)
        .map(|turn| market.priced(count, turn).collect())
        .collect();
    let current = ArcSwap::from_pointee(snapshot);
    let (now, held) = (market.now(), Held::new());
    let options = SearchOptions {
        limit: TOP,
        ..SearchOptions::default()
    };
    let searches = || -> anyhow::Result<Times> {
        let (began, mut nanos) = (Instant::now(), Vec::new());
        for demand in demands.iter().cycle() {
            let asked = Instant::now();
            std::hint::black_box(matcher::search(
                &current.load(),
                demand,
                &held,
                now,
                &options,
            )?);
            nanos.push(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(u64::MAX));
            if began.elapsed() > each {
                break;
            }
        }
        nanos.sort_unstable();
        Ok(Times(nanos))
    };
    let idle = searches()?;
    let over = AtomicBool::new(false);
    let (busy, mut patches) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut nanos = Vec::new();
            for (generation, offers) in (2..).zip(turns.iter().cycle()) {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let began = Instant::now();
                let next = current
                    .load()
                    .patched(generation, now, offers, &[], market.providers());
                nanos.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
                current.store(Arc::new(next));
            }
            nanos
        });
        let busy = searches();
        over.store(true, Ordering::Relaxed);
        (busy, writer.join().unwrap_or_default())
    });
    let busy = busy?;
    patches.sort_unstable();
    Ok(Repriced {
        offers: count,
        idle_p50_us: idle.micros(50),
        idle_p99_us: idle.micros(99),
        busy_p50_us: busy.micros(50),
        busy_p99_us: busy.micros(99),
        swaps: patches.len(),
        patch_p50_ms: Times(patches).micros(50) / 1e3,
    })
}
