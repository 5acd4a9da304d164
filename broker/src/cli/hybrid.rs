//! A hybrid plan for people: the pairs with their dates and sums, and the savings of the best.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use chrono::{DateTime, SecondsFormat, Utc};
use market::money::Money;
use matcher::{HybridBill, HybridPlan};

use crate::terminal::table::table;
use crate::terminal::text::hanging;

/// The candidates of a plan to show: the first `top` of each half, and those of the pairs, by their
/// ranks. In other plans all candidates are of one half.
pub(super) fn shown<'a, C, H: Eq + Hash>(
    candidates: &'a [C],
    paired: &BTreeSet<usize>,
    top: usize,
    half_and_rank: impl Fn(&'a C) -> (H, usize),
) -> Vec<&'a C> {
    let mut of_half: HashMap<H, usize> = HashMap::new();
    let is_shown = |candidate: &&'a C| {
        let (half, rank) = half_and_rank(candidate);
        let before = of_half.entry(half).or_default();
        *before += 1;
        *before <= top || paired.contains(&rank)
    };
    candidates.iter().filter(is_shown).collect()
}

/// The ranks of the candidates in pairs; none if a plan has no halves.
pub(super) fn paired(hybrid: Option<&HybridPlan>) -> BTreeSet<usize> {
    let pairs = hybrid.into_iter().flat_map(|hybrid| &hybrid.pairs);
    pairs
        .flat_map(|pair| [pair.train_candidate, pair.serve_candidate])
        .collect()
}

/// The pairs and baselines of a hybrid plan, a line each; `named` names the candidate of a rank.
pub(super) fn told(hybrid: &HybridPlan, named: impl Fn(usize) -> Option<String>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(best) = hybrid.pairs.first() {
        lines.push("Together, the run and its fleet:".to_owned());
        let headings = [
            "#",
            "train",
            "serve",
            "run USD",
            "staging USD",
            "fleet USD",
            "total USD",
        ];
        let rows = (1..).zip(&hybrid.pairs).map(|(at, pair): (u32, _)| {
            let bill = &pair.bill;
            let staging = bill.staging_hold_usd.checked_add(bill.egress_usd);
            vec![
                at.to_string(),
                named(pair.train_candidate).unwrap_or_default(),
                named(pair.serve_candidate).unwrap_or_default(),
                cents(bill.train_usd),
                staging.map_or_else(|_| String::new(), cents),
                cents(bill.serve_usd),
                cents(bill.total_usd),
            ]
        });
        lines.push(table(&headings, rows));
        lines.extend(dates(hybrid, &best.bill));
        lines.extend(best.bill.own_capacity_saves_usd.map(|saves| {
            let words = format!(
                "Prepaid capacity makes the first {} USD cheaper; the baselines below do not \
                 use it",
                cents(saves)
            );
            hanging("  - ", &words)
        }));
    }
    for baseline in &hybrid.baselines {
        let what = baseline.kind.meaning();
        let words = match (&baseline.way, baseline.saves_usd) {
            (Some(way), Some(saved)) => format!(
                "Against {what}: {} USD instead of {}, {} USD saved",
                cents(Money::from_units(
                    way.bill.total_usd.units() - saved.units(),
                    saved.currency()
                )),
                cents(way.bill.total_usd),
                cents(saved),
            ),
            (Some(way), None) => format!("{} USD for {what}", cents(way.bill.total_usd)),
            (None, _) => format!("Against {what}: no offers do both"),
        };
        lines.push(hanging("  - ", &words));
    }
    lines
}

fn dates(hybrid: &HybridPlan, bill: &HybridBill) -> Vec<String> {
    let seconds: i64 = bill.staging.iter().map(|leg| leg.seconds).sum();
    let mut all = vec![
        format!(
            "The run is done at {}; {:.1} GB of weights leave its nodes in {} min to {} ({} USD of \
             egress{}), and the nodes are released at {}",
            time(bill.trained_at),
            hybrid.weights_bytes as f64 / 1e9,
            seconds.div_euclid(60),
            match bill.staging.len() {
                1 => "1 site".to_owned(),
                sites => format!("{sites} sites"),
            },
            cents(bill.egress_usd),
            if bill.staging.iter().all(|leg| leg.price_listed) {
                ""
            } else {
                ", at the highest listed price because its own is unknown"
            },
            time(bill.released_at),
        ),
        format!(
            "The fleet serves from {} and is priced for {:.0} hours{}",
            time(bill.serves_from),
            bill.serve_seconds as f64 / 3_600.0,
            if hybrid.serve_span_assumed {
                ", assumed because it has no fixed end"
            } else {
                ""
            },
        ),
    ];
    all.extend(
        bill.interconnect_premium_usd
            .filter(|premium| premium.is_positive())
            .map(|premium| {
                format!(
                    "{} USD of it pay for a fabric that serving does not use",
                    cents(premium)
                )
            }),
    );
    all.iter().map(|line| hanging("  - ", line)).collect()
}

fn cents(amount: Money) -> String {
    format!("{:.2}", amount.to_decimal().round_dp(2))
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_of_each_half_are_shown_and_those_of_the_pairs() {
        let runs = (1..=12).map(|rank| ("train", rank));
        let candidates: Vec<_> = runs.chain((13..=20).map(|rank| ("serve", rank))).collect();
        let ranks = |paired: &[usize], top| -> Vec<usize> {
            let paired = paired.iter().copied().collect();
            let shown = shown(&candidates, &paired, top, |one| *one);
            shown.into_iter().map(|(_, rank)| *rank).collect()
        };
        assert_eq!(ranks(&[], 2), [1, 2, 13, 14]);
        assert_eq!(ranks(&[12, 17], 1), [1, 12, 13, 17]);
    }
}
