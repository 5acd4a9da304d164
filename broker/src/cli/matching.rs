//! `broker match`: price lists in, ranked candidates with reasons out. No server, no database.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use adapters::pricesheet::{self, PriceSheets};
use clap::Args;
use market::catalog::Skipped;
use market::demand::Demand;
use matcher::{Held, Plan, ProviderView, SearchOptions, Snapshot};
use serde_json::{Value, json};

use super::table::{hanging, print_line, table};
use super::{Ending, read_sheets};
use crate::clock::{Clock as _, SystemClock};
use crate::plan::SIMULATED;

/// Ranks the offers of price lists for a demand; no server, no database.
///
/// A list is as old as its file; every candidate shows the date, and none is too old.
///
/// Exit status: 0 something matches, 1 nothing does, 2 wrong input.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// Price lists: CSV files, one row for each thing that is sold.
    #[arg(long, num_args = 1.., required = true, value_name = "FILE.csv")]
    offers: Vec<PathBuf>,
    /// The demand, as JSON; `-` reads it from standard input. For example
    /// {"kind":"gpus","gpu":"H100-SXM","count":8}.
    #[arg(long, value_name = "FILE")]
    demand: PathBuf,
    /// How many candidates to show.
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// One JSON object on one line instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &MatchArgs) -> Result<(), Ending> {
    let now = SystemClock.now();
    let demand = read_demand(&args.demand)?;
    demand.check(now).map_err(|faults| {
        let words: Vec<_> = faults
            .iter()
            .map(|f| format!("{}: {}", f.field, f.detail))
            .collect();
        Ending::wrong_input(format!(
            "the demand cannot be met as written; {}",
            words.join("; ")
        ))
    })?;
    let read = pricesheet::read_price_sheets(&read_sheets(&args.offers)?, now);
    let providers: BTreeSet<_> = read
        .offers
        .iter()
        .map(|offer| offer.provider.clone())
        .collect();
    let listed = ProviderView {
        freshness_limit_seconds: None,
        stale: None,
        quarantine: None,
    };
    let views: HashMap<_, _> = providers
        .into_iter()
        .map(|id| (id, listed.clone()))
        .collect();
    let snapshot = Snapshot::new(0, now, read.offers.clone(), views);
    let options = SearchOptions {
        limit: args.top,
        alternatives: true,
        simulated: SIMULATED,
        ..SearchOptions::default()
    };
    let plan = matcher::search(&snapshot, &demand, &Held::new(), now, &options)
        .map_err(Ending::wrong_input)?;
    let answer = if args.json {
        as_json(&read, &plan)?
    } else {
        as_text(&read, &plan)
    };
    print_line(&answer)?;
    if plan.eligible == 0 {
        let why = "no offer satisfies the demand; widen it where the counted reasons say";
        return Err(Ending::No(why.into()));
    }
    Ok(())
}

fn read_demand(file: &Path) -> Result<Demand, Ending> {
    let shown = file.display();
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    let text = text.map_err(|error| {
        Ending::wrong_input(format!("the demand {shown} cannot be read: {error}"))
    })?;
    serde_json::from_str(&text)
        .map_err(|error| Ending::wrong_input(format!("the demand {shown} is not valid: {error}")))
}

fn as_json(read: &PriceSheets, plan: &Plan) -> Result<String, Ending> {
    let mut candidates = Vec::new();
    for candidate in &plan.candidates {
        candidates.extend(candidate.offers_with_reasons()?);
    }
    Ok(serde_json::to_string(&json!({
        "rows_read": read.rows_read,
        "offers": read.offers.len(),
        "eligible": plan.eligible,
        "candidates": candidates,
        "rejected": plan.rejected,
        "skipped": read.skipped.iter().map(skipped_as_json).collect::<Vec<_>>(),
    }))?)
}

/// An entry with all its fields, so that a reader need not ask which are there. `row` is `null`
/// where it is about the whole file.
fn skipped_as_json(skipped: &Skipped) -> Value {
    json!({
        "file": skipped.file,
        "row": skipped.row,
        "rows": skipped.rows,
        "sku": skipped.sku,
        "reason": skipped.reason,
        "why": skipped.why,
    })
}

fn as_text(read: &PriceSheets, plan: &Plan) -> String {
    let mut lines = Vec::new();
    if let Some(best) = plan.candidates.first() {
        let headings = [
            "#",
            "provider",
            "SKU",
            "GPUs",
            "nodes",
            "region",
            "USD/h",
            "USD/GPU-h",
            "as of",
        ];
        lines.push(table(&headings, plan.candidates.iter().flat_map(rows_of)));
        if best.lines.len() > 1 {
            lines.push(format!("The first in all: {} USD/h", best.cost_per_hour));
        }
        lines.push("Why the first:".to_owned());
        lines.extend(best.reasons.iter().map(|reason| hanging("  - ", reason)));
        for launch in &best.launch {
            let ports: Vec<_> = launch.ports.iter().map(u16::to_string).collect();
            let words = format!(
                "{}, ports {}: {}",
                launch.engine,
                ports.join(" "),
                launch.command
            );
            lines.push(hanging("  start ", &words));
        }
        for other in &plan.alternatives {
            let saved = other.saves_usd_hour.to_string();
            let difference = match saved.strip_prefix('-') {
                Some(more) => format!("{more} more"),
                None => format!("{saved} less"),
            };
            lines.push(format!(
                "  with weights in {}: {} USD per hour, {difference}; not taken",
                other.weights.as_str(),
                other.price_usd_hour
            ));
        }
    }
    lines.push(format!(
        "{} rows read: {} offers; {} satisfy the demand, {} do not{}",
        read.rows_read,
        read.offers.len(),
        plan.eligible,
        plan.rejected.total,
        if plan.rejected.total == 0 { "." } else { ":" },
    ));
    for (reason, count) in &plan.rejected.by_reason {
        let words = format!("{reason}: {}", reason.meaning());
        lines.push(hanging(&format!("  {count:>6}  "), &words));
    }
    let mut without_offer: BTreeMap<&str, u64> = BTreeMap::new();
    for skipped in &read.skipped {
        *without_offer.entry(skipped.reason.as_str()).or_default() += skipped.rows;
    }
    without_offer.retain(|_, rows| *rows > 0);
    if !without_offer.is_empty() {
        let rows: u64 = without_offer.values().sum();
        lines.push(format!(
            "{rows} rows gave no offer (--json names each, and why):"
        ));
        lines.extend(
            without_offer
                .iter()
                .map(|(reason, rows)| format!("  {rows:>6}  {reason}")),
        );
    }
    lines.join("\n")
}

fn rows_of(candidate: &matcher::Candidate) -> impl Iterator<Item = Vec<String>> {
    candidate.lines.iter().map(|line| {
        let offer = &line.offer;
        // A price that cannot be shown is of a candidate whose sum could not be formed either.
        let [price, rate] = offer
            .view(line.nodes)
            .map(|view| {
                [
                    view.price_usd_hour.to_string(),
                    view.price_usd_gpu_hour.to_string(),
                ]
            })
            .unwrap_or_default();
        vec![
            candidate.rank.to_string(),
            offer.provider.to_string(),
            offer.sku.clone(),
            format!("{} x {}", offer.gpus, offer.gpu),
            line.nodes.to_string(),
            offer
                .place
                .region
                .clone()
                .unwrap_or_else(|| "unknown".into()),
            price,
            rate,
            offer.observed_at.format("%Y-%m-%d").to_string(),
        ]
    })
}
