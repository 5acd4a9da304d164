//! `broker plan`: candidates with reasons, and why other offers do not match.

use clap::Args;
use matcher::{HybridPlan, ReasonCode};
use serde::Deserialize as _;
use serde_json::Value;

use super::api::{Call, Document};
use super::connection::ServiceArgs;
use super::covered;
use super::demand::DemandArgs;
use super::offers::{gpus, marked, place};
use super::route::Route;
use super::sheet::{cell, items, price, print_table_within, sum, text, words};
use crate::cli::client::argument::word;
use crate::cli::client::session::Session;
use crate::cli::hybrid::{paired, shown, told};
use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::plan_lines;
use crate::terminal::text::{clean, hanging, print_line, print_next, print_text};

/// Finds offers for a demand, best first, and shows why others do not match.
///
/// A plan costs nothing and reserves nothing.
/// Exit status: 0 there are candidates, 1 there are none, 2 wrong input.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker plan --gpu H100-SXM --count 8 --hours 24\n  broker plan --gpu A100-80GB,H100 --count 4-8 --nodes 2 --fabric rdma\n  broker plan --demand train.json"
)]
pub(in crate::cli) struct PlanArgs {
    #[command(flatten)]
    demand: DemandArgs,
    /// How many candidates to show.
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: PlanArgs) -> Result<(), Ending> {
    let demand = args.demand.read()?;
    let session = Session::open(&args.service)?;
    let plan = make(&session, demand).await?;
    session.show(&plan, |plan| print_plan(plan, args.top))?;
    if !is_met(&plan.value) {
        return Err(nothing_matches());
    }
    Ok(())
}

/// Whether the plan meets its demand: with a candidate, or for a hybrid demand with a pair of them.
pub(super) fn is_met(plan: &Value) -> bool {
    let found = match &plan["hybrid"] {
        Value::Null => items(plan, "candidates"),
        hybrid => items(hybrid, "pairs"),
    };
    !found.is_empty()
}

/// Makes a plan for a demand.
pub(super) async fn make(session: &Session, demand: Value) -> Result<Document, Ending> {
    let call = Call::from(Route::MakePlan.all()).body(demand);
    Ok(session.api.send(call).await?)
}

/// How a command ends if no offer satisfies the demand.
pub(super) fn nothing_matches() -> Ending {
    Ending::No(
        "no offer satisfies the demand; widen it where `broker plan` counts the reasons".to_owned(),
    )
}

/// Prints a plan: the candidates, the reasons for the first one, and why other offers do not match.
pub(super) fn print_plan(plan: &Value, top: usize) -> Result<(), Ending> {
    // The next command names a candidate or a pair that is shown.
    let top = top.max(1);
    let candidates = items(plan, "candidates");
    let mut hybrid = hybrid_of(plan);
    if let Some(hybrid) = &mut hybrid {
        hybrid.pairs.truncate(top);
    }
    let best = told_why(candidates, hybrid.as_ref());
    if !candidates.is_empty() {
        let paired = paired(hybrid.as_ref());
        print_candidates(&shown(candidates, &paired, top, half_and_rank))?;
        print_reasons(&best)?;
        print_launches(&best)?;
        print_alternatives(plan)?;
    }
    if let Some(hybrid) = &hybrid {
        let sku = |rank: usize| {
            let candidate = candidates.get(rank.checked_sub(1)?)?;
            Some(format!("{rank} {}", text(candidate, "/lines/0/sku")))
        };
        for line in told(hybrid, sku) {
            print_text(&line)?;
        }
    }
    print_rejected(plan)?;
    if is_met(plan) {
        print_next(&next_of(plan, &best))?;
    }
    Ok(())
}

/// The command that quotes the best candidate, or for a hybrid plan the best pair.
fn next_of(plan: &Value, best: &[&Value]) -> String {
    let which = match best.first() {
        Some(best) if plan["hybrid"].is_null() => format!("--candidate {}", text(best, "/rank")),
        _ => "--pair 1".to_owned(),
    };
    format!("broker quote {} {which}", text(plan, "/id"))
}

/// The half of a demand that a candidate is for, and its rank.
fn half_and_rank(candidate: &Value) -> (Option<&str>, usize) {
    let rank = candidate["rank"].as_u64().unwrap_or_default();
    (
        candidate["half"].as_str(),
        usize::try_from(rank).unwrap_or_default(),
    )
}

fn print_candidates(shown: &[&Value]) -> Result<(), Ending> {
    let more = More::of(shown);
    let rows = shown.iter().flat_map(|candidate| rows(candidate, more));
    // Terms, fabric and place change the price, so they stay.
    print_table_within(&more.headings(), rows, &["USD/h", "SKU"])
}

fn print_reasons(best: &[&Value]) -> Result<(), Ending> {
    for best in best {
        let why = match best["half"].as_str() {
            None => "Why the first:".to_owned(),
            Some(half) => format!("Why {} to {}:", text(best, "/rank"), clean(half)),
        };
        print_line(&Colours::of_stdout().heading(&why))?;
        for reason in items(best, "reasons").iter().filter_map(Value::as_str) {
            print_line(&hanging("  - ", &clean(reason)))?;
        }
    }
    Ok(())
}

fn print_launches(best: &[&Value]) -> Result<(), Ending> {
    for (best, launch) in best.iter().flat_map(|best| {
        items(best, "launch")
            .iter()
            .map(move |launch| (best, launch))
    }) {
        let ports: Vec<String> = items(launch, "ports")
            .iter()
            .map(Value::to_string)
            .collect();
        let (engine, command) = (text(launch, "/engine"), text(launch, "/command"));
        let on = started_on(best, launch);
        let file = text(launch, "/config/file");
        let contents = launch["config"]["contents"].as_str().unwrap_or_default();
        print_text(&plan_lines::launch(&plan_lines::Launch {
            on: on.as_deref(),
            engine: &engine,
            ports: &ports,
            command: &command,
            config: launch.get("config").map(|_| (file.as_str(), contents)),
        }))?;
    }
    Ok(())
}

fn print_alternatives(plan: &Value) -> Result<(), Ending> {
    for other in items(plan, "alternatives") {
        let tokens = ["asked_usd_per_million_tokens", "usd_per_million_tokens"];
        let known = tokens.iter().all(|field| other[field].is_string());
        let [asked, with] = tokens.map(|field| price(other, &format!("/{field}")));
        print_text(&plan_lines::alternative(
            &words(other, "/weights"),
            &price(other, "/price_usd_hour"),
            &price(other, "/saves_usd_hour"),
            known.then_some((asked.as_str(), with.as_str())),
        ))?;
    }
    Ok(())
}

/// The offer that an engine runs on, if the fleet uses several offers.
fn started_on(candidate: &Value, launch: &Value) -> Option<String> {
    let lines = items(candidate, "lines");
    let its = |line: &&Value| line["offer_id"] == launch["offer_id"];
    let line = lines.iter().filter(|_| lines.len() > 1).find(its)?;
    Some(format!(
        "{} {}",
        text(line, "/provider"),
        text(line, "/sku")
    ))
}

/// How the halves of a hybrid demand fit together; `None` for other kinds.
fn hybrid_of(plan: &Value) -> Option<HybridPlan> {
    HybridPlan::deserialize(plan.get("hybrid")?).ok()
}

/// The candidates whose reasons are shown: those of the best pair, or the first.
fn told_why<'a>(candidates: &'a [Value], hybrid: Option<&HybridPlan>) -> Vec<&'a Value> {
    let pair = hybrid.and_then(|hybrid| hybrid.pairs.first());
    let Some(pair) = pair else {
        return candidates.first().into_iter().collect();
    };
    let ranks = [pair.train_candidate, pair.serve_candidate].into_iter();
    ranks
        .filter_map(|rank| candidates.get(rank.checked_sub(1)?))
        .collect()
}

fn print_rejected(plan: &Value) -> Result<(), Ending> {
    let total = plan["rejected"]["total"].as_u64().unwrap_or(0);
    let eligible = plan["eligible"].as_u64().unwrap_or(0);
    print_text(&plan_lines::verdict(eligible, total))?;
    let counts = plan["rejected"]["by_reason"].as_object();
    for (reason, count) in counts.into_iter().flatten() {
        let meaning = word::<ReasonCode>(reason).map_or("", ReasonCode::meaning);
        let told = clean(&format!("{reason}: {meaning}"));
        print_line(&hanging(
            &format!("  {count:>6}  "),
            told.trim_end_matches(": "),
        ))?;
        // Without any candidate, the user needs examples of what to change.
        let examples = items(plan, "refused").iter();
        let examples = examples.filter(|one| eligible == 0 && one["reason"] == **reason);
        for one in examples {
            let [provider, sku, why] = ["/provider", "/sku", "/why"].map(|field| text(one, field));
            print_line(&hanging(
                "          ",
                &format!("such as {provider} {sku}: {why}"),
            ))?;
        }
    }
    Ok(())
}

/// The columns that only some plans have.
#[derive(Debug, Clone, Copy)]
struct More {
    /// Prepaid capacity.
    covered: bool,
    /// The cost of the work, which ranks the candidates.
    cost: bool,
}

impl More {
    fn of(candidates: &[&Value]) -> Self {
        let mut all = candidates.iter();
        Self {
            covered: all.clone().any(|one| !items(one, "covered").is_empty()),
            cost: all.any(|one| one["facts"]["run_cost_usd"].is_string()),
        }
    }

    fn headings(self) -> Vec<&'static str> {
        let mut headings = vec![
            "#",
            "provider",
            "nodes",
            "GPUs",
            "terms",
            "fabric",
            "place",
            "SKU",
            "USD/GPU-h",
            "USD/h",
        ];
        headings.extend(covered::HEADINGS.iter().filter(|_| self.covered));
        headings.extend(self.cost.then_some(plan_lines::COST));
        headings.push("order");
        headings
    }
}

fn rows(candidate: &Value, more: More) -> impl Iterator<Item = Vec<String>> + '_ {
    let lines = (0_u64..).zip(items(candidate, "lines"));
    lines.map(move |(number, line)| {
        let orderable = if line["orderable"] == true {
            "yes"
        } else {
            "no"
        };
        let mut row = vec![
            match candidate["half"].as_str() {
                None => cell(candidate, "/rank"),
                Some(half) => format!("{} {}", cell(candidate, "/rank"), clean(half)),
            },
            cell(line, "/provider"),
            cell(line, "/nodes"),
            gpus(line),
            words(line, "/terms"),
            words(line, "/internode"),
            place(line),
            cell(line, "/sku"),
            marked(line, "/price_usd_gpu_hour"),
            marked(line, "/price_usd_hour"),
        ];
        if more.covered {
            let of_line = |one: &&Value| one["line"] == number;
            let paid = items(candidate, "covered").iter().find(of_line);
            row.extend(covered::cells(paid.unwrap_or(&Value::Null)));
        }
        if more.cost {
            row.push(match number {
                0 => sum(candidate, "/facts/run_cost_usd"),
                // The cost is that of all lines together.
                _ => String::new(),
            });
        }
        row.push(orderable.to_owned());
        row
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn candidate(fields: &Value) -> Value {
        let mut candidate = json!({
            "rank": 1,
            "lines": [
                { "provider": "lambda", "sku": "a", "nodes": 2, "gpus": 8, "gpu": "H100-SXM",
                  "internode": "ethernet", "price_usd_gpu_hour": "3.5", "price_usd_hour": "56",
                  "orderable": true },
                { "provider": "lambda", "sku": "b", "nodes": 1, "gpus": 8, "gpu": "H100-SXM",
                  "internode": "ethernet", "price_usd_gpu_hour": "3", "price_usd_hour": "24",
                  "orderable": true },
            ],
        });
        let all = candidate.as_object_mut().expect("fields");
        all.extend(fields.as_object().expect("fields").clone());
        candidate
    }

    /// The cells of these columns, row by row.
    fn cells_of(candidate: &Value, columns: &[&str]) -> Vec<Vec<String>> {
        let more = More::of(&[candidate]);
        let headings = more.headings();
        let rows = rows(candidate, more).map(|row| {
            assert_eq!(row.len(), headings.len());
            let cell = |name: &&str| {
                let at = headings.iter().position(|heading| heading == name);
                row[at.expect("a column")].clone()
            };
            columns.iter().map(cell).collect()
        });
        rows.collect()
    }

    #[test]
    fn what_is_paid_for_is_shown_beside_the_line_that_it_pays_for() {
        let paid = candidate(&json!({ "covered": [{
            "line": 1, "nodes": 1, "commitment_id": "cmt_1", "rate_usd_gpu_hour": "0.15",
            "until": "2026-12-10T16:00:00Z",
        }] }));
        assert_eq!(
            cells_of(
                &paid,
                &["USD/GPU-h", "covered at", "covered until", "order"]
            ),
            [
                ["3.50", "-", "-", "yes"],
                ["3.00", "0.15", "2026-12-10 16:00", "yes"]
            ]
        );
    }

    #[test]
    fn what_ranks_is_shown_once_for_all_lines_and_only_where_it_is_what_ranks() {
        let run = candidate(&json!({ "facts": { "run_cost_usd": "1234.5678" } }));
        assert_eq!(cells_of(&run, &["cost USD"]), [["1234.57"], [""]]);
        let chat = candidate(&json!({ "facts": {} }));
        let headings = More::of(&[&chat]).headings();
        assert_eq!(headings.len(), 11, "{headings:?}");
        assert_eq!(cells_of(&chat, &["order"]), [["yes"], ["yes"]]);
    }

    #[test]
    fn a_candidate_is_quoted_next_and_of_a_hybrid_plan_the_pair() {
        let candidates = [json!({ "rank": 1 }), json!({ "rank": 2 })];
        let best: Vec<&Value> = candidates.iter().collect();
        let plan = json!({ "id": "pln_1" });
        assert_eq!(
            next_of(&plan, &best[..1]),
            "broker quote pln_1 --candidate 1"
        );
        let hybrid = json!({ "id": "pln_1", "hybrid": { "pairs": [{}] } });
        assert_eq!(next_of(&hybrid, &best), "broker quote pln_1 --pair 1");
    }
}
