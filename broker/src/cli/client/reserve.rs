//! `broker reserve`: from a quote, from the two of a pair, or directly from a demand.

use clap::Args;
use market::ids::{ProjectId, QuoteId, ReservationId, SshKeyId};
use market::tags::{Tags, check_tags};
use serde_json::{Map, Value, json};

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::demand::DemandArgs;
use super::reservations::{find, parse_reservation};
use super::route::Route;
use super::sheet::{one_or_several, text};
use super::start::{self, PriceOf};
use super::{show, watch};
use crate::cli::client::session::Session;
use crate::terminal::ending::Ending;
use crate::terminal::text::{print_line, print_next, print_text};

/// Holds capacity: from a quote, or directly from a demand.
///
/// A hold is free of charge until it lapses. `--yes` confirms at once, and billing starts at the
/// hand-off. A later start sets nothing aside: once confirmed, it is scheduled, and ordered in time. The two
/// quotes of a pair, or a hybrid demand, reserve a run and the fleet that starts after it.
/// The tenant's SSH keys are installed on the machines: add one first.
/// Exit status: 0 reserved, 1 not (no candidate, or capacity taken meanwhile), 2 wrong input.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker reserve --quote quo_019a3f0e1c7b7d40b2a1c3d4e5f60718\n  broker reserve --gpu H100-SXM --count 8 --nodes 2 --fabric rdma --hours 24 --max-usd-per-gpu-hour 3.50 --yes --watch\n  broker reserve --gpu H100-SXM --count 8 --start 2026-12-24T18:00:00Z --follows rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718"
)]
pub(in crate::cli) struct ReserveArgs {
    /// The quote to use; given twice, the two quotes of a pair.
    #[arg(long, value_name = "ID", required_unless_present_any = ["demand", "gpu"], conflicts_with_all = ["demand", "gpu", "start", "start_latest"])]
    quote: Vec<QuoteId>,
    /// The reservation after which it starts: its id, or the start of the id. The fleet of a pair follows
    /// its run without it.
    #[arg(long, value_name = "ID", value_parser = parse_reservation)]
    follows: Option<String>,
    #[command(flatten)]
    demand: DemandArgs,
    #[command(flatten)]
    labels: LabelArgs,
    /// Confirms at once; billing starts at the hand-off.
    #[arg(long, visible_alias = "auto-confirm")]
    yes: bool,
    /// Follows the reservation until it is active; of a pair, the run.
    #[arg(long, requires = "yes")]
    watch: bool,
    /// Prints the id of each reservation on a line of its own, and nothing else.
    #[arg(long, short, conflicts_with = "json")]
    quiet: bool,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// The labels of a reservation, and who pays for it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Labels")]
struct LabelArgs {
    /// A name for the reservation.
    #[arg(long)]
    name: Option<String>,
    /// A tag for reports; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_tag)]
    tag: Vec<(String, String)>,
    /// The project of the reservation; by default, the tenant's first.
    #[arg(long, value_name = "ID")]
    project: Option<ProjectId>,
    /// An SSH key to install on its machines; may be repeated; by default, all of the tenant's.
    #[arg(long, value_name = "ID")]
    ssh_key: Vec<SshKeyId>,
    /// The person responsible for the spending.
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// The cost centre that pays.
    #[arg(long, value_name = "NAME")]
    cost_centre: Option<String>,
    /// The environment: `production`, `research`, or any other text.
    #[arg(long, value_name = "NAME")]
    environment: Option<String>,
    /// The purchase order that it belongs to.
    #[arg(long, value_name = "NUMBER")]
    purchase_order: Option<String>,
}

fn parse_tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text
        .split_once('=')
        .ok_or("must be KEY=VALUE, such as team=research")?;
    let tag = (key.to_owned(), value.to_owned());
    check_tags(&Tags::from([tag.clone()])).map_err(|error| error.to_string())?;
    Ok(tag)
}

pub(super) async fn run(args: ReserveArgs) -> Result<(), Ending> {
    let mut body = args.body()?;
    let mut session = Session::open(&args.service)?;
    if let Some(named) = &args.follows {
        body["follows"] = json!(find(&session.api, named).await?);
    }
    let call = Call::from(Route::PlaceReservation.all())
        .body(body)
        .once(args.once.key());
    let placed = session.api.send(call).await?;
    let all = one_or_several(&placed.value, "reservations");
    let ids = all.iter().map(|one| text(one, "/id").parse());
    let ids: Vec<ReservationId> = ids.collect::<Result<_, _>>()?;
    if args.quiet {
        session.is_silent = true;
        ids.iter().try_for_each(|id| print_line(&id.to_string()))?;
    }
    let first = ids.first().filter(|_| args.watch);
    let Some(first) = first else {
        return session.show(&placed, print_placed);
    };
    if session.is_for_people() {
        show::print_summaries(all)?;
    }
    watch::follow(session, *first, Some(watch::Until::Active)).await
}

impl ReserveArgs {
    /// The body of the call, without the reservation to follow.
    fn body(&self) -> Result<Value, Ending> {
        let mut body = Map::new();
        match &self.quote[..] {
            [] => {
                body.insert("demand".into(), self.demand.read()?);
            }
            [quote] => {
                body.insert("quote_id".into(), json!(quote));
            }
            [run, fleet] => {
                if self.follows.is_some() {
                    return Err(Ending::wrong_input(
                        "the fleet of a pair follows its run; leave out --follows",
                    ));
                }
                body.insert("quotes".into(), json!([run, fleet]));
            }
            _ => {
                return Err(Ending::wrong_input(
                    "give --quote once, or twice for the two quotes of a pair",
                ));
            }
        }
        let of_quote = self.demand.ceiling().filter(|_| !self.quote.is_empty());
        if let Some(ceiling) = of_quote {
            body.insert("ceiling".into(), serde_json::to_value(ceiling)?);
        }
        if self.yes {
            body.insert("auto_confirm".into(), json!(true));
        }
        self.labels.write(&mut body);
        Ok(Value::Object(body))
    }
}

impl LabelArgs {
    fn write(&self, body: &mut Map<String, Value>) {
        let attribution: Map<String, Value> = [
            ("owner", &self.owner),
            ("cost_centre", &self.cost_centre),
            ("environment", &self.environment),
            ("purchase_order", &self.purchase_order),
        ]
        .into_iter()
        .filter_map(|(field, value)| Some((field.to_owned(), json!(value.as_ref()?))))
        .collect();
        let tags: Tags = self.tag.iter().cloned().collect();
        let fields = [
            ("name", self.name.is_some(), json!(self.name)),
            ("project_id", self.project.is_some(), json!(self.project)),
            ("ssh_key_ids", !self.ssh_key.is_empty(), json!(self.ssh_key)),
            ("tags", !tags.is_empty(), json!(tags)),
            (
                "attribution",
                !attribution.is_empty(),
                Value::Object(attribution),
            ),
        ];
        let said = fields.into_iter().filter(|(_, is_said, _)| *is_said);
        body.extend(said.map(|(field, _, value)| (field.to_owned(), value)));
    }
}

fn print_placed(placed: &Value) -> Result<(), Ending> {
    let all = one_or_several(placed, "reservations");
    show::print_summaries(all)?;
    for one in all {
        if let Some(warning) = start::below_price(one, PriceOf::TheQuote) {
            print_text(&warning)?;
        }
    }
    Ok(print_next(&next_of(all))?)
}

/// The next command: to confirm what is held, else to follow the first.
fn next_of(all: &[Value]) -> String {
    let held = all.iter().filter(|one| one["state"] == "held");
    let held: Vec<String> = held.map(|one| text(one, "/id")).collect();
    match held.is_empty() {
        true => show::watch_of(all),
        false => format!("broker confirm {}", held.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        reserve: ReserveArgs,
    }

    fn body(line: &str) -> Result<Value, String> {
        let words = ["test"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        line.reserve.body().map_err(|ending| format!("{ending:?}"))
    }

    const QUOTE: &str = "quo_019a3f0e1c7b7d40b2a1c3d4e5f60718";
    const FLEET: &str = "quo_019a3f0e1c7b7d40b2a1c3d4e5f60719";

    #[test]
    fn the_body_holds_what_was_said_and_nothing_else() {
        assert_eq!(
            body(&format!("--quote {QUOTE}")),
            Ok(json!({ "quote_id": QUOTE }))
        );
        let full = format!(
            "--quote {QUOTE} --yes --name run --tag team=research --tag empty= --owner ada \
             --max-usd-per-hour 20"
        );
        assert_eq!(
            body(&full),
            Ok(json!({
                "quote_id": QUOTE, "auto_confirm": true, "name": "run",
                "tags": { "team": "research", "empty": "" },
                "attribution": { "owner": "ada" },
                "ceiling": { "usd_per_hour": "20.00" },
            }))
        );
        assert_eq!(
            body(&format!("--quote {QUOTE} --quote {FLEET}")),
            Ok(json!({ "quotes": [QUOTE, FLEET] }))
        );
        let in_one_call = body("--gpu H100-SXM --count 8 --auto-confirm").expect("a body");
        assert_eq!(in_one_call["demand"]["count"], 8);
        assert_eq!(in_one_call["auto_confirm"], true);
    }

    #[test]
    fn neither_both_nor_none_of_quote_and_demand_is_taken() {
        for bad in [
            String::new(),
            format!("--quote {QUOTE} --gpu H100"),
            format!("--quote {QUOTE} --watch"),
            format!("--quote {QUOTE} --tag plain"),
            format!("--quote {QUOTE} --tag a!b=c"),
            format!("--quote {QUOTE} --project p"),
            format!("--quote {QUOTE} --quote {FLEET} --quote {QUOTE}"),
            format!("--quote {QUOTE} --quote {FLEET} --follows rsv_019a"),
            format!("--quote {QUOTE} --follows {FLEET}"),
            format!("--quote {QUOTE} --start 2026-12-24T18:00:00Z"),
            "--quote quo_short".to_owned(),
        ] {
            assert!(body(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_held_is_confirmed_next_and_else_the_first_that_starts_is_followed() {
        let one = |id: &str, state: &str| json!({ "id": id, "state": state });
        let held = [one("rsv_1", "held"), one("rsv_2", "held")];
        assert_eq!(next_of(&held), "broker confirm rsv_1 rsv_2");
        assert_eq!(next_of(&held[..1]), "broker confirm rsv_1");
        let bought = [one("rsv_2", "scheduled"), one("rsv_1", "confirmed")];
        assert_eq!(next_of(&bought), "broker watch rsv_1");
        assert_eq!(next_of(&bought[..1]), "broker watch rsv_2");
    }
}
