//! `broker serve`: the service, with its pollers and workers.

use std::path::PathBuf;
use std::sync::Arc;

use adapters::pricesheet;
use clap::Args;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::warn;

use super::market::{Market, keep_turning};
use crate::cli::database::DatabaseArgs;
use crate::flow::ingest;
use crate::http;
use crate::platform::config::Config;
use crate::platform::data_dir::Claim;
use crate::platform::spans::Spans;
use crate::service::{start, tasks};
use crate::terminal::aside::tell;
use crate::terminal::ending::{Ending, block_on, listen_at};
use crate::terminal::price_lists::read_sheets;

/// Runs the service.
///
/// Settings come from `broker.toml` in the working directory, then `BROKER__SECTION__KEY` and
/// `DATABASE_URL` in the environment, then flags. Logs go to stderr (RUST_LOG, BROKER_LOG=json).
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The address to listen at, instead of 127.0.0.1:8080; port 0 selects a free one.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// Sells a simulated market: starts simulated providers on a simulation database. A database created
    /// for simulation stays one.
    #[arg(long)]
    simulate: bool,
    /// Sells the simulated market of another process, which several replicas may share, and follows its
    /// clock. The address is the one that `broker simulator run` printed. The credential is read from
    /// BROKER__SIMULATION__CREDENTIAL.
    #[arg(long, value_name = "URL", conflicts_with = "simulate")]
    market: Option<String>,
    /// Trusts this machine's clock, even if the database holds a later time or its server shows another
    /// one. Use it after a start with a wrong clock, once the clock is right.
    #[arg(long)]
    trust_clock: bool,
    /// Price lists for comparison; nothing is ordered from them.
    #[arg(long, num_args = 1.., value_name = "FILE.csv")]
    pricesheets: Vec<PathBuf>,
    #[command(flatten)]
    database: DatabaseArgs,
}

pub(super) fn run(args: ServeArgs) -> Result<(), Ending> {
    block_on(async {
        let spans = Spans::log_and_export();
        let ended = configure_and_serve(args).await;
        spans.end().await;
        ended
    })
}

async fn configure_and_serve(args: ServeArgs) -> Result<(), Ending> {
    let mut config =
        Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    config.check().map_err(Ending::wrong_input)?;
    if let Some(listen) = args.listen {
        config.server.listen = listen;
    }
    config.simulation.market_url = args.market.or(config.simulation.market_url);
    config.pricesheets.extend(args.pricesheets);
    serve(config, args.simulate, args.trust_clock).await
}

async fn serve(config: Config, simulate: bool, trust_clock: bool) -> Result<(), Ending> {
    let sheets = read_sheets(&config.pricesheets)?;
    let mut stopped = Stopped::listen()?;
    let listener = listen_at(&config.server.listen)?;
    let address = listener.local_addr()?;
    // Each of two services would see the other's machines as unknown at its own providers.
    let _claim = match config.database.url {
        None => Some(Claim::take(&config.data_dir).map_err(Ending::cannot_start)?),
        Some(_) => None,
    };
    let public_url = config
        .server
        .public_url
        .clone()
        .unwrap_or_else(|| format!("http://{address}"));
    let key_hint = key_hint(&config);
    let mut market = Market::open(&config.simulation, simulate).await?;
    let (mode, clock, links) = (
        market.mode(),
        market.clock(trust_clock),
        market.take_links()?,
    );
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
        warn!(error = %crate::chain(&failure), "Failed to store price lists");
    }
    if let Market::Own(_) = &market {
        // The service is ready at once: its first caller finds the market read.
        for failure in ingest::read_own(&broker).await {
            warn!(error = %crate::chain(&failure), "Failed to read the simulated market");
        }
    }
    let server = http::serve(broker.clone(), listener)?;
    let handle = server.handle();
    tell(&format!(
        "Serving at http://{address} (mode: {mode}) until Ctrl-C. {key_hint}"
    ));

    let mut work = tasks::start(&broker);
    if let Market::Own(simulator) = &market {
        let market = Arc::clone(simulator);
        work.add("simulated market", move |_, stop| {
            keep_turning(Arc::clone(&market), stop)
        });
    }
    let ended = tokio::select! {
        ended = server => ended.map_err(Ending::from),
        () = stopped.wait() => Ok(()),
    };
    tokio::select! {
        _ = async { tokio::join!(handle.stop(true), work.stop()) } => {}
        () = stopped.wait() => warn!("Stopped again: unfinished work is dropped"),
    }
    if let Market::Own(simulator) = market
        && let Some(simulator) = Arc::into_inner(simulator)
    {
        simulator.stop().await;
    }
    ended
}

/// The next step for a new user.
fn key_hint(config: &Config) -> String {
    let place = match config.database.url {
        Some(_) => String::new(),
        None => format!(" --data-dir {}", config.data_dir.display()),
    };
    format!("A key: broker token create --tenant NAME{place}")
}

/// The two ways to stop a process: Ctrl-C, and the signal of a container or service manager.
pub(super) struct Stopped {
    interrupt: Signal,
    terminate: Signal,
}

impl Stopped {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    pub(super) async fn wait(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
