//! Starts, drives, breaks, inspects and stops the simulator.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{self, ServiceConfig};
use rust_decimal::Decimal;

use crate::exchange::exchange;
use crate::machine::{Order, Record};
use crate::node::Nodes;
use crate::reply::Refusal;
use crate::server::Listener;
use crate::ssh::SshServer;
use crate::state::{Credentials, State};
use crate::world::SimulatedMarket;
use crate::{
    Bill, Clock, Fault, Front, Launch, Machine, Market, NodeOutput, Operation, Provider,
    SimulatorError, Thing, Timing, control,
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
    /// Whom to simulate; others can be simulated than those of [`Provider::ALL`].
    pub providers: Vec<Provider>,
    /// The offers at the start.
    pub market: Market,
    /// The durations of providers, where they are not their usual ones: [`Config::timing_of`].
    pub timing: BTreeMap<Provider, Timing>,
    /// How long a node's script may run, in real time.
    pub node_deadline: Duration,
    /// How many nodes' scripts run at once; the others wait. The nodes of one machine start
    /// together, however many they are.
    pub nodes_at_once: u32,
}

impl Config {
    /// The bundled market, nodes that run, the usual durations of every provider.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            seed: 1,
            node_runner: NodeRunner::Run,
            providers: Provider::ALL.to_vec(),
            market: Market::bundled(),
            timing: BTreeMap::new(),
            node_deadline: Duration::from_secs(120),
            nodes_at_once: 4,
        }
    }

    /// The durations of a provider, to change.
    pub fn timing_of(&mut self, provider: Provider) -> &mut Timing {
        self.timing
            .entry(provider)
            .or_insert_with(|| provider.timing())
    }
}

/// The running market in a box, listening on loopback. Dropping it ends every node that it runs.
pub struct Simulator {
    state: Arc<State>,
    providers: BTreeMap<Provider, Listener>,
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
        let nodes = Nodes::try_new(config.node_deadline, config.nodes_at_once)?;
        let port = nodes.ssh_port();
        let world = SimulatedMarket::new(config.market, config.seed, config.timing, port);
        let credentials = Credentials::of(&config.providers);
        let (clock, runner) = (config.clock, config.node_runner);
        let state = Arc::new(State::new(clock, nodes, runner, world, credentials));
        let mut providers = BTreeMap::new();
        for provider in config.providers {
            let routes = move |config: &mut ServiceConfig| answer_as(provider, config);
            providers.insert(provider, Listener::open(&state, routes)?);
        }
        let simulator = Self {
            providers,
            control: Listener::open(&state, control::routes)?,
            state,
        };
        let at = |provider| (provider, simulator.url(provider));
        let addresses = simulator.providers.keys().copied().map(at).collect();
        simulator.state.opened_at(addresses);
        Ok(simulator)
    }

    /// Whom it simulates, in the order of their ids.
    pub fn providers(&self) -> impl Iterator<Item = Provider> {
        self.providers.keys().copied()
    }

    /// Base URL of a provider, with the path before every other; no URL for one that is not simulated.
    #[must_use]
    pub fn url(&self, provider: Provider) -> String {
        let origin = self
            .providers
            .get(&provider)
            .map(|listener| &listener.origin);
        format!(
            "{}{}",
            origin.map_or("", String::as_str),
            provider.twin().base_path
        )
    }

    /// Base URL of the control plane: `GET /market`, `GET /clock`, `GET /machines`, `POST /faults`.
    #[must_use]
    pub fn control_url(&self) -> String {
        self.control.origin.clone()
    }

    /// The credential of a provider's account, generated at start: a token, or a client id and its secret with
    /// a colon between where those are exchanged for one. Only machines launched with it run scripts.
    #[must_use]
    pub fn credential(&self, provider: Provider) -> String {
        self.state.credential(provider)
    }

    /// The bearer token of the control plane, generated at start.
    #[must_use]
    pub fn control_credential(&self) -> String {
        self.state.control_credential()
    }

    /// Lets another credential use the same account, as a colleague's would. Its launches are foreign: none
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
            nodes,
            name: name.to_owned(),
            foreign: true,
            ..Order::of(sku, place)
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
                _ => SimulatorError::NotSold {
                    provider,
                    sku,
                    place,
                },
            }
        })
    }

    /// Shows a machine, in lists and by its id, with a status that nobody knows, until it is released or this
    /// is cleared. It can be released all the same.
    ///
    /// Errors: [`SimulatorError::NotAlive`].
    pub fn show_unknown_state(&self, machine_id: &str) -> Result<(), SimulatorError> {
        self.set_unknown_state(machine_id, true)
    }

    /// Shows a machine with its own status again.
    ///
    /// Errors: [`SimulatorError::NotAlive`].
    pub fn clear_unknown_state(&self, machine_id: &str) -> Result<(), SimulatorError> {
        self.set_unknown_state(machine_id, false)
    }

    fn set_unknown_state(&self, machine_id: &str, is_unknown: bool) -> Result<(), SimulatorError> {
        let (mut world, now) = (self.state.world(), self.state.now());
        let record = world.record_mut(machine_id);
        let Some(record) = record.filter(|record| record.is_alive(now)) else {
            return Err(SimulatorError::NotAlive(machine_id.to_owned()));
        };
        record.is_in_unknown_state = is_unknown;
        Ok(())
    }

    /// Takes a machine back, as a provider does that needs it for someone else: its nodes end and its bill
    /// stops. Where the provider has a word for that, it is listed with it until it is released.
    ///
    /// Errors: [`SimulatorError::NotAlive`].
    pub fn preempt(&self, machine_id: &str) -> Result<(), SimulatorError> {
        if !self.state.world().preempt(machine_id, self.state.now()) {
            return Err(SimulatorError::NotAlive(machine_id.to_owned()));
        }
        self.state.nodes.stop_machine(machine_id);
        Ok(())
    }

    /// The things beside the machines of an account, in the order of their creation: what a caller has left
    /// there.
    #[must_use]
    pub fn things(&self, provider: Provider) -> Vec<Thing> {
        let world = self.state.world();
        let things = world.things.iter();
        things
            .filter(|thing| thing.provider == provider)
            .cloned()
            .collect()
    }

    /// Everything that is alive and billed: booting, running, or failed.
    #[must_use]
    pub fn running_machines(&self) -> Vec<Machine> {
        let now = self.state.now();
        let alive = |record: &&Record| record.is_alive(now);
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

    /// Changes the list price of a SKU everywhere, and of everything that has one price with it, in the basis
    /// of the market file. Machines already launched keep theirs.
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
    /// at some providers in a field that the real ones do not have.
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
        for listener in self.providers.values() {
            listener.close().await;
        }
        self.control.close().await;
        self.state.nodes.idle().await;
    }
}

/// Answers every path as this provider.
fn answer_as(provider: Provider, config: &mut ServiceConfig) {
    let handler = move |request, state, body| exchange(provider, request, state, body);
    config.default_service(web::route().to(handler));
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.state.nodes.close();
        self.state.let_go.notify_waiters();
        for listener in self.providers.values().chain([&self.control]) {
            // The stop is requested at once; only its completion would have to be awaited.
            drop(listener.close());
        }
    }
}
