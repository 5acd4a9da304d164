//! `broker watch`: follows a reservation live.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use market::ids::ReservationId;
use serde_json::Value;

use super::api::{Api, Call, Document, progress_bar};
use super::connection::ServiceArgs;
use super::problem::CallError;
use super::reservations::{find, parse_reservation, state};
use super::route::Route;
use super::sheet::{age, items, print_sheet, second, span, sum, text, time, words};
use super::stream::Nudges;
use super::{show, start};
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::screen::columns;
use crate::terminal::text::{clean, hanging, print_line, print_next};

/// How often the charges are read.
const CHARGES_EVERY: Duration = Duration::from_secs(10);
/// How long a service may be unavailable, for example during a restart, before the watch gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows a reservation live until it is active or closed.
///
/// Prints each change as it happens. A scheduled reservation is followed through its start, and one that is
/// ending until it is closed.
/// Exit status: 0 it became active, or closed as requested; 1 it ended otherwise.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker watch rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --until closed")]
pub(in crate::cli) struct WatchArgs {
    /// The reservation: its id, or the start of the id.
    #[arg(value_name = "ID", value_parser = parse_reservation)]
    id: String,
    /// The state to wait for; by default, whichever comes first.
    #[arg(long, value_enum)]
    until: Option<Until>,
    #[command(flatten)]
    service: ServiceArgs,
}

/// The state that a watch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Until {
    /// It was handed off.
    Active,
    /// It is over, and every provider has reported its machines gone.
    Closed,
}

pub(super) async fn run(args: WatchArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let id = find(&session.api, &args.id).await?;
    follow(session, id, args.until).await
}

/// Follows a reservation and ends with its result.
pub(super) async fn follow(
    mut session: Session,
    id: ReservationId,
    until: Option<Until>,
) -> Result<(), Ending> {
    // The bottom line of the terminal belongs to the watch.
    session.api.hush();
    let bar = progress_bar();
    let followed = look_until_it_ends(&session, id, until, &bar).await;
    bar.finish_and_clear();
    let (last, charged, ended) = followed?;
    session.show(&last, |reservation| {
        let mut lines = show::summary(reservation);
        lines.push(("charged", charged));
        print_sheet(&lines)?;
        if ended.is_ok() && reservation["state"] == "active" {
            print_next(&format!("broker access {id}"))?;
        }
        Ok(())
    })?;
    ended.map_err(Ending::No)
}

/// How a watch ended: done, or why not.
type Verdict = Result<(), String>;

async fn look_until_it_ends(
    session: &Session,
    id: ReservationId,
    until: Option<Until>,
    bar: &ProgressBar,
) -> Result<(Document, String, Verdict), Ending> {
    let mut nudges = Nudges::of(&session.api, id).await;
    let mut told = Printed::default();
    let mut charges = Charges::default();
    loop {
        let now = look(&session.api, id).await?;
        let mut news = told.news(&now.value);
        let events = nudges.events();
        news.extend(events.iter().filter_map(|event| told.announced(event)));
        if session.is_for_people() {
            bar.suspend(|| news.iter().try_for_each(|line| print_line(line)))?;
        }
        let ended = verdict(&now.value, until);
        let charged = charges.of(&session.api, &now.value, ended.is_some()).await;
        if let Some(ended) = ended {
            return Ok((now, charged, ended));
        }
        let (done, all) = progress(&now.value);
        bar.set_length(all);
        bar.set_position(done);
        bar.set_message(told.in_one_line(&now.value, &charged));
        nudges.next().await;
    }
}

/// Reads the reservation; waits if the service is unavailable for a while.
async fn look(api: &Api, id: ReservationId) -> Result<Document, CallError> {
    let started = Instant::now();
    loop {
        match api.send(Route::ShowReservation.of(&id)).await {
            Err(CallError::Unreachable { .. } | CallError::Broken { .. })
                if started.elapsed() < PATIENCE => {}
            looked => return looked,
        }
    }
}

/// The result of the watch in this state of the reservation; `None` while it continues.
fn verdict(it: &Value, until: Option<Until>) -> Option<Verdict> {
    match it["state"].as_str()? {
        "active" => {
            let waits_for_more =
                until == Some(Until::Closed) || (until.is_none() && it["wish"].is_string());
            (!waits_for_more).then_some(Ok(()))
        }
        "closed" => {
            let wished = match it["reason"].as_str() {
                _ if it["stopped_by"].is_string() => false,
                Some("released" | "cancelled") => true,
                Some("window_ended") => it["active_at"].is_string(),
                _ => false,
            };
            if wished && until != Some(Until::Active) {
                return Some(Ok(()));
            }
            let reason = words(it, "/reason");
            Some(Err(format!(
                "the reservation is closed ({reason}); `broker show {}` shows its history",
                text(it, "/id")
            )))
        }
        _ => None,
    }
}

/// What was printed already.
#[derive(Debug, Default)]
struct Printed {
    moments: BTreeSet<String>,
    state: String,
    since: Option<Instant>,
    leases: BTreeMap<String, String>,
    /// Leases whose failure was printed.
    fallen: BTreeSet<String>,
}

impl Printed {
    /// The new lines: first the dated history, then the current states.
    fn news(&mut self, it: &Value) -> Vec<String> {
        let (mut news, colours) = (Vec::new(), Colours::of_stdout());
        for entry in items(it, "history") {
            if self.moments.insert(entry.to_string()) {
                let why = self.why_it_fell(it, entry);
                news.push(line(time(entry, "/at"), &(happened(it, entry) + &why)));
            }
        }
        let now = state(it);
        if self.state != now {
            if !is_dated(it["state"].as_str()) {
                let mut words = colours.state(&now);
                if it["state"] == "scheduled"
                    && let Some(starts_at) = start::ahead(it)
                {
                    words += &format!(", starts at {}", second(starts_at));
                }
                news.push(line(None, &words));
            }
            self.state = now;
            self.since = Some(Instant::now());
        }
        for lease in items(it, "leases") {
            let standing = words(lease, "/state");
            let before = self.leases.insert(text(lease, "/id"), standing.clone());
            if before.as_ref() == Some(&standing) || is_dated(lease["state"].as_str()) {
                continue;
            }
            let why = self.fall_of(lease);
            let standing = colours.state(&standing);
            news.push(line(None, &format!("{} {standing}{why}", named(lease))));
        }
        news
    }

    /// The line of an event that no read shows, the first time that it is read; `None` for other events.
    fn announced(&mut self, event: &Value) -> Option<String> {
        let words = start::announcement(event)?;
        let is_new = self.moments.insert(text(event, "/id"));
        is_new.then(|| line(time(event, "/timestamp"), &words))
    }

    /// The failure of a lease that the history reports gone: it may have failed between two reads.
    fn why_it_fell(&mut self, it: &Value, entry: &Value) -> String {
        if entry["what"] != "gone" {
            return String::new();
        }
        let mut leases = items(it, "leases").iter();
        let lease = leases.find(|lease| lease["id"] == entry["lease_id"]);
        lease.map_or_else(String::new, |lease| self.fall_of(lease))
    }

    /// The failure of a lease, the first time that it is read.
    fn fall_of(&mut self, lease: &Value) -> String {
        let note = text(lease, "/fall_note");
        if note.is_empty() || !self.fallen.insert(text(lease, "/id")) {
            return String::new();
        }
        format!(": {note}")
    }

    /// Everything in one line: the state and its duration, the start, the leases, the charges.
    fn in_one_line(&self, it: &Value, charged: &str) -> String {
        let elapsed = self.since.map_or(0, |since| since.elapsed().as_secs());
        let elapsed =
            chrono::TimeDelta::seconds(i64::try_from(elapsed).unwrap_or(i64::MAX / 1_000));
        let mut parts = vec![format!("{} for {}", self.state, span(elapsed))];
        if let Some(starts_at) = start::ahead(it) {
            let now = SystemClock.now();
            let words = match starts_at > now {
                true => "starts",
                false => "start due",
            };
            parts.push(format!("{words} {}", age(Some(starts_at), now)));
        }
        let standing = items(it, "leases").iter().filter(|lease| stands(lease));
        parts.extend(standing.map(|lease| format!("{} {}", named(lease), words(lease, "/state"))));
        if !charged.is_empty() {
            parts.push(format!("charged {charged}"));
        }
        parts.join("  |  ")
    }
}

/// Whether a lease belongs to the reservation and is not replaced or gone.
fn stands(lease: &Value) -> bool {
    lease["replaced_by"].is_null() && lease["state"] != "gone"
}

/// The progress, done and total: in steps of every node from the order to the hand-off, or in nodes to
/// release.
fn progress(it: &Value) -> (u64, u64) {
    const STEPS: [&str; 5] = ["requested", "booting", "verifying", "passed", "handed_off"];
    let leases = items(it, "leases").iter();
    let nodes = |lease: &Value| lease["nodes"].as_u64().unwrap_or_default();
    let mut sums = (0, 0);
    if it["state"] == "releasing" {
        for lease in leases {
            let gone = if lease["state"] == "gone" {
                nodes(lease)
            } else {
                0
            };
            sums = (sums.0 + gone, sums.1 + nodes(lease));
        }
    } else {
        for lease in leases.filter(|lease| stands(lease)) {
            let step = STEPS.iter().position(|step| lease["state"] == *step);
            let step = u64::try_from(step.unwrap_or_default()).unwrap_or_default();
            let last = STEPS.len() as u64 - 1;
            sums = (sums.0 + nodes(lease) * step, sums.1 + nodes(lease) * last);
        }
    }
    // Before any order, all of it remains.
    (sums.0, sums.1.max(1))
}

/// Whether the history dates this state.
fn is_dated(state: Option<&str>) -> bool {
    matches!(
        state,
        Some(
            "held"
                | "confirmed"
                | "active"
                | "closed"
                | "requested"
                | "booting"
                | "handed_off"
                | "gone"
        )
    )
}

/// One event: wrapped to the width of a terminal, else in one line.
fn line(at: Option<DateTime<Utc>>, what: &str) -> String {
    let at = at.map_or_else(String::new, |at| at.format("%H:%M:%S").to_string());
    let at = format!("{at:<8}  ");
    match columns() {
        Some(_) => hanging(&at, what),
        None => at + what,
    }
}

/// An entry of the history in words.
fn happened(it: &Value, entry: &Value) -> String {
    let (what, colours) = (words(entry, "/what"), Colours::of_stdout());
    match entry["lease_id"].as_str() {
        Some(id) => {
            let lease = items(it, "leases").iter().find(|lease| lease["id"] == id);
            let what = colours.state(&what);
            format!("{} {what}", lease.map_or_else(|| clean(id), named))
        }
        None if what == "closed" => colours.state(&state(it)),
        None => colours.state(&what),
    }
}

/// A short description of a lease: "2 nodes at lambda".
fn named(lease: &Value) -> String {
    let plural = if lease["nodes"] == 1 { "" } else { "s" };
    format!(
        "{} node{plural} at {}",
        text(lease, "/nodes"),
        text(lease, "/provider")
    )
}

/// The charges so far, read from time to time; after a refusal they are not read again.
#[derive(Debug, Default)]
struct Charges {
    last: String,
    asked: Option<Instant>,
    is_refused: bool,
}

impl Charges {
    async fn of(&mut self, api: &Api, it: &Value, at_the_end: bool) -> String {
        let due = self
            .asked
            .is_none_or(|asked| asked.elapsed() >= CHARGES_EVERY);
        if it["active_at"].is_string() && !self.is_refused && (due || at_the_end) {
            self.asked = Some(Instant::now());
            let call = Call::from(Route::CostReport.all()).query([
                ("group_by", Some("reservation".to_owned())),
                ("from", it["created_at"].as_str().map(str::to_owned)),
            ]);
            match api.send(call).await {
                Ok(report) => self.last = charged(&report.value, &text(it, "/id")),
                Err(_) => self.is_refused = true,
            }
        }
        self.last.clone()
    }
}

fn charged(report: &Value, id: &str) -> String {
    let mut rows = items(report, "rows").iter();
    let row = rows.find(|row| row["group"][0]["value"] == id);
    row.map_or_else(
        || "0.00 USD".to_owned(),
        |row| format!("{} USD", sum(row, "/amount_usd")),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_watch_ends_well_when_it_ended_as_was_wished() {
        let active = json!({ "state": "active", "wish": null });
        let ending = json!({ "state": "active", "wish": "release" });
        let closed = |reason: &str, active_at: Value| json!({ "id": "rsv_1", "state": "closed", "reason": reason, "active_at": active_at });
        let ok = |it: &Value, until| verdict(it, until).map(|ended| ended.is_ok());
        assert_eq!(ok(&json!({ "state": "provisioning" }), None), None);
        assert_eq!(
            ok(&json!({ "state": "scheduled" }), Some(Until::Active)),
            None
        );
        assert_eq!(ok(&active, None), Some(true));
        assert_eq!(ok(&active, Some(Until::Closed)), None);
        assert_eq!(ok(&ending, None), None, "it is followed to its end");
        assert_eq!(ok(&ending, Some(Until::Active)), Some(true));
        let at = json!("2026-11-21T13:00:00Z");
        for (reason, active_at, wished) in [
            ("released", at.clone(), true),
            ("cancelled", Value::Null, true),
            ("window_ended", at, true),
            ("window_ended", Value::Null, false),
            ("expired", Value::Null, false),
            ("no_capacity", Value::Null, false),
            ("repair_impossible", Value::Null, false),
        ] {
            let it = closed(reason, active_at);
            assert_eq!(ok(&it, None), Some(wished), "{reason}");
            assert_eq!(ok(&it, Some(Until::Closed)), Some(wished), "{reason}");
            assert_eq!(ok(&it, Some(Until::Active)), Some(false), "{reason}");
        }
    }

    #[test]
    fn each_thing_that_happens_is_told_once() {
        let moment = |what: &str, lease: Option<&str>| json!({ "at": "2026-11-21T13:00:00Z", "what": what, "lease_id": lease });
        let lease = |state: &str, note: Option<&str>| json!({ "id": "lse_1", "provider": "lambda", "nodes": 2, "state": state, "fall_note": note });
        let mut told = Printed::default();
        let held = json!({ "state": "held", "history": [moment("held", None)] });
        assert_eq!(told.news(&held), ["13:00:00  held"]);
        assert!(told.news(&held).is_empty());
        let verifying = json!({
            "state": "provisioning", "leases": [lease("verifying", None)],
            "history": [moment("held", None), moment("accepted", Some("lse_1"))],
        });
        assert_eq!(
            told.news(&verifying),
            [
                "13:00:00  2 nodes at lambda accepted",
                "          provisioning",
                "          2 nodes at lambda verifying"
            ]
        );
        let fallen =
            json!({ "state": "replacing", "leases": [lease("releasing", Some("too slow"))] });
        assert_eq!(
            told.news(&fallen),
            [
                "          replacing",
                "          2 nodes at lambda releasing: too slow"
            ]
        );
        let gone = |lease: Value| {
            json!({
                "state": "replacing", "leases": [lease], "history": [moment("gone", Some("lse_1"))],
            })
        };
        let lost = gone(lease("gone", Some("too slow")));
        assert_eq!(told.news(&lost), ["13:00:00  2 nodes at lambda gone"]);
        // It failed and was released between two reads.
        assert_eq!(
            Printed::default().news(&lost),
            [
                "13:00:00  2 nodes at lambda gone: too slow",
                "          replacing"
            ]
        );
        assert!(
            told.in_one_line(&fallen, "1.00 USD")
                .starts_with("replacing for 0 s  |  2 nodes")
        );
    }

    #[test]
    fn a_later_start_is_shown_while_it_is_waited_for() {
        let mut told = Printed::default();
        let scheduled = json!({ "state": "scheduled", "starts_at": "2126-12-24T18:00:00Z" });
        let state = "          scheduled, starts at 2126-12-24 18:00:00 UTC";
        assert_eq!(told.news(&scheduled), [state]);
        assert!(told.news(&scheduled).is_empty());
        let bar = told.in_one_line(&scheduled, "");
        assert!(bar.starts_with("scheduled for 0 s  |  starts in "), "{bar}");
        let due = json!({ "state": "scheduled", "starts_at": "2020-12-24T18:00:00Z" });
        let bar = told.in_one_line(&due, "");
        assert!(
            bar.contains("  |  start due ") && bar.ends_with(" ago"),
            "{bar}"
        );
        let soon = json!({
            "id": "evt_1", "type": "reservation.starts_soon", "timestamp": "2126-12-24T17:00:00Z",
            "data": { "at": "2126-12-24T18:00:00Z", "minutes_left": 60 },
        });
        assert_eq!(
            told.announced(&soon).as_deref(),
            Some("17:00:00  starts in 60 min, at 2126-12-24 18:00:00 UTC")
        );
        assert_eq!(told.announced(&soon), None);
    }

    #[test]
    fn the_bar_fills_with_the_steps_of_the_nodes_that_stand_and_then_with_those_that_are_gone() {
        let lease = |nodes: u32, state: &str| json!({ "nodes": nodes, "state": state });
        let replaced = json!({ "nodes": 9, "state": "gone", "replaced_by": "lse_2" });
        let of =
            |state: &str, leases: &[Value]| progress(&json!({ "state": state, "leases": leases }));
        assert_eq!(of("held", &[]), (0, 1));
        let ordered = [lease(2, "requested"), lease(1, "verifying"), replaced];
        assert_eq!(of("provisioning", &ordered), (2, 12));
        assert_eq!(of("active", &[lease(3, "handed_off")]), (12, 12));
        let ending = [lease(2, "gone"), lease(1, "releasing")];
        assert_eq!(of("releasing", &ending), (2, 3));
    }

    #[test]
    fn the_charges_of_a_reservation_are_read_from_its_row() {
        let row = json!({ "group": [{ "value": "rsv_1" }], "amount_usd": "12.345" });
        let report = json!({ "rows": [row] });
        assert_eq!(charged(&report, "rsv_1"), "12.34 USD");
        assert_eq!(charged(&report, "rsv_2"), "0.00 USD");
    }
}
