//! Explains a serving fleet: its figures, and why it has its rank. [`room`] explains its spare capacity,
//! [`waits`] the latency of its requests.

mod room;
mod waits;

use market::counted::counted;
use market::demand::Survive;
use market::math::exp;
use market::money::{Currency, Money};
use market::offer::Terms;

use super::{gb, interval, rounded};
use crate::filter::Filter;
use crate::fleet_search::{FleetLine, Mix};
use crate::own;
use crate::perf::calibration::{Calibration, Nearness};
use crate::perf::chip::{Basis, Chip};
use crate::perf::constants::Constants;
use crate::perf::replica::Engine;
use crate::perf::serving::engine_of;
use crate::plan::Facts;
use crate::search::node_price_units;
use crate::serve::{Load, ServeFit, ServeQuery};
use crate::snapshot::Row;

use self::room::{carried, room, room_of_mix};

pub(crate) use self::waits::{add_waits, before_missing, moved_up, planned_wider, widened_in_vain};

/// The figures of a fleet: sums over its lines, and the slowest line's times.
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
        planned_share: (!query.is_pile()).then_some(query.planned_share),
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

/// The same with the hours and the cost of a batch of requests, where the load is one.
pub(super) fn with_pile(facts: Facts, query: &ServeQuery, line: &FleetLine<'_>) -> Facts {
    let hours = query.pile_hours(&line.node, line.nodes);
    let cost = cost_units(std::slice::from_ref(line)) as f64;
    Facts {
        run_hours: hours,
        run_cost_usd: hours.and_then(|hours| usd(cost * hours)),
        ..facts
    }
}

/// Why a fleet of one offer has its rank, most important first.
pub(super) fn reasons_of_one(query: &ServeQuery, line: &FleetLine<'_>) -> Vec<String> {
    let mut reasons = vec![match query.asked {
        Load::Pile(requests, _) => pile(query, line, requests),
        _ => carried(query, std::slice::from_ref(line)),
    }];
    reasons.push(replica(query, line));
    reasons.extend(measured(query, line));
    reasons.push(memory(query, line));
    reasons.extend(distance(line));
    reasons.extend(room(query, line));
    reasons.extend(basis(line));
    reasons.extend(unused_fabric(line));
    reasons
}

/// Why a fleet of several offers has its rank, most important first.
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
            "If any one {word} is lost, the rest carries the whole load"
        ));
    }
    reasons.extend(room_of_mix(query, filter, mix));
    for line in &mix.lines {
        let offer = &line.row.offer;
        let name = format!("{} {}", offer.provider, offer.sku);
        reasons.push(format!("{name}: {}", replica(query, line)));
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

fn pile(query: &ServeQuery, line: &FleetLine<'_>, requests: f64) -> String {
    let hours = query.pile_hours(&line.node, line.nodes).unwrap_or(0.0);
    let cost = usd(cost_units(std::slice::from_ref(line)) as f64 * hours);
    let terms = match line.row.offer.terms {
        Terms::Spot => "spot: interrupted requests are sent again",
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

fn replica(query: &ServeQuery, line: &FleetLine<'_>) -> String {
    let replica = &line.node.replica;
    let (gpus, tensor) = (replica.gpus, replica.tensor);
    let layout = match (gpus, gpus / tensor.max(1)) {
        (1, _) => "1 GPU".to_owned(),
        (gpus, 1) => format!("{gpus} GPUs (TP {tensor})"),
        (gpus, stages) => format!("{gpus} GPUs (TP {tensor} x PP {stages})"),
    };
    format!(
        "A replica of {} on {layout} writes about {:.0} tokens/s ({}) in batches of {:.0} on {}: \
         {:.1} ms per token, {:.0} ms to the first without network and queueing",
        query.work.model.name,
        replica.tokens_per_second,
        interval(replica.tokens_per_second, within_factor(query, line)),
        replica.whole_batch(),
        engine_name(replica.engine),
        replica.per_token_seconds * 1e3,
        replica.first_token_seconds * 1e3,
    )
}

/// The factor to either end of the 80 % interval of the rate of a replica.
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

/// The effect of a measured replica, and how similar its hardware is.
fn measured(query: &ServeQuery, line: &FleetLine<'_>) -> Option<String> {
    let calibration = query.calibration.as_ref()?;
    Some(super::measured(
        "replica",
        calibration,
        nearness(query, line)?,
    ))
}

fn memory(query: &ServeQuery, line: &FleetLine<'_>) -> String {
    let replica = &line.node.replica;
    let chip = line.row.spec.and_then(Chip::of_spec);
    let most = line.node.replicas_per_node * replica.gpus;
    let fewest = chip
        .and_then(|chip| query.work.fewest_gpus(query.constants, &chip, most))
        .unwrap_or(replica.gpus);
    format!(
        "With one sequence a replica needs {:.1} GB of the {:.1} GB that an engine may fill there; \
         {fewest} would hold it",
        gb(replica.needed_bytes),
        gb(replica.available_bytes),
    )
}

fn distance(line: &FleetLine<'_>) -> Option<String> {
    let ms = line.node.network_ms?;
    Some(format!(
        "The network takes {ms:.0} ms of the time to the first token, estimated from the distance to \
         the users"
    ))
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
    /// Replicas of the model on all nodes.
    pub(crate) fn replicas(&self) -> u32 {
        self.node.replicas_per_node.saturating_mul(self.nodes)
    }

    /// Tokens per second that all replicas write at most.
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
