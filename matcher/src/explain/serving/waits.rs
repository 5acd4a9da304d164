//! Explains how long the requests of a fleet wait in the simulation.

use market::counted::counted;

use crate::fleet_search::{Tail, Waits};
use crate::plan::{Candidate, Facts};
use crate::serve::ServeQuery;

/// Adds the simulated latency of its requests to a candidate.
pub(crate) fn add_waits(query: &ServeQuery, candidate: &mut Candidate, waits: &Waits) {
    let latency = &query.work.latency;
    let asked = latency.first_token_ms.is_some() || latency.per_token_ms.is_some();
    let within = |ms: f64, limit: Option<f64>| limit.is_none_or(|limit| ms <= limit);
    let meets = within(waits.asked.first_token_ms, latency.first_token_ms)
        && within(waits.asked.per_token_ms, latency.per_token_ms);
    candidate.facts = Facts {
        percentile: Some(query.percentile()),
        first_token_tail_ms: Some(waits.asked.first_token_ms),
        per_token_tail_ms: Some(waits.asked.per_token_ms),
        first_token_p95_ms: Some(waits.p95.first_token_ms),
        per_token_p95_ms: Some(waits.p95.per_token_ms),
        first_token_p99_ms: Some(waits.p99.first_token_ms),
        per_token_p99_ms: Some(waits.p99.per_token_ms),
        meets_objective: asked.then_some(meets),
        ..candidate.facts
    };
    let network = if candidate.facts.network_ms.is_some() {
        "network and queueing"
    } else {
        "queueing"
    };
    let verdict = match (asked, meets) {
        (false, _) => "",
        (true, true) => "; that meets the objective",
        (true, false) => "; that misses the objective",
    };
    let mut words = format!(
        "Simulated, {} % of requests wait at most {:.0} ms for their first token, {network} included, \
         and {:.1} ms for each later token{verdict}",
        query.percentile(),
        waits.asked.first_token_ms,
        waits.asked.per_token_ms,
    );
    for (percentile, tail) in [(95.0, &waits.p95), (99.0, &waits.p99)] {
        if query.percentile() == percentile {
            continue;
        }
        let Tail {
            first_token_ms,
            per_token_ms,
        } = tail;
        words.push_str(&format!(
            "; {percentile} % at most {first_token_ms:.0} ms and {per_token_ms:.1} ms"
        ));
    }
    let second = 1.min(candidate.reasons.len());
    candidate.reasons.insert(second, words);
}

/// Why a fleet ranks before so many others that cost less or have fresher prices.
pub(crate) fn before_missing(count: usize) -> String {
    format!(
        "It meets the objective in the simulation, and so ranks before {} that would come first \
         and {} it",
        counted(count, "fleet"),
        if count == 1 { "misses" } else { "miss" },
    )
}

/// Why a fleet with more spare capacity ranks before those that were simulated first: these all miss the
/// objective, or those that meet it cost more.
pub(crate) fn planned_wider(
    wider: &Candidate,
    simulated: &[Candidate],
    (planned, first): (f64, f64),
) -> String {
    format!(
        "It is planned at {:.0} % of its replicas' capacity: at {:.0} % {}",
        planned * 100.0,
        first * 100.0,
        beside_simulated(wider, simulated, ""),
    )
}

/// The same for a fleet that needs no more nodes for more spare capacity, and was not simulated at first.
pub(crate) fn moved_up(fleet: &Candidate, simulated: &[Candidate]) -> String {
    let beside = beside_simulated(fleet, simulated, " first");
    format!("It meets the objective in the simulation: {beside}")
}

/// Compares the cost of a fleet with those that were simulated, and says whether they meet the objective.
fn beside_simulated(fleet: &Candidate, simulated: &[Candidate], when: &str) -> String {
    let least = |met: bool| {
        let meets = |one: &&Candidate| (one.facts.meets_objective == Some(true)) == met;
        let costs = simulated.iter().filter(meets).map(|one| one.cost_per_hour);
        costs.min()
    };
    let cost = fleet.cost_per_hour;
    let others = match (least(true), simulated.len()) {
        (Some(met), all) => format!(
            "of the {} that were simulated{when} the cheapest that meets the objective costs {met} USD \
             per hour where",
            counted(all, "fleet"),
        ),
        (None, 1) => format!(
            "the fleet that was simulated{when} misses the objective, at {} USD per hour where",
            least(false).unwrap_or(cost),
        ),
        (None, all) => format!(
            "all {} that were simulated{when} miss the objective, at {} USD per hour and more where",
            counted(all, "fleet"),
            least(false).unwrap_or(cost),
        ),
    };
    format!("{others} this one costs {cost}")
}

/// The reason where fleets with more spare capacity miss the objective too, or there are none.
pub(crate) fn widened_in_vain(shares: &[f64]) -> String {
    let shares: Vec<_> = (shares.iter())
        .map(|share| format!("{:.0} %", share * 100.0))
        .collect();
    format!(
        "Planned at less, {} of the replicas' capacity, none of the cheapest fleets meets the objective \
         either",
        shares.join(" and then "),
    )
}
