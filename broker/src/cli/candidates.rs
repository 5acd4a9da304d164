//! The table of the candidates of `broker match`.

use market::offer::{Offer, Terms};
use matcher::Candidate;

use crate::terminal::plan_lines::COST;
use crate::terminal::price::marked_price;
use crate::terminal::table::table_without;

/// The columns that only some plans have.
#[derive(Debug, Clone, Copy)]
struct More {
    /// Until when prepaid capacity lasts.
    covered: bool,
    /// The cost of the work, which ranks the candidates.
    cost: bool,
}

/// Draws the candidates, one row for each of their lines.
pub(super) fn candidate_table(shown: &[&Candidate]) -> String {
    let more = More {
        covered: shown.iter().any(|one| !one.covered().is_empty()),
        cost: shown.iter().any(|one| one.facts.run_cost_usd.is_some()),
    };
    let mut headings = vec![
        "#",
        "provider",
        "nodes",
        "GPUs",
        "terms",
        "fabric",
        "place",
        "SKU",
        "USD/h",
        "USD/GPU-h",
    ];
    headings.extend(more.covered.then_some("covered until"));
    headings.extend(more.cost.then_some(COST));
    headings.push("as of");
    let rows = shown.iter().flat_map(|candidate| rows_of(candidate, more));
    // Terms, fabric, place and date change what a price is worth, so they stay.
    table_without(&headings, rows, &["USD/h", "SKU"])
}

/// The place of an offer, country first, and the number of other places with the same price.
fn place(offer: &Offer, more: usize) -> String {
    let country = offer.place.country.map(|country| country.to_string());
    let parts = country.into_iter().chain(offer.place.region.clone());
    let known = parts.collect::<Vec<_>>().join(" ");
    let place = match known.is_empty() {
        true => "unknown",
        false => &known,
    };
    match more {
        0 => place.to_owned(),
        more => format!("{place} +{more}"),
    }
}

/// A word of the API in readable form.
fn words(word: impl std::fmt::Display) -> String {
    word.to_string().replace('_', " ")
}

/// Whether the provider may reclaim it.
pub(super) fn is_spot(offer: &Offer) -> bool {
    offer.terms == Terms::Spot
}

fn rows_of(candidate: &Candidate, more: More) -> impl Iterator<Item = Vec<String>> {
    candidate
        .lines
        .iter()
        .enumerate()
        .map(move |(number, line)| {
            let offer = &line.offer;
            // If its price cannot be shown, its total could not be computed either.
            let [price, rate] = match line.covered {
                None => (offer.view(line.nodes)).map(|view| {
                    [
                        view.price_usd_hour,
                        view.price_usd_gpu_hour.money_per_gpu_hour(),
                    ]
                }),
                Some(covered) => {
                    let rate = covered.rate_usd_gpu_hour.money_per_gpu_hour();
                    let gpus = offer.gpus.as_whole().unwrap_or(0) * line.nodes;
                    rate.checked_mul(i64::from(gpus)).map(|price| [price, rate])
                }
            }
            .map(|shown| shown.map(|amount| amount.to_string()))
            .unwrap_or_default();
            let mut row = vec![
                match candidate.half {
                    None => candidate.rank.to_string(),
                    Some(half) => format!("{} {half}", candidate.rank),
                },
                offer.provider.to_string(),
                line.nodes.to_string(),
                format!("{} x {}", offer.gpus, offer.gpu),
                words(offer.terms),
                words(offer.internode),
                place(offer, candidate.also_at.len()),
                offer.sku.clone(),
                marked_price(price, is_spot(offer)),
                marked_price(rate, is_spot(offer)),
            ];
            if more.covered {
                let until = line.covered.map(|covered| covered.until);
                let until = until.map(|at| at.format("%Y-%m-%d %H:%M").to_string());
                row.push(until.unwrap_or_else(|| "-".to_owned()));
            }
            if more.cost {
                let cost = candidate.facts.run_cost_usd;
                row.push(match (number, cost) {
                    (0, Some(cost)) => format!("{:.2}", cost.to_decimal().round_dp(2)),
                    (0, None) => "-".to_owned(),
                    // The cost is that of all lines together.
                    _ => String::new(),
                });
            }
            row.push(offer.observed_at.format("%Y-%m-%d").to_string());
            row
        })
}
