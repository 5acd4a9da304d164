//! `broker serve`: the service, with its pollers and workers.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adapters::pricesheet::{self, PriceSheet};
use clap::Args;
use store::settings::DatabaseMode;
use tracing_subscriber::EnvFilter;

use super::{DatabaseArgs, Ending, block_on};
use crate::app::Broker;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::demo::world::simulated_links;
use crate::{fulfil, http, ingest, start, sweep};

/// Runs the service.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Address and port to listen at.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Sell a simulated market: makes a simulation database and starts the simulated providers.
    #[arg(long)]
    simulate: bool,
    /// Price lists to compare with.
    #[arg(long, num_args = 1.., value_name = "FILE")]
    pricesheets: Vec<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(args: ServeArgs) -> Result<(), Ending> {
    log_to_stderr();
    let mut config =
        Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    config.pricesheets.extend(args.pricesheets);
    block_on(serve(config, args.simulate))
}

async fn serve(config: Config, simulate: bool) -> Result<(), Ending> {
    let listen = config.server.listen.clone();
    let listener = TcpListener::bind(&listen)
        .map_err(|error| Ending::wrong_input(format!("cannot listen at {listen}: {error}")))?;
    let address = listener.local_addr()?;
    let public_url =
        config.server.public_url.clone().unwrap_or_else(|| format!("http://{address}"));
    let clock = Arc::new(SystemClock);
    let mode = if simulate { DatabaseMode::Simulation } else { DatabaseMode::Production };
    let market = match simulate {
        true => {
            let clock = Arc::clone(&clock) as Arc<dyn simulator::Clock>;
            Some(Arc::new(simulator::Simulator::start(quick(clock)).await?))
        }
        false => None,
    };
    let links = match &market {
        Some(market) => simulated_links(market, |adapter| adapter)?,
        None => Vec::new(),
    };
    let sheets = config.pricesheets.clone();
    let broker = start::start(config, mode, clock, links, public_url).await?;
    read_sheets(&broker, &sheets).await?;
    let server = http::serve(broker.clone(), listener)?;
    let handle = server.handle();
    eprintln!("Serving at http://{address} (mode: {mode})");

    let mut work = tokio::task::JoinSet::new();
    work.spawn(ingest::poll_forever(broker.clone()));
    work.spawn(fulfil::work_forever(broker.clone()));
    work.spawn(sweep::sweep_forever(broker));
    if let Some(market) = &market {
        work.spawn(keep_turning(Arc::clone(market)));
    }
    let ended = tokio::select! {
        ended = server => ended.map_err(Ending::from),
        stopped = tokio::signal::ctrl_c() => stopped.map_err(Ending::from),
    };
    handle.stop(true).await;
    work.shutdown().await;
    if let Some(market) = market.and_then(Arc::into_inner) {
        market.stop().await;
    }
    ended
}

/// Starts the nodes of machines that came up, until the task is dropped.
async fn keep_turning(market: Arc<simulator::Simulator>) {
    loop {
        market.tick();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// A market that boots its machines within seconds, because a person waits for them.
fn quick(clock: Arc<dyn simulator::Clock>) -> simulator::Config {
    simulator::Config {
        lambda_boot_seconds: 5,
        voltagepark_boot_seconds: 10,
        ..simulator::Config::new(clock)
    }
}

async fn read_sheets(broker: &Broker, files: &[PathBuf]) -> Result<(), Ending> {
    let mut sheets = Vec::new();
    for file in files {
        let sheet = PriceSheet::open(file).map_err(|error| {
            Ending::wrong_input(format!("the price list {} cannot be read: {error}", file.display()))
        })?;
        sheets.push(sheet);
    }
    let read = pricesheet::read_price_sheets(&sheets, broker.now());
    Ok(ingest::read_price_lists(broker, &read).await?)
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| EnvFilter::new("info,sqlx=warn,actix_server=warn"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // A second subscriber in one process changes nothing.
    let _ = match std::env::var("BROKER_LOG").as_deref() {
        Ok("json") => logs.json().try_init(),
        _ => logs.try_init(),
    };
}
