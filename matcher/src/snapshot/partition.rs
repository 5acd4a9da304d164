//! One partition of a snapshot: the offers of one GPU, in nodes of one size, on the same terms.
//!
//! A partition is sorted into groups, and a group by price: the columns are their own posting lists. Every
//! rule except those on age, stock and price treats the offers of a group alike. A partition is immutable and
//! depends only on its offers, so that snapshots share unchanged partitions.

use std::ops::Range;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::fabric::Internode;
use market::gpu::{Gpu, GpuIdentity, GpuSpec};
use market::ids::{OfferId, ProviderId};
use market::money::{Currency, Money, Rate};
use market::offer::{
    Availability, AvailabilityLevel, MachineOperator, Offer, Particulars, Tenancy, Terms,
};
use market::place::{Country, Place};
use market::quantity::GpuCount;
use pricing::rate::per_gpu_hour;

use crate::hardware::least_form;

/// The fields that all offers of a partition share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PartitionKey {
    /// Whether their prices are plausible: above zero, and small enough to be charged.
    pub(crate) priced: bool,
    pub(crate) gpu: GpuIdentity,
    /// Memory of one GPU as published, where the form is open: it narrows the possible GPUs. Units: MiB.
    pub(crate) open_memory_mib: Option<u64>,
    pub(crate) gpus: GpuCount,
    pub(crate) terms: Terms,
}

impl PartitionKey {
    pub(super) fn of(offer: &Offer) -> Self {
        let key = Self {
            priced: true,
            gpu: offer.gpu.clone(),
            open_memory_mib: offer.gpu_memory_mib.filter(|_| offer.gpu.known().is_none()),
            gpus: offer.gpus,
            terms: offer.terms,
        };
        let priced = key.node_price_units(offer.price_per_node_hour).is_some();
        Self { priced, ..key }
    }

    /// The published figures of the GPU, or for an open form those of the weakest GPU that it may be; `None`
    /// where they are not known.
    pub(crate) fn spec(&self) -> Option<&'static GpuSpec> {
        least_form(&self.gpu, self.open_memory_mib).map(Gpu::spec)
    }

    /// The rate at which a node of this price is charged; `None` where the price is implausible.
    pub(crate) fn rate(&self, price: Money) -> Option<Rate> {
        per_gpu_hour(price, 3_600, self.gpus).ok()
    }

    /// The charged cost of a node-hour: the rate for each of its GPUs, or for a whole GPU's worth of slices.
    /// It never decreases with the price. Units: 1e-8 US dollars.
    pub(crate) fn node_price_units(&self, price: Money) -> Option<i64> {
        let rate = self.rate(price)?.money_per_gpu_hour().units();
        rate.checked_mul(i64::from(self.gpus.as_whole().unwrap_or(1)))
    }
}

/// The fields that all offers of a group share, beside their partition's key. Numbers are positions in the
/// partition's sorted tables, so their order is the order of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Traits {
    pub(super) provider: u32,
    pub(super) operator: u32,
    pub(super) region: Option<u32>,
    pub(super) zone: Option<u32>,
    pub(super) country: Option<Country>,
    pub(super) metro: Option<u32>,
    pub(super) tenancy: Tenancy,
    pub(super) internode: Internode,
    pub(super) orderable: bool,
    pub(super) sold_out: bool,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_gib: Option<u32>,
}

/// Offers next to each other that differ in name, price, age and stock alone, cheapest first; of
/// one price by SKU, then by id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) traits: Traits,
    pub(super) rows: Range<u32>,
    /// The oldest and the newest time at which one of them was read: places in the table of times.
    pub(super) read: (u32, u32),
    /// The fewest and the most nodes that one of them may have.
    pub(super) stock: (u32, u32),
}

/// The fields of an offer that no search uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Listing {
    pub(super) sku: u32,
    pub(super) raw_gpu_name: u32,
    pub(super) gpu_memory_mib: Option<u64>,
    pub(super) particulars: u32,
}

/// The provider's other stock fields, in one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StockForm(u8);

impl StockForm {
    const LEVELS: [AvailabilityLevel; 6] = [
        AvailabilityLevel::None,
        AvailabilityLevel::Low,
        AvailabilityLevel::Medium,
        AvailabilityLevel::High,
        AvailabilityLevel::Present,
        AvailabilityLevel::Unknown,
    ];
    const COUNTED: u8 = 1 << 3;
    const AT_LEAST: u8 = 1 << 4;

    pub(super) fn of(stock: &Availability) -> Self {
        let counted = if stock.nodes.is_some() {
            Self::COUNTED
        } else {
            0
        };
        let at_least = if stock.at_least { Self::AT_LEAST } else { 0 };
        Self(stock.level as u8 | counted | at_least)
    }

    pub(super) fn availability(self, nodes: u32) -> Availability {
        Availability {
            level: Self::LEVELS[usize::from(self.0 & 7)],
            nodes: (self.0 & Self::COUNTED != 0).then_some(nodes),
            at_least: self.0 & Self::AT_LEAST != 0,
        }
    }
}

/// The most nodes that an offer may have, by its provider's report.
pub(super) fn most_nodes(stock: &Availability) -> u32 {
    match stock.nodes {
        _ if stock.is_sold_out() => 0,
        Some(nodes) if !stock.at_least => nodes,
        _ => u32::MAX,
    }
}

/// Offers of one GPU, in nodes of one size, on the same terms.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    pub(super) key: PartitionKey,
    pub(super) providers: Box<[ProviderId]>,
    /// Without their hosts.
    pub(super) operators: Box<[MachineOperator]>,
    pub(super) particulars: Box<[Arc<Particulars>]>,
    pub(super) strings: Box<[Box<str>]>,
    pub(super) groups: Box<[Group]>,
    pub(super) listings: Box<[Listing]>,
    pub(super) times: Box<[DateTime<Utc>]>,
    // The columns: one entry for each offer.
    pub(super) ids: Box<[OfferId]>,
    /// Prices of a node for an hour. Units: 1e-8 US dollars.
    pub(super) prices: Box<[i64]>,
    /// Free nodes where they are counted, else zero.
    pub(super) nodes: Box<[u32]>,
    pub(super) stock_forms: Box<[StockForm]>,
    pub(super) listed: Box<[u32]>,
    pub(super) read: Box<[u32]>,
    /// The rows in the order of their ids.
    pub(super) by_id: Box<[u32]>,
}

impl Partition {
    pub(crate) const fn key(&self) -> &PartitionKey {
        &self.key
    }

    /// The number of its offers; never zero.
    pub(crate) fn len(&self) -> u32 {
        // A snapshot numbers its rows in 32 bits.
        self.ids.len() as u32
    }

    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = GroupRef<'_>> {
        self.groups.iter().map(|group| GroupRef {
            partition: self,
            group,
        })
    }

    /// The group of a row.
    pub(super) fn group_of(&self, row: u32) -> GroupRef<'_> {
        let at = self.groups.partition_point(|group| group.rows.end <= row);
        GroupRef {
            partition: self,
            group: &self.groups[at],
        }
    }

    /// The row of an offer.
    pub(super) fn find(&self, id: &OfferId) -> Option<u32> {
        let found = self
            .by_id
            .binary_search_by(|row| self.ids[*row as usize].cmp(id));
        found.ok().map(|at| self.by_id[at])
    }

    pub(crate) fn id(&self, row: u32) -> OfferId {
        self.ids[row as usize]
    }

    pub(crate) fn price(&self, row: u32) -> Money {
        Money::from_units(self.prices[row as usize], Currency::Usd)
    }

    /// The prices of these rows. Units: 1e-8 US dollars.
    pub(crate) fn prices(&self, rows: &Range<u32>) -> &[i64] {
        &self.prices[rows.start as usize..rows.end as usize]
    }

    pub(crate) fn availability(&self, row: u32) -> Availability {
        let at = row as usize;
        self.stock_forms[at].availability(self.nodes[at])
    }

    pub(crate) fn observed_at(&self, row: u32) -> DateTime<Utc> {
        self.times[self.read[row as usize] as usize]
    }

    pub(crate) fn sku(&self, row: u32) -> &str {
        self.string(self.listing(row).sku)
    }

    pub(super) fn listing(&self, row: u32) -> &Listing {
        &self.listings[self.listed[row as usize] as usize]
    }

    pub(super) fn particulars(&self, row: u32) -> &Arc<Particulars> {
        &self.particulars[self.listing(row).particulars as usize]
    }

    pub(super) fn string(&self, at: u32) -> &str {
        &self.strings[at as usize]
    }
}

/// A group in its partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct GroupRef<'s> {
    pub(super) partition: &'s Partition,
    pub(super) group: &'s Group,
}

impl<'s> GroupRef<'s> {
    pub(crate) const fn partition(self) -> &'s Partition {
        self.partition
    }

    /// Its rows, cheapest first.
    pub(crate) fn rows(self) -> Range<u32> {
        self.group.rows.clone()
    }

    pub(crate) fn provider(self) -> &'s ProviderId {
        &self.partition.providers[self.group.traits.provider as usize]
    }

    /// Who runs its machines, without hosts.
    pub(crate) fn operator(self) -> &'s MachineOperator {
        &self.partition.operators[self.group.traits.operator as usize]
    }

    /// Whether another group of the same partition is of the same provider and operator.
    pub(crate) const fn same_seller(self, other: Self) -> bool {
        let (one, two) = (&self.group.traits, &other.group.traits);
        one.provider == two.provider && one.operator == two.operator
    }

    pub(crate) const fn country(self) -> Option<Country> {
        self.group.traits.country
    }

    pub(crate) fn region(self) -> Option<&'s str> {
        self.group.traits.region.map(|at| self.partition.string(at))
    }

    pub(crate) fn zone(self) -> Option<&'s str> {
        self.group.traits.zone.map(|at| self.partition.string(at))
    }

    pub(crate) const fn tenancy(self) -> Tenancy {
        self.group.traits.tenancy
    }

    pub(crate) const fn internode(self) -> Internode {
        self.group.traits.internode
    }

    /// Virtual CPUs of a node.
    pub(crate) const fn vcpus(self) -> Option<u32> {
        self.group.traits.vcpus
    }

    /// Main memory of a node. Units: GiB.
    pub(crate) const fn memory_gib(self) -> Option<u32> {
        self.group.traits.memory_gib
    }

    pub(crate) const fn orderable(self) -> bool {
        self.group.traits.orderable
    }

    pub(crate) const fn is_sold_out(self) -> bool {
        self.group.traits.sold_out
    }

    /// The times at which the oldest and the newest of its offers were read.
    pub(crate) fn read_between(self) -> (DateTime<Utc>, DateTime<Utc>) {
        let (oldest, newest) = self.group.read;
        let at = |place: u32| self.partition.times[place as usize];
        (at(oldest), at(newest))
    }

    /// The most nodes that each of its offers may have, and that one of them may have.
    pub(crate) const fn stock(self) -> (u32, u32) {
        self.group.stock
    }

    /// The order of groups of offers that are equally good: by provider, before the SKU decides.
    pub(super) fn place(self) -> Place {
        let owned = |at: Option<u32>| at.map(|at| self.partition.string(at).to_owned());
        let traits = &self.group.traits;
        Place {
            region: owned(traits.region),
            zone: owned(traits.zone),
            country: traits.country,
            metro: owned(traits.metro),
        }
    }

    /// The sort key of its place, in the order of [`Place`].
    pub(super) fn place_key(
        self,
    ) -> (
        Option<&'s str>,
        Option<&'s str>,
        Option<Country>,
        Option<&'s str>,
    ) {
        let metro = self.group.traits.metro.map(|at| self.partition.string(at));
        (self.region(), self.zone(), self.country(), metro)
    }
}
