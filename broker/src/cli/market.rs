//! Where a command's providers come from beside those of the configuration, and which clock it
//! follows: the real ones, a simulated market of its own, or one that it shares with others.

use std::sync::Arc;
use std::time::Duration;

use store::settings::DatabaseMode;

use crate::platform::clock::{Clock, SystemClock, WatchedClock};
use crate::platform::config::SimulationConfig;
use crate::platform::provider_set::ProviderLink;
use crate::platform::stop::{Stop, pause};
use crate::terminal::ending::Ending;
use crate::tools::simulation::{CALL_TIMEOUT, SharedMarket, simulated_links};

/// The market that a broker buys on.
pub(super) enum Market {
    /// The providers of the configuration alone.
    Real,
    /// A simulator of this process.
    Own(Arc<simulator::Simulator>),
    /// A simulator of another process.
    Shared(SharedMarket),
}

impl Market {
    /// Joins the market of the configuration, where one is named; else starts one of its own, where
    /// that is asked for.
    pub(super) async fn open(config: &SimulationConfig, simulate: bool) -> Result<Self, Ending> {
        let Some(url) = &config.market_url else {
            return match simulate {
                true => Ok(Self::Own(Arc::new(start_quick().await?))),
                false => Ok(Self::Real),
            };
        };
        let Some(credential) = &config.credential else {
            return Err(Ending::wrong_input(
                "a market is named and its credential is not; set BROKER__SIMULATION__CREDENTIAL \
                 to what the simulator printed",
            ));
        };
        let joined = SharedMarket::join(url, credential).await;
        joined.map(Self::Shared).map_err(|error| {
            Ending::wrong_input(format!("the market {url} cannot be joined: {error:#}"))
        })
    }

    pub(super) fn mode(&self) -> DatabaseMode {
        match self {
            Self::Real => DatabaseMode::Production,
            Self::Own(_) | Self::Shared(_) => DatabaseMode::Simulation,
        }
    }

    /// The clock; `is_trusted` says to believe the machine's whatever other clocks show.
    pub(super) fn clock(&self, is_trusted: bool) -> Arc<dyn Clock> {
        let machines = WatchedClock::of_machine();
        match self {
            Self::Real | Self::Own(_) if is_trusted => Arc::new(machines.trusted()),
            Self::Real | Self::Own(_) => Arc::new(machines),
            Self::Shared(market) => Arc::clone(&market.clock) as Arc<dyn Clock>,
        }
    }

    /// The simulated providers; those of a shared market are handed over once.
    pub(super) fn take_links(&mut self) -> Result<Vec<ProviderLink>, Ending> {
        match self {
            Self::Real => Ok(Vec::new()),
            Self::Own(simulator) => Ok(simulated_links(simulator, CALL_TIMEOUT, &|adapter| {
                adapter
            })?),
            Self::Shared(market) => Ok(std::mem::take(&mut market.links)),
        }
    }
}

/// Starts a market that boots its machines within seconds, because a person waits for them.
///
/// Errors: a port that cannot be opened.
pub(super) async fn start_quick() -> Result<simulator::Simulator, Ending> {
    let clock = Arc::new(SystemClock) as Arc<dyn simulator::Clock>;
    Ok(simulator::Simulator::start(simulator::Config {
        lambda_boot_seconds: 5,
        voltagepark_boot_seconds: 10,
        ..simulator::Config::new(clock)
    })
    .await?)
}

/// Starts the nodes of machines that came up, until it is told to stop.
pub(super) async fn keep_turning(market: Arc<simulator::Simulator>, stop: Stop) {
    loop {
        market.tick();
        if !pause(&stop, Duration::from_millis(500)).await {
            return;
        }
    }
}
