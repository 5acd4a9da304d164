//! `broker sweep`: reconciles running machines with leases, once.

use chrono::{DateTime, Utc};
use clap::Args;
use market::ids::LeaseId;
use serde_json::json;
use store::settings::DatabaseMode;

use super::database::open;
use super::market::Market;
use crate::cli::database::DatabaseArgs;
use crate::flow::fulfil;
use crate::flow::reconcile::{Orders, Unknown, sweep_with};
use crate::platform::app::Broker;
use crate::platform::config::Config;
use crate::service::start;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::print_answer;

/// Reconciles running machines with leases, once.
///
/// The service does this by itself every five minutes. Some machines are only reported. A machine with a
/// broker's mark but no lease in this database may belong to another broker on the same accounts, or was
/// bought after the backup that you restored; --end-unknown-since ends it. A machine that was in use may
/// run again after its lease was given up because its provider did not show it. Its tenant may be working
/// there; --end-returned ends it. Exit status 1 if such a machine runs, or a provider could not be read.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// Terminates marked machines without a lease that were ordered at this time or later, such as
    /// 2026-11-21T14:00:00Z. Their users lose them.
    #[arg(long, value_name = "TIME")]
    end_unknown_since: Option<DateTime<Utc>>,
    /// Terminates the machine of this lease, which has returned; may be repeated.
    #[arg(long, value_name = "LEASE")]
    end_returned: Vec<LeaseId>,
    /// Ends reservations that are past the end of their window, continues releases that began, and orders
    /// nothing: for cron, where the service may be down. Use is charged up to the end, as by the service. Exit
    /// status 1 if a provider or the database returned an error for one of them; the next run tries again.
    #[arg(long, conflicts_with_all = ["end_unknown_since", "end_returned"])]
    ends: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(args: &SweepArgs) -> Result<(), Ending> {
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    if args.ends {
        return end_due(config, args.json);
    }
    let unknown = args
        .end_unknown_since
        .map_or(Unknown::Report, Unknown::EndMadeSince);
    let orders = Orders {
        unknown,
        end_returned: &args.end_returned,
    };
    let swept = block_on(async {
        let broker = broker_of(config).await?;
        Ok(sweep_with(&broker, orders).await?)
    })?;
    let said = match args.json {
        true => json!({
            "ended": swept.ended, "unknown": swept.unknown, "returned": swept.returned,
            "foreign": swept.foreign, "missing": swept.missing, "unreadable": swept.unreadable,
            "removed_attachments": swept.removed_attachments,
            "unknown_attachments": swept.unknown_attachments,
        })
        .to_string(),
        false => format!(
            "{} ended, {} marked without a lease, {} returned, {} of others, {} leases without a \
             machine, {} scripts, keys and disks removed, {} marked without a lease, {} failures",
            swept.ended,
            swept.unknown,
            swept.returned,
            swept.foreign,
            swept.missing,
            swept.removed_attachments,
            swept.unknown_attachments,
            swept.unreadable
        ),
    };
    print_answer(&said, args.json)?;
    let is_unfound = |lease: &&LeaseId| !swept.found_returned.contains(lease);
    let unfound = args.end_returned.iter().filter(is_unfound);
    let unfound: Vec<_> = unfound.map(LeaseId::to_string).collect();
    if !unfound.is_empty() {
        return Err(Ending::No(format!(
            "no returned machine of {} runs, so none was ended for it; `GET /v1/providers/ID` lists the \
             leases whose machines have returned",
            unfound.join(", ")
        )));
    }
    match (swept.unknown, swept.returned, swept.unreadable) {
        (0, 0, 0) => Ok(()),
        (0, 0, _) => Err(Ending::No(
            "a provider could not be read, or did not end a machine; try again".into(),
        )),
        (0, returned, _) => Err(Ending::No(format!(
            "{returned} machines run whose leases were given up as gone; `GET /v1/providers/ID` lists \
             them; if their tenants do not use them, end them with --end-returned LEASE"
        ))),
        (unknown, ..) => Err(Ending::No(format!(
            "{unknown} machines carry a broker's mark but have no lease in this database; if no other \
             broker uses these accounts, end them with --end-unknown-since TIME"
        ))),
    }
}

/// A broker over the configured database and its providers, which takes no requests.
async fn broker_of(config: Config) -> Result<Broker, Ending> {
    let store = open(&config).await?;
    let mut market = Market::open(&config.simulation, false).await?;
    if store.settings().mode().await? == Some(DatabaseMode::Simulation)
        && market.mode() == DatabaseMode::Production
    {
        return Err(Ending::wrong_input(
            "the database was made for simulation; name its market with \
             BROKER__SIMULATION__MARKET_URL and BROKER__SIMULATION__CREDENTIAL (`broker simulator run` \
             starts one of its own; that of `serve --simulate` is inside the service)",
        ));
    }
    let (mode, clock, links) = (market.mode(), market.clock(false), market.take_links()?);
    let nowhere = String::new();
    start::with_store(store, config, mode, clock, links, nowhere)
        .await
        .map_err(Ending::cannot_start)
}

fn end_due(config: Config, json: bool) -> Result<(), Ending> {
    let ended = block_on(async {
        let broker = broker_of(config).await?;
        Ok(fulfil::work_on_ends(&broker).await?)
    })?;
    let fulfil::EndsReport {
        worked_on,
        open,
        in_trouble,
    } = ended;
    let trouble = in_trouble.len();
    let said = match json {
        true => {
            json!({ "worked_on": worked_on, "open": open, "in_trouble": in_trouble }).to_string()
        }
        false => format!(
            "Worked on {worked_on} reservations past their end or being released: {open} not closed yet, \
             {trouble} with errors"
        ),
    };
    print_answer(&said, json)?;
    if in_trouble.is_empty() {
        return Ok(());
    }
    let ids: Vec<_> = in_trouble.iter().map(ToString::to_string).collect();
    Err(Ending::No(format!(
        "{trouble} reservations could not be ended: `broker show` has the last error of each ({}); the next run \
         tries again",
        ids.join(", ")
    )))
}
