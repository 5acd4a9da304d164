//! `broker recheck`: the script that rechecks a node in use.

use clap::Args;
use serde_json::json;

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::reservations::{find, parse_reservation};
use super::route::Route;
use super::sheet::{cell, text};
use crate::cli::client::session::Session;
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;
use crate::terminal::text::{print_answer, print_line};

/// Prints a script that rechecks a node in use, once or on a timer. It holds a token for this purpose
/// alone; the token of the previous call becomes invalid.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: (umask 077; broker recheck rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 3 > recheck.sh)\nOn the node: install -m 0700 recheck.sh /usr/local/sbin/recheck && recheck"
)]
pub(in crate::cli) struct RecheckArgs {
    /// The reservation: its id, or the start of the id.
    #[arg(value_name = "RESERVATION", value_parser = parse_reservation)]
    id: String,
    /// The node's number, as `broker access` shows it.
    #[arg(value_name = "NODE")]
    node: u32,
    /// Revokes the token of an earlier call, and issues no new one.
    #[arg(long)]
    stop: bool,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: RecheckArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let id = find(&session.api, &args.id).await?;
    let route = match args.stop {
        true => Route::StopRechecks,
        false => Route::RecheckNode,
    };
    let call = Call::from(route.of(&id).node(args.node)).once(args.once.key());
    if args.stop {
        session.api.text(call).await?;
        let node = args.node;
        let told = match session.json {
            true => json!({ "reservation_id": id.to_string(), "node": node, "stopped": true })
                .to_string(),
            false => format!("Node {node} is not rechecked any more: its script is invalid."),
        };
        return Ok(print_answer(&told, session.json)?);
    }
    let permitted = session.api.send(call).await?;
    session.show(&permitted, |permit| {
        let Some(script) = permit["script"].as_str() else {
            let again = "the script is shown only once; call again for a new one";
            return Err(Ending::No(again.to_owned()));
        };
        let (until, every) = (
            text(permit, "/expires_at"),
            cell(permit, "/every_seconds"),
        );
        note(&format!(
            "run it on node {}, at most every {every} seconds; it is valid until the node is released, \
             at most until {until}",
            args.node
        ));
        Ok(print_line(script.trim_end())?)
    })
}
