//! `broker migrate up|down|status`.

use clap::{Args, Subcommand};
use serde_json::json;

use super::database::{open_any, open_or_make};
use crate::cli::database::DatabaseArgs;
use crate::platform::config::Config;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::print_line;

/// Migrates the schema of the database.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(subcommand)]
    direction: Direction,
    /// Prints one JSON object.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Subcommand)]
enum Direction {
    /// Applies every pending migration.
    Up,
    /// Reverts the last migrations and deletes their data, such as the whole audit log.
    Down {
        /// How many migrations.
        #[arg(long, default_value_t = 1, value_name = "N")]
        steps: u32,
    },
    /// Lists the migrations and whether each is applied.
    Status,
}

pub(super) fn run(args: MigrateArgs) -> Result<(), Ending> {
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    block_on(async {
        let store = match args.direction {
            Direction::Up => open_or_make(&config).await?,
            Direction::Down { .. } | Direction::Status => open_any(&config).await?,
        };
        if let Direction::Down { steps } = args.direction {
            store.migrate_down(steps).await?;
        }
        let changes = store.migration_status().await?;
        if args.json {
            let changes: Vec<_> = changes
                .iter()
                .map(|change| json!({ "name": change.name, "applied": change.applied }))
                .collect();
            return Ok(print_line(&json!({ "changes": changes }).to_string())?);
        }
        for change in changes {
            let state = if change.applied { "applied" } else { "pending" };
            print_line(&format!("{state}  {}", change.name))?;
        }
        Ok(())
    })
}
