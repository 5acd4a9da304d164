//! Explains the load that a fleet carries, and the purpose and cost of its spare capacity: growth, and the
//! warm buffer.

use market::counted::counted;
use market::money::Money;

use super::{cost_units, rounded, usd_per_million_tokens};
use crate::filter::Filter;
use crate::fleet::{FleetProblem, solve_within};
use crate::fleet_search::{FleetLine, Mix};
use crate::search::node_price_units;
use crate::serve::{Load, ServeQuery};

/// The load that the replicas carry, and its cost.
pub(super) fn carried(query: &ServeQuery, lines: &[FleetLine<'_>]) -> String {
    let copies: u32 = lines.iter().map(FleetLine::replicas).sum();
    let nodes: u32 = lines.iter().map(|line| line.nodes).sum();
    let tokens_per_second: f64 = lines.iter().map(FleetLine::tokens_per_second).sum();
    let grown = match query.growth {
        1.0 => String::new(),
        growth => format!(", x {growth} for growth"),
    };
    let load = match query.asked {
        Load::RequestsPerSecond(rate) => format!(
            "{rate} requests/s of {} tokens{grown}, planned at {:.0} % of capacity",
            query.work.output_tokens,
            query.planned_share * 100.0
        ),
        Load::Concurrency(count) => {
            let places = match query.planned_share {
                1.0 => String::new(),
                share => format!(", planned at {:.0} % of their slots", share * 100.0),
            };
            format!("{count} requests in flight{grown}{places}")
        }
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
        counted(copies, "replica"),
        counted(nodes, "node"),
        if copies == 1 { "carries" } else { "carry" },
        words(price(tokens_per_second)),
    );
    if let Load::RequestsPerSecond(rate) = query.load() {
        let asked = rate * query.work.output_tokens;
        text.push_str(&format!(", {} at this load", words(price(asked))));
    }
    text
}

/// The spare capacity by purpose: the part of the load without it, and its name.
fn kept_free(query: &ServeQuery) -> Vec<(f64, String)> {
    let mut kept = Vec::new();
    if query.growth > 1.0 {
        let name = format!("The room to grow x {}", query.growth);
        kept.push((1.0 / query.growth, name));
    }
    if query.planned_share < 1.0 {
        let free = (1.0 - query.planned_share) * 100.0;
        kept.push((
            query.planned_share,
            format!("The warm buffer of {free:.0} %"),
        ));
    }
    kept
}

/// The spare capacity of a fleet of one offer, and its cost.
pub(super) fn room(query: &ServeQuery, line: &FleetLine<'_>) -> Vec<String> {
    let one = |(share, name): (f64, String)| {
        let needed = query.need_of(share).div_ceil(line.node.capacity);
        let fewer = line.nodes - u32::try_from(needed).ok()?;
        let price = i128::from(node_price_units(line.row)?) * i128::from(fewer);
        Some(words(&name, "", fewer, price))
    };
    let kept = kept_free(query).into_iter().filter_map(one);
    kept.chain(no_buffer(query)).collect()
}

/// The same for a fleet of several offers: the most expensive nodes that it could do without.
pub(super) fn room_of_mix(query: &ServeQuery, filter: &Filter<'_>, mix: &Mix<'_>) -> Vec<String> {
    let one = |(share, name): (f64, String)| {
        let need = query.need_of(share);
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
        Some(words(&name, proved, all - nodes(&least.counts), price))
    };
    let kept = kept_free(query).into_iter().filter_map(one);
    kept.chain(no_buffer(query)).collect()
}

/// The reason for a fleet without spare capacity for short queues.
fn no_buffer(query: &ServeQuery) -> Option<String> {
    let none = query.planned_share >= 1.0 && !query.is_pile();
    none.then(|| {
        "No warm buffer is planned: the load is a number of requests in flight, and every slot is \
         planned in full"
            .to_owned()
    })
}

/// Units: `price_units` in 1e-8 US dollars per hour.
fn words(name: &str, proved: &str, nodes: u32, price_units: i128) -> String {
    // A part of a fleet's cost, which fits.
    let price = Money::usd_units(i64::try_from(price_units).unwrap_or(i64::MAX));
    format!(
        "{name} is {} of them, {proved}{price} USD per hour",
        counted(nodes, "node"),
    )
}
