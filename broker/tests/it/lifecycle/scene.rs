//! The scene of a life-cycle test: a world with a tenant, on a given database, whose clock only the test
//! advances, and whose broker can be killed and restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adapters::Adapter;
use broker::flow::reserve::{self, Particulars};
use broker::flow::{fulfil, ingest};
use broker::platform::app::Broker;
use broker::platform::config::Config;
use broker::platform::provider_set::ProviderLink;
use broker::service::start;
use broker::tools::simulation::{SimulatedMarket, SimulatedMarketOptions, simulated_links};
use chrono::TimeDelta;
use market::demand::Demand;
use market::identity::TenantScope;
use market::ids::{ProjectId, ProviderId, ReservationId, SshKeyId, TenantId};
use market::ledger::{Account, LedgerUnit};
use market::money::{Currency, Rate};
use market::order::LeaseRef;
use market::reservation::{CloseReason, ReservationState};
use market::usage::Charge;
use rust_decimal::{Decimal, RoundingStrategy};
use serde_json::Value;
use simulator::{Fault, FaultKind, Provider, Simulator};
use store::Store;
use store::leases::Lease;
use store::reservations::Reservation;
use store::settings::DatabaseMode;
use store::ssh_keys::NewSshKey;
use tempfile::TempDir;

use super::tap::{CallInterceptor, Line};
pub(crate) use super::wanted::{anything_at, container, fleet, training};
use crate::service::{NODE_DEADLINE, agent, install_tls};

/// How long a call to a provider may take in a scene, in real time.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Puts a tap before an adapter.
type MakeTap = fn(&'static dyn Adapter, Arc<Line>) -> &'static dyn Adapter;

/// A world with a tenant.
pub(crate) struct Scene {
    world: SimulatedMarket,
    broker: Broker,
    store: Store,
    dir: TempDir,
    call_timeout: Duration,
    tap: MakeTap,
    pub(crate) line: Arc<Line>,
    pub(crate) tenant: TenantId,
}

impl Scene {
    /// A scene on this database, with the providers read.
    pub(crate) async fn open(store: &Store) -> Self {
        Self::open_with(store, CALL_TIMEOUT, CallInterceptor::before).await
    }

    /// A scene with this provider alone.
    pub(crate) async fn open_at(store: &Store, provider: Provider) -> Self {
        let tap = CallInterceptor::before;
        Self::open_among(store, CALL_TIMEOUT, tap, &[provider]).await
    }

    /// A scene whose calls to providers are given up soon.
    pub(crate) async fn open_impatient(store: &Store) -> Self {
        Self::open_with(store, Duration::from_secs(2), CallInterceptor::before).await
    }

    /// A scene in which every node of a gang is an order of its own.
    pub(crate) async fn open_node_by_node(store: &Store) -> Self {
        Self::open_with(store, CALL_TIMEOUT, CallInterceptor::node_by_node).await
    }

    /// A scene in which two nodes of a gang at most are one order.
    pub(crate) async fn open_two_by_two(store: &Store) -> Self {
        Self::open_with(store, CALL_TIMEOUT, CallInterceptor::two_by_two).await
    }

    /// A scene whose nodes run no script, and get their agent over SSH.
    pub(crate) async fn open_pushed(store: &Store) -> Self {
        Self::open_with(store, CALL_TIMEOUT, CallInterceptor::pushed).await
    }

    /// As [`Self::open_pushed`], and every node of a gang is an order of its own.
    pub(crate) async fn open_pushed_node_by_node(store: &Store) -> Self {
        Self::open_with(store, CALL_TIMEOUT, CallInterceptor::pushed_node_by_node).await
    }

    async fn open_with(store: &Store, call_timeout: Duration, tap: MakeTap) -> Self {
        Self::open_among(store, call_timeout, tap, &Provider::DEMONSTRATION).await
    }

    async fn open_among(
        store: &Store,
        call_timeout: Duration,
        tap: MakeTap,
        providers: &[Provider],
    ) -> Self {
        install_tls();
        let dir = tempfile::tempdir().expect("a directory");
        let line = Arc::new(Line::default());
        let tapped = Arc::clone(&line);
        let world = SimulatedMarket::open(SimulatedMarketOptions {
            store: Some(store.clone()),
            executable: Some(agent()),
            call_timeout,
            providers: providers.to_vec(),
            // In the middle of a day and of a month: no period of a budget ends during a test.
            start: "2026-03-11T09:00:00Z".parse().expect("a time"),
            wrap: Box::new(move |adapter: &'static dyn Adapter| tap(adapter, Arc::clone(&tapped))),
            configure_market: Box::new(|market| market.node_deadline = NODE_DEADLINE),
            ..SimulatedMarketOptions::new(dir.path())
        })
        .await
        .expect("a world");
        let broker = world.broker().clone();
        let tenant = TenantId::from_uuid(broker.new_uuid());
        let project = ProjectId::from_uuid(broker.new_uuid());
        store
            .tenants()
            .ensure("acme", tenant, project, broker.now())
            .await
            .expect("a tenant");
        let key = NewSshKey {
            id: SshKeyId::from_uuid(broker.new_uuid()),
            name: "laptop".into(),
            public_key: "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt laptop".into(),
            fingerprint: "SHA256:test".into(),
        };
        store
            .ssh_keys()
            .of(tenant)
            .add(key, broker.now(), None)
            .await
            .expect("a key");
        let scene = Self {
            world,
            broker,
            store: store.clone(),
            dir,
            call_timeout,
            tap,
            line,
            tenant,
        };
        let failures = scene.read_providers().await;
        assert!(failures.is_empty(), "{failures:?}");
        scene
    }

    /// The broker as it runs now.
    pub(crate) fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Where nodes reach the service.
    pub(crate) fn base_url(&self) -> &str {
        self.world.base_url()
    }

    pub(crate) fn store(&self) -> &Store {
        &self.store
    }

    pub(crate) fn simulator(&self) -> &Simulator {
        self.world.simulator()
    }

    /// Makes the next call that the fault is about break.
    pub(crate) fn break_next(&self, provider: Provider, kind: FaultKind) {
        self.simulator()
            .break_next(Fault::new(provider, kind))
            .expect("a fault that fits");
    }

    pub(crate) async fn read_providers(&self) -> Vec<ingest::IngestError> {
        ingest::read_all(&self.broker).await
    }

    /// Moves the clock alone.
    pub(crate) fn pass_seconds(&self, seconds: i64) {
        self.world.clock().advance(TimeDelta::seconds(seconds));
    }

    /// Moves the clock alone, by less than a second if need be.
    pub(crate) fn pass_milliseconds(&self, milliseconds: i64) {
        self.world
            .clock()
            .advance(TimeDelta::milliseconds(milliseconds));
    }

    /// Does the due work, lets the nodes run to their end, and does the work that is due then.
    pub(crate) async fn work(&self) {
        fulfil::work_until_idle(&self.broker)
            .await
            .expect("the database answers");
        self.simulator().settle().await;
        fulfil::work_until_idle(&self.broker)
            .await
            .expect("the database answers");
    }

    /// Moves the clock, reads the providers, and does the due work.
    pub(crate) async fn turn(&self, seconds: i64) {
        self.pass_seconds(seconds);
        self.read_providers().await;
        self.work().await;
    }

    /// Restarts the broker over the same database, as after a crash. Its memory is gone. The service that
    /// nodes talk to is another replica, which lives on.
    pub(crate) async fn restart(&mut self) {
        self.restart_as(|_| {}, |_| true).await;
    }

    /// As [`Self::restart`], with another configuration and these providers alone.
    pub(crate) async fn restart_as(
        &mut self,
        configure: impl FnOnce(&mut Config),
        has: impl Fn(&str) -> bool,
    ) {
        let mut config = Config::embedded(self.dir.path()).expect("the defaults");
        config.verifier.agent_path = Some(agent());
        configure(&mut config);
        let (line, tap) = (Arc::clone(&self.line), self.tap);
        let wrap = move |adapter: &'static dyn Adapter| tap(adapter, Arc::clone(&line));
        let mut links = simulated_links(self.simulator(), self.call_timeout, &wrap).expect("links");
        links.retain(|link| has(link.adapter.profile().id));
        let clock = Arc::clone(self.world.clock()) as Arc<_>;
        let (store, url) = (self.store.clone(), self.world.base_url().to_owned());
        self.broker = start::with_store(store, config, DatabaseMode::Simulation, clock, links, url)
            .await
            .expect("the broker starts again");
        ingest::refresh_snapshot(&self.broker)
            .await
            .expect("a snapshot");
    }

    /// Plans, quotes and holds; not yet confirmed.
    pub(crate) async fn hold(&self, demand: Value) -> ReservationId {
        self.try_hold(demand).await.expect("a hold").id
    }

    pub(crate) async fn try_hold(
        &self,
        demand: Value,
    ) -> Result<Reservation, reserve::ReserveError> {
        let demand: Demand = serde_json::from_value(demand).expect("a demand");
        reserve::in_one_call(
            &self.broker,
            &TenantScope::whole(self.tenant),
            demand,
            Particulars::default(),
            None,
        )
        .await
    }

    pub(crate) async fn confirm(&self, id: ReservationId) {
        reserve::confirm(&self.broker, self.tenant, id, None)
            .await
            .expect("confirmed");
    }

    pub(crate) async fn release(&self, id: ReservationId) {
        reserve::release(&self.broker, self.tenant, id, None)
            .await
            .expect("released");
    }

    /// Plans, quotes, holds and confirms.
    pub(crate) async fn reserve(&self, demand: Value) -> ReservationId {
        let id = self.hold(demand).await;
        self.confirm(id).await;
        id
    }

    /// Reserves, and advances the clock until the tenant has it.
    pub(crate) async fn reserve_until_active(&self, demand: Value) -> ReservationId {
        let id = self.reserve(demand).await;
        self.work().await;
        self.until(id, ReservationState::Active).await;
        id
    }

    pub(crate) async fn reservation(&self, id: ReservationId) -> Reservation {
        let all = self.store.reservations();
        all.across_tenants()
            .find(id)
            .await
            .expect("an answer")
            .expect("the reservation")
    }

    pub(crate) async fn state(&self, id: ReservationId) -> ReservationState {
        self.reservation(id).await.state
    }

    pub(crate) async fn leases(&self, id: ReservationId) -> Vec<Lease> {
        self.store
            .leases()
            .across_tenants()
            .of_reservation(id)
            .await
            .expect("leases")
    }

    pub(crate) async fn charges(&self, id: ReservationId) -> Vec<Charge> {
        self.store
            .charges()
            .across_tenants()
            .of_reservation(id)
            .await
            .expect("charges")
    }

    /// Advances the clock, five minutes at a time, until the reservation is in this state.
    pub(crate) async fn until(&self, id: ReservationId, wanted: ReservationState) {
        for _ in 0..48 {
            if self.state(id).await == wanted {
                return;
            }
            self.turn(300).await;
        }
        let found = self.reservation(id).await;
        panic!(
            "{id} is {}, not {wanted}: {:?}",
            found.state,
            self.leases(id).await
        );
    }

    /// Releases the machines in use and waits until the reservation is closed.
    pub(crate) async fn release_and_close(&self, id: ReservationId) {
        self.release(id).await;
        self.work().await;
        self.until(id, ReservationState::Closed(CloseReason::Released))
            .await;
    }

    /// Invariants that hold at any moment: at most one machine was ever made for an order, every machine of
    /// ours has a row, and the ledger balances.
    pub(crate) async fn assert_sound(&self) {
        let leases = self.store.leases().across_tenants();
        let mut made: BTreeMap<String, usize> = BTreeMap::new();
        for provider in self.simulator().providers() {
            for launch in self
                .simulator()
                .launches(provider)
                .into_iter()
                .filter(|l| !l.foreign)
            {
                let token: market::order::ClientToken = launch.name.parse().expect("our mark");
                let row = leases.find(token.lease_id()).await.expect("an answer");
                assert!(
                    row.is_some(),
                    "{} at {provider} has no lease row",
                    launch.name
                );
                *made.entry(launch.name).or_default() += 1;
            }
        }
        let double: Vec<_> = made.iter().filter(|(_, count)| **count > 1).collect();
        assert!(double.is_empty(), "bought more than once: {double:?}");
        assert_eq!(
            self.world.leaked_machines().await.expect("a count"),
            0,
            "leaked machines"
        );
        let check = self.store.ledger().check().await.expect("a recount");
        assert!(check.is_balanced(), "{check:?}");
    }

    /// The invariant when everything is closed: nothing of ours runs.
    pub(crate) async fn assert_ended(&self) {
        self.assert_sound().await;
        let machines = self.simulator().running_machines();
        let ours: Vec<_> = machines
            .into_iter()
            .filter(|machine| !machine.foreign)
            .collect();
        assert!(ours.is_empty(), "still running: {ours:?}");
    }

    /// As [`Self::assert_ended`]; and our debt to each provider is its bill by its own arithmetic.
    pub(crate) async fn assert_settled(&self) {
        self.assert_ended().await;
        for provider in self.simulator().providers() {
            assert_eq!(
                self.payable(provider).await,
                self.billed_by(provider),
                "{provider}"
            );
        }
    }

    /// Our debt to a provider by the ledger. US dollars.
    pub(crate) async fn payable(&self, provider: Provider) -> Decimal {
        let id = ProviderId::parse(provider.as_str()).expect("a provider");
        -self.balance(&Account::Payable(id)).await
    }

    /// The provider's bill for our machines. US dollars.
    pub(crate) fn billed_by(&self, provider: Provider) -> Decimal {
        let lines = self.simulator().bill(provider).lines;
        lines
            .iter()
            .filter(|line| !line.foreign)
            .map(|line| line.amount_usd)
            .sum()
    }

    /// Debits less credits of an account. US dollars.
    pub(crate) async fn balance(&self, account: &Account) -> Decimal {
        let books = self.store.ledger().books().await.expect("books");
        let usd = LedgerUnit::Money(Currency::Usd);
        let units: i128 = books
            .balances
            .iter()
            .filter(|row| row.account == *account && row.unit == usd)
            .map(|row| row.amount)
            .sum();
        Decimal::from_i128_with_scale(units, 8)
    }

    /// GPU-seconds and US dollars that were charged for a reservation; checks that the dollars
    /// follow from the seconds at the rates that were quoted, rounded once at each.
    pub(crate) async fn charged(&self, id: ReservationId) -> (i64, Decimal) {
        let (mut seconds, mut usd) = (0, Decimal::ZERO);
        let charges = self.charges(id).await;
        for line in self.reservation(id).await.lines {
            let of_line = charges
                .iter()
                .filter(|charge| charge.usage.line == line.line);
            let mut by_rate: BTreeMap<Rate, (i64, Decimal)> = BTreeMap::new();
            for charge in of_line {
                let quoted = line.rate_at(charge.usage.from);
                assert_eq!(charge.rate, quoted, "the rate billed is the rate quoted");
                let sum = by_rate.entry(charge.rate).or_default();
                sum.0 += charge.usage.gpu_seconds();
                sum.1 += charge.amount.to_decimal();
            }
            for (rate, (at_rate, usd_at_rate)) in by_rate {
                let rate = rate.money_per_gpu_hour().to_decimal();
                let exact = rate * Decimal::from(at_rate) / Decimal::from(3600);
                let strategy = RoundingStrategy::MidpointNearestEven;
                let rounded = exact.round_dp_with_strategy(8, strategy);
                assert_eq!(usd_at_rate, rounded, "{at_rate} GPU-seconds at {rate}");
                (seconds, usd) = (seconds + at_rate, usd + usd_at_rate);
            }
        }
        (seconds, usd)
    }

    /// The connection to a provider.
    pub(crate) fn link(&self, provider: Provider) -> Arc<ProviderLink> {
        let id = ProviderId::parse(provider.as_str()).expect("a provider");
        self.broker.provider(&id).expect("a simulated provider")
    }

    /// Ends a machine behind the broker's back, as a provider may.
    pub(crate) async fn take_away(&self, lease: &Lease) {
        let link = self
            .broker
            .provider(&lease.offer.provider)
            .expect("a simulated provider");
        let at_provider = LeaseRef {
            id: lease.provider_lease_id.clone().expect("a machine"),
            client_token: lease.client_token.clone(),
            region: lease.offer.place.region.clone(),
        };
        link.adapter
            .release_lease(&link.http, &at_provider)
            .await
            .expect("ended");
    }

    /// How many machines were ever made for us at a provider.
    pub(crate) fn made_at(&self, provider: Provider) -> usize {
        self.simulator()
            .launches(provider)
            .iter()
            .filter(|launch| !launch.foreign)
            .count()
    }

    /// Stops everything.
    pub(crate) async fn close(self) {
        self.line.unhook();
        self.world.close().await;
    }
}
