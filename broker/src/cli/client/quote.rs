//! `broker quote`: a frozen price until the quote lapses, or the bound of a later start.

use chrono::{DateTime, Utc};
use clap::Args;
use market::fabric::Internode;
use market::ids::PlanId;
use rust_decimal::Decimal;
use serde_json::{Value, json};

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::covered;
use super::demand::DemandArgs;
use super::offers::{gpus, is_spot, place};
use super::plan;
use super::route::Route;
use super::sheet::{
    cell, dollars, items, moment, one_or_several, price, print_sheet, print_table_without, text,
    words,
};
use super::start::{self, PriceOf};
use crate::cli::client::argument::word;
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;
use crate::terminal::price::marked_price;
use crate::terminal::text::{each_once, print_line, print_next, print_text};

/// Freezes the price of a candidate of a plan, or of a pair of a hybrid plan.
///
/// With a demand instead of a plan, it makes a plan first. The price of a later start is not frozen: it is
/// the price of that day, and at most the bound of the quote.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker quote pln_019a3f0e1c7b7d40b2a1c3d4e5f60718 --candidate 2\n  broker quote pln_019a3f0e1c7b7d40b2a1c3d4e5f60718 --pair 1\n  broker quote --gpu H100-SXM --count 8 --start 2026-12-24T18:00:00Z"
)]
pub(in crate::cli) struct QuoteArgs {
    /// The plan.
    #[arg(value_name = "PLAN", required_unless_present_any = ["demand", "gpu"], conflicts_with_all = ["demand", "gpu", "start", "start_latest"])]
    plan: Option<PlanId>,
    /// Which of its candidates, by rank; by default, the first.
    #[arg(long, value_name = "RANK", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    candidate: Option<u32>,
    /// Which pair of a hybrid plan, by its number: makes two quotes, of the run and of the fleet that starts
    /// after it. By default, the first of a hybrid demand.
    #[arg(long, value_name = "N", conflicts_with = "candidate", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pair: Option<u32>,
    #[command(flatten)]
    demand: DemandArgs,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: QuoteArgs) -> Result<(), Ending> {
    let demand = match args.plan {
        Some(_) => None,
        None => Some(args.demand.read()?),
    };
    let session = Session::open(&args.service)?;
    let (plan_id, is_hybrid) = match (args.plan, demand) {
        (Some(plan), _) => (json!(plan), false),
        (None, demand) => {
            let plan = plan::make(&session, demand.unwrap_or_default())
                .await?
                .value;
            if !plan::is_met(&plan) {
                return Err(plan::nothing_matches());
            }
            (plan["id"].clone(), plan["hybrid"].is_object())
        }
    };
    let wanted = match (args.pair, args.candidate) {
        (None, None) if is_hybrid => json!({ "plan_id": plan_id, "pair": 1 }),
        (Some(pair), _) => json!({ "plan_id": plan_id, "pair": pair }),
        (None, rank) => json!({ "plan_id": plan_id, "candidate": rank.unwrap_or(1) }),
    };
    let call = Call::from(Route::MakeQuote.all())
        .body(wanted)
        .once(args.once.key());
    let made = session.api.send(call).await?;
    session.show(&made, |made| {
        let mut next = "broker reserve".to_owned();
        for (at, quote) in one_or_several(made, "quotes").iter().enumerate() {
            if at > 0 {
                print_line("")?;
            }
            print_quote(quote)?;
            next += &format!(" --quote {}", text(quote, "/id"));
        }
        Ok(print_next(&next)?)
    })
}

/// Prints a quote as a sheet and its lines as a table.
pub(super) fn print_quote(quote: &Value) -> Result<(), Ending> {
    print_sheet(&sheet_of(quote, SystemClock.now()))?;
    print_lines(quote)?;
    if let Some(warning) = start::below_price(quote, PriceOf::Today) {
        print_text(&warning)?;
    }
    Ok(())
}

fn sheet_of(quote: &Value, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let price = marked_price(price(quote, "/price_usd_hour"), has_spot(quote));
    let price = match quote["price_is"].as_str() {
        Some("frozen") => format!("{price}, frozen"),
        _ => start::with_bound(quote, price, PriceOf::Today),
    };
    vec![
        ("quote", text(quote, "/id")),
        ("plan", text(quote, "/plan_id")),
        ("fabric", fabric(quote)),
        ("USD/h", price),
        ("starts", moment(quote, "/starts_at", now)),
        ("follows", text(quote, "/follows")),
        ("covered until", covered::first_end(quote, now)),
        ("made", moment(quote, "/created_at", now)),
        ("lapses", moment(quote, "/expires_at", now)),
    ]
}

/// Prints the quoted lines.
pub(super) fn print_lines(priced: &Value) -> Result<(), Ending> {
    let mut headings = vec![
        "line",
        "provider",
        "nodes",
        "GPUs",
        "terms",
        "fabric",
        "place",
        "SKU",
        "USD/GPU-h",
    ];
    let lines = items(priced, "lines");
    let is_bounded = start::is_bounded(priced);
    headings.extend(is_bounded.then_some(start::BOUND));
    let is_covered = lines.iter().any(|line| line["covered"].is_object());
    if is_covered {
        headings.extend(covered::HEADINGS);
    }
    let rows = lines.iter().map(|line| {
        let offer = &line["offer"];
        let mut row = vec![
            cell(line, "/line"),
            cell(offer, "/provider"),
            cell(line, "/nodes"),
            gpus(offer),
            words(offer, "/terms"),
            words(offer, "/internode"),
            place(offer),
            cell(offer, "/sku"),
            marked_price(price(line, "/rate_usd_gpu_hour"), is_spot(offer)),
        ];
        if is_bounded {
            row.push(price(line, "/rate_at_most"));
        }
        if is_covered {
            row.extend(covered::cells(&line["covered"]));
        }
        row
    });
    print_table_without(&headings, rows, &["SKU"])
}

/// One property of the offers of all lines, without repeats.
pub(super) fn of_offers(priced: &Value, of: impl Fn(&Value) -> String) -> String {
    let lines = items(priced, "lines").iter();
    each_once(lines.map(|line| of(&line["offer"])))
}

/// Whether the provider of any line may reclaim the capacity.
pub(super) fn has_spot(priced: &Value) -> bool {
    let mut lines = items(priced, "lines").iter();
    lines.any(|line| is_spot(&line["offer"]))
}

/// US dollars per hour of all lines at a time, at their rates, marked if any is spot; empty if unknown.
pub(super) fn usd_per_hour(priced: &Value, now: DateTime<Utc>) -> String {
    let of_line = |line: &Value| {
        let rate = covered::rate_at(line, now)?;
        rate.checked_mul(line["gpus"].as_u64()?.into())
    };
    let all: Option<Vec<Decimal>> = items(priced, "lines").iter().map(of_line).collect();
    all.map_or_else(String::new, |lines| {
        marked_price(dollars(lines.iter().sum(), 4), has_spot(priced))
    })
}

/// The quoted nodes in a few words: "2 nodes of 8 H100-SXM at voltagepark".
pub(super) fn in_words(priced: &Value) -> String {
    let lines = items(priced, "lines").iter().map(|line| {
        let offer = &line["offer"];
        let plural = if line["nodes"] == 1 { "" } else { "s" };
        let [nodes, gpus] = [text(line, "/nodes"), text(offer, "/gpus")];
        let [gpu, provider] = [text(offer, "/gpu"), text(offer, "/provider")];
        format!("{nodes} node{plural} of {gpus} {gpu} at {provider}")
    });
    lines.collect::<Vec<_>>().join(", ")
}

/// The fabric of lines with several nodes, with a warning if it has no RDMA. Serving nodes work
/// independently.
pub(super) fn fabric(priced: &Value) -> String {
    let lines = items(priced, "lines").iter();
    let several = lines.filter(|line| line["nodes"].as_u64() > Some(1) && line["half"] != "serve");
    let warning = match priced["kind"].as_str() {
        Some("gpus" | "train") => "warning: ",
        _ => "",
    };
    let mut all: Vec<String> = several
        .map(|line| {
            let name = text(&line["offer"], "/internode");
            match word::<Internode>(&name) {
                Ok(fabric) if fabric.is_rdma() => format!("{}, with RDMA", name.replace('_', " ")),
                Ok(Internode::Ethernet) => {
                    format!("{warning}plain Ethernet between the nodes, no RDMA")
                }
                Ok(Internode::None) => {
                    format!("{warning}no reliable fabric joins the nodes")
                }
                Ok(_) => format!("{warning}the seller does not state the fabric between the nodes"),
                Err(_) => name,
            }
        })
        .collect();
    all.dedup();
    all.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_price_of_an_hour_is_that_of_all_lines_with_what_is_paid_for_while_it_lasts() {
        let now = DateTime::UNIX_EPOCH;
        let offer = json!({ "gpus": 8, "gpu": "H100-SXM", "provider": "lambda" });
        let priced = json!({ "lines": [
            { "nodes": 2, "gpus": 16, "rate_usd_gpu_hour": "2.5", "offer": offer },
            { "nodes": 1, "gpus": 8, "rate_usd_gpu_hour": "1.0625", "offer": offer },
        ] });
        assert_eq!(usd_per_hour(&priced, now), "48.50");
        let mut paid = priced.clone();
        paid["lines"][0]["covered"] =
            json!({ "rate_usd_gpu_hour": "0.5", "until": "1970-01-02T00:00:00Z" });
        assert_eq!(usd_per_hour(&paid, now), "16.50");
        let later = now + chrono::TimeDelta::days(1);
        assert_eq!(usd_per_hour(&paid, later), "48.50");
        assert_eq!(
            in_words(&priced),
            "2 nodes of 8 H100-SXM at lambda, 1 node of 8 H100-SXM at lambda"
        );
        let over = |nodes: u64, internode: &str| {
            fabric(
                &json!({ "kind": "gpus", "lines": [{ "nodes": nodes, "offer": { "internode": internode } }] }),
            )
        };
        assert_eq!(over(2, "infiniband_ndr400"), "infiniband ndr400, with RDMA");
        assert_eq!(
            over(2, "ethernet"),
            "warning: plain Ethernet between the nodes, no RDMA"
        );
        assert_eq!(over(1, "ethernet"), "");
        assert_eq!(usd_per_hour(&json!({ "lines": [{}] }), now), "");
        let mut spot = priced;
        spot["lines"][1]["offer"]["terms"] = json!("spot");
        spot["price_usd_hour"] = json!("48.5");
        assert_eq!(usd_per_hour(&spot, now), "spot 48.50");
        let shown = |quote: &Value, price: &str| {
            let price = ("USD/h", price.to_owned());
            assert!(sheet_of(quote, now).contains(&price), "{price:?}");
        };
        spot["price_is"] = json!("frozen");
        shown(&spot, "spot 48.50, frozen");
        spot["price_is"] = json!("at_most");
        spot["lines"][0]["rate_at_most"] = json!("3");
        shown(&spot, "spot 48.50 today, at most 56.50");
    }
}
