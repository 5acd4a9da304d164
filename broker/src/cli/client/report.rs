//! `broker report`: costs, and nodes that fail.

mod node;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use rust_decimal::Decimal;
use serde_json::Value;

use super::api::Call;
use super::connection::ServiceArgs;
use super::route::Route;
use super::sheet::{cell, dollars, items, print_table, sum};
use crate::cli::client::session::Session;
use crate::terminal::ending::Ending;
use crate::terminal::text::print_line;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ReportCommand {
    /// Sums up what was charged, at the frozen rates.
    Costs(CostsArgs),
    /// Lists orders that tenants cancelled before the hand-off, with their costs. For administrators.
    CancelledOrders(CancelledArgs),
    /// Reports a node in use that fails, so that it is replaced.
    Node(node::NodeArgs),
}

/// Sums up what was charged, at the frozen rates.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  broker report costs --group-by project,gpu\n  broker report costs --group-by day,tag:team --from 2026-11-01T00:00:00Z --csv > november.csv"
)]
pub(in crate::cli) struct CostsArgs {
    /// Dimensions to group by, separated by commas: project, provider, gpu, workload, day, reservation,
    /// tag:KEY; by default, one row for everything.
    #[arg(long, value_name = "WHAT", value_delimiter = ',')]
    group_by: Vec<String>,
    /// Only use that began at this time or later, such as 2026-11-01T00:00:00Z.
    #[arg(long, value_name = "TIME")]
    from: Option<DateTime<Utc>>,
    /// Only use that began before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<DateTime<Utc>>,
    /// As CSV, one column for each dimension, with exact amounts.
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Lists orders that tenants cancelled before the hand-off, with their costs. For administrators.
#[derive(Debug, Args)]
pub(in crate::cli) struct CancelledArgs {
    /// Only orders cancelled after this time, such as 2026-11-01T00:00:00Z; by default, from the first of
    /// this month.
    #[arg(long, value_name = "TIME")]
    from: Option<DateTime<Utc>>,
    /// Only orders cancelled before this time.
    #[arg(long, value_name = "TIME")]
    to: Option<DateTime<Utc>>,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(command: ReportCommand) -> Result<(), Ending> {
    match command {
        ReportCommand::Costs(args) => costs(args).await,
        ReportCommand::CancelledOrders(args) => cancelled_orders(args).await,
        ReportCommand::Node(args) => node::run(args).await,
    }
}

async fn costs(args: CostsArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let grouped = (!args.group_by.is_empty()).then(|| args.group_by.join(","));
    let form = if args.csv { "csv" } else { "json" };
    let call = Call::from(Route::CostReport.all()).query([
        ("group_by", grouped),
        ("from", args.from.map(|time| time.to_rfc3339())),
        ("to", args.to.map(|time| time.to_rfc3339())),
        ("format", Some(form.to_owned())),
    ]);
    if args.csv {
        let text = session.api.text(call).await?;
        return Ok(print_line(text.trim_end())?);
    }
    let report = session.api.send(call).await?;
    session.show(&report, |report| print_costs(report, &args.group_by))
}

fn print_costs(report: &Value, dimensions: &[String]) -> Result<(), Ending> {
    let rows = items(report, "rows");
    if rows.is_empty() {
        return Ok(print_line("Nothing was charged.")?);
    }
    let mut headings: Vec<&str> = dimensions.iter().map(String::as_str).collect();
    headings.extend(["GPU-hours", "USD"]);
    let rows = rows.iter().map(|row| {
        let mut cells: Vec<_> = items(row, "group")
            .iter()
            .map(|part| cell(part, "/value"))
            .collect();
        cells.extend([gpu_hours(&row["gpu_seconds"]), sum(row, "/amount_usd")]);
        cells
    });
    // Without grouping, the one row is the total.
    let total = (!dimensions.is_empty()).then(|| {
        let mut cells = vec![String::new(); dimensions.len()];
        if let Some(first) = cells.first_mut() {
            "in all".clone_into(first);
        }
        cells.extend([
            gpu_hours(&report["total_gpu_seconds"]),
            sum(report, "/total_usd"),
        ]);
        cells
    });
    print_table(&headings, rows.chain(total))
}

async fn cancelled_orders(args: CancelledArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Call::from(Route::CancelledOrders.all()).query([
        ("from", args.from.map(|time| time.to_rfc3339())),
        ("to", args.to.map(|time| time.to_rfc3339())),
    ]);
    let report = session.api.send(call).await?;
    session.show(&report, |report| {
        let rows = items(report, "items");
        if rows.is_empty() {
            return Ok(print_line("Nothing was cancelled before its hand-off.")?);
        }
        let row = |row: &Value| {
            vec![
                cell(row, "/tenant"),
                cell(row, "/orders"),
                sum(row, "/cost_usd"),
            ]
        };
        print_table(&["tenant", "orders", "USD"], rows.iter().map(row))
    })
}

fn gpu_hours(gpu_seconds: &Value) -> String {
    let hours = Decimal::from(gpu_seconds.as_i64().unwrap_or(0)) / Decimal::from(3_600);
    dollars(hours, 2)
}
