//! `broker commitments`: capacity that is already paid for.

use chrono::{DateTime, Utc};
use clap::{ArgGroup, Args, Subcommand};
use market::gpu::Gpu;
use market::ids::{CommitmentId, ProviderId};
use market::money::{Currency, Money, MoneyError};
use market::place::Country;
use serde_json::{Map, Value, json};

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::route::Route;
use super::sheet::{cell, items, print_sheet, print_table, text};
use crate::cli::client::session::Session;
use crate::terminal::ending::Ending;
use crate::terminal::text::{print_answer, print_text};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum CommitmentsCommand {
    /// Lists commitments with what is left of each, newest first.
    List(ListArgs),
    /// Registers capacity that is already paid for; plans use it first. For administrators.
    Add(Box<AddArgs>),
    /// Removes a commitment. Plans stop using it; reservations keep theirs. For administrators.
    Remove(RemoveArgs),
}

/// Lists commitments with what is left of each, newest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Registers capacity that is already paid for; plans use it first from then on.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("thing").required(true).args(["sku", "gpu"]),
    after_help = "Example: broker commitments add --tenant ten_019a3f0e1c7b7d40b2a1c3d4e5f60718 --provider lambda --gpu H100-SXM --gpus 8 --nodes 16 --until 2027-03-31T00:00:00Z --name \"contract 4711\""
)]
pub(in crate::cli) struct AddArgs {
    /// The provider that was paid.
    #[arg(long, value_name = "ID")]
    provider: ProviderId,
    /// The SKU: the provider's own name.
    #[arg(long)]
    sku: Option<String>,
    /// The GPU, if you name no SKU.
    #[arg(long)]
    gpu: Option<Gpu>,
    /// GPUs in each node; any number by default.
    #[arg(long, value_name = "COUNT")]
    gpus: Option<u32>,
    /// The country of the nodes.
    #[arg(long, value_name = "CODE")]
    country: Option<Country>,
    /// The region, in the provider's spelling.
    #[arg(long)]
    region: Option<String>,
    /// How many nodes it covers at a time.
    #[arg(long, value_name = "COUNT")]
    nodes: u32,
    /// Node-hours left; by default, every hour of its nodes until it ends.
    #[arg(long, value_name = "HOURS")]
    node_hours: Option<u32>,
    /// US dollars per node-hour still to pay; none by default.
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    usd_per_node_hour: Option<Money>,
    /// When it ends.
    #[arg(long, value_name = "TIME")]
    until: DateTime<Utc>,
    /// A name for it, such as the number of a contract.
    #[arg(long)]
    name: String,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

fn parse_usd(text: &str) -> Result<Money, MoneyError> {
    Money::parse(text, Currency::Usd)
}

impl AddArgs {
    fn body(&self) -> Value {
        let mut body = Map::new();
        body.insert("name".to_owned(), json!(self.name));
        body.insert("provider".to_owned(), json!(self.provider));
        body.insert("nodes".to_owned(), json!(self.nodes));
        body.insert("expires_at".to_owned(), json!(self.until));
        for (field, value) in [
            ("sku", json!(self.sku)),
            ("gpu", json!(self.gpu)),
            ("gpus", json!(self.gpus)),
            ("country", json!(self.country)),
            ("region", json!(self.region)),
            ("node_hours", json!(self.node_hours)),
            ("price_usd_node_hour", json!(self.usd_per_node_hour)),
        ] {
            if !value.is_null() {
                body.insert(field.to_owned(), value);
            }
        }
        Value::Object(body)
    }
}

/// Removes a commitment: plans stop using it, and reservations keep theirs.
#[derive(Debug, Args)]
pub(in crate::cli) struct RemoveArgs {
    /// The commitment.
    #[arg(value_name = "ID")]
    id: CommitmentId,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(command: CommitmentsCommand) -> Result<(), Ending> {
    match command {
        CommitmentsCommand::List(args) => list(args).await,
        CommitmentsCommand::Add(args) => add(*args).await,
        CommitmentsCommand::Remove(args) => remove(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Route::ListCommitments.all().into();
    let commitments = session.api.list(call, true).await?;
    session.show(&commitments, |commitments| {
        let commitments = items(commitments, "items");
        if commitments.is_empty() {
            return Ok(print_text(
                "There are none. An administrator registers prepaid capacity with \
                 `broker commitments add`.",
            )?);
        }
        let rows = commitments.iter().map(|one| {
            let left = format!("{} of {}", cell(one, "/nodes_left"), cell(one, "/nodes"));
            vec![
                cell(one, "/id"),
                cell(one, "/name"),
                cell(one, "/provider"),
                thing(one),
                left,
                cell(one, "/node_hours_left"),
                cell(one, "/price_usd_node_hour"),
                cell(one, "/expires_at"),
            ]
        });
        let headings = [
            "id",
            "name",
            "provider",
            "thing",
            "nodes left",
            "node-hours left",
            "$/node-hour",
            "until",
        ];
        print_table(&headings, rows)
    })
}

/// What a commitment covers: the SKU, or else the GPU with the size of a node.
fn thing(commitment: &Value) -> String {
    let named = |at: &str| Some(text(commitment, at)).filter(|text| !text.is_empty());
    let size = |gpu: String| match commitment["gpus"].as_u64() {
        Some(gpus) => format!("{gpus} x {gpu}"),
        None => gpu,
    };
    named("/sku")
        .or_else(|| named("/gpu").map(size))
        .unwrap_or_default()
}

async fn add(args: AddArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Call::from(Route::AddCommitment.all())
        .body(args.body())
        .once(args.once.key());
    let added = session.api.send(call).await?;
    session.show(&added, |one| {
        print_sheet(&[
            ("commitment", text(one, "/id")),
            ("name", text(one, "/name")),
            ("provider", text(one, "/provider")),
            ("thing", thing(one)),
            ("nodes", cell(one, "/nodes")),
            ("until", text(one, "/expires_at")),
        ])
    })
}

async fn remove(args: RemoveArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Route::RemoveCommitment.of(&args.id);
    session.api.text(call).await?;
    let told = if session.json {
        json!({ "id": args.id, "removed": true }).to_string()
    } else {
        format!("Removed {}. Reservations that use it keep it.", args.id)
    };
    Ok(print_answer(&told, session.json)?)
}
