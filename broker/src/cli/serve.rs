//! `broker serve`: the service, with its pollers and workers.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use adapters::pricesheet;
use clap::Args;
use store::settings::DatabaseMode;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;
use tracing_subscriber::EnvFilter;

use super::{DatabaseArgs, Ending, block_on, listen_at, read_sheets};
use crate::app::Broker;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::demo::world::{CALL_TIMEOUT, simulated_links};
use crate::{fulfil, http, ingest, start, sweep};

/// Runs the service until Ctrl-C or SIGTERM.
///
/// Settings come from `broker.toml` in the working directory, then `BROKER__SECTION__KEY` and
/// `DATABASE_URL` in the environment, then flags. Logs go to stderr (RUST_LOG, BROKER_LOG=json).
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// Where to listen, in place of 127.0.0.1:8080; port 0 takes a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Sell a simulated market: starts simulated providers over a simulation database. What a
    /// database was made for it stays.
    #[arg(long)]
    simulate: bool,
    /// Price lists to compare with; nothing is ordered from them.
    #[arg(long, num_args = 1.., value_name = "FILE.csv")]
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
    let sheets = read_sheets(&config.pricesheets)?;
    let mut stopped = Stopped::listen()?;
    let listener = listen_at(&config.server.listen)?;
    let address = listener.local_addr()?;
    let public_url = config
        .server
        .public_url
        .clone()
        .unwrap_or_else(|| format!("http://{address}"));
    let clock = Arc::new(SystemClock);
    let key_hint = key_hint(&config);
    let mode = if simulate {
        DatabaseMode::Simulation
    } else {
        DatabaseMode::Production
    };
    let market = match simulate {
        true => {
            let clock = Arc::clone(&clock) as Arc<dyn simulator::Clock>;
            Some(Arc::new(simulator::Simulator::start(quick(clock)).await?))
        }
        false => None,
    };
    let links = match &market {
        Some(market) => simulated_links(market, CALL_TIMEOUT, &|adapter| adapter)?,
        None => Vec::new(),
    };
    if links.is_empty() && !config.providers.values().any(|provider| provider.enabled) {
        warn!(
            "No provider is configured (providers.<id>.enabled and .credential): nothing can be sold"
        );
    }
    let broker = start::start(config, mode, clock, links, public_url)
        .await
        .map_err(Ending::cannot_start)?;
    let lists = pricesheet::read_price_sheets(&sheets, broker.now());
    if let Err(failure) = ingest::read_price_lists(&broker, &lists).await {
        warn!(error = %crate::chain(&failure), "Price lists could not be kept");
    }
    let server = http::serve(broker.clone(), listener)?;
    let handle = server.handle();
    eprintln!("Serving at http://{address} (mode: {mode}) until Ctrl-C. {key_hint}");

    let mut work = tokio::task::JoinSet::new();
    work.spawn(ingest::poll_forever(broker.clone()));
    work.spawn(work_on_fresh_supply(broker.clone()));
    work.spawn(sweep::sweep_forever(broker));
    if let Some(market) = &market {
        work.spawn(keep_turning(Arc::clone(market)));
    }
    let ended = tokio::select! {
        ended = server => ended.map_err(Ending::from),
        () = stopped.wait() => Ok(()),
    };
    handle.stop(true).await;
    work.shutdown().await;
    if let Some(market) = market.and_then(Arc::into_inner) {
        market.stop().await;
    }
    ended
}

/// Reads every provider, then works: what was known before a pause is stale, and nothing is decided
/// on it.
async fn work_on_fresh_supply(broker: Broker) {
    for failure in ingest::read_all(&broker).await {
        warn!(error = %crate::chain(&failure), "A provider could not be read");
    }
    fulfil::work_forever(broker).await;
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

/// What a newcomer needs next.
fn key_hint(config: &Config) -> String {
    let place = match config.database.url {
        Some(_) => String::new(),
        None => format!(" --data-dir {}", config.data_dir.display()),
    };
    format!("A key: broker token create --tenant NAME{place}")
}

/// The two ways to ask a service to end: Ctrl-C, and what a container or service manager sends.
struct Stopped {
    interrupt: Signal,
    terminate: Signal,
}

impl Stopped {
    fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

fn log_to_stderr() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        EnvFilter::new("info,sqlx=warn,actix_server=warn,sea_orm_migration=warn")
    });
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // A second subscriber in one process changes nothing.
    let _ = match std::env::var("BROKER_LOG").as_deref() {
        Ok("json") => logs.json().try_init(),
        _ => logs.try_init(),
    };
}
