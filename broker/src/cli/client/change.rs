//! `broker confirm`, `cancel`, `release` and `extend`: they change the state of a reservation.

use std::num::NonZeroU32;

use chrono::{DateTime, TimeDelta, Utc};
use clap::Args;
use serde_json::{Value, json};

use super::api::{Call, Document, OnceArgs};
use super::connection::ServiceArgs;
use super::reservations::{find, parse_reservation};
use super::route::Route;
use super::sheet::{one_or_several, print_sheet, text, time};
use super::{show, watch};
use crate::cli::client::argument::hours;
use crate::cli::client::session::Session;
use crate::terminal::ending::Ending;
use crate::terminal::text::print_next;

/// The reservation, and the service that has it.
#[derive(Debug, Args)]
struct ChangeArgs {
    /// The reservation: its id, or the start of the id.
    #[arg(value_name = "ID", value_parser = parse_reservation)]
    id: String,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Confirms holds, all of them or none; billing starts at the hand-off.
///
/// A later start is scheduled by it, and ordered in time.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker confirm rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718\n  broker confirm rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 rsv_019a3f0e1c7b7d40b2a1c3d4e5f60719"
)]
pub(in crate::cli) struct ConfirmArgs {
    /// The reservations, 1 to 10: their ids, or the starts of the ids.
    #[arg(value_name = "ID", required = true, num_args = 1..=10, value_parser = parse_reservation)]
    ids: Vec<String>,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Cancels a reservation before the hand-off, free of charge.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker cancel rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718")]
pub(in crate::cli) struct CancelArgs {
    #[command(flatten)]
    change: ChangeArgs,
}

/// Releases a reservation in use. Its use is charged up to this moment and no further.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker release rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --watch")]
pub(in crate::cli) struct ReleaseArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// Follows the reservation until it is closed.
    #[arg(long)]
    watch: bool,
}

/// Extends an active reservation, at the same rate.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker extend rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --hours 12")]
pub(in crate::cli) struct ExtendArgs {
    #[command(flatten)]
    change: ChangeArgs,
    /// Adds this many hours to the current end.
    #[arg(
        long,
        value_name = "N",
        required_unless_present = "until",
        conflicts_with = "until",
        value_parser = hours
    )]
    hours: Option<NonZeroU32>,
    /// Sets the end to this time, such as 2026-12-24T18:00:00Z.
    #[arg(long, value_name = "TIME")]
    until: Option<DateTime<Utc>>,
}

pub(super) async fn confirm(args: ConfirmArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let mut ids = Vec::new();
    for named in &args.ids {
        ids.push(find(&session.api, named).await?);
    }
    let call = match &ids[..] {
        [one] => Call::from(Route::ConfirmReservation.of(one)),
        several => Call::from(Route::ConfirmReservations.all()).body(json!({ "ids": several })),
    };
    let confirmed = session.api.send(call.once(args.once.key())).await?;
    session.show(&confirmed, |confirmed| {
        let all = one_or_several(confirmed, "reservations");
        show::print_summaries(all)?;
        Ok(print_next(&show::watch_of(all))?)
    })
}

pub(super) async fn cancel(args: CancelArgs) -> Result<(), Ending> {
    change(args.change, Route::CancelReservation, follow_unless_closed).await
}

pub(super) async fn release(args: ReleaseArgs) -> Result<(), Ending> {
    if !args.watch {
        return change(args.change, Route::ReleaseReservation, follow_unless_closed).await;
    }
    let session = Session::open(&args.change.service)?;
    let released = move_on(&session, &args.change, Route::ReleaseReservation).await?;
    let id = text(&released.value, "/id").parse()?;
    watch::follow(session, id, Some(watch::Until::Closed)).await
}

fn follow_unless_closed(reservation: &Value, id: &str) -> Option<String> {
    (reservation["state"] != "closed").then(|| format!("broker watch {id}"))
}

async fn change(
    args: ChangeArgs,
    route: Route,
    next: impl FnOnce(&Value, &str) -> Option<String>,
) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let changed = move_on(&session, &args, route).await?;
    shown(&session, &changed, next)
}

async fn move_on(session: &Session, args: &ChangeArgs, route: Route) -> Result<Document, Ending> {
    let id = find(&session.api, &args.id).await?;
    let call = Call::from(route.of(&id)).once(args.once.key());
    Ok(session.api.send(call).await?)
}

fn shown(
    session: &Session,
    changed: &Document,
    next: impl FnOnce(&Value, &str) -> Option<String>,
) -> Result<(), Ending> {
    session.show(changed, |reservation| {
        print_sheet(&show::summary(reservation))?;
        if let Some(next) = next(reservation, &text(reservation, "/id")) {
            print_next(&next)?;
        }
        Ok(())
    })
}

pub(super) async fn extend(args: ExtendArgs) -> Result<(), Ending> {
    let session = Session::open(&args.change.service)?;
    let id = find(&session.api, &args.change.id).await?;
    let end = match (args.until, args.hours) {
        (Some(end), _) => end,
        (None, hours) => {
            let now = session
                .api
                .send(Route::ShowReservation.of(&id))
                .await?
                .value;
            let Some(end) = time(&now, "/window_end") else {
                return Err(Ending::No(
                    "it has no fixed end; it lasts until you release it".to_owned(),
                ));
            };
            later(end, hours)?
        }
    };
    let call = Call::from(Route::ExtendReservation.of(&id))
        .body(json!({ "end": end }))
        .once(args.change.once.key());
    let changed = session.api.send(call).await?;
    shown(&session, &changed, |_, _| None)
}

fn later(end: DateTime<Utc>, hours: Option<NonZeroU32>) -> Result<DateTime<Utc>, Ending> {
    let hours = hours.map_or(0, |hours| i64::from(hours.get()));
    end.checked_add_signed(TimeDelta::hours(hours))
        .ok_or_else(|| Ending::wrong_input("so many hours pass the end of the calendar"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        confirm: ConfirmArgs,
    }

    #[test]
    fn so_many_holds_are_confirmed_at_once_and_no_more() {
        let parsed = |holds: usize| {
            let ids = (0..holds).map(|at| format!("rsv_019{at}"));
            let line = Line::try_parse_from(["test".to_owned()].into_iter().chain(ids));
            line.map(|line| line.confirm.ids.len()).ok()
        };
        for (holds, found) in [
            (0, None),
            (1, Some(1)),
            (2, Some(2)),
            (10, Some(10)),
            (11, None),
        ] {
            assert_eq!(parsed(holds), found, "{holds}");
        }
    }
}
