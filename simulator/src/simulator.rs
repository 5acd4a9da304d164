//! Starts, drives, breaks, inspects and stops the simulator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use rust_decimal::Decimal;

use crate::machine::{Order, Phase, Record};
use crate::node::Nodes;
use crate::server::Listener;
use crate::ssh::SshServer;
use crate::state::State;
use crate::world::{Durations, Refusal, SimulatedMarket};
use crate::{
    Bill, Clock, Fault, Front, Launch, Machine, Market, NodeOutput, Operation, Provider,
    SimulatorError, control, lambda, runpod, voltagepark,
};

/// Whether pretend nodes run the start-up scripts of their orders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeRunner {
    /// As child processes.
    Run,
    /// Not at all.
    Off,
}

/// The configuration of a simulator.
pub struct Config {
    /// The clock of every state and every bill.
    pub clock: Arc<dyn Clock>,
    /// Ids and addresses are derived from it; credentials are not.
    pub seed: u64,
    /// Whether start-up scripts are run.
    pub node_runner: NodeRunner,
    /// The offers at the start.
    pub market: Market,
    /// From launch to `active`, by the clock.
    pub lambda_boot_seconds: u32,
    /// From launch to `RUNNING`, by the clock.
    pub runpod_boot_seconds: u32,
    /// From launch to `Running`, by the clock.
    pub voltagepark_boot_seconds: u32,
    /// How long an ended machine is still listed as `terminating`, by the clock.
    pub lambda_terminating_seconds: u32,
    /// The least time between two launches at lambda, by the clock; the second one gets 429 without
    /// `Retry-After`. The real one has 12; absent, there is no limit.
    pub lambda_launch_spacing_seconds: Option<u32>,
    /// How long a node's script may run, in real time.
    pub node_deadline: Duration,
    /// How many nodes' scripts run at once; the others wait. The nodes of one machine start
    /// together, however many they are.
    pub nodes_at_once: u32,
}

impl Config {
    /// The bundled market, nodes that run, boot times of 5, 2 and 15 minutes, no limit on launches.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            seed: 1,
            node_runner: NodeRunner::Run,
            market: Market::bundled(),
            lambda_boot_seconds: 300,
            runpod_boot_seconds: 120,
            voltagepark_boot_seconds: 900,
            lambda_terminating_seconds: 15,
            lambda_launch_spacing_seconds: None,
            node_deadline: Duration::from_secs(120),
            nodes_at_once: 4,
        }
    }
}

/// The running market in a box, listening on loopback. Dropping it ends every node that it runs.
pub struct Simulator {
    state: Arc<State>,
    lambda: Listener,
    runpod: Listener,
    voltagepark: Listener,
    control: Listener,
}

impl Simulator {
    /// Opens one port for each provider and one for control. Must be called within a Tokio
    /// runtime, which has to outlive the simulator's nodes.
    ///
    /// Errors: [`SimulatorError::Listen`], [`SimulatorError::Workspace`].
    #[allow(
        clippy::unused_async,
        reason = "asynchronous because it needs a runtime to run in"
    )]
    pub async fn start(config: Config) -> Result<Self, SimulatorError> {
        let seconds = |seconds: u32| TimeDelta::seconds(seconds.into());
        let durations = Durations {
            lambda_boot: seconds(config.lambda_boot_seconds),
            runpod_boot: seconds(config.runpod_boot_seconds),
            voltagepark_boot: seconds(config.voltagepark_boot_seconds),
            lambda_ending: seconds(config.lambda_terminating_seconds),
            lambda_launch_spacing: config.lambda_launch_spacing_seconds.map(seconds),
        };
        let nodes = Nodes::try_new(config.node_deadline, config.nodes_at_once)?;
        let world = SimulatedMarket::new(config.market, config.seed, durations, nodes.ssh_port());
        let state = Arc::new(State::new(config.clock, nodes, config.node_runner, world));
        let simulator = Self {
            lambda: Listener::open(&state, lambda::routes)?,
            runpod: Listener::open(&state, runpod::routes)?,
            voltagepark: Listener::open(&state, voltagepark::routes)?,
            control: Listener::open(&state, control::routes)?,
            state,
        };
        let at = |provider| (provider, simulator.url(provider));
        let addresses = Provider::ALL.into_iter().map(at).collect();
        simulator.state.opened_at(addresses);
        Ok(simulator)
    }

    /// Base URL of a provider: with `/api/v1`, and at runpod without a path.
    #[must_use]
    pub fn url(&self, provider: Provider) -> String {
        match provider {
            Provider::Lambda => format!("{}/api/v1", self.lambda.origin),
            Provider::Runpod => self.runpod.origin.clone(),
            Provider::Voltagepark => format!("{}/api/v1", self.voltagepark.origin),
        }
    }

    /// Base URL of the control plane: `GET /market`, `GET /clock`, `GET /machines`, `POST /faults`.
    #[must_use]
    pub fn control_url(&self) -> String {
        self.control.origin.clone()
    }

    /// The bearer token of a provider's account, generated at start. Only machines launched with it run
    /// scripts.
    #[must_use]
    pub fn credential(&self, provider: Provider) -> String {
        self.state.credential(provider)
    }

    /// The bearer token of the control plane, generated at start.
    #[must_use]
    pub fn control_credential(&self) -> String {
        self.state.control_credential()
    }

    /// Lets another bearer token use the same account, as a colleague's would. Its launches are foreign: none
    /// of their scripts run.
    pub fn admit_foreign_credential(&self, provider: Provider, token: impl Into<String>) {
        self.state.admit(provider, token.into());
    }

    /// Queues a fault for the next call that it fits.
    ///
    /// Errors: [`SimulatorError::FaultDoesNotFit`], [`SimulatorError::Price`].
    pub fn break_next(&self, fault: Fault) -> Result<(), SimulatorError> {
        self.state.world().faults.add(fault)
    }

    /// Drops the pending faults of a provider.
    pub fn drop_waiting_faults(&self, provider: Provider) {
        self.state.world().faults.drop_waiting(provider);
    }

    /// Puts something in front of a provider that answers in its place, or removes it.
    pub fn put_front(&self, provider: Provider, front: Option<Front>) {
        self.state.world().put_front(provider, front);
    }

    /// Adds a machine to the account that someone else launched: listed, billed, never ours. Returns its id.
    ///
    /// Errors: [`SimulatorError::NotSold`], [`SimulatorError::NoCapacity`].
    pub fn add_foreign_machine(
        &self,
        provider: Provider,
        sku: &str,
        place: &str,
        nodes: u32,
        name: &str,
    ) -> Result<String, SimulatorError> {
        let order = Order {
            sku: sku.to_owned(),
            place: place.to_owned(),
            nodes,
            name: name.to_owned(),
            foreign: true,
            ..Order::default()
        };
        let launched = self
            .state
            .world()
            .launch(provider, order, None, self.state.now())
            .map(|record| record.id.clone());
        launched.map_err(|refusal| {
            let (sku, place) = (sku.to_owned(), place.to_owned());
            match refusal {
                Refusal::SoldOut => SimulatorError::NoCapacity {
                    provider,
                    sku,
                    place,
                    nodes,
                },
                Refusal::UnknownSku | Refusal::UnknownPlace => SimulatorError::NotSold {
                    provider,
                    sku,
                    place,
                },
            }
        })
    }

    /// Everything that is alive: booting, running, or failed and still billed.
    #[must_use]
    pub fn running_machines(&self) -> Vec<Machine> {
        let now = self.state.now();
        let alive = |record: &&Record| {
            matches!(
                record.phase(now),
                Phase::Booting | Phase::Running | Phase::Failed
            )
        };
        self.state
            .world()
            .every_record()
            .iter()
            .filter(alive)
            .map(|record| record.describe(now))
            .collect()
    }

    /// Every launch that was carried out, even if its answer was lost.
    #[must_use]
    pub fn launches(&self, provider: Provider) -> Vec<Launch> {
        self.state
            .world()
            .records(provider)
            .map(Record::launch)
            .collect()
    }

    /// A provider's bill up to now.
    #[must_use]
    pub fn bill(&self, provider: Provider) -> Bill {
        Bill::of(
            provider,
            self.state.world().records(provider),
            self.state.now(),
        )
    }

    /// Changes a list price everywhere, in the basis of the market file: a node at lambda, a GPU at runpod
    /// (for every count of the type) and voltagepark. Machines already launched keep theirs.
    ///
    /// Errors: [`SimulatorError::Price`], [`SimulatorError::NotSold`].
    pub fn set_price(
        &self,
        provider: Provider,
        sku: &str,
        price_usd_hour: Decimal,
    ) -> Result<(), SimulatorError> {
        self.state.world().set_price(provider, sku, price_usd_hour)
    }

    /// Sets how many nodes are free at each place that sells the SKU.
    ///
    /// Errors: [`SimulatorError::NotSold`].
    pub fn set_capacity(
        &self,
        provider: Provider,
        sku: &str,
        free_nodes: u32,
    ) -> Result<(), SimulatorError> {
        self.state
            .world()
            .set_capacity(provider, sku, None, free_nodes)
    }

    /// Sets how many nodes are free at one place.
    ///
    /// Errors: [`SimulatorError::NotSold`].
    pub fn set_place_capacity(
        &self,
        provider: Provider,
        sku: &str,
        place: &str,
        free_nodes: u32,
    ) -> Result<(), SimulatorError> {
        self.state
            .world()
            .set_capacity(provider, sku, Some(place), free_nodes)
    }

    /// How often each operation was called, refused and broken calls included.
    #[must_use]
    pub fn call_counts(&self) -> BTreeMap<(Provider, Operation), u64> {
        self.state.world().calls.clone()
    }

    /// The output of a node's script and how it ended; none if it never became due.
    #[must_use]
    pub fn node_output(&self, machine_id: &str, node_index: usize) -> Option<NodeOutput> {
        self.state.nodes.output(machine_id, node_index)
    }

    /// The home of a node; it stays when its machine has ended.
    #[must_use]
    pub fn node_home(&self, machine_id: &str, node_index: usize) -> Option<PathBuf> {
        self.state.nodes.home(machine_id, node_index)
    }

    /// The SSH port of the nodes. Real nodes mostly use 22, which a simulator cannot open. It is on the wire,
    /// at lambda and voltagepark in a field that the real ones do not have.
    #[must_use]
    pub fn ssh_port(&self) -> u16 {
        self.state.nodes.ssh_port()
    }

    /// Takes a machine off the network: its nodes keep running and are billed, and hang up on every client.
    ///
    /// Errors: [`SimulatorError::NoSuchMachine`].
    pub fn drop_off_network(&self, machine_id: &str) -> Result<(), SimulatorError> {
        self.on_ssh(machine_id, |server| server.set_open(false))
    }

    /// Brings a machine back onto the network.
    ///
    /// Errors: [`SimulatorError::NoSuchMachine`].
    pub fn return_to_network(&self, machine_id: &str) -> Result<(), SimulatorError> {
        self.on_ssh(machine_id, |server| server.set_open(true))
    }

    /// Gives a machine's nodes other host keys, as a reinstalled machine or an impostor has.
    ///
    /// Errors: [`SimulatorError::NoSuchMachine`].
    pub fn change_host_keys(&self, machine_id: &str) -> Result<(), SimulatorError> {
        self.on_ssh(machine_id, SshServer::change_host_key)
    }

    fn on_ssh(&self, id: &str, act: impl FnMut(&mut SshServer)) -> Result<(), SimulatorError> {
        if self.state.nodes.on_ssh(id, act) {
            Ok(())
        } else {
            Err(SimulatorError::NoSuchMachine(id.to_owned()))
        }
    }

    /// Starts the nodes that have become due by the clock, without waiting for them.
    pub fn tick(&self) {
        self.state.advance();
    }

    /// Starts the nodes that have become due by the clock and waits until none is queued or
    /// running, including those that became due meanwhile.
    pub async fn settle(&self) {
        loop {
            let started = self.state.advance();
            self.state.nodes.idle().await;
            if started == 0 {
                return;
            }
        }
    }

    /// Closes the ports, ends every node and removes their directories.
    pub async fn stop(self) {
        self.state.nodes.close();
        self.state.let_go.notify_waiters();
        self.lambda.close().await;
        self.runpod.close().await;
        self.voltagepark.close().await;
        self.control.close().await;
        self.state.nodes.idle().await;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.state.nodes.close();
        self.state.let_go.notify_waiters();
        for listener in [&self.lambda, &self.runpod, &self.voltagepark, &self.control] {
            // The stop is requested at once; only its completion would have to be awaited.
            drop(listener.close());
        }
    }
}
