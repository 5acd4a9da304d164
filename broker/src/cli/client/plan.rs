//! `broker plan`: candidates with reasons, and what kept the rest out.

use clap::Args;
use matcher::ReasonCode;
use serde_json::Value;

use super::api::{Call, Document};
use super::connection::ServiceArgs;
use super::demand::DemandArgs;
use super::offers::{gpus, place};
use super::route::Route;
use super::sheet::{cell, clean, items, price, print_table_without, text, words};
use super::{Session, word};
use crate::cli::Ending;
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
    if items(&plan.value, "candidates").is_empty() {
        return Err(nothing_matches());
    }
    Ok(())
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
        print_table_without(
            &headings,
            candidates.iter().take(top).flat_map(rows),
            &spare,
        )?;
        print_line("Why the first:")?;
        for reason in items(best, "reasons").iter().filter_map(Value::as_str) {
            print_line(&hanging("  - ", &clean(reason)))?;
        }
        for launch in items(best, "launch") {
            let ports: Vec<String> = items(launch, "ports")
                .iter()
                .map(Value::to_string)
                .collect();
            let told = format!(
                "{}, ports {}: {}",
                text(launch, "/engine"),
                ports.join(" "),
                text(launch, "/command")
            );
            print_line(&hanging("  start ", &clean(&told)))?;
        }
        for other in items(plan, "alternatives") {
            let saved = price(other, "/saves_usd_hour");
            let difference = match saved.strip_prefix('-') {
                Some(more) => format!("{more} more"),
                None => format!("{saved} less"),
            };
            print_line(&format!(
                "  with weights in {}: {} USD per hour, {difference}; not taken",
                words(other, "/weights"),
                price(other, "/price_usd_hour")
            ))?;
        }
    }
    print_rejected(plan)?;
    if !candidates.is_empty() {
        print_line(&format!(
            "Next: broker quote {} --candidate 1",
            text(plan, "/id")
        ))?;
    }
    Ok(())
}

fn print_rejected(plan: &Value) -> Result<(), Ending> {
    let total = plan["rejected"]["total"].as_u64().unwrap_or(0);
    print_line(&format!(
        "{} offers satisfy the demand, {total} do not{}",
        text(plan, "/eligible"),
        if total == 0 { "." } else { ":" }
    ))?;
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
            cell(candidate, "/rank"),
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
