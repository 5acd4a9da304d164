//! The latency of a tenant's plans while another one plans as often as it may: the limits are the service's
//! defaults, and no two plans are for the same demand.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::Serialize;

use super::load::{Answer, ask};
use super::scene::Scene;

/// How often the quiet tenant plans.
const EVERY: Duration = Duration::from_millis(100);
/// How many keys the other one has, so that its tenant's limit is the one that it meets.
const KEYS: usize = 4;
/// How many calls of the other one are under way at once.
const AT_ONCE: usize = 8;
/// How long the other tenant waits after a refusal.
const TOLD_OFF: Duration = Duration::from_millis(20);
/// The least that counts as slower. Units: milliseconds.
const GOAL_MS: f64 = 50.0;

/// The measurements of the quiet tenant's plans, and of its neighbour's.
#[derive(Debug, Clone, Serialize)]
pub struct NeighbourFigures {
    /// The cores of the machine.
    pub cores: usize,
    /// How many offers are sold.
    pub offers: usize,
    /// The quiet tenant's plans while nobody else plans: half of them. Units: milliseconds.
    pub idle_p50_ms: f64,
    /// The same: all but one in a hundred.
    pub idle_p99_ms: f64,
    /// The same while the neighbour plans: half of them.
    pub busy_p50_ms: f64,
    /// The same: all but one in a hundred.
    pub busy_p99_ms: f64,
    /// The limit for `busy_p99_ms`: three times the idle one, or 50 ms if that is more.
    pub goal_ms: f64,
    /// Plans that the neighbour got in a second.
    pub neighbour_plans_per_second: f64,
    /// Calls of the neighbour that were refused in a second.
    pub neighbour_refused_per_second: f64,
}

/// Measures for so long without a neighbour, and for so long with one.
///
/// Errors: in words, an answer to the quiet tenant that is no plan.
pub async fn measure_neighbours(scene: &Scene, each: Duration) -> anyhow::Result<NeighbourFigures> {
    let quiet = scene.keys("quiet", 1).await?.remove(0);
    let busy = scene.keys("busy", KEYS).await?;
    let idle = times(scene.address(), quiet.clone(), each, 0).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let neighbours: Vec<_> = (0..AT_ONCE)
        .map(|number| {
            let (key, stop, address) = (
                busy[number % KEYS].clone(),
                Arc::clone(&stop),
                scene.address(),
            );
            tokio::spawn(async move { plan_on(address, &key, number, &stop).await })
        })
        .collect();
    let began = Instant::now();
    let beside = times(scene.address(), quiet, each, 1_000_000).await;
    stop.store(true, Ordering::Relaxed);
    let (mut got, mut refused) = (0_u32, 0_u32);
    for neighbour in neighbours {
        let (of_one, told_off) = neighbour.await??;
        (got, refused) = (got + of_one, refused + told_off);
    }
    let seconds = began.elapsed().as_secs_f64();
    let (idle, beside) = (idle, beside?);
    Ok(NeighbourFigures {
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        offers: scene.offers(),
        idle_p50_ms: at(&idle, 50),
        idle_p99_ms: at(&idle, 99),
        busy_p50_ms: at(&beside, 50),
        busy_p99_ms: at(&beside, 99),
        goal_ms: GOAL_MS.max(3.0 * at(&idle, 99)),
        neighbour_plans_per_second: f64::from(got) / seconds,
        neighbour_refused_per_second: f64::from(refused) / seconds,
    })
}

/// How long each plan of the quiet tenant took, in order of length. Units: milliseconds.
async fn times(
    address: SocketAddr,
    key: String,
    long: Duration,
    first: u64,
) -> anyhow::Result<Vec<f64>> {
    let mut turn = tokio::time::interval(EVERY);
    let began = Instant::now();
    let mut took = Vec::new();
    for number in first.. {
        // From when it was due, so that a delay of the measurement is part of the result.
        let due = turn.tick().await.into_std();
        if began.elapsed() > long {
            break;
        }
        let tokens = 1_000_000_000 + number;
        let demand =
            format!(r#"{{"kind":"train","model":"Llama 3 8B","tokens":{tokens},"gpus":8}}"#);
        let Answer { status, body, .. } = ask(address, &call(address, &key, &demand)).await?;
        took.push(due.elapsed().as_secs_f64() * 1e3);
        let said = String::from_utf8_lossy(&body);
        ensure!(status == 201, "a plan was answered with {status}: {said}");
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// Plans fleets until `stop` is set; returns the numbers of plans and of refusals.
async fn plan_on(
    address: SocketAddr,
    key: &str,
    number: usize,
    stop: &AtomicBool,
) -> anyhow::Result<(u32, u32)> {
    let (mut got, mut refused) = (0, 0);
    for nth in 0_usize.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let concurrency = 1_000 + nth * AT_ONCE + number;
        let demand = format!(
            r#"{{"kind":"serve_realtime","model":"Llama 3 70B","concurrency":{concurrency},"input_tokens":1500,"output_tokens":400,"latency":{{"per_token_ms":60}},"survive":"zone"}}"#
        );
        match ask(address, &call(address, key, &demand)).await {
            Ok(_) => got += 1,
            // One too many, of its own calls or of all that wait, or given up.
            Err(why) if is_refusal(&why.to_string()) => {
                refused += 1;
                tokio::time::sleep(TOLD_OFF).await;
            }
            Err(why) => return Err(why),
        }
    }
    Ok((got, refused))
}

fn is_refusal(why: &str) -> bool {
    let words = [" 429 ", " 503 ", "took longer"];
    words.iter().any(|word| why.contains(word))
}

fn call(address: SocketAddr, key: &str, demand: &str) -> Vec<u8> {
    let length = demand.len();
    format!(
        "POST /v1/plans HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{demand}"
    )
    .into_bytes()
}

fn at(sorted: &[f64], percent: usize) -> f64 {
    sorted
        .get(sorted.len() * percent / 100)
        .copied()
        .unwrap_or_default()
}
