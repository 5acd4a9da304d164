//! `broker show`: a readable sheet of a reservation, quote, plan, offer or attestation.

use chrono::Utc;
use clap::Args;
use market::attestation::Attestation;
use market::ids::{AttestationId, OfferId, PlanId, QuoteId};
use serde::Deserialize as _;
use serde_json::Value;

use super::api::{Call, Document};
use super::connection::ServiceArgs;
use super::covered;
use super::offers::{gpus, place, print_offer};
use super::plan::print_plan;
use super::quote::{of_offers, print_lines, print_quote, usd_per_hour};
use super::reservations::{find, parse_reservation, state};
use super::route::Route;
use super::sheet::{
    NOTHING, age, cell, items, moment, print_sheet, print_table_without, text, time, words,
};
use super::start::{self, PriceOf};
use super::{quote, sheet};
use crate::cli::attestation::in_words;
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::text::{clean, print_line, print_text};

/// Shows a reservation, quote, plan, offer or attestation.
///
/// You can give only the start of a reservation's id. The `--json` output of an attestation is input for
/// `broker attestation verify`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker show rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718\n  broker show quo_019a3f0e1c7b7d40b2a1c3d4e5f60718\n  broker show att_019a3f0e1c7b7d40b2a1c3d4e5f60718 --json > result.json"
)]
pub(in crate::cli) struct ShowArgs {
    /// The id: of a reservation (rsv_…), quote (quo_…), plan (pln_…), offer (off_…)
    /// or attestation (att_…).
    #[arg(value_name = "ID", value_parser = Shown::parse)]
    id: Shown,
    #[command(flatten)]
    service: ServiceArgs,
}

/// The object to show.
#[derive(Debug, Clone)]
enum Shown {
    Reservation(String),
    Quote(QuoteId),
    Plan(PlanId),
    Offer(OfferId),
    Attestation(AttestationId),
}

impl Shown {
    fn parse(text: &str) -> Result<Self, String> {
        let kind = text.split_once('_').map_or("", |(kind, _)| kind);
        match kind {
            "quo" => text
                .parse()
                .map(Self::Quote)
                .map_err(|error| error.to_string()),
            "pln" => text
                .parse()
                .map(Self::Plan)
                .map_err(|error| error.to_string()),
            "off" => text
                .parse()
                .map(Self::Offer)
                .map_err(|error| error.to_string()),
            "att" => text
                .parse()
                .map(Self::Attestation)
                .map_err(|error| error.to_string()),
            _ => parse_reservation(text).map(Self::Reservation),
        }
    }
}

pub(super) async fn run(args: ShowArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let api = &session.api;
    match args.id {
        Shown::Quote(id) => session.show(&api.send(Route::ShowQuote.of(&id)).await?, print_quote),
        Shown::Offer(id) => session.show(&api.send(Route::ShowOffer.of(&id)).await?, print_offer),
        Shown::Plan(id) => {
            let plan = api.send(Route::ShowPlan.of(&id)).await?;
            session.show(&plan, |plan| print_plan(plan, 10))
        }
        Shown::Attestation(id) => {
            let kept = api.send(Route::ShowAttestation.of(&id)).await?;
            session.show(&kept, print_attestation)
        }
        Shown::Reservation(named) => {
            let id = find(api, &named).await?;
            let reservation = api.send(Route::ShowReservation.of(&id)).await?;
            let nodes = if session.json {
                Document::default()
            } else {
                let nodes = Call::from(Route::ReservationNodes.of(&id));
                api.list(nodes, true).await?
            };
            session.show(&reservation, |it| print_reservation(it, &nodes.value))
        }
    }
}

fn print_attestation(kept: &Value) -> Result<(), Ending> {
    let document = Attestation::deserialize(&kept["document"])?;
    Ok(print_text(&in_words(&document))?)
}

/// The properties of a reservation, line by line.
pub(super) fn summary(it: &Value) -> Vec<(&'static str, String)> {
    let now = SystemClock.now();
    let held_until = if it["state"] == "held" {
        moment(it, "/hold_expires_at", now)
    } else {
        String::new()
    };
    let starts = match start::ahead(it) {
        Some(_) if it["follows"].is_string() && it["window_end"].is_null() => {
            let run = text(it, "/follows");
            format!(
                "{} as planned, once {run} has ended",
                moment(it, "/starts_at", now)
            )
        }
        Some(_) => moment(it, "/starts_at", now),
        None => String::new(),
    };
    // Before the hand-off it is the end of the wait.
    let end = match it["active_at"].is_string() || it["state"] == "releasing" {
        true => "ends",
        false => "given up",
    };
    let followers = items(it, "followed_by").iter();
    let followers: Vec<&str> = followers.filter_map(Value::as_str).collect();
    let ends = if it["state"] == "closed" {
        String::new()
    } else {
        moment(it, "/window_end", now)
    };
    let covered_until = if it["state"] == "closed" {
        String::new()
    } else {
        covered::first_end(it, now)
    };
    vec![
        ("reservation", text(it, "/id")),
        ("name", text(it, "/name")),
        ("state", state(it)),
        ("what", quote::in_words(it)),
        ("terms", of_offers(it, |offer| words(offer, "/terms"))),
        ("fabric", quote::fabric(it)),
        ("place", of_offers(it, place)),
        (
            "USD/h",
            start::with_bound(it, usd_per_hour(it, now), PriceOf::TheQuote),
        ),
        ("covered until", covered_until),
        ("ended by budget", text(it, "/stopped_by")),
        ("held until", held_until),
        ("starts", starts),
        ("follows", text(it, "/follows")),
        ("followed by", followers.join(", ")),
        (end, ends),
    ]
}

/// Prints the summary of each reservation, with an empty line between two.
pub(super) fn print_summaries(all: &[Value]) -> Result<(), Ending> {
    for (at, one) in all.iter().enumerate() {
        if at > 0 {
            print_line("")?;
        }
        print_sheet(&summary(one))?;
    }
    Ok(())
}

/// The command that follows what starts first of confirmed reservations.
pub(super) fn watch_of(all: &[Value]) -> String {
    let mut starting = all.iter().filter(|one| one["state"] != "scheduled");
    let first = starting.next().or(all.first());
    let id = first.map_or_else(String::new, |one| text(one, "/id"));
    format!("broker watch {id}")
}

fn print_reservation(it: &Value, nodes: &Value) -> Result<(), Ending> {
    let now = SystemClock.now();
    let mut lines = summary(it);
    let together = if it["gang"] == true {
        "as one"
    } else {
        "one by one"
    };
    let more = [
        ("kind", text(it, "/kind").replace('_', " ")),
        ("replaced", together.to_owned()),
        ("ceiling", ceiling(it)),
        ("verification", text(it, "/verification")),
        ("tags", pairs(&it["tags"])),
        ("attribution", pairs(&it["attribution"])),
        ("project", text(it, "/project_id")),
        (
            "plan, quote",
            format!("{}, {}", text(it, "/plan_id"), text(it, "/quote_id")),
        ),
        ("placed", moment(it, "/created_at", now)),
        ("confirmed", moment(it, "/confirmed_at", now)),
        ("active", moment(it, "/active_at", now)),
        ("closed", moment(it, "/closed_at", now)),
    ];
    lines.extend(more);
    print_sheet(&lines)?;
    print_lines(it)?;
    let warning = start::below_price(it, PriceOf::TheQuote);
    if let Some(warning) = warning.filter(|_| start::ahead(it).is_some()) {
        print_text(&warning)?;
    }
    if !items(it, "leases").is_empty() {
        print_line(&Colours::of_stdout().heading("Leases:"))?;
        print_leases(it, now)?;
    }
    if !items(nodes, "items").is_empty() {
        print_line(&Colours::of_stdout().heading("Nodes:"))?;
        print_nodes(nodes)?;
    }
    Ok(())
}

fn print_leases(it: &Value, now: chrono::DateTime<Utc>) -> Result<(), Ending> {
    let rows = items(it, "leases").iter().map(|lease| {
        let fell = text(lease, "/fall_note");
        vec![
            cell(lease, "/id"),
            cell(lease, "/provider"),
            cell(lease, "/nodes"),
            words(lease, "/state"),
            age(time(lease, "/requested_at"), now),
            age(time(lease, "/handed_off_at"), now),
            if fell.is_empty() {
                NOTHING.to_owned()
            } else {
                fell
            },
        ]
    });
    let headings = [
        "id",
        "provider",
        "nodes",
        "state",
        "ordered",
        "handed off",
        "failure",
    ];
    print_table_without(&headings, rows, &["ordered", "handed off", "id"])
}

fn print_nodes(nodes: &Value) -> Result<(), Ending> {
    let rows = items(nodes, "items").iter().map(|node| {
        vec![
            cell(node, "/node"),
            cell(node, "/provider"),
            gpus(node),
            words(node, "/state"),
            words(node, "/verdict"),
            cell(node, "/attestation_id"),
        ]
    });
    let headings = [
        "node",
        "provider",
        "GPUs",
        "state",
        "verdict",
        "attestation",
    ];
    print_table_without(&headings, rows, &["provider"])
}

fn ceiling(it: &Value) -> String {
    let parts = [
        ("/ceiling/usd_per_gpu_hour", "USD/GPU-h"),
        ("/ceiling/usd_per_hour", "USD/h"),
    ];
    let said = parts
        .into_iter()
        .filter(|(pointer, _)| it.pointer(pointer).is_some_and(Value::is_string))
        .map(|(pointer, unit)| format!("{} {unit}", sheet::price(it, pointer)));
    said.collect::<Vec<_>>().join(", ")
}

/// The non-empty fields of an object: "team=research, run=7".
fn pairs(object: &Value) -> String {
    let fields = object.as_object().into_iter().flatten();
    let said = fields.filter_map(|(key, value)| {
        let value = value.as_str()?;
        Some(clean(&format!("{key}={value}")))
    });
    said.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_has_what_changes_the_price_of_every_line() {
        let line = |terms: &str, region: &str| {
            json!({
                "nodes": 1, "gpus": 8, "rate_usd_gpu_hour": "2.5",
                "offer": {
                    "gpus": 8, "gpu": "H100-SXM", "provider": "lambda", "terms": terms,
                    "place": { "country": "US", "region": region },
                },
            })
        };
        let lines = [
            line("on_demand", "us-east-1"),
            line("spot", "us-east-1"),
            line("on_demand", "us-west-2"),
        ];
        let all = summary(&json!({ "state": "held", "lines": lines }));
        for (label, value) in [
            ("terms", "on demand, spot"),
            ("place", "US us-east-1, US us-west-2"),
            ("USD/h", "spot 60.00"),
        ] {
            assert!(all.contains(&(label, value.to_owned())), "{label}: {all:?}");
        }
    }

    #[test]
    fn a_summary_says_when_a_later_start_is_and_what_limits_its_price() {
        let mut it = json!({
            "state": "scheduled", "starts_at": "2126-12-24T18:00:00Z", "follows": "rsv_1",
            "window_end": "2126-12-25T18:00:00Z",
            "lines": [{
                "nodes": 1, "gpus": 8, "rate_usd_gpu_hour": "2.5", "rate_at_most": "3",
                "offer": { "gpus": 8, "gpu": "H100-SXM", "provider": "lambda" },
            }],
        });
        let shown = |it: &Value, label: &str| {
            let found = summary(it).into_iter().find(|(name, _)| *name == label);
            found.map_or_else(String::new, |(_, value)| value)
        };
        assert!(shown(&it, "starts").starts_with("2126-12-24 18:00:00 UTC (in "));
        assert!(shown(&it, "given up").starts_with("2126-12-25 18:00:00 UTC (in "));
        assert_eq!(shown(&it, "ends"), "");
        assert_eq!(shown(&it, "follows"), "rsv_1");
        assert_eq!(shown(&it, "USD/h"), "20.00 when quoted, at most 24.00");
        it["state"] = json!("active");
        it["active_at"] = json!("2126-12-24T18:00:00Z");
        assert_eq!(shown(&it, "starts"), "");
        assert!(shown(&it, "ends").starts_with("2126-12-25 18:00:00 UTC"));
    }
}
