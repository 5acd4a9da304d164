//! Self-measurement: the cost of a route or a match beside the least possible cost, in one process. Matches
//! are in `matching`, the effect of one tenant on another in `neighbours`.
//!
//! Of a route, the service and its floor each have one worker, so a rate is that of one core. Both answer
//! over loopback to the same load, alternately, so that any other load on the machine affects both alike. The
//! floor is a bare server that sends the same bytes under the same headers, and does nothing else.

mod floor;
mod load;
mod matching;
mod neighbours;
mod scene;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;

use load::{Load, Measured};
pub use matching::{MatchFigures, Repriced, measure_match, measure_reprice};
pub use neighbours::{NeighbourFigures, measure_neighbours};
pub use scene::Scene;

/// The number of rounds in which each route is measured.
const ROUNDS: u32 = 5;
/// How long each route runs before it is measured.
const WARM_UP: Duration = Duration::from_millis(300);

/// How much load, and for how long.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// For how long each route is measured, and its floor.
    pub each: Duration,
    /// Connections that call at once, each one call after the other.
    pub connections: NonZeroUsize,
}

/// The measurements of a route and of its floor.
#[derive(Debug, Clone, Serialize)]
pub struct RouteFigures {
    /// The route.
    pub route: &'static str,
    /// The length of its answer. Units: bytes.
    pub body_bytes: usize,
    /// The route itself.
    pub measured: Figures,
    /// The bare server with the same answer.
    pub floor: Figures,
    /// Its rate by that of its floor: the median of the rounds.
    pub rate_to_floor: f64,
    /// Its 99th percentile by that of its floor.
    pub p99_to_floor: f64,
}

/// The measurements of one server.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Figures {
    /// Answers in a second, of one worker.
    pub requests_per_second: f64,
    /// Half of the answers came within this. Units: microseconds.
    pub p50_micros: u32,
    /// All but one in a hundred came within this. Units: microseconds.
    pub p99_micros: u32,
}

/// Measures offers and repeated plans.
///
/// Errors: in words, a server that cannot be started, and an answer that is not a success.
pub async fn measure_http(scene: &Scene, effort: Effort) -> anyhow::Result<Vec<RouteFigures>> {
    let mut figures = Vec::new();
    for (route, request) in [
        ("GET /v1/offers", scene.offers_request()),
        ("POST /v1/plans, repeated", scene.plan_request()),
    ] {
        let answer = load::ask(scene.address(), &request)
            .await
            .with_context(|| format!("{route} did not answer"))?;
        let body_bytes = answer.body.len();
        let floor = floor::serve(answer)?;
        let load = Load {
            request: request.into(),
            connections: effort.connections,
        };
        let both = in_turns(scene.address(), floor.address, &load, effort.each).await;
        floor.stop().await;
        figures.push(compare(route, body_bytes, both?));
    }
    Ok(figures)
}

/// The rounds of a route and those of its floor.
type Rounds = Vec<(Measured, Measured)>;

async fn in_turns(
    measured: SocketAddr,
    floor: SocketAddr,
    load: &Load,
    each: Duration,
) -> anyhow::Result<Rounds> {
    for address in [measured, floor] {
        load.run(address, WARM_UP).await?;
    }
    let turn = each / ROUNDS;
    let mut rounds = Rounds::new();
    for _ in 0..ROUNDS {
        let floor = load.run(floor, turn).await?;
        rounds.push((load.run(measured, turn).await?, floor));
    }
    Ok(rounds)
}

fn compare(route: &'static str, body_bytes: usize, rounds: Rounds) -> RouteFigures {
    let mut ratios: Vec<_> = rounds
        .iter()
        .map(|(measured, floor)| measured.rate() / floor.rate())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let (measured, floors): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
    let (measured, floor) = (figures(measured), figures(floors));
    RouteFigures {
        route,
        body_bytes,
        measured,
        floor,
        rate_to_floor: ratios[ratios.len() / 2],
        p99_to_floor: f64::from(measured.p99_micros) / f64::from(floor.p99_micros.max(1)),
    }
}

fn figures(rounds: Vec<Measured>) -> Figures {
    let took: f64 = rounds.iter().map(|round| round.took.as_secs_f64()).sum();
    let mut micros: Vec<u32> = rounds.into_iter().flat_map(|round| round.micros).collect();
    micros.sort_unstable();
    let at = |percent: usize| micros.get(micros.len() * percent / 100).copied();
    Figures {
        requests_per_second: micros.len() as f64 / took,
        p50_micros: at(50).unwrap_or_default(),
        p99_micros: at(99).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(count: u32, seconds: u64) -> Measured {
        Measured {
            micros: (1..=count).collect(),
            took: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_and_a_rate_that_of_all() {
        let rounds = vec![
            (round(100, 1), round(100, 1)),
            (round(50, 1), round(100, 1)),
            (round(10, 1), round(100, 1)),
        ];
        let found = compare("a route", 7, rounds);
        assert_eq!(found.rate_to_floor, 0.5);
        assert_eq!(found.floor.requests_per_second, 100.0);
        assert_eq!(found.floor.p50_micros, 51);
        assert_eq!(found.floor.p99_micros, 100);
        assert!((found.measured.requests_per_second - 160.0 / 3.0).abs() < 1e-9);
    }
}
