//! `broker offers`: the offers on sale now.

use chrono::{DateTime, Utc};
use clap::Args;
use market::fabric::Internode;
use market::gpu::GpuWanted;
use market::ids::ProviderId;
use market::money::Money;
use market::offer::{Tenancy, Terms};
use market::place::Country;
use serde_json::Value;

use super::api::Call;
use super::connection::ServiceArgs;
use super::route::Route;
use super::sheet::{
    NOTHING, age, cell, items, price, print_sheet, print_table_without, text, time, words,
};
use crate::cli::client::argument::word;
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;
use crate::terminal::price::marked_price;
use crate::terminal::text::print_text;

/// Lists the offers on sale now.
///
/// A narrow terminal hides some columns; a wide one and a pipe show all.
/// Exit status: 0 there are offers, 1 there are none, 2 wrong input.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker offers --gpu H100-SXM --country US --min-gpus 8")]
pub(in crate::cli) struct OffersArgs {
    /// Only this GPU (`H100-SXM`) or family (`H100`).
    #[arg(long, value_parser = word::<GpuWanted>)]
    gpu: Option<GpuWanted>,
    /// Only of this provider.
    #[arg(long, value_name = "NAME", value_parser = word::<ProviderId>)]
    provider: Option<ProviderId>,
    /// Only in this country, such as `US`.
    #[arg(long, value_parser = word::<Country>)]
    country: Option<Country>,
    /// Only machines of this kind: bare_metal, vm, container, managed.
    #[arg(long, value_parser = word::<Tenancy>)]
    tenancy: Option<Tenancy>,
    /// Only under these terms: on_demand, spot, reserved, window, floor (floor: the provider's minimum bid,
    /// not orderable).
    #[arg(long, value_parser = word::<Terms>)]
    terms: Option<Terms>,
    /// Only nodes with this fabric between them, such as `infiniband_ndr400`.
    #[arg(long, value_name = "FABRIC", value_parser = word::<Internode>)]
    internode: Option<Internode>,
    /// Maximum US dollars per GPU-hour.
    #[arg(long, value_name = "USD", value_parser = word::<Money>)]
    max_usd_per_gpu_hour: Option<Money>,
    /// Minimum GPUs in a node.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_024))]
    min_gpus: Option<u32>,
    /// Includes offers that are sold out.
    #[arg(long)]
    include_unavailable: bool,
    /// The order: by price, or by provider and then price.
    #[arg(long, value_parser = ["price", "provider"])]
    sort: Option<String>,
    /// How many offers to show; default: 50.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,
    /// Shows all offers.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

impl OffersArgs {
    fn call(&self) -> Call {
        fn said<T: ToString>(value: Option<&T>) -> Option<String> {
            value.map(ToString::to_string)
        }
        Call::from(Route::ListOffers.all()).query([
            ("gpu", said(self.gpu.as_ref())),
            ("provider", said(self.provider.as_ref())),
            ("country", said(self.country.as_ref())),
            ("tenancy", said(self.tenancy.as_ref())),
            ("terms", said(self.terms.as_ref())),
            ("internode", said(self.internode.as_ref())),
            ("max_usd_gpu_hour", said(self.max_usd_per_gpu_hour.as_ref())),
            ("min_gpus", said(self.min_gpus.as_ref())),
            (
                "include_unavailable",
                self.include_unavailable.then(|| "true".to_owned()),
            ),
            ("sort", self.sort.clone()),
            ("limit", said(self.limit.as_ref())),
        ])
    }
}

pub(super) async fn run(args: OffersArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let found = session.api.list(args.call(), args.all).await?;
    session.show(&found, print_offers)?;
    if items(&found.value, "items").is_empty() {
        let why = "no offer passes these filters; leave some out, or add --include-unavailable";
        return Err(Ending::No(why.to_owned()));
    }
    Ok(())
}

/// The headings of [`row`].
const HEADINGS: [&str; 12] = [
    "provider",
    "GPUs",
    "terms",
    "fabric",
    "place",
    "SKU",
    "machine",
    "free",
    "USD/GPU-h",
    "USD/h",
    "read",
    "id",
];

/// The columns that a narrow terminal hides. Terms, fabric and place change the price, so they stay.
const SPARE: [&str; 5] = ["id", "USD/h", "machine", "read", "SKU"];

fn print_offers(page: &Value) -> Result<(), Ending> {
    let offers = items(page, "items");
    if offers.is_empty() {
        return Ok(());
    }
    let now = SystemClock.now();
    let rows = offers.iter().map(|offer| row(offer, now));
    print_table_without(&HEADINGS, rows, &SPARE)?;
    if page["next_cursor"].is_string() {
        print_text(&format!(
            "The first {}; --all shows all of them.",
            offers.len()
        ))?;
    }
    Ok(())
}

fn row(offer: &Value, now: DateTime<Utc>) -> Vec<String> {
    // A stale offer is marked in a column that is always shown.
    let free = match offer["stale"] == true {
        true => "stale".to_owned(),
        false => free(offer),
    };
    vec![
        cell(offer, "/provider"),
        gpus(offer),
        words(offer, "/terms"),
        words(offer, "/internode"),
        place(offer),
        cell(offer, "/sku"),
        words(offer, "/tenancy"),
        free,
        marked(offer, "/price_usd_gpu_hour"),
        marked(offer, "/price_usd_hour"),
        age(time(offer, "/observed_at"), now),
        cell(offer, "/offer_id"),
    ]
}

/// A price of an offer, marked if the provider may reclaim the capacity.
pub(super) fn marked(offer: &Value, pointer: &str) -> String {
    marked_price(price(offer, pointer), is_spot(offer))
}

/// Whether the provider of an offer may reclaim the capacity.
pub(super) fn is_spot(offer: &Value) -> bool {
    offer["terms"] == "spot"
}

/// The GPUs of one node of an offer.
pub(super) fn gpus(offer: &Value) -> String {
    format!("{} x {}", text(offer, "/gpus"), text(offer, "/gpu"))
}

/// The place of an offer, country first.
pub(super) fn place(offer: &Value) -> String {
    let parts = [text(offer, "/place/country"), text(offer, "/place/region")];
    let known: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    if known.is_empty() {
        NOTHING.to_owned()
    } else {
        known.join(" ")
    }
}

/// How many nodes are free, if the provider reports it.
fn free(offer: &Value) -> String {
    match offer["availability"]["nodes"].as_u64() {
        Some(nodes) if offer["availability"]["at_least"] == true => format!("{nodes}+"),
        Some(nodes) => nodes.to_string(),
        None => words(offer, "/availability/level"),
    }
}

/// Prints one offer as a sheet.
pub(super) fn print_offer(offer: &Value) -> Result<(), Ending> {
    print_sheet(&sheet_of(offer, SystemClock.now()))
}

fn sheet_of(offer: &Value, now: DateTime<Utc>) -> Vec<(&'static str, String)> {
    let state = match (&offer["withdrawn"], &offer["stale"]) {
        (Value::Bool(true), _) => "withdrawn",
        (_, Value::Bool(true)) => "stale: too old to be matched",
        _ => "on sale",
    };
    let orderable = if offer["orderable"] == true {
        "yes"
    } else {
        "no, only for comparison"
    };
    vec![
        ("offer", text(offer, "/offer_id")),
        ("provider", text(offer, "/provider")),
        ("SKU", text(offer, "/sku")),
        ("GPUs", gpus(offer)),
        ("place", place(offer)),
        ("machine", words(offer, "/tenancy")),
        ("terms", words(offer, "/terms")),
        ("fabric", words(offer, "/internode")),
        ("USD/h", marked(offer, "/price_usd_hour")),
        ("USD/GPU-h", marked(offer, "/price_usd_gpu_hour")),
        ("free", free(offer)),
        ("can be ordered", orderable.to_owned()),
        ("state", state.to_owned()),
        ("why stale", text(offer, "/stale_reason")),
        ("read", age(time(offer, "/observed_at"), now)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terminal::table::fitted_without;

    fn offer() -> Value {
        json!({
            "offer_id": "off_019a3f0e1c7b7d40b2a1c3d4e5f60718", "provider": "hyperstack",
            "sku": "n3-H100-SXM5x8", "gpus": 8, "gpu": "H100-SXM", "terms": "spot",
            "internode": "ethernet", "place": { "country": "CA", "region": "CANADA-1" },
            "tenancy": "vm", "price_usd_gpu_hour": "2.4", "price_usd_hour": "19.2",
            "availability": { "nodes": 3 }, "stale": true, "observed_at": "2026-11-21T13:00:00Z",
        })
    }

    #[test]
    fn what_is_stale_says_so_at_every_width() {
        for columns in [None, Some(20), Some(60), Some(80), Some(100), Some(200)] {
            let rows = [row(&offer(), DateTime::UNIX_EPOCH)];
            let shown = fitted_without(columns, &HEADINGS, rows, &SPARE);
            assert!(shown.contains("stale"), "{columns:?}: {shown}");
        }
    }

    #[test]
    fn the_prices_of_a_sheet_are_marked_as_those_of_a_table() {
        let sheet = sheet_of(&offer(), DateTime::UNIX_EPOCH);
        for line in [("USD/h", "spot 19.20"), ("USD/GPU-h", "spot 2.40")] {
            let line = (line.0, line.1.to_owned());
            assert!(sheet.contains(&line), "{line:?} in {sheet:?}");
        }
    }
}
