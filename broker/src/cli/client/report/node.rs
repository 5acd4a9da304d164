//! `broker report node`: a node in use that fails.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::client::api::{Call, OnceArgs};
use crate::cli::client::connection::ServiceArgs;
use crate::cli::client::reservations::{find, parse_reservation};
use crate::cli::client::route::Route;
use crate::cli::client::session::Session;
use crate::cli::client::sheet::{cell, items, print_sheet, text};
use crate::cli::input::read_text;
use crate::terminal::ending::Ending;
use crate::terminal::text::{clean, print_next, print_text};

/// Reports a node in use. If the result shows a failure, its machine is replaced.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("said").required(true).multiple(true).args(["file", "reason"]),
    after_help = "On the node: ./verifier run --json > result.json\nExample: broker report node rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 3 --file result.json"
)]
pub(in crate::cli) struct NodeArgs {
    /// The reservation: its id, or the start of the id.
    #[arg(value_name = "RESERVATION", value_parser = parse_reservation)]
    id: String,
    /// The node's number, as `broker access` shows it.
    #[arg(value_name = "NODE")]
    node: u32,
    /// The output of `verifier run --json` on the node; `-` reads it from standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The fault, in words.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: NodeArgs) -> Result<(), Ending> {
    let mut body = Map::new();
    if let Some(file) = &args.file {
        let result: Value =
            serde_json::from_str(&read_text("the result", file)?).map_err(|error| {
                Ending::wrong_input(format!(
                    "{} is no JSON: {error}; give what `verifier run --json` printed",
                    file.display()
                ))
            })?;
        if result.get("jws").is_some() {
            return Err(Ending::wrong_input(format!(
                "{} is a signed result of the service's own, which needs no report; give what `verifier run \
                 --json` printed on the node",
                file.display()
            )));
        }
        body.insert("result".to_owned(), result);
    }
    if let Some(reason) = &args.reason {
        body.insert("reason".to_owned(), json!(reason));
    }
    let session = Session::open(&args.service)?;
    let id = find(&session.api, &args.id).await?;
    let call = Call::from(Route::ReportNode.of(&id).node(args.node))
        .body(Value::Object(body))
        .once(args.once.key());
    let kept = session.api.send(call).await?;
    session.show(&kept, |report| {
        print_sheet(&[
            ("report", text(report, "/id")),
            ("node", cell(report, "/node")),
            ("lease", text(report, "/lease_id")),
            ("verdict", text(report, "/verdict")),
            ("failed", words(report, "failed")),
            ("missing GPUs", words(report, "missing_gpus")),
            ("foreign GPUs", words(report, "foreign_gpus")),
        ])?;
        let follows = text(report, "/follows");
        print_text(&in_words(&follows, args.file.is_some()))?;
        if let Some(next) = next(&follows) {
            print_next(&format!("broker {next} {id}"))?;
        }
        Ok(())
    })
}

/// The texts of a list, in one line.
fn words(report: &Value, list: &str) -> String {
    let words = items(report, list).iter().filter_map(Value::as_str);
    words.map(clean).collect::<Vec<_>>().join(", ")
}

/// The next command, if there is one.
fn next(follows: &str) -> Option<&'static str> {
    match follows {
        "repair" => Some("watch"),
        "gang" => Some("release"),
        _ => None,
    }
}

/// The consequence, in words. `attached` is true if a result came with the report.
fn in_words(follows: &str, attached: bool) -> String {
    match follows {
        "repair" => "Its machine is given up and replaced.".to_owned(),
        "nothing_failed" if attached => {
            "Recorded; no action, because its result shows no failure.".to_owned()
        }
        "nothing_failed" => "Recorded; no action, because it shows no failure. Run `verifier run \
                             --json` on the node and report its output with --file."
            .to_owned(),
        "gang" => "Recorded; no action: the nodes of a gang are not replaced one by one. Release \
                   it, and reserve again."
            .to_owned(),
        "already" => "Recorded; its machine is being replaced after an earlier report.".to_owned(),
        "too_often" => "Recorded; no action: reports have replaced as many machines as allowed \
                        within a day. Ask the operator of the service."
            .to_owned(),
        other => format!("Recorded: {other}."),
    }
}

#[cfg(test)]
mod tests {
    use store::node_reports::Follows;

    use super::*;

    #[test]
    fn all_that_can_follow_is_said_in_words() {
        for follows in Follows::ALL {
            let word = serde_json::to_value(follows).expect("a word");
            let words = in_words(word.as_str().expect("a text"), false);
            assert_ne!(
                words,
                format!("Recorded: {}.", word.as_str().expect("a text"))
            );
        }
    }
}
