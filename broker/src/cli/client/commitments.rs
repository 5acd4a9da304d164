//! `broker commitments`: capacity that is paid for already.

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
    /// Lists what is paid for and what is left of it, the newest first.
    List(ListArgs),
    /// Makes capacity known that is paid for: plans take it first from then on. For administrators.
    Add(Box<AddArgs>),
    /// Removes one: no plan takes it any more; what is reserved stays as it is. For administrators.
    Remove(RemoveArgs),
}

/// Lists what is paid for and what is left of it, the newest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Makes capacity known that is paid for: plans take it first from then on.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("thing").required(true).args(["sku", "gpu"]),
    after_help = "Example: broker commitments add --tenant ten_019a3f0e1c7b7d40b2a1c3d4e5f60718 --provider lambda --gpu H100-SXM --gpus 8 --nodes 16 --until 2027-03-31T00:00:00Z --name \"contract 4711\""
)]
pub(in crate::cli) struct AddArgs {
    /// Where it was paid for.
    #[arg(long, value_name = "ID")]
    provider: ProviderId,
    /// The provider's own name for the thing.
    #[arg(long)]
    sku: Option<String>,
    /// The GPU, where no SKU is named.
    #[arg(long)]
    gpu: Option<Gpu>,
    /// GPUs of one node; nodes of every size, when nothing is said.
    #[arg(long, value_name = "COUNT")]
    gpus: Option<u32>,
    /// The country that it stands in.
    #[arg(long, value_name = "CODE")]
    country: Option<Country>,
    /// The region, as the provider writes it.
    #[arg(long)]
    region: Option<String>,
    /// Nodes that it is for at a time.
    #[arg(long, value_name = "COUNT")]
    nodes: u32,
    /// Node-hours that are left; as many as there are until it ends, when nothing is said.
    #[arg(long, value_name = "HOURS")]
    node_hours: Option<u32>,
    /// US dollars that a node still costs an hour; nothing, when nothing is said.
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    usd_per_node_hour: Option<Money>,
    /// When it ends.
    #[arg(long, value_name = "TIME")]
    until: DateTime<Utc>,
    /// What to call it: the number of a contract, say.
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

/// Removes one: no plan takes it any more; what is reserved stays as it is.
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
                "There are none. An administrator makes capacity known that is paid for with \
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

/// What a commitment is for: the SKU, or else the GPU with the size of a node.
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
        format!(
            "Removed {}. What is reserved on it stays as it is.",
            args.id
        )
    };
    Ok(print_answer(&told, session.json)?)
}
