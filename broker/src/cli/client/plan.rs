//! `broker plan`: candidates with reasons, and what kept the rest out.

use clap::Args;
use matcher::{HybridPlan, ReasonCode};
use serde::Deserialize as _;
use serde_json::Value;

use super::api::{Call, Document};
use super::connection::ServiceArgs;
use super::demand::DemandArgs;
use super::offers::{gpus, place};
use super::route::Route;
use super::sheet::{cell, clean, items, price, print_table_within, text, words};
use super::{Session, word};
use crate::cli::Ending;
use crate::cli::hybrid::told;
use crate::cli::plan_lines;
use crate::cli::table::{hanging, print_line};

/// Finds what satisfies a demand, best first, and says why the rest does not.
///
/// A plan costs nothing and reserves nothing.
/// Exit status: 0 something matches, 1 nothing does, 2 wrong input.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker plan --gpu H100-SXM --count 8 --hours 24\n  broker plan --demand train.json"
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

/// Whether the plan meets its demand: by a candidate, and a hybrid one by a pair of them.
fn is_met(plan: &Value) -> bool {
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

/// How a command ends whose demand nothing satisfies.
pub(super) fn nothing_matches() -> Ending {
    Ending::No(
        "no offer satisfies the demand; widen it where `broker plan` counts the reasons".to_owned(),
    )
}

/// Prints a plan: the candidates, why the first one, and what kept the others out.
pub(super) fn print_plan(plan: &Value, top: usize) -> Result<(), Ending> {
    let candidates = items(plan, "candidates");
    if let Some(best) = candidates.first() {
        let headings = [
            "#",
            "provider",
            "SKU",
            "nodes",
            "GPUs",
            "place",
            "fabric",
            "USD/GPU-h",
            "USD/h",
            "order",
        ];
        let spare = ["fabric", "place", "SKU"];
        print_table_within(
            &headings,
            candidates.iter().take(top).flat_map(rows),
            &spare,
        )?;
        for best in told_why(plan, best) {
            print_line(&match best["half"].as_str() {
                None => "Why the first:".to_owned(),
                Some(half) => format!("Why {} to {}:", text(best, "/rank"), clean(half)),
            })?;
            for reason in items(best, "reasons").iter().filter_map(Value::as_str) {
                print_line(&hanging("  - ", &clean(reason)))?;
            }
        }
        for launch in (told_why(plan, best).into_iter()).flat_map(|best| items(best, "launch")) {
            let ports: Vec<String> = items(launch, "ports")
                .iter()
                .map(Value::to_string)
                .collect();
            let (engine, command) = (text(launch, "/engine"), text(launch, "/command"));
            let on = started_on(best, launch);
            let file = text(launch, "/config/file");
            // Line by line, for what cleans a line takes its end for no character of it.
            let contents = launch["config"]["contents"].as_str().unwrap_or_default();
            let contents: Vec<_> = contents.lines().map(clean).collect();
            let contents = contents.join("\n");
            print_line(&plan_lines::launch(&plan_lines::Launch {
                on: on.as_deref(),
                engine: &engine,
                ports: &ports,
                command: &command,
                config: launch
                    .get("config")
                    .map(|_| (file.as_str(), contents.as_str())),
            }))?;
        }
        for other in items(plan, "alternatives") {
            let tokens = ["asked_usd_per_million_tokens", "usd_per_million_tokens"];
            let known = tokens.iter().all(|field| other[field].is_string());
            let [asked, with] = tokens.map(|field| price(other, &format!("/{field}")));
            print_line(&plan_lines::alternative(
                &words(other, "/weights"),
                &price(other, "/price_usd_hour"),
                &price(other, "/saves_usd_hour"),
                known.then_some((asked.as_str(), with.as_str())),
            ))?;
        }
    }
    if let Some(hybrid) = hybrid_of(plan) {
        let sku = |rank: usize| {
            let candidate = candidates.get(rank.checked_sub(1)?)?;
            Some(format!("{rank} {}", text(candidate, "/lines/0/sku")))
        };
        for line in told(&hybrid, sku) {
            print_line(&line)?;
        }
    }
    print_rejected(plan)?;
    if is_met(plan) {
        let id = text(plan, "/id");
        for best in candidates
            .first()
            .map(|first| told_why(plan, first))
            .into_iter()
            .flatten()
        {
            let rank = text(best, "/rank");
            print_line(&format!("Next: broker quote {id} --candidate {rank}"))?;
        }
    }
    Ok(())
}

/// What an engine is started on, where the fleet stands on several offers.
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

/// How the halves of a hybrid demand go together; `None` for other kinds.
fn hybrid_of(plan: &Value) -> Option<HybridPlan> {
    HybridPlan::deserialize(plan.get("hybrid")?).ok()
}

/// The candidates whose reasons are told: the first, or those of the best pair.
fn told_why<'a>(plan: &'a Value, first: &'a Value) -> Vec<&'a Value> {
    let candidates = items(plan, "candidates");
    let pair = hybrid_of(plan).and_then(|hybrid| hybrid.pairs.into_iter().next());
    let Some(pair) = pair else {
        return vec![first];
    };
    let ranks = [pair.train_candidate, pair.serve_candidate];
    let known = ranks.into_iter();
    known
        .filter_map(|rank| candidates.get(rank.checked_sub(1)?))
        .collect()
}

fn print_rejected(plan: &Value) -> Result<(), Ending> {
    let total = plan["rejected"]["total"].as_u64().unwrap_or(0);
    let eligible = plan["eligible"].as_u64().unwrap_or(0);
    print_line(&plan_lines::verdict(eligible, total))?;
    let counts = plan["rejected"]["by_reason"].as_object();
    for (reason, count) in counts.into_iter().flatten() {
        let meaning = word::<ReasonCode>(reason).map_or("", ReasonCode::meaning);
        let told = clean(&format!("{reason}: {meaning}"));
        print_line(&hanging(
            &format!("  {count:>6}  "),
            told.trim_end_matches(": "),
        ))?;
    }
    Ok(())
}

fn rows(candidate: &Value) -> impl Iterator<Item = Vec<String>> + '_ {
    items(candidate, "lines").iter().map(|line| {
        let orderable = if line["orderable"] == true {
            "yes"
        } else {
            "no"
        };
        vec![
            match candidate["half"].as_str() {
                None => cell(candidate, "/rank"),
                Some(half) => format!("{} {}", cell(candidate, "/rank"), clean(half)),
            },
            cell(line, "/provider"),
            cell(line, "/sku"),
            cell(line, "/nodes"),
            gpus(line),
            place(line),
            words(line, "/internode"),
            price(line, "/price_usd_gpu_hour"),
            price(line, "/price_usd_hour"),
            orderable.to_owned(),
        ]
    })
}
