//! All state that changes while the simulator runs, behind one lock: free nodes and prices, machines, pending
//! faults, and counts of calls.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::faults::FaultQueue;
use crate::machine::{Host, Order, Outcome, Phase, Record};
use crate::market::Row;
use crate::reply::Refusal;
use crate::things::Thing;
use crate::token::Token;
use crate::twin::{Ids, Timing};
use crate::{FaultKind, Front, Market, Operation, Provider, SimulatorError};

pub(crate) struct SimulatedMarket {
    rows: Vec<Row>,
    records: Vec<Record>,
    by_id: HashMap<String, usize>,
    timing: BTreeMap<Provider, Timing>,
    random: StdRng,
    hosts_made: u32,
    ssh_port: u16,
    pub(crate) faults: FaultQueue,
    pub(crate) fronts: BTreeMap<Provider, Front>,
    pub(crate) calls: BTreeMap<(Provider, Operation), u64>,
    pub(crate) things: Vec<Thing>,
    pub(crate) tokens: Vec<Token>,
    last_launch_at: BTreeMap<Provider, DateTime<Utc>>,
    /// The providers at which the pages after the first one of a price list answer 500.
    pub(crate) later_pages_fail: BTreeSet<Provider>,
}

impl SimulatedMarket {
    /// `timing` replaces the usual durations of the providers in it.
    pub(crate) fn new(
        market: Market,
        seed: u64,
        timing: BTreeMap<Provider, Timing>,
        ssh_port: u16,
    ) -> Self {
        Self {
            rows: market.into_rows(),
            records: Vec::new(),
            by_id: HashMap::new(),
            timing,
            random: StdRng::seed_from_u64(seed),
            hosts_made: 0,
            ssh_port,
            faults: FaultQueue::default(),
            fronts: BTreeMap::new(),
            calls: BTreeMap::new(),
            things: Vec::new(),
            tokens: Vec::new(),
            last_launch_at: BTreeMap::new(),
            later_pages_fail: BTreeSet::new(),
        }
    }

    pub(crate) fn put_front(&mut self, provider: Provider, front: Option<Front>) {
        match front {
            Some(front) => self.fronts.insert(provider, front),
            None => self.fronts.remove(&provider),
        };
    }

    pub(crate) fn rows(&self, provider: Provider) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.provider == provider)
    }

    /// Machines of a provider, in the order of their creation.
    pub(crate) fn records(&self, provider: Provider) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .filter(move |record| record.provider == provider)
    }

    pub(crate) fn every_record(&self) -> &[Record] {
        &self.records
    }

    pub(crate) fn record(&self, provider: Provider, id: &str) -> Option<&Record> {
        self.by_id
            .get(id)
            .map(|&at| &self.records[at])
            .filter(|record| record.provider == provider)
    }

    /// Creates a machine at the first of its places with room. Faults that change the result of a launch are
    /// applied here.
    pub(crate) fn launch(
        &mut self,
        provider: Provider,
        mut order: Order,
        fault: Option<&FaultKind>,
        now: DateTime<Utc>,
    ) -> Result<&Record, Refusal> {
        if let Some(FaultKind::PriceChange { price_usd_hour }) = fault {
            self.put_price(provider, &order.sku, *price_usd_hour);
        }
        let at = self.room_for(provider, &order)?;
        if fault == Some(&FaultKind::FewerNodes) {
            order.nodes = (order.nodes - 1).max(1);
        }
        let outcome = match fault {
            Some(FaultKind::AcceptedThenFailed) => Outcome::Fails,
            Some(FaultKind::LateNoCapacity) => Outcome::NoCapacity,
            _ => Outcome::Runs,
        };
        if outcome != Outcome::NoCapacity {
            self.rows[at].free_nodes -= order.nodes;
        }
        let mut row = self.rows[at].clone();
        row.price_usd_hour = order.bid_usd_hour.unwrap_or(row.price_usd_hour);
        let timing = self.timing(provider);
        let record = Record {
            provider,
            id: self.new_id(provider.twin().ids),
            hosts: self.new_hosts(order.nodes, row.gpus, fault),
            row,
            created_at: now,
            boot: TimeDelta::seconds(timing.boot_seconds.into()),
            ending: TimeDelta::seconds(timing.ending_seconds.into()),
            released_at: None,
            preempted_at: None,
            outcome,
            is_in_unknown_state: false,
            flaw: fault.filter(|kind| kind.is_flaw()).cloned(),
            scripts_started: false,
            ssh_port: self.ssh_port,
            order,
        };
        self.by_id.insert(record.id.clone(), self.records.len());
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
    }

    /// The row that an order takes its nodes from.
    fn room_for(&self, provider: Provider, order: &Order) -> Result<usize, Refusal> {
        let is_place = |place: &String| self.rows(provider).any(|row| row.place == *place);
        if !order.places.iter().all(is_place) {
            return Err(Refusal::UnknownPlace);
        }
        if !self.rows(provider).any(|row| row.key() == order.sku) {
            return Err(Refusal::UnknownSku);
        }
        let has_room = |row: &Row, place: &String| {
            row.provider == provider
                && row.place == *place
                && row.free_nodes >= order.nodes
                && row.key() == order.sku
        };
        let mut places = order.places.iter();
        places
            .find_map(|place| self.rows.iter().position(|row| has_room(row, place)))
            .ok_or(Refusal::SoldOut)
    }

    /// Nodes of a new machine.
    fn new_hosts(&mut self, nodes: u32, gpus: u32, fault: Option<&FaultKind>) -> Vec<Host> {
        let mut hosts: Vec<Host> = (0..nodes).map(|_| self.new_host(gpus)).collect();
        if fault == Some(&FaultKind::SameNodeTwice)
            && let [first, .., last] = hosts.as_mut_slice()
        {
            last.gpu_uuids.clone_from(&first.gpu_uuids);
        }
        if fault == Some(&FaultKind::GpusOfBefore)
            && let (Some(last), Some(before)) = (hosts.last_mut(), self.last_host(gpus))
        {
            last.gpu_uuids.clone_from(&before.gpu_uuids);
        }
        hosts
    }

    fn timing(&self, provider: Provider) -> Timing {
        let replaced = self.timing.get(&provider).copied();
        replaced.unwrap_or(provider.timing())
    }

    /// The last node that was created with this many GPUs.
    fn last_host(&self, gpus: u32) -> Option<&Host> {
        let hosts = self.records.iter().rev().filter_map(|it| it.hosts.last());
        hosts
            .into_iter()
            .find(|host| host.gpu_uuids.len() == gpus as usize)
    }

    /// Whether a launch comes too soon after the one before; if not, it counts as one.
    pub(crate) fn launches_too_fast(&mut self, provider: Provider, now: DateTime<Utc>) -> bool {
        let spacing = self.timing(provider).launch_spacing_seconds;
        let spacing = spacing.map(|seconds| TimeDelta::seconds(seconds.into()));
        let last = self.last_launch_at.get(&provider);
        if last
            .zip(spacing)
            .is_some_and(|(&last, spacing)| now < last + spacing)
        {
            return true;
        }
        self.last_launch_at.insert(provider, now);
        false
    }

    /// Ends a machine and frees its nodes; ending it twice changes nothing. False when no machine has that id
    /// any more.
    pub(crate) fn release(&mut self, provider: Provider, id: &str, now: DateTime<Utc>) -> bool {
        let Some(record) = self.record_mut(id) else {
            return false;
        };
        if record.provider != provider || record.phase(now) == Phase::Gone {
            return false;
        }
        let had_nodes = record.is_alive(now);
        if record.released_at.is_none() {
            record.released_at = Some(now);
        }
        if had_nodes {
            self.free_nodes_of(id);
        }
        true
    }

    /// Takes a machine back as its provider would. False when none with that id is alive.
    pub(crate) fn preempt(&mut self, id: &str, now: DateTime<Utc>) -> bool {
        let Some(record) = self.record_mut(id).filter(|record| record.is_alive(now)) else {
            return false;
        };
        record.preempted_at = Some(now);
        self.free_nodes_of(id);
        true
    }

    fn free_nodes_of(&mut self, id: &str) {
        let Some(record) = self.by_id.get(id).map(|&at| &self.records[at]) else {
            return;
        };
        if record.outcome == Outcome::NoCapacity {
            return;
        }
        let sold = self.rows.iter_mut().find(|row| {
            row.provider == record.provider
                && row.place == record.row.place
                && row.key() == record.order.sku
        });
        if let Some(row) = sold {
            row.free_nodes += record.nodes();
        }
    }

    /// A machine of any provider.
    pub(crate) fn record_mut(&mut self, id: &str) -> Option<&mut Record> {
        self.by_id.get(id).map(|&at| &mut self.records[at])
    }

    /// Machines whose scripts have become due, each once.
    pub(crate) fn take_due(&mut self, now: DateTime<Utc>) -> Vec<Record> {
        let mut due = Vec::new();
        for record in &mut self.records {
            if !record.scripts_started && record.phase(now) == Phase::Running {
                record.scripts_started = true;
                if record.script().is_some() {
                    due.push(record.clone());
                }
            }
        }
        due
    }

    pub(crate) fn set_price(
        &mut self,
        provider: Provider,
        sku: &str,
        price: Decimal,
    ) -> Result<(), SimulatorError> {
        let rules = &provider.twin().rows;
        rules
            .take_price(price)
            .map_err(|why| SimulatorError::Price {
                provider,
                price,
                why,
            })?;
        self.must_sell(provider, sku, None)?;
        self.put_price(provider, sku, price);
        Ok(())
    }

    /// Changes the price of a SKU, and of everything that has one price with it.
    fn put_price(&mut self, provider: Provider, sku: &str, price: Decimal) {
        let named = self.rows(provider).filter(|row| row.key() == sku);
        let groups: BTreeSet<_> = named.map(Row::price_group).collect();
        let priced = |row: &&mut Row| groups.contains(&row.price_group());
        for row in self.rows.iter_mut().filter(priced) {
            row.price_usd_hour = price;
        }
    }

    /// Sets how many nodes are free, at one place or at every place that sells the SKU.
    pub(crate) fn set_capacity(
        &mut self,
        provider: Provider,
        sku: &str,
        place: Option<&str>,
        free_nodes: u32,
    ) -> Result<(), SimulatorError> {
        self.must_sell(provider, sku, place)?;
        let rows = self
            .rows
            .iter_mut()
            .filter(|row| row.provider == provider && row.key() == sku);
        for row in rows.filter(|row| place.is_none_or(|place| row.place == place)) {
            row.free_nodes = free_nodes;
        }
        Ok(())
    }

    fn must_sell(
        &self,
        provider: Provider,
        sku: &str,
        place: Option<&str>,
    ) -> Result<(), SimulatorError> {
        let sold = self
            .rows(provider)
            .any(|row| row.key() == sku && place.is_none_or(|place| row.place == place));
        if sold {
            return Ok(());
        }
        let place = place.unwrap_or("*").to_owned();
        Err(SimulatorError::NotSold {
            provider,
            sku: sku.to_owned(),
            place,
        })
    }

    pub(crate) fn new_uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.random.random()).into_uuid()
    }

    pub(crate) fn new_id(&mut self, form: Ids) -> String {
        let uuid = self.new_uuid();
        match form {
            Ids::Uuid => uuid.to_string(),
            Ids::Hex(digits) => uuid.simple().to_string()[..digits].to_owned(),
            Ids::Number => (100_000_000 + uuid.as_u128() % 900_000_000).to_string(),
        }
    }

    /// Addresses that no other node of this simulator has: a loopback one, where it answers SSH,
    /// and one from a private range, which leads nowhere.
    fn new_host(&mut self, gpus: u32) -> Host {
        let n = self.hosts_made;
        self.hosts_made += 1;
        let tail = format!("{}.{}", n / 250 % 250, 1 + n % 250);
        let block = n / 62_500 % 100;
        Host {
            public_ip: format!("127.{}.{tail}", 20 + block),
            private_ip: format!("10.{}.{tail}", 140 + block),
            gpu_uuids: (0..gpus).map(|_| self.new_uuid().to_string()).collect(),
        }
    }
}
