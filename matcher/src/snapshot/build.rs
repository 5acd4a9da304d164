//! Builds a partition: offers come in any order, and repeated values are kept once.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::ids::{OfferId, ProviderId};
use market::offer::{MachineOperator, Offer, Particulars};

use super::partition::{Group, Listing, Partition, PartitionKey, StockForm, Traits, most_nodes};

/// A partition in the making.
#[derive(Debug)]
pub(super) struct PartitionBuilder {
    key: PartitionKey,
    providers: Table<ProviderId>,
    operators: Table<MachineOperator>,
    particulars: Table<Arc<Particulars>>,
    strings: Table<Box<str>>,
    traits: Table<Traits>,
    listings: Table<Listing>,
    times: Table<DateTime<Utc>>,
    rows: Vec<Row>,
}

/// An offer, with the numbers that the tables gave.
#[derive(Debug, Clone, Copy)]
struct Row {
    id: OfferId,
    price: i64,
    traits: u32,
    listing: u32,
    time: u32,
    nodes: u32,
    stock: StockForm,
}

/// Values numbered in the order in which they came.
#[derive(Debug)]
struct Table<T>(HashMap<T, u32>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<T: Eq + Hash + Ord> Table<T> {
    fn take(&mut self, value: T) -> u32 {
        let next = self.0.len() as u32;
        *self.0.entry(value).or_insert(next)
    }

    /// The values in their own order, and for each number the place of its value in it.
    fn sorted(self) -> (Box<[T]>, Vec<u32>) {
        let mut values: Vec<(T, u32)> = self.0.into_iter().collect();
        values.sort_unstable();
        let mut places = vec![0; values.len()];
        for (place, (_, number)) in values.iter().enumerate() {
            places[*number as usize] = place as u32;
        }
        (values.into_iter().map(|(value, _)| value).collect(), places)
    }
}

impl Table<Box<str>> {
    fn number(&mut self, text: &str) -> u32 {
        let known = self.0.get(text).copied();
        known.unwrap_or_else(|| self.take(text.into()))
    }
}

impl<T: Clone + Eq + Hash + Ord> Table<T> {
    fn number_of(&mut self, value: &T) -> u32 {
        let known = self.0.get(value).copied();
        known.unwrap_or_else(|| self.take(value.clone()))
    }
}

impl PartitionBuilder {
    pub(super) fn new(key: PartitionKey) -> Self {
        Self {
            key,
            providers: Table::default(),
            operators: Table::default(),
            particulars: Table::default(),
            strings: Table::default(),
            traits: Table::default(),
            listings: Table::default(),
            times: Table::default(),
            rows: Vec::new(),
        }
    }

    /// Adds an offer with this partition's key.
    pub(super) fn push(&mut self, offer: &Offer) {
        let strings = &mut self.strings;
        let mut optional = |text: &Option<String>| text.as_deref().map(|text| strings.number(text));
        let place = &offer.place;
        let traits = Traits {
            provider: self.providers.number_of(&offer.provider),
            operator: self
                .operators
                .take(offer.particulars.operator.without_host()),
            region: optional(&place.region),
            zone: optional(&place.zone),
            country: place.country,
            metro: optional(&place.metro),
            tenancy: offer.tenancy,
            internode: offer.internode,
            orderable: offer.orderable,
            sold_out: offer.availability.is_sold_out(),
            vcpus: offer.vcpus,
            memory_gib: offer.memory_gib,
        };
        let listing = Listing {
            sku: strings.number(&offer.sku),
            raw_gpu_name: strings.number(&offer.raw_gpu_name),
            gpu_memory_mib: offer.gpu_memory_mib,
            particulars: self.particulars.number_of(&offer.particulars),
        };
        self.rows.push(Row {
            id: offer.offer_id,
            price: offer.price_per_node_hour.units(),
            traits: self.traits.take(traits),
            listing: self.listings.take(listing),
            time: self.times.take(offer.observed_at),
            nodes: offer.availability.nodes.unwrap_or(0),
            stock: StockForm::of(&offer.availability),
        });
    }

    /// Adds the offers of another partition with this key that must stay.
    pub(super) fn extend(&mut self, other: &Partition, stays: impl Fn(u32) -> bool) {
        // The number that each entry of the other's tables has here, once an offer has named it.
        let mut traits = vec![None; other.groups.len()];
        let mut listings = vec![None; other.listings.len()];
        let mut times = vec![None; other.times.len()];
        for (at, group) in other.groups.iter().enumerate() {
            for row in group.rows.clone().filter(|row| stays(*row)) {
                let place = row as usize;
                let (listed, read) = (other.listed[place], other.read[place]);
                let row = Row {
                    id: other.ids[place],
                    price: other.prices[place],
                    traits: *traits[at]
                        .get_or_insert_with(|| self.take_traits(other, group.traits)),
                    listing: *listings[listed as usize].get_or_insert_with(|| {
                        self.take_listing(other, other.listings[listed as usize])
                    }),
                    time: *times[read as usize]
                        .get_or_insert_with(|| self.times.take(other.times[read as usize])),
                    nodes: other.nodes[place],
                    stock: other.stock_forms[place],
                };
                self.rows.push(row);
            }
        }
    }

    fn take_traits(&mut self, other: &Partition, traits: Traits) -> u32 {
        let provider = &other.providers[traits.provider as usize];
        let operator = &other.operators[traits.operator as usize];
        let strings = &mut self.strings;
        let mut text = |at: u32| strings.number(other.string(at));
        let own = Traits {
            provider: self.providers.number_of(provider),
            operator: self.operators.number_of(operator),
            region: traits.region.map(&mut text),
            zone: traits.zone.map(&mut text),
            metro: traits.metro.map(&mut text),
            ..traits
        };
        self.traits.take(own)
    }

    fn take_listing(&mut self, other: &Partition, listing: Listing) -> u32 {
        let particulars = &other.particulars[listing.particulars as usize];
        let own = Listing {
            particulars: self.particulars.number_of(particulars),
            sku: self.strings.number(other.string(listing.sku)),
            raw_gpu_name: self.strings.number(other.string(listing.raw_gpu_name)),
            ..listing
        };
        self.listings.take(own)
    }

    /// The partition; `None` of no offers.
    pub(super) fn finish(self) -> Option<Partition> {
        let mut rows = self.rows;
        let (providers, provider_places) = self.providers.sorted();
        let (operators, operator_places) = self.operators.sorted();
        let (particulars, particulars_places) = self.particulars.sorted();
        let (strings, string_places) = self.strings.sorted();
        let (times, time_places) = self.times.sorted();
        let text = |number: u32| string_places[number as usize];
        let (traits, traits_places) = replaced(self.traits, |traits| Traits {
            provider: provider_places[traits.provider as usize],
            operator: operator_places[traits.operator as usize],
            region: traits.region.map(text),
            zone: traits.zone.map(text),
            metro: traits.metro.map(text),
            ..traits
        });
        let (listings, listing_places) = replaced(self.listings, |listing| Listing {
            sku: text(listing.sku),
            raw_gpu_name: text(listing.raw_gpu_name),
            particulars: particulars_places[listing.particulars as usize],
            ..listing
        });
        for row in &mut rows {
            row.traits = traits_places[row.traits as usize];
            row.listing = listing_places[row.listing as usize];
            row.time = time_places[row.time as usize];
        }
        let sku = |row: &Row| listings[row.listing as usize].sku;
        rows.sort_unstable_by(|a, b| {
            (a.traits, a.price, sku(a), a.id).cmp(&(b.traits, b.price, sku(b), b.id))
        });
        let mut by_id: Box<[u32]> = (0..u32::try_from(rows.len()).ok()?).collect();
        by_id.sort_unstable_by_key(|row| rows[*row as usize].id);
        let groups: Box<[Group]> = rows
            .chunk_by(|a, b| a.traits == b.traits)
            .scan(0, |start, members| {
                let end = *start + members.len() as u32;
                let group = group(traits[members[0].traits as usize], *start..end, members);
                *start = end;
                Some(group)
            })
            .collect();
        (!rows.is_empty()).then(|| Partition {
            key: self.key,
            providers,
            operators,
            particulars,
            strings,
            groups,
            listings,
            times,
            ids: rows.iter().map(|row| row.id).collect(),
            prices: rows.iter().map(|row| row.price).collect(),
            nodes: rows.iter().map(|row| row.nodes).collect(),
            stock_forms: rows.iter().map(|row| row.stock).collect(),
            listed: rows.iter().map(|row| row.listing).collect(),
            read: rows.iter().map(|row| row.time).collect(),
            by_id,
        })
    }
}

/// The values of a table as they read once the tables that they point to are sorted.
fn replaced<T: Copy + Eq + Hash + Ord>(
    table: Table<T>,
    to: impl Fn(T) -> T,
) -> (Box<[T]>, Vec<u32>) {
    Table(
        table
            .0
            .into_iter()
            .map(|(value, number)| (to(value), number))
            .collect(),
    )
    .sorted()
}

fn group(traits: Traits, rows: std::ops::Range<u32>, members: &[Row]) -> Group {
    let stock = |row: &Row| most_nodes(&row.stock.availability(row.nodes));
    let bounds = |of: &dyn Fn(&Row) -> u32| {
        members
            .iter()
            .map(of)
            .fold((u32::MAX, 0), |(low, high), value| {
                (low.min(value), high.max(value))
            })
    };
    Group {
        traits,
        rows,
        read: bounds(&|row| row.time),
        stock: bounds(&stock),
    }
}
