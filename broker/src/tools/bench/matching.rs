//! Measures the matcher: how long a search takes in a market of so many offers, beside the least that it
//! could take and beside the same question to PostgreSQL.
//!
//! The answers are compared with those of looking at each offer by itself before anything is timed;
//! one that differs ends the measurement. All of it runs on one thread, in this process.

mod floors;
mod market;
mod plans;
mod reprice;
mod requests;

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use market::Market;
use matcher::{Held, Plan, SearchOptions, Snapshot};
use serde::Serialize;
use store::indexed_query::{IndexedOffer, IndexedOffers, IndexedQuestion};

use ::market::demand::Demand;
use ::market::offer::{Offer, Terms};

use crate::flow::plan::Question;
use floors::{Columns, Scan, SortedIndex};
pub use reprice::{Repriced, measure_reprice};
use requests::{Expected, REQUESTS, Request, Requests, TOP};

/// The seed of the market, and of the requests to it.
const SEED: u64 = 1;

/// How often each request is timed.
const ROUNDS: usize = 5;

/// The measurements in a market of one size, of one core.
#[derive(Debug, Clone, Serialize)]
pub struct MatchFigures {
    /// Offers on sale.
    pub offers: usize,
    /// The ten cheapest of one GPU at a price, with reasons. Units: microseconds.
    pub narrow_p50_us: f64,
    /// The same, of all but one in a hundred.
    pub narrow_p99_us: f64,
    /// The ten cheapest of any GPU, anywhere, with reasons.
    pub wide_p50_us: f64,
    /// A compiled scan by the rules of the wide request.
    pub wide_scan_p50_us: f64,
    /// The ten cheapest with several nodes in one fabric, with reasons.
    pub gang_p50_us: f64,
    /// A plan of a training run. Units: milliseconds.
    pub train_plan_p50_ms: f64,
    /// A plan of a fleet, without a simulation of its tail latency.
    pub serve_plan_p50_ms: f64,
    /// The same with one.
    pub serve_tails_p50_ms: f64,
    /// A plan of a training run with the fleet that follows it.
    pub hybrid_plan_p50_ms: f64,
    /// A compiled scan by the rules of the narrow request, best first. Units: microseconds.
    pub scan_p50_us: f64,
    /// The narrow request as an indexed query of PostgreSQL; none without a server.
    pub postgres_p50_us: Option<f64>,
    /// The memory of the process once the snapshot stood, before anything else was made. Units: MiB.
    pub rss_mib: f64,
    /// Notes for a reader, left out of the object.
    #[serde(skip)]
    pub notes: Vec<String>,
}

/// Measures searches among so many offers, drawn from price lists or from a list made here.
///
/// Errors: an answer that is not that of looking at each offer, and a PostgreSQL that does not
/// answer.
pub async fn measure_match(
    offers: usize,
    list: Vec<Offer>,
    postgres: Option<&str>,
) -> anyhow::Result<MatchFigures> {
    let scene = Scene::new(offers, list)?;
    let rss_mib = settled_mib()?;
    let requests = Requests::of(&scene.market, SEED)?;
    let expected = scene.check(&requests)?;
    let mut notes = Vec::new();

    let (columns, codes) = Columns::of(scene.offers(), &scene.snapshot, scene.market.now());
    let scans = |asked: &[Request]| -> Vec<Scan> {
        asked.iter().map(|request| codes.scan(request)).collect()
    };
    let (narrow_scans, wide_scans) = (scans(&requests.narrow), scans(&requests.wide));
    check_floors(&columns, &narrow_scans, &expected[..REQUESTS])?;
    check_floors(&columns, &wide_scans, &expected[REQUESTS..2 * REQUESTS])?;

    let demands = |asked: &[Request]| asked.iter().map(Request::demand).collect::<Vec<_>>();
    let narrow = scene.time_searches(&demands(&requests.narrow))?;
    let wide = scene.time_searches(&demands(&requests.wide))?;
    let gang = scene.time_searches(&demands(&requests.gang))?;
    let mut found = Vec::new();
    let scan = times(&narrow_scans, |scan| {
        black_box(columns.scan(scan, &mut found))
    });
    let wide_scan = times(&wide_scans, |scan| {
        black_box(columns.scan(scan, &mut found))
    });
    notes.push(sorted_index_note(
        &columns,
        &narrow_scans,
        &expected[..REQUESTS],
    )?);
    let postgres_p50_us = match postgres {
        Some(url) => Some(time_postgres(url, &scene, &requests.narrow, &expected).await?),
        None => {
            notes.push("PostgreSQL was not asked: TEST_DATABASE_URL names no server".to_owned());
            None
        }
    };
    notes.extend(plans::one_by_one(&scene)?);
    Ok(MatchFigures {
        offers,
        narrow_p50_us: narrow.micros(50),
        narrow_p99_us: narrow.micros(99),
        wide_p50_us: wide.micros(50),
        wide_scan_p50_us: wide_scan.micros(50),
        gang_p50_us: gang.micros(50),
        train_plan_p50_ms: plans::train(&scene)?,
        serve_plan_p50_ms: plans::serve(&scene, 0)?,
        serve_tails_p50_ms: plans::serve(&scene, crate::flow::plan::SIMULATED)?,
        hybrid_plan_p50_ms: plans::hybrid(&scene)?,
        scan_p50_us: scan.micros(50),
        postgres_p50_us,
        rss_mib,
        notes,
    })
}

/// A market and its snapshot.
struct Scene {
    market: Market,
    count: usize,
    snapshot: Snapshot,
}

impl Scene {
    fn new(count: usize, list: Vec<Offer>) -> anyhow::Result<Self> {
        let market = Market::new(list, SEED, chrono::Utc::now())?;
        let (offers, providers) = (market.offers(count), market.providers());
        let snapshot = Snapshot::new(1, market.now(), offers, providers);
        Ok(Self {
            market,
            count,
            snapshot,
        })
    }

    fn offers(&self) -> impl Iterator<Item = Offer> {
        self.market.offers(self.count)
    }

    fn search(&self, demand: &Demand, simulated: usize) -> anyhow::Result<Plan> {
        let options = SearchOptions {
            limit: TOP,
            simulated,
            ..SearchOptions::default()
        };
        let now = self.market.now();
        Ok(matcher::search(
            &self.snapshot,
            demand,
            &Held::new(),
            now,
            &options,
        )?)
    }

    /// Compares the answers to all requests with those of looking at each offer by itself; returns the
    /// expected results of narrow requests, wide ones and gangs.
    fn check(&self, requests: &Requests) -> anyhow::Result<Vec<Expected>> {
        let Requests { narrow, wide, gang } = requests;
        let all = || narrow.iter().chain(wide).chain(gang);
        let expected = Expected::of(all(), self.offers(), &self.snapshot, self.market.now());
        for (request, expected) in all().zip(&expected) {
            let plan = self.search(&request.demand(), 0)?;
            ensure!(
                expected.is(&plan),
                "a wrong answer to {request:?}: {plan:?} instead of {expected:?}"
            );
        }
        Ok(expected)
    }

    /// Times a plan as the service makes it, for a tenant that has nothing of its own.
    fn time_plans(&self, demand: &Demand) -> anyhow::Result<Times> {
        let options = crate::flow::plan::options_of(Arc::default(), Arc::default());
        let held = Held::new();
        let question = Question {
            demand,
            snapshot: &self.snapshot,
            held: &held,
            now: self.market.now(),
            options: &options,
            orderable_kept: crate::flow::plan::ORDERABLE_KEPT,
        };
        let mut failed = None;
        let times = times(&[question], |question| match question.answer() {
            Ok(plan) => drop(black_box(plan)),
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(times), |error| Err(error.into()))
    }

    fn time_searches(&self, demands: &[Demand]) -> anyhow::Result<Times> {
        let mut failed = None;
        let times = times(demands, |demand| match self.search(demand, 0) {
            Ok(plan) => drop(black_box(plan)),
            Err(error) => failed = Some(error),
        });
        failed.map_or(Ok(times), Err)
    }
}

/// How long each call took, in order of length. Units: nanoseconds.
struct Times(Vec<u64>);

impl Times {
    fn micros(&self, percent: usize) -> f64 {
        let at = (self.0.len() * percent / 100).min(self.0.len().saturating_sub(1));
        self.0.get(at).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
    }
}

/// Times a call for each of several questions, after one round that does not count.
fn times<Q, A>(questions: &[Q], mut ask: impl FnMut(&Q) -> A) -> Times {
    for question in questions {
        black_box(ask(question));
    }
    let mut nanos = Vec::with_capacity(questions.len() * ROUNDS);
    for _ in 0..ROUNDS {
        for question in questions {
            let began = Instant::now();
            black_box(ask(question));
            nanos.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    nanos.sort_unstable();
    Times(nanos)
}

/// Compares the result of a scan with the expected one: how many, and at which prices.
fn check_floors(columns: &Columns, scans: &[Scan], expected: &[Expected]) -> anyhow::Result<()> {
    let mut found = Vec::new();
    for (scan, expected) in scans.iter().zip(expected) {
        let eligible = columns.scan(scan, &mut found);
        ensure!(
            eligible == expected.eligible,
            "the scan found {eligible} offers"
        );
        check_prices(&found, expected)?;
    }
    Ok(())
}

fn check_prices(found: &[u64], expected: &Expected) -> anyhow::Result<()> {
    let prices = found
        .iter()
        .map(|entry| (entry >> 32) as i64 * market::PRICE_STEP);
    ensure!(prices.eq(expected.prices()), "a floor found other prices");
    Ok(())
}

fn sorted_index_note(
    columns: &Columns,
    scans: &[Scan],
    expected: &[Expected],
) -> anyhow::Result<String> {
    let (index, mut found) = (SortedIndex::of(columns), Vec::new());
    for (scan, expected) in scans.iter().zip(expected) {
        index.top(scan, &mut found);
        check_prices(&found, expected)?;
    }
    let sorted = times(scans, |scan| index.top(scan, &mut found));
    Ok(format!(
        "the ten cheapest out of an index sorted beforehand, counting and explaining nothing: {:.2} us",
        sorted.micros(50)
    ))
}

/// Asks PostgreSQL the narrow requests; the median. Units: microseconds.
async fn time_postgres(
    url: &str,
    scene: &Scene,
    asked: &[Request],
    expected: &[Expected],
) -> anyhow::Result<f64> {
    let (snapshot, now) = (&scene.snapshot, scene.market.now());
    let rows = scene
        .offers()
        .map(|offer| indexed(&offer, snapshot.is_stale(&offer, now)));
    let table = IndexedOffers::fill(url, rows).await;
    let mut table = table.context("PostgreSQL took no offers; look at TEST_DATABASE_URL")?;
    let questions: Vec<_> = asked.iter().map(question).collect();
    for (question, expected) in questions.iter().zip(expected) {
        let prices = table.top_ten(question).await?;
        ensure!(
            prices.into_iter().eq(expected.prices()),
            "PostgreSQL found other prices"
        );
    }
    let mut nanos = Vec::new();
    for _ in 0..ROUNDS {
        for question in &questions {
            let began = Instant::now();
            black_box(table.top_ten(question).await?);
            nanos.push(u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    nanos.sort_unstable();
    Ok(Times(nanos).micros(50))
}

fn indexed(offer: &Offer, is_stale: bool) -> IndexedOffer {
    let stock = &offer.availability;
    let most = stock.nodes.filter(|_| !stock.at_least);
    let most = most.and_then(|nodes| i32::try_from(nodes).ok());
    IndexedOffer {
        gpu: offer
            .gpu
            .known()
            .map_or(String::new(), |gpu| gpu.to_string()),
        gpus: offer
            .gpus
            .as_whole()
            .and_then(|gpus| i32::try_from(gpus).ok())
            .unwrap_or(0),
        spot: offer.terms == Terms::Spot,
        open: !is_stale && !stock.is_sold_out(),
        country: offer
            .place
            .country
            .map_or(String::new(), |country| country.to_string()),
        stock: most.unwrap_or(i32::MAX),
        price_units: offer.price_per_node_hour.units(),
    }
}

fn question(request: &Request) -> IndexedQuestion {
    IndexedQuestion {
        gpu: request.gpu.map_or(String::new(), |gpu| gpu.to_string()),
        gpus: i32::try_from(request.gpus).unwrap_or(i32::MAX),
        spot: request.spot,
        nodes: i32::try_from(request.nodes).unwrap_or(i32::MAX),
        most_units: request.most_units.unwrap_or(i64::MAX),
        countries: request.countries.iter().map(ToString::to_string).collect(),
    }
}

/// The memory of the idle process. Units: MiB. The allocator keeps freed memory for a second, and returns it
/// when something else is freed.
fn settled_mib() -> anyhow::Result<f64> {
    const BLOCK_BYTES: usize = 64 << 20;
    /// Longer than the second for which mimalloc keeps freed memory (its `purge_delay`).
    const KEPT_FOR: Duration = Duration::from_millis(1_200);
    std::thread::sleep(KEPT_FOR);
    drop(black_box(vec![0_u8; BLOCK_BYTES]));
    std::thread::sleep(KEPT_FOR);
    resident_mib()
}

/// The memory that this process has. Units: MiB.
fn resident_mib() -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
    Ok(kib.context("the system does not say how much memory a process has")? / 1_024.0)
}
