//! `broker reservations`, and the parser of reservation ids on the command line.

use chrono::{DateTime, Utc};
use clap::Args;
use market::ids::{ProjectId, ReservationId};
use serde_json::Value;

use super::api::{Api, Call};
use super::connection::ServiceArgs;
use super::quote::{has_spot, in_words, usd_per_hour};
use super::route::Route;
use super::sheet::{NOTHING, age, cell, items, minute, print_table_without, text, time};
use super::start;
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;
use crate::terminal::price::{AT_MOST, marked_price};
use crate::terminal::text::print_text;

/// The fewest digits of an id that are accepted.
const FEWEST_DIGITS: usize = 4;

/// Lists reservations, newest first.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker reservations --open")]
pub(in crate::cli) struct ReservationsArgs {
    /// Only those in this state, such as `active`.
    #[arg(long)]
    state: Option<String>,
    /// Only those that are not closed.
    #[arg(long)]
    open: bool,
    /// Only those of this project.
    #[arg(long, value_name = "ID")]
    project: Option<ProjectId>,
    /// How many reservations to show; default: 50.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,
    /// Shows all reservations.
    #[arg(long, conflicts_with = "limit")]
    all: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: ReservationsArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Call::from(Route::ListReservations.all()).query([
        ("state", args.state),
        ("open_only", args.open.then(|| "true".to_owned())),
        (
            "project_id",
            args.project.map(|project| project.to_string()),
        ),
        ("limit", args.limit.map(|limit| limit.to_string())),
    ]);
    let found = session.api.list(call, args.all).await?;
    session.show(&found, print_reservations)
}

/// What a narrow terminal does without. Where something is sold its price stays.
const SPARE: [&str; 3] = ["placed", "name", "starts"];

fn print_reservations(page: &Value) -> Result<(), Ending> {
    let found = items(page, "items");
    if found.is_empty() {
        return Ok(print_text("There are none. `broker reserve` places one.")?);
    }
    let now = SystemClock.now();
    let (headings, rows) = drawn(found, now);
    print_table_without(&headings, rows, &SPARE)?;
    if page["next_cursor"].is_string() {
        print_text(&format!(
            "The newest {}; --all shows all of them.",
            found.len()
        ))?;
    }
    Ok(())
}

/// The headings and the rows of the table; with a column for the start if any lies ahead.
fn drawn(found: &[Value], now: DateTime<Utc>) -> (Vec<&'static str>, Vec<Vec<String>>) {
    let starts_later = found.iter().any(|one| start::ahead(one).is_some());
    let mut headings = vec!["id", "name", "state", "what", "USD/h"];
    headings.extend(starts_later.then_some("starts"));
    headings.push("placed");
    let rows = found.iter().map(|one| row(one, starts_later, now));
    (headings, rows.collect())
}

fn row(reservation: &Value, starts_later: bool, now: DateTime<Utc>) -> Vec<String> {
    let price = match start::bound_per_hour(reservation) {
        Some(bound) => marked_price(format!("{AT_MOST}{bound}"), has_spot(reservation)),
        None => usd_per_hour(reservation, now),
    };
    let mut row = vec![
        cell(reservation, "/id"),
        cell(reservation, "/name"),
        state(reservation),
        in_words(reservation),
        if price.is_empty() {
            NOTHING.to_owned()
        } else {
            price
        },
    ];
    if starts_later {
        let starts_at = start::ahead(reservation);
        row.push(starts_at.map_or_else(|| NOTHING.to_owned(), minute));
    }
    row.push(age(time(reservation, "/created_at"), now));
    row
}

/// Where a reservation stands, with why where it ends, and with what is still to be done.
pub(super) fn state(reservation: &Value) -> String {
    let said = |field: &str| text(reservation, field).replace('_', " ");
    let state = said("/state");
    match (said("/reason"), said("/wish")) {
        (reason, _) if !reason.is_empty() => format!("{state} ({reason})"),
        (_, wish) if !wish.is_empty() => format!("{state} ({wish} asked for)"),
        _ => state,
    }
}

/// Parses a reservation's id, or the start of the id.
pub(super) fn parse_reservation(text: &str) -> Result<String, String> {
    let digits = text.strip_prefix(ReservationId::PREFIX).unwrap_or(text);
    let hex = |c: char| matches!(c, '0'..='9' | 'a'..='f');
    if (FEWEST_DIGITS..=32).contains(&digits.len()) && digits.chars().all(hex) {
        return Ok(format!("{}{digits}", ReservationId::PREFIX));
    }
    Err(format!(
        "must be a reservation's id such as rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718, or its first {FEWEST_DIGITS} or more digits"
    ))
}

/// Finds the reservation by its id or the start of it.
///
/// Errors: wrong input if several match; the answer is no if none does.
pub(super) async fn find(api: &Api, named: &str) -> Result<ReservationId, Ending> {
    if let Ok(id) = named.parse() {
        return Ok(id);
    }
    let all = api
        .list(Route::ListReservations.all().into(), true)
        .await?
        .value;
    let ids = items(&all, "items").iter().map(|item| text(item, "/id"));
    let mut found: Vec<String> = ids.filter(|id| id.starts_with(named)).collect();
    match found.len() {
        1 => Ok(found.remove(0).parse()?),
        0 => Err(Ending::No(format!(
            "no reservation's id begins with {named}; `broker reservations` lists yours"
        ))),
        many => {
            found.truncate(3);
            Err(Ending::wrong_input(format!(
                "{many} reservations' ids begin with {named}, such as {}; give more digits",
                found.join(", ")
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::terminal::table::fitted_without;

    #[test]
    fn what_a_reservation_costs_is_shown_at_every_width() {
        let offer = json!({
            "gpus": 8, "gpu": "H100-SXM", "provider": "voltagepark", "terms": "spot",
        });
        let reservation = json!({
            "id": "rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718", "name": "a run", "state": "active",
            "created_at": "2026-11-21T13:00:00Z",
            "lines": [{ "nodes": 2, "gpus": 16, "rate_usd_gpu_hour": "2.5", "offer": offer }],
        });
        let mut later = reservation.clone();
        later["state"] = json!("scheduled");
        later["starts_at"] = json!("2026-12-24T18:00:00Z");
        later["lines"][0]["rate_at_most"] = json!("3");
        let shown = |it: &Value, columns| {
            let (headings, rows) = drawn(std::slice::from_ref(it), DateTime::UNIX_EPOCH);
            fitted_without(Some(columns), &headings, rows, &SPARE)
        };
        for columns in 20..=160 {
            for (it, price) in [(&reservation, "40.00"), (&later, "48.00")] {
                let shown = shown(it, columns);
                for said in ["spot", price] {
                    assert!(shown.contains(said), "{columns}: {shown}");
                }
            }
        }
        let wide = shown(&later, 160);
        for said in ["scheduled", "2026-12-24 18:00", "spot at most 48.00"] {
            assert!(wide.contains(said), "{said}: {wide}");
        }
        assert!(!shown(&reservation, 160).contains("starts"));
    }

    #[test]
    fn a_reservation_is_named_by_its_id_or_how_it_begins() {
        assert_eq!(parse_reservation("rsv_019a"), Ok("rsv_019a".into()));
        assert_eq!(parse_reservation("019a3f"), Ok("rsv_019a3f".into()));
        for bad in [
            "",
            "rsv_",
            "rsv_01",
            "quo_019a",
            "019A",
            "../../x",
            &"0".repeat(33),
        ] {
            assert!(parse_reservation(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_state_says_why_it_ends_and_what_is_still_to_be_done() {
        let told = |body| state(&body);
        assert_eq!(told(json!({ "state": "handing_off" })), "handing off");
        assert_eq!(
            told(json!({ "state": "closed", "reason": "no_capacity" })),
            "closed (no capacity)"
        );
        assert_eq!(
            told(json!({ "state": "active", "wish": "release" })),
            "active (release asked for)"
        );
    }
}
