//! `broker match`: price lists in, ranked candidates with reasons out. No server, no database.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use adapters::pricesheet::{self, PriceSheet, PriceSheets};
use clap::Args;
use comfy_table::{ContentArrangement, Table, presets};
use market::demand::Demand;
use matcher::{Held, Plan, ProviderView, SearchOptions, Snapshot};

use super::Ending;
use crate::clock::{Clock as _, SystemClock};
use crate::ingest::PRICE_LIST_FRESHNESS;

/// Ranks the offers of price lists for a demand; no server, no database.
#[derive(Debug, Args)]
pub(super) struct MatchArgs {
    /// Price lists.
    #[arg(long, num_args = 1.., required = true, value_name = "FILE.csv")]
    offers: Vec<PathBuf>,
    /// The demand, as JSON.
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
    let demand = read_demand(args)?;
    demand.check(now).map_err(|faults| {
        let words: Vec<_> = faults.iter().map(|f| format!("{}: {}", f.field, f.detail)).collect();
        Ending::wrong_input(format!("the demand cannot be met as written; {}", words.join("; ")))
    })?;
    let mut sheets = Vec::new();
    for file in &args.offers {
        sheets.push(PriceSheet::open(file).map_err(|error| {
            Ending::wrong_input(format!("the price list {} cannot be read: {error}", file.display()))
        })?);
    }
    let read = pricesheet::read_price_sheets(&sheets, now);
    let providers: BTreeSet<_> = read.offers.iter().map(|offer| offer.provider.clone()).collect();
    let listed = ProviderView {
        freshness_limit_seconds: PRICE_LIST_FRESHNESS.as_secs(),
        stale: None,
    };
    let views: HashMap<_, _> = providers.into_iter().map(|id| (id, listed.clone())).collect();
    let snapshot = Snapshot::new(0, now, read.offers.clone(), views);
    let options = SearchOptions { limit: args.top, ..SearchOptions::default() };
    let plan = matcher::search(&snapshot, &demand, &Held::new(), now, &options)
        .map_err(Ending::wrong_input)?;
    if args.json {
        println!("{}", as_json(&read, &plan)?);
    } else {
        show(&read, &plan);
    }
    if plan.eligible == 0 {
        return Err(Ending::No("No offer satisfies the demand.".into()));
    }
    Ok(())
}

fn read_demand(args: &MatchArgs) -> Result<Demand, Ending> {
    let shown = args.demand.display();
    let text = std::fs::read_to_string(&args.demand)
        .map_err(|error| Ending::wrong_input(format!("the demand {shown} cannot be read: {error}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Ending::wrong_input(format!("the demand {shown} is not valid: {error}")))
}

fn as_json(read: &PriceSheets, plan: &Plan) -> Result<String, Ending> {
    let mut candidates = Vec::new();
    for candidate in &plan.candidates {
        candidates.extend(candidate.offers_with_reasons()?);
    }
    Ok(serde_json::to_string(&serde_json::json!({
        "rows_read": read.rows_read,
        "offers": read.offers.len(),
        "eligible": plan.eligible,
        "candidates": candidates,
        "rejected": plan.rejected,
        "skipped": read.skipped,
    }))?)
}

fn show(read: &PriceSheets, plan: &Plan) {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(["", "provider", "SKU", "GPU", "nodes", "region", "USD/h", "USD/GPU-h"]);
    for candidate in &plan.candidates {
        for line in &candidate.lines {
            let offer = &line.offer;
            table.add_row([
                candidate.rank.to_string(),
                offer.provider.to_string(),
                offer.sku.clone(),
                format!("{} x {}", offer.gpus, offer.gpu),
                line.nodes.to_string(),
                offer.place.region.clone().unwrap_or_else(|| "unknown".into()),
                candidate.cost_per_hour.to_string(),
                candidate.rate.to_string(),
            ]);
        }
    }
    println!("{table}");
    if let Some(best) = plan.candidates.first() {
        println!("Why the first: {}", best.reasons.join("; "));
    }
    println!(
        "{} rows read, {} offers, {} eligible, {} refused:",
        read.rows_read,
        read.offers.len(),
        plan.eligible,
        plan.rejected.total
    );
    for (reason, count) in &plan.rejected.by_reason {
        println!("  {count:>6}  {reason}");
    }
    let skipped: u64 = read.skipped.iter().map(|skipped| skipped.rows).sum();
    println!("{skipped} rows became no offer; --json names each.");
}
