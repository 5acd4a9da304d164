//! Why a candidate stands where it stands, in words with figures that a reader can check.
//!
//! What is said of training runs is in [`training`], why an offer is no candidate in [`refusal`].

mod refusal;
mod training;

use market::money::{Money, Rate};
use market::offer::Offer;

use crate::filter::Filter;
use crate::perf::memory::SERVING_FRACTION;
use crate::perf::serving::{ASSUMED_BANDWIDTH_SHARE, ASSUMED_COMPUTE_SHARE};
use crate::plan::Facts;
use crate::search::{Figures, Fit, Query};
use crate::serve::{Load, PLANNED_UTILISATION, ServeFit, ServeQuery};
use crate::snapshot::Row;

pub(crate) use refusal::why_not;

/// The figures of a fit that go with its candidate.
pub(crate) fn facts(row: &Row, fit: &Fit) -> Facts {
    match fit.figures {
        Figures::Gpus => Facts::default(),
        Figures::Train(fit) => Facts {
            memory_needed_gb: Some(gb(fit.needed_bytes)),
            memory_available_gb: Some(gb(fit.available_bytes)),
            ..training::facts(row, &fit.run)
        },
        Figures::Serve(fleet) => Facts {
            memory_needed_gb: Some(gb(fleet.replica.needed_bytes)),
            memory_available_gb: Some(gb(fleet.replica.available_bytes)),
            replicas: Some(fleet.replicas_per_node.saturating_mul(fit.nodes)),
            gpus_per_replica: Some(fleet.replica.gpus),
            tokens_per_second: Some(fleet.tokens_per_second_of_node() * f64::from(fit.nodes)),
            first_token_ms: Some(fleet.replica.first_token_seconds * 1e3),
            per_token_ms: Some(fleet.replica.per_token_seconds * 1e3),
            bandwidth_gbps_per_usd_hour: bandwidth_per_usd(row),
            ..Facts::default()
        },
    }
}

/// Everything that speaks for a candidate, most telling first.
pub(crate) fn reasons(
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &Row,
    fit: &Fit,
    rate: Rate,
    cost_per_hour: Money,
) -> Vec<String> {
    let offer = &row.offer;
    let mut reasons = match (query, fit.figures) {
        (Query::Train(query), Figures::Train(run)) => {
            training::reasons(query, row, fit.nodes, &run)
        }
        (Query::Serve(query), Figures::Serve(fleet)) => of_serving(query, row, fit.nodes, &fleet),
        _ => Vec::new(),
    };
    reasons.push(format!(
        "{}: {} GPUs of {} at {rate} USD per GPU-hour, {cost_per_hour} USD per hour",
        counted(fit.nodes, "node"),
        u64::from(fit.nodes) * u64::from(offer.gpus.as_whole().unwrap_or(0)),
        offer.gpu,
    ));
    reasons.push(stock(filter, offer));
    reasons.push(freshness(filter, offer));
    if !offer.orderable {
        reasons.push("It comes from a price list: compared with, but not ordered here".to_owned());
    }
    reasons
}

fn of_serving(query: &ServeQuery<'_>, row: &Row, nodes: u32, fleet: &ServeFit) -> Vec<String> {
    let replica = &fleet.replica;
    let mut reasons = Vec::new();
    if let (Some(spec), Some(per_usd)) = (row.spec, bandwidth_per_usd(row)) {
        let gpus = row.offer.gpus.as_whole().unwrap_or(0);
        reasons.push(format!(
            "{:.0} GB/s of memory bandwidth a node ({gpus} x {} GB/s) for {} USD per hour: {per_usd:.0} \
             GB/s per USD per hour",
            spec.memory_bandwidth_gbps * f64::from(gpus),
            spec.memory_bandwidth_gbps,
            row.offer.price_per_node_hour,
        ));
        let fewest = query
            .work
            .fewest_gpus(spec.memory_gb, gpus)
            .unwrap_or(replica.gpus);
        reasons.push(format!(
            "A copy of {} with one sequence needs {:.1} GB; it is put on {}, which may fill {:.1} GB \
             ({:.0} %); {fewest} would hold it",
            query.work.model.name,
            gb(replica.needed_bytes),
            counted(replica.gpus, "GPU"),
            gb(replica.available_bytes),
            SERVING_FRACTION * 100.0,
        ));
    }
    reasons.push(format!(
        "A copy writes about {:.0} tokens/s in batches of {:.0}: {:.1} ms per token, {:.0} ms to the \
         first without queueing ({:.0} % of the bandwidth and {:.0} % of the peak rate assumed)",
        replica.tokens_per_second,
        replica.batch,
        replica.per_token_seconds * 1e3,
        replica.first_token_seconds * 1e3,
        ASSUMED_BANDWIDTH_SHARE * 100.0,
        ASSUMED_COMPUTE_SHARE * 100.0,
    ));
    let copies = fleet.replicas_per_node.saturating_mul(nodes);
    let carried = match query.load {
        Load::RequestsPerSecond(rate) => format!(
            "{rate} requests/s of {} tokens, planned at {:.0} % of what they can",
            query.work.output_tokens,
            PLANNED_UTILISATION * 100.0
        ),
        Load::Concurrency(count) => format!("{count} requests in flight"),
    };
    reasons.push(format!(
        "{copies} copies on {} carry {carried}",
        counted(nodes, "node")
    ));
    if row.offer.internode.is_rdma() {
        reasons.push(format!(
            "Its price pays for {} between nodes, which serving does not use",
            row.offer.internode
        ));
    }
    if !query.demand.users.is_empty() {
        reasons.push("The distance to the users is not weighed yet".to_owned());
    }
    reasons
}

/// What is known of the stock, and what of it is taken.
fn stock(filter: &Filter<'_>, offer: &Offer) -> String {
    let held = filter.held.get(&offer.offer_id).copied().unwrap_or(0);
    match offer.availability.nodes {
        Some(free) => format!(
            "The provider counts {}{}, of which {held} are held",
            if offer.availability.at_least {
                "at least "
            } else {
                ""
            },
            counted(free, "free node"),
        ),
        None => "How many are free is not published: one holder at a time, sure only once ordered"
            .to_owned(),
    }
}

fn freshness(filter: &Filter<'_>, offer: &Offer) -> String {
    let age = span(offer.age_seconds(filter.now));
    let view = filter.snapshot.provider(&offer.provider);
    let limit = view.and_then(|view| view.freshness_limit_seconds);
    let mut words = match limit {
        Some(limit) => format!("Read {age} ago, of at most {}", span(limit)),
        None => format!(
            "Listed on {}, {age} ago: what is asked today may differ",
            offer.observed_at.format("%Y-%m-%d")
        ),
    };
    if let Some(why) = view.and_then(|view| view.stale.as_ref()) {
        words.push_str(&format!("; the last reading changed nothing: {why}"));
    }
    words
}

/// A span of time in the largest unit of which it has two, rounded down.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

impl ServeFit {
    /// Tokens per second that all copies on a node write.
    fn tokens_per_second_of_node(&self) -> f64 {
        self.replica.tokens_per_second * f64::from(self.replicas_per_node)
    }
}

/// GB/s of memory bandwidth per US dollar per hour; for showing, ranks are computed in integers.
fn bandwidth_per_usd(row: &Row) -> Option<f64> {
    let bandwidth = row.spec?.memory_bandwidth_gbps * row.offer.gpus.to_f64();
    Some(bandwidth / (row.offer.price_per_node_hour.units() as f64 / 1e8))
}

fn gb(bytes: f64) -> f64 {
    bytes / 1e9
}

fn counted(count: u32, thing: &str) -> String {
    if count == 1 {
        format!("1 {thing}")
    } else {
        format!("{count} {thing}s")
    }
}
