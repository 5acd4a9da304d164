//! All state that changes while the simulator runs, behind one lock: free nodes and prices, machines, pending
//! faults, and counts of calls.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rust_decimal::Decimal;
use uuid::Uuid;

use crate::faults::FaultQueue;
use crate::lambda::SshKeys;
use crate::machine::{Host, Order, Phase, Record};
use crate::market::{Row, publishable};
use crate::{FaultKind, Front, Market, Operation, Provider, SimulatorError};

/// Why a launch is refused, before the wire format words it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    UnknownSku,
    UnknownPlace,
    SoldOut,
}

/// Durations, by the caller's clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Durations {
    pub(crate) lambda_boot: TimeDelta,
    pub(crate) runpod_boot: TimeDelta,
    pub(crate) voltagepark_boot: TimeDelta,
    pub(crate) lambda_ending: TimeDelta,
    pub(crate) lambda_launch_spacing: Option<TimeDelta>,
}

pub(crate) struct SimulatedMarket {
    rows: Vec<Row>,
    records: Vec<Record>,
    by_id: HashMap<String, usize>,
    durations: Durations,
    random: StdRng,
    hosts_made: u32,
    ssh_port: u16,
    pub(crate) faults: FaultQueue,
    pub(crate) fronts: BTreeMap<Provider, Front>,
    pub(crate) calls: BTreeMap<(Provider, Operation), u64>,
    pub(crate) ssh_keys: SshKeys,
    last_launch_at: BTreeMap<Provider, DateTime<Utc>>,
    /// Set while the pages after the first one of a price list answer 500.
    pub(crate) later_pages_fail: bool,
}

impl SimulatedMarket {
    pub(crate) fn new(market: Market, seed: u64, durations: Durations, ssh_port: u16) -> Self {
        Self {
            rows: market.into_rows(),
            records: Vec::new(),
            by_id: HashMap::new(),
            durations,
            random: StdRng::seed_from_u64(seed),
            hosts_made: 0,
            ssh_port,
            faults: FaultQueue::default(),
            fronts: BTreeMap::new(),
            calls: BTreeMap::new(),
            ssh_keys: SshKeys::default(),
            last_launch_at: BTreeMap::new(),
            later_pages_fail: false,
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

    /// Creates a machine. Faults that change the result of a launch are applied here.
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
        if !self.rows(provider).any(|row| row.place == order.place) {
            return Err(Refusal::UnknownPlace);
        }
        if !self.rows(provider).any(|row| row.key() == order.sku) {
            return Err(Refusal::UnknownSku);
        }
        let row = self
            .rows
            .iter_mut()
            .find(|row| {
                row.provider == provider && row.key() == order.sku && row.place == order.place
            })
            .filter(|row| row.free_nodes >= order.nodes)
            .ok_or(Refusal::SoldOut)?;
        if fault == Some(&FaultKind::FewerNodes) {
            order.nodes = (order.nodes - 1).max(1);
        }
        row.free_nodes -= order.nodes;
        let mut row = row.clone();
        row.price_usd_hour = order.bid_usd_hour.unwrap_or(row.price_usd_hour);
        let flaw = fault.filter(|kind| {
            matches!(
                kind,
                FaultKind::SlowMemory
                    | FaultKind::SlowLink
                    | FaultKind::MissingGpu
                    | FaultKind::WrongModel
                    | FaultKind::NeverCallsHome
            )
        });
        let mut hosts: Vec<Host> = (0..order.nodes).map(|_| self.new_host(row.gpus)).collect();
        if fault == Some(&FaultKind::SameNodeTwice)
            && let [first, .., last] = hosts.as_mut_slice()
        {
            last.gpu_uuids.clone_from(&first.gpu_uuids);
        }
        if fault == Some(&FaultKind::GpusOfBefore)
            && let (Some(last), Some(before)) = (hosts.last_mut(), self.last_host(row.gpus))
        {
            last.gpu_uuids.clone_from(&before.gpu_uuids);
        }
        let boot = match provider {
            Provider::Lambda => self.durations.lambda_boot,
            Provider::Runpod => self.durations.runpod_boot,
            Provider::Voltagepark => self.durations.voltagepark_boot,
        };
        let ending = match provider {
            Provider::Lambda => self.durations.lambda_ending,
            Provider::Runpod | Provider::Voltagepark => TimeDelta::zero(),
        };
        let record = Record {
            provider,
            id: self.new_id(provider),
            hosts,
            row,
            created_at: now,
            boot,
            ending,
            ended_at: None,
            fails: fault == Some(&FaultKind::AcceptedThenFailed),
            flaw: flaw.cloned(),
            scripts_started: false,
            ssh_port: self.ssh_port,
            order,
        };
        self.by_id.insert(record.id.clone(), self.records.len());
        self.records.push(record);
        Ok(&self.records[self.records.len() - 1])
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
        let spacing = match provider {
            Provider::Lambda => self.durations.lambda_launch_spacing,
            Provider::Runpod | Provider::Voltagepark => None,
        };
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
    pub(crate) fn end(&mut self, provider: Provider, id: &str, now: DateTime<Utc>) -> bool {
        let Some(&at) = self.by_id.get(id) else {
            return false;
        };
        let record = &mut self.records[at];
        if record.provider != provider || record.phase(now) == Phase::Gone {
            return false;
        }
        if record.ended_at.is_none() {
            record.ended_at = Some(now);
            let (key, place, nodes) = (
                record.order.sku.clone(),
                record.order.place.clone(),
                record.nodes(),
            );
            let row = self
                .rows
                .iter_mut()
                .find(|row| row.provider == provider && row.key() == key && row.place == place);
            if let Some(row) = row {
                row.free_nodes += nodes;
            }
        }
        true
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
        publishable(provider, price).map_err(|why| SimulatorError::Price {
            provider,
            price,
            why,
        })?;
        self.must_sell(provider, sku, None)?;
        self.put_price(provider, sku, price);
        Ok(())
    }

    fn put_price(&mut self, provider: Provider, sku: &str, price: Decimal) {
        for row in self
            .rows
            .iter_mut()
            .filter(|row| row.provider == provider && row.is_priced_with(sku))
        {
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

    fn new_id(&mut self, provider: Provider) -> String {
        let uuid = self.new_uuid();
        match provider {
            Provider::Lambda => uuid.simple().to_string(),
            Provider::Runpod => uuid.simple().to_string()[..14].to_owned(),
            Provider::Voltagepark => uuid.to_string(),
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
