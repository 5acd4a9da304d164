//! Explains the rank of a candidate, in words with figures that a reader can check.
//!
//! [`training`] explains training runs, [`serving`] explains fleets, and [`refusal`] explains why an offer is
//! no candidate.

mod refusal;
mod serving;
mod training;

use market::counted::counted;
use market::demand::GpusDemand;
use market::fabric::Internode;
use market::money::{Money, Rate};
use market::offer::Offer;
use market::provider_facts::Operator;

use crate::filter::Filter;
use crate::fleet_search::FleetLine;
use crate::own;
use crate::perf::calibration::{Calibration, Nearness};
use crate::plan::Facts;
use crate::search::{Figures, Fit, MAX_NODES, Query};
use crate::walk::AllowedRow;

pub(crate) use refusal::why_not;
pub(crate) use serving::{
    add_waits, before_missing, facts as fleet_facts, moved_up, planned_wider,
    reasons_of_mix as fleet_reasons, widened_in_vain,
};

/// The figures of a fit for its candidate.
pub(crate) fn facts(query: &Query<'_>, row: &AllowedRow, fit: &Fit) -> Facts {
    match fit.figures {
        Figures::Gpus => Facts::default(),
        Figures::Train(fit) => Facts {
            memory_needed_gb: Some(gb(fit.needed_bytes())),
            memory_available_gb: Some(gb(fit.available_bytes())),
            ..match query {
                Query::Train(query) => training::facts(query, row, &fit.run),
                Query::Gpus(_) | Query::Serve(_) => Facts::default(),
            }
        },
        Figures::Serve(node) => {
            let nodes = fit.nodes;
            let line = FleetLine {
                row,
                nodes,
                node,
                covered: None,
            };
            match query {
                Query::Serve(query) => {
                    serving::with_pile(serving::facts(query, &[line]), query, &line)
                }
                Query::Gpus(_) | Query::Train(_) => Facts::default(),
            }
        }
    }
}

/// Everything that speaks for a candidate, most important first.
pub(crate) fn reasons(
    query: &Query<'_>,
    filter: &Filter<'_>,
    row: &AllowedRow,
    fit: &Fit,
    rate: Rate,
    cost_per_hour: Money,
) -> Vec<String> {
    let offer = &row.offer;
    let mut reasons = match (query, fit.figures) {
        (Query::Train(query), Figures::Train(run)) => {
            training::reasons(query, row, fit.nodes, &run)
        }
        (Query::Serve(query), Figures::Serve(node)) => {
            let nodes = fit.nodes;
            let line = FleetLine {
                row,
                nodes,
                node,
                covered: None,
            };
            serving::reasons_of_one(query, &line)
        }
        (Query::Gpus(query), _) => fabric(query.demand(), offer).into_iter().collect(),
        _ => Vec::new(),
    };
    if let Some(spec) = row.spec.filter(|_| offer.gpu.known().is_none())
        && !matches!(query, Query::Gpus(_))
    {
        reasons.push(planned_as(offer, &spec.canonical));
    }
    reasons.push(price(offer, fit.nodes, rate, Some(cost_per_hour)));
    reasons.extend(own::book_reason(filter, offer));
    reasons.push(stock(filter, offer));
    reasons.push(freshness(filter, offer));
    reasons.extend(on_record(filter, offer));
    if !offer.orderable {
        reasons.push("It cannot be ordered here; it is listed for comparison only".to_owned());
    }
    reasons
}

/// The effect of a measurement, and how similar this hardware is to the measured one.
fn measured(what: &str, calibration: &Calibration, nearness: Nearness) -> String {
    let Calibration {
        measured,
        predicted,
        gpu,
        gpus,
    } = calibration;
    let near = match nearness {
        Nearness::Same => "this offer has the same GPUs and as many",
        Nearness::SameGpu => "this offer has another number of the same GPUs",
        Nearness::Elsewhere => "this offer has another GPU, for which it is a weak guide",
    };
    format!(
        "A measured {what} of {measured:.0} tokens/s on {gpus} x {gpu}, {predicted:.0} predicted, \
         multiplies all rates by {:.3}: {near}",
        calibration.factor(),
    )
}

/// The GPU that the plan assumes where the provider does not state the form.
fn planned_as(offer: &Offer, least: &str) -> String {
    format!(
        "`{}` does not say which {} it is: planned as {least}, the least of them",
        offer.raw_gpu_name,
        offer.gpu.family()
    )
}

/// The fabric between several nodes, with a warning where it has no RDMA and the demand left it open.
fn fabric(demand: &GpusDemand, offer: &Offer) -> Option<String> {
    if demand.nodes <= 1 {
        return None;
    }
    let joined_by = match offer.internode {
        Internode::None => "No fabric that a job can rely on connects its nodes".to_owned(),
        Internode::Unknown => "Its provider does not state what connects its nodes".to_owned(),
        Internode::Ethernet => "Plain Ethernet connects its nodes".to_owned(),
        fabric => format!("A fabric of type `{fabric}`, with RDMA, connects its nodes"),
    };
    Some(
        match offer.internode.is_rdma() || !demand.leaves_fabric_open() {
            true => joined_by,
            false => {
                format!("Warning: {joined_by}; for work that spans them ask for `fabric`: `rdma`")
            }
        },
    )
}

/// The number of nodes and their price.
fn price(offer: &Offer, nodes: u32, rate: Rate, cost_per_hour: Option<Money>) -> String {
    let gpus = u64::from(nodes) * u64::from(offer.gpus.as_whole().unwrap_or(0));
    let total = cost_per_hour.map_or(String::new(), |cost| format!(", {cost} USD per hour"));
    format!(
        "{}: {} of {} at {rate} USD per GPU-hour{total}",
        counted(nodes, "node"),
        counted(gpus, "GPU"),
        offer.gpu,
    )
}

/// The known stock, and how many nodes of it are held.
fn stock(filter: &Filter<'_>, offer: &Offer) -> String {
    let held = filter.held.get(&offer.offer_id).copied().unwrap_or(0);
    match offer.availability.nodes {
        Some(free) => format!(
            "The provider reports {}{}, of which {held} are held{}",
            if offer.availability.at_least {
                "at least "
            } else {
                ""
            },
            counted(free, "free node"),
            if offer.availability.at_least {
                format!("; the plan assumes up to {MAX_NODES}")
            } else {
                String::new()
            },
        ),
        None => format!(
            "The provider states no count: the plan assumes up to {MAX_NODES} nodes, for one holder at a \
             time; only an order shows whether they exist"
        ),
    }
}

fn freshness(filter: &Filter<'_>, offer: &Offer) -> String {
    let age = span(offer.age_seconds(filter.now));
    let view = filter.snapshot.provider(&offer.provider);
    let limit = view.and_then(|view| view.freshness_limit_seconds);
    let mut words = match limit {
        Some(limit) => format!("Read {age} ago; the limit is {}", span(limit)),
        None => format!(
            "Listed on {}, {age} ago: today's price may differ",
            offer.observed_at.format("%Y-%m-%d")
        ),
    };
    if let Some(why) = view.and_then(|view| view.stale.as_ref()) {
        words.push_str(&format!("; the last reading was not used: {why}"));
    }
    words
}

/// The facts on record of its operator for which the policy asks.
fn on_record(filter: &Filter<'_>, offer: &Offer) -> Vec<String> {
    let facts = (filter.snapshot).facts(&offer.provider, &offer.particulars.operator);
    let (Some(policy), Some(facts)) = (filter.shared.policy, facts) else {
        return Vec::new();
    };
    let operator = (facts.operator.as_ref()).filter(|_| !policy.operator_countries.is_empty());
    let operator = operator.map(|Operator { company, country }| {
        format!("{company} operates it, under the law of {country}")
    });
    let certified = policy.certifications.iter().filter_map(|name| {
        let one = facts.longest(name)?;
        let (evidence, until) = (&one.evidence, one.valid_until);
        Some(format!(
            "It has {name} with evidence ({evidence}) valid until {until}"
        ))
    });
    operator.into_iter().chain(certified).collect()
}

/// A span of time in the largest unit of which it has at least two, rounded down.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// An amount rounded to so many places.
fn rounded(money: Money, places: u32) -> String {
    // A format alone cuts off the further places.
    let rounded = money.to_decimal().round_dp(places);
    format!("{rounded:.*}", places as usize)
}

/// The 80 % interval of a rate: four of five measurements are expected within this factor of it.
fn interval(rate: f64, factor: f64) -> String {
    format!("80 % interval {:.0} to {:.0}", rate / factor, rate * factor)
}

fn gb(bytes: f64) -> f64 {
    bytes / 1e9
}
