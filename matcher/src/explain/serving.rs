//! What is said of a serving fleet: its figures, and why it stands where it stands.

use market::counted::counted;
use market::demand::Survive;
use market::math::exp;
use market::money::{Currency, Money};
use market::offer::Terms;

use super::{gb, rounded};
use crate::filter::Filter;
use crate::fleet::{FleetProblem, solve_within};
use crate::fleet_search::{FleetLine, Mix, Waits};
use crate::own;
use crate::perf::calibration::{Calibration, Nearness};
use crate::perf::chip::{Basis, Chip};
use crate::perf::constants::Constants;
use crate::perf::replica::Engine;
use crate::perf::serving::engine_of;
use crate::plan::{Candidate, Facts};
use crate::search::node_price_units;
use crate::serve::{Load, PLANNED_UTILISATION, ServeFit, ServeQuery};
use crate::snapshot::Row;

/// The figures of a fleet: sums over its lines, and of times the slowest.
pub(crate) fn facts(query: &ServeQuery, lines: &[FleetLine<'_>]) -> Facts {
    let slowest = |of: fn(&ServeFit) -> f64| {
        let times = lines.iter().map(|line| of(&line.node));
        times.reduce(f64::max)
    };
    let tokens_per_second: f64 = lines.iter().map(FleetLine::tokens_per_second).sum();
    let one = match lines {
        [line] => Some(&line.node.replica),
        _ => None,
    };
    let network = lines.iter().filter_map(|line| line.node.network_ms);
    Facts {
        memory_needed_gb: one.map(|replica| gb(replica.needed_bytes)),
        memory_available_gb: one.map(|replica| gb(replica.available_bytes)),
        calibration_factor: query.calibration.as_ref().map(Calibration::factor),
        within_factor: lines
            .iter()
            .map(|line| within_factor(query, line))
            .reduce(f64::max),
        replicas: Some(lines.iter().map(FleetLine::replicas).sum()),
        gpus_per_replica: one.map(|replica| replica.gpus),
        sequences_per_replica: one.map(|replica| replica.batch),
        tokens_per_second: Some(tokens_per_second),
        usd_per_million_tokens: usd_per_million_tokens(cost_units(lines), tokens_per_second),
        network_ms: network.reduce(f64::max),
        first_token_ms: slowest(|node| {
            node.replica.first_token_seconds * 1e3 + node.network_ms.unwrap_or(0.0)
        }),
        per_token_ms: slowest(|node| node.replica.per_token_seconds * 1e3),
        bandwidth_gbps_per_usd_hour: match lines {
            [line] => bandwidth_per_usd(line.row),
            _ => None,
        },
        ..Facts::default()
    }
}

/// The same with what a pile of requests takes, where it is one.
pub(super) fn with_pile(facts: Facts, query: &ServeQuery, line: &FleetLine<'_>) -> Facts {
    let hours = query.pile_hours(&line.node, line.nodes);
    let cost = cost_units(std::slice::from_ref(line)) as f64;
    Facts {
        run_hours: hours,
        run_cost_usd: hours.and_then(|hours| usd(cost * hours)),
        ..facts
    }
}

/// Why a fleet of one offer stands where it stands, most telling first.
pub(super) fn reasons_of_one(query: &ServeQuery, line: &FleetLine<'_>) -> Vec<String> {
    let mut reasons = vec![match query.load {
        Load::Pile(requests, _) => pile(query, line, requests),
        _ => carried(query, std::slice::from_ref(line)),
    }];
    reasons.push(copy(query, line));
    reasons.extend(measured(query, line));
    reasons.push(memory(query, line));
    reasons.extend(distance(line));
    reasons.extend(buffer(query, line));
    reasons.extend(basis(line));
    reasons.extend(unused_fabric(line));
    reasons
}

/// Why a fleet of several offers stands where it stands, most telling first.
pub(crate) fn reasons_of_mix(
    query: &ServeQuery,
    filter: &Filter<'_>,
    mix: &Mix<'_>,
) -> Vec<String> {
    let mut reasons = vec![carried(query, &mix.lines), proof(mix)];
    if let Some(survive) = query.survive {
        let word = match survive {
            Survive::Zone => "zone",
            Survive::Provider => "provider",
        };
        reasons.push(format!(
            "Whichever {word} is lost, what is left carries the whole load"
        ));
    }
    reasons.extend(buffer_of_mix(query, filter, mix));
    for line in &mix.lines {
        let offer = &line.row.offer;
        let name = format!("{} {}", offer.provider, offer.sku);
        reasons.push(format!("{name}: {}", copy(query, line)));
        reasons.extend(measured(query, line).map(|words| format!("{name}: {words}")));
        reasons.extend(distance(line).map(|words| format!("{name}: {words}")));
        reasons.extend(basis(line).map(|words| format!("{name}: {words}")));
        reasons.extend(unused_fabric(line).map(|words| format!("{name}: {words}")));
        if let Ok(rate) = offer.rate() {
            let paid = (line.covered.as_ref())
                .and_then(|covered| own::reason(filter, line.nodes, line.nodes, covered, rate));
            let price = || super::price(offer, line.nodes, rate, None);
            reasons.push(format!("{name}: {}", paid.unwrap_or_else(price)));
            let agreed = own::book_reason(filter, offer);
            reasons.extend(agreed.map(|words| format!("{name}: {words}")));
        }
        reasons.push(format!("{name}: {}", super::stock(filter, offer)));
        reasons.push(format!("{name}: {}", super::freshness(filter, offer)));
        let on_record = super::on_record(filter, offer).into_iter();
        reasons.extend(on_record.map(|words| format!("{name}: {words}")));
    }
    reasons
}

/// Adds to a candidate what its requests wait in the simulation.
pub(crate) fn add_waits(query: &ServeQuery, candidate: &mut Candidate, waits: &Waits) {
    let latency = &query.work.latency;
    let within = |ms: f64, limit: Option<f64>| limit.is_none_or(|limit| ms <= limit);
    let meets = within(waits.first_token_ms, latency.first_token_ms)
        && within(waits.per_token_ms, latency.per_token_ms);
    let asked = latency.first_token_ms.is_some() || latency.per_token_ms.is_some();
    let facts = &mut candidate.facts;
    facts.percentile = Some(query.percentile());
    facts.first_token_tail_ms = Some(waits.first_token_ms);
    facts.per_token_tail_ms = Some(waits.per_token_ms);
    facts.meets_objective = asked.then_some(meets);
    let network = if facts.network_ms.is_some() {
        "network and queueing"
    } else {
        "queueing"
    };
    let verdict = match (asked, meets) {
        (false, _) => "",
        (true, true) => "; that meets the objective",
        (true, false) => "; that misses the objective",
    };
    let words = format!(
        "Simulated, {} % of requests wait at most {:.0} ms for their first token, {network} included, \
         and {:.1} ms for each other{verdict}",
        query.percentile(),
        waits.first_token_ms,
        waits.per_token_ms,
    );
    let second = 1.min(candidate.reasons.len());
    candidate.reasons.insert(second, words);
}

/// Why a fleet stands before so many others that cost less or are surer.
pub(crate) fn before_missing(count: usize) -> String {
    format!(
        "It meets the objective in the simulation, and so stands before {} that would come first \
         and {} it",
        counted(count, "fleet"),
        if count == 1 { "misses" } else { "miss" },
    )
}

fn carried(query: &ServeQuery, lines: &[FleetLine<'_>]) -> String {
    let copies: u32 = lines.iter().map(FleetLine::replicas).sum();
    let nodes: u32 = lines.iter().map(|line| line.nodes).sum();
    let tokens_per_second: f64 = lines.iter().map(FleetLine::tokens_per_second).sum();
    let load = match query.load {
        Load::RequestsPerSecond(rate) => format!(
            "{rate} requests/s of {} tokens, planned at {:.0} % of what they can",
            query.work.output_tokens,
            PLANNED_UTILISATION * 100.0
        ),
        Load::Concurrency(count) => format!("{count} requests in flight"),
        Load::Pile(requests, _) => format!("{requests} requests"),
    };
    let price = |tokens: f64| usd_per_million_tokens(cost_units(lines), tokens);
    let words = |price: Option<Money>| {
        price.map_or("an unknown price".to_owned(), |price| {
            format!("{} USD", rounded(price, 4))
        })
    };
    let mut text = format!(
        "{} on {} {} {load}: {} per 1e6 output tokens at their full {tokens_per_second:.0} tokens/s",
        counted(copies, "copy"),
        counted(nodes, "node"),
        if copies == 1 { "carries" } else { "carry" },
        words(price(tokens_per_second)),
    );
    if let Load::RequestsPerSecond(rate) = query.load {
        let asked = rate * query.work.output_tokens;
        text.push_str(&format!(", {} at this load", words(price(asked))));
    }
    text
}

fn pile(query: &ServeQuery, line: &FleetLine<'_>, requests: f64) -> String {
    let hours = query.pile_hours(&line.node, line.nodes).unwrap_or(0.0);
    let cost = usd(cost_units(std::slice::from_ref(line)) as f64 * hours);
    let terms = match line.row.offer.terms {
        Terms::Spot => "spot: what is interrupted is asked again",
        _ => "on demand",
    };
    format!(
        "{requests:.0} requests take {} about {hours:.1} hours{}, {terms}",
        counted(line.nodes, "node"),
        cost.map_or(String::new(), |cost| format!(
            " and {} USD",
            rounded(cost, 2)
        )),
    )
}

fn copy(query: &ServeQuery, line: &FleetLine<'_>) -> String {
    let replica = &line.node.replica;
    let factor = within_factor(query, line);
    let stages = replica.gpus / replica.tensor.max(1);
    let layout = match (replica.gpus, stages) {
        (1, _) => "1 GPU".to_owned(),
        (gpus, 1) => format!("{gpus} GPUs that share each matrix"),
        (_, stages) => format!("{stages} stages of {}", counted(replica.tensor, "GPU")),
    };
    format!(
        "A copy of {} on {layout} writes about {:.0} tokens/s in batches of {:.0} on {}: {:.1} ms per \
         token, {:.0} ms to the first without network and queueing, within a factor of {factor:.2} \
         in four of five cases",
        query.work.model.name,
        replica.tokens_per_second,
        replica.whole_batch(),
        engine_name(replica.engine),
        replica.per_token_seconds * 1e3,
        replica.first_token_seconds * 1e3,
    )
}

/// The factor within which the rate of a copy holds in four of five cases.
fn within_factor(query: &ServeQuery, line: &FleetLine<'_>) -> f64 {
    let chip = line.row.spec.and_then(Chip::of_spec);
    let basis = chip
        .as_ref()
        .map_or(Basis::Family, |chip| chip.inference_basis);
    let engine = chip.as_ref().map_or(Engine::TensorRtLlm10, engine_of);
    let ground = engine.ground(&query.work.model);
    let widths = &Constants::product().interval_80_ln.inference;
    let without = widths.half_width(ground, basis);
    let nearness = nearness(query, line);
    exp(nearness.map_or(without, |near| near.of_copy(without)))
}

fn nearness(query: &ServeQuery, line: &FleetLine<'_>) -> Option<Nearness> {
    let calibration = query.calibration.as_ref()?;
    Some(calibration.nearness(line.row.spec?, line.node.replica.gpus))
}

/// What a measured copy changed, and how near it was.
fn measured(query: &ServeQuery, line: &FleetLine<'_>) -> Option<String> {
    let calibration = query.calibration.as_ref()?;
    Some(super::measured("copy", calibration, nearness(query, line)?))
}

fn memory(query: &ServeQuery, line: &FleetLine<'_>) -> String {
    let replica = &line.node.replica;
    let chip = line.row.spec.and_then(Chip::of_spec);
    let most = line.node.replicas_per_node * replica.gpus;
    let fewest = chip
        .and_then(|chip| query.work.fewest_gpus(query.constants, &chip, most))
        .unwrap_or(replica.gpus);
    format!(
        "With one sequence a copy needs {:.1} GB of the {:.1} GB that an engine may fill there; \
         {fewest} would hold it",
        gb(replica.needed_bytes),
        gb(replica.available_bytes),
    )
}

fn distance(line: &FleetLine<'_>) -> Option<String> {
    let ms = line.node.network_ms?;
    Some(format!(
        "The network takes {ms:.0} ms of the time to the first token, reckoned from the distance to \
         the users"
    ))
}

/// What the share of the capacity that is kept free costs.
fn buffer(query: &ServeQuery, line: &FleetLine<'_>) -> Option<String> {
    let Load::RequestsPerSecond(_) = query.load else {
        return None;
    };
    let needed = need_without_buffer(query).div_ceil(line.node.capacity);
    let fewer = line.nodes - u32::try_from(needed).ok()?;
    let price = i128::from(node_price_units(line.row)?) * i128::from(fewer);
    Some(buffer_words("", fewer, price))
}

/// The same of a fleet of several offers: the dearest of its nodes that it could do without.
fn buffer_of_mix(query: &ServeQuery, filter: &Filter<'_>, mix: &Mix<'_>) -> Option<String> {
    let Load::RequestsPerSecond(_) = query.load else {
        return None;
    };
    let need = need_without_buffer(query);
    let own = FleetProblem {
        columns: mix.columns.to_vec(),
        need,
        kept: query.survive.map_or(0, |_| need),
    };
    let least = solve_within(&own, filter.budget)?;
    let nodes = |counts: &[u32]| counts.iter().sum::<u32>();
    let all: u32 = mix.lines.iter().map(|line| line.nodes).sum();
    let proved = if least.is_optimal() { "" } else { "at least " };
    let price = i128::from(mix.cost.units()) - least.cost_units;
    Some(buffer_words(proved, all - nodes(&least.counts), price))
}

/// What a fleet would have to carry that is planned at all that it can.
fn need_without_buffer(query: &ServeQuery) -> u64 {
    (query.need() as f64 * PLANNED_UTILISATION).ceil() as u64
}

/// Units: `price_units` in 1e-8 US dollars per hour.
fn buffer_words(proved: &str, nodes: u32, price_units: i128) -> String {
    // A part of a fleet's cost, which fits.
    let price = Money::usd_units(i64::try_from(price_units).unwrap_or(i64::MAX));
    format!(
        "The warm buffer of {:.0} % is {} of them, {proved}{price} USD per hour",
        (1.0 - PLANNED_UTILISATION) * 100.0,
        counted(nodes, "node"),
    )
}

fn basis(line: &FleetLine<'_>) -> Option<String> {
    let chip = Chip::of_spec(line.row.spec?)?;
    (chip.inference_basis == Basis::Family).then(|| {
        format!(
            "No serving on {} was measured: its rate is predicted from its family",
            chip.name
        )
    })
}

fn unused_fabric(line: &FleetLine<'_>) -> Option<String> {
    let internode = line.row.offer.internode;
    internode.is_rdma().then(|| {
        format!("Its price pays for {internode} between nodes, which serving does not use")
    })
}

fn proof(mix: &Mix<'_>) -> String {
    let gap = i128::from(mix.cost.units()) - mix.lower_bound_units;
    if gap == 0 {
        return format!(
            "No fleet of the {} that may be taken is cheaper: proved",
            counted(mix.chosen_from, "offer")
        );
    }
    format!(
        "The best found of the {} that may be taken; none is more than {:.2} % cheaper: proved",
        counted(mix.chosen_from, "offer"),
        gap as f64 / mix.cost.units() as f64 * 100.0
    )
}

fn engine_name(engine: Engine) -> &'static str {
    match engine {
        Engine::TensorRtLlm
        | Engine::TensorRtLlm020
        | Engine::TensorRtLlm10
        | Engine::TensorRtLlmMlperf => "TensorRT-LLM",
        Engine::VllmUntuned | Engine::Vllm2024 | Engine::VllmAmd | Engine::VllmAmdMlperf => "vLLM",
        Engine::LlamaCpp => "llama.cpp",
        Engine::Mlc => "MLC-LLM",
    }
}

impl FleetLine<'_> {
    /// Copies of the model on all nodes.
    pub(crate) fn replicas(&self) -> u32 {
        self.node.replicas_per_node.saturating_mul(self.nodes)
    }

    /// Tokens per second that all copies write at most.
    pub(crate) fn tokens_per_second(&self) -> f64 {
        self.node.replica.tokens_per_second * f64::from(self.replicas())
    }
}

/// Units: 1e-8 US dollars per hour.
fn cost_units(lines: &[FleetLine<'_>]) -> i128 {
    let each = lines.iter().map(|line| {
        let price = node_price_units(line.row).unwrap_or(0);
        i128::from(price) * i128::from(line.nodes)
    });
    each.sum()
}

fn usd_per_million_tokens(cost_units: i128, tokens_per_second: f64) -> Option<Money> {
    usd(cost_units as f64 / (tokens_per_second * 3_600.0) * 1e6)
}

/// A sum for showing; ranks are computed in integers.
fn usd(units: f64) -> Option<Money> {
    (0.0..9e18)
        .contains(&units)
        .then(|| Money::from_units(units.round() as i64, Currency::Usd))
}

/// GB/s of memory bandwidth per US dollar per hour, for showing.
fn bandwidth_per_usd(row: &Row) -> Option<f64> {
    let bandwidth = row.spec?.memory_bandwidth_gbps * row.offer.gpus.to_f64();
    Some(bandwidth / (row.offer.price_per_node_hour.units() as f64 / 1e8))
}
