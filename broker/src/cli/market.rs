//! The providers of a command beside those of the configuration, and its clock: the real ones, a
//! simulated market of its own, or one shared with other processes.

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
    /// Only the providers of the configuration.
    Real,
    /// A simulator in this process.
    Own(Arc<simulator::Simulator>),
    /// A simulator in another process.
    Shared(SharedMarket),
}

impl Market {
    /// Joins the market of the configuration, if one is named; else starts one of its own, if
    /// requested.
    pub(super) async fn open(config: &SimulationConfig, simulate: bool) -> Result<Self, Ending> {
        let Some(url) = &config.market_url else {
            return match simulate {
                true => Ok(Self::Own(Arc::new(start_quick().await?))),
                false => Ok(Self::Real),
            };
        };
        let Some(credential) = &config.credential else {
            return Err(Ending::wrong_input(
                "the market has no credential; set BROKER__SIMULATION__CREDENTIAL \
                 to the one that the simulator printed",
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

    /// The clock; `is_trusted` accepts the machine's clock even if other clocks differ.
    pub(super) fn clock(&self, is_trusted: bool) -> Arc<dyn Clock> {
        let machines = WatchedClock::of_machine();
        match self {
            Self::Real | Self::Own(_) if is_trusted => Arc::new(machines.trusted()),
            Self::Real | Self::Own(_) => Arc::new(machines),
            Self::Shared(market) => Arc::clone(&market.clock) as Arc<dyn Clock>,
        }
    }

    /// The simulated providers; those of a shared market are returned once.
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
    let mut config = simulator::Config::new(clock);
    config.providers = simulator::Provider::DEMONSTRATION.to_vec();
    for provider in simulator::Provider::DEMONSTRATION {
        config.timing_of(provider).boot_seconds = 5;
    }
    Ok(simulator::Simulator::start(config).await?)
}

/// Starts the nodes of booted machines, until it is stopped.
pub(super) async fn keep_turning(market: Arc<simulator::Simulator>, stop: Stop) {
    loop {
        market.tick();
        if !pause(&stop, Duration::from_millis(500)).await {
            return;
        }
    }
}
