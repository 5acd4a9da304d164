//! `broker projects`: the projects of a tenant, which group its reservations and costs.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::route::Route;
use super::sheet::{age, cell, items, print_sheet, print_table, text, time};
use crate::cli::client::session::Session;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum ProjectsCommand {
    /// Lists the projects that your key may use, newest first.
    List(ListArgs),
    /// Creates a project.
    Add(AddArgs),
}

/// Lists the projects that your key may use, newest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Creates a project.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker projects add vision")]
pub(in crate::cli) struct AddArgs {
    /// Its name, unique within the tenant.
    name: String,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(command: ProjectsCommand) -> Result<(), Ending> {
    match command {
        ProjectsCommand::List(args) => list(args).await,
        ProjectsCommand::Add(args) => add(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let projects = session.api.list(Route::ListProjects.all().into(), true);
    session.show(&projects.await?, |projects| {
        let now = SystemClock.now();
        let rows = items(projects, "items").iter().map(|project| {
            vec![
                cell(project, "/id"),
                cell(project, "/name"),
                age(time(project, "/created_at"), now),
            ]
        });
        print_table(&["id", "name", "made"], rows)
    })
}

async fn add(args: AddArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let call = Call::from(Route::MakeProject.all())
        .body(json!({ "name": args.name }))
        .once(args.once.key());
    let added = session.api.send(call).await?;
    session.show(&added, |project: &Value| {
        print_sheet(&[
            ("project", text(project, "/id")),
            ("name", text(project, "/name")),
        ])
    })
}
