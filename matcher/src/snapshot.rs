//! All live offers at one generation, immutable. Built by the ingest, then only read.
//!
//! Offers are kept in columns: `partition` holds those of one GPU, node size and terms, in the order of a
//! search, `build` makes it, and `ids` finds an offer by its id. A reader gets an [`OfferRef`]; a whole
//! [`Offer`] is made only where it is shown. A later generation shares the unchanged partitions.

mod build;
mod ids;
mod offer_ref;
mod partition;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::acceptance::{AcceptanceRecord, Reliability};
use market::gpu::GpuSpec;
use market::ids::{OfferId, ProviderId};
use market::money::{Money, Rate};
use market::offer::{MachineOperator, Offer, age_seconds};
use market::provider_facts::ProviderFacts;

use build::PartitionBuilder;
use ids::IdIndex;
pub use offer_ref::OfferRef;
pub(crate) use partition::{GroupRef, Partition, PartitionKey};

/// The facts about a provider that matching needs. The default is a provider of price lists without any other
/// facts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderView {
    /// Past this age an offer of the provider is not matched. `None` for offers of price lists, which state
    /// the price at their date and have no limit. Units: seconds.
    pub freshness_limit_seconds: Option<u64>,
    /// Why the last reading was not used; `None` while readings succeed.
    ///
    /// The offers of such a provider are still matched until they pass its limit.
    pub stale: Option<String>,
    /// The suspension of the provider, while it has one.
    pub quarantine: Option<Quarantine>,
    /// The facts on record about its operator and its certificates.
    pub facts: ProviderFacts,
    /// The recent outcomes of orders there, of other people's machines excepted.
    pub acceptance: AcceptanceRecord,
}

impl ProviderView {
    /// The reliability of its offers of an operator's machines, by recent orders. Its record is of its own
    /// machines: it says nothing of those of others.
    pub(crate) fn reliability(&self, operator: &MachineOperator) -> Reliability {
        match operator {
            MachineOperator::Seller => self.acceptance.reliability(),
            MachineOperator::Cloud(_) | MachineOperator::Peer(_) => Reliability::default(),
        }
    }
}

/// The suspension of a provider: nothing new is ordered there until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// Why, in words that tenants read.
    pub reason: String,
    /// When it ends by itself.
    pub until: DateTime<Utc>,
}

/// All live offers, immutable, with a generation.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    generation: u64,
    taken_at: DateTime<Utc>,
    /// Sorted by their keys.
    partitions: Vec<Arc<Partition>>,
    ids: IdIndex,
    offers: usize,
    providers: HashMap<ProviderId, ProviderView>,
}

/// The position of an offer in a snapshot. Positions are in the order of [`Snapshot::offers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowId {
    /// The place of its partition among all.
    pub(crate) partition: u32,
    /// Its row there.
    pub(crate) row: u32,
}

/// An offer in full, with the values that every rule would otherwise compute again.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) offer: Offer,
    /// The rate; `None` where the price is unknown (zero, negative, or implausible).
    pub(crate) rate: Option<Rate>,
    /// The published figures of the GPU; `None` while its form is unknown.
    pub(crate) spec: Option<&'static GpuSpec>,
}

impl Snapshot {
    /// Makes a snapshot of offers, each with an id of its own, and of their providers. The order of the
    /// offers does not matter.
    ///
    /// An offer whose provider is not among `providers` has no freshness limit that it could meet, so it is
    /// never matched.
    #[must_use]
    pub fn new(
        generation: u64,
        taken_at: DateTime<Utc>,
        offers: impl IntoIterator<Item = Offer>,
        providers: HashMap<ProviderId, ProviderView>,
    ) -> Self {
        let mut builders: HashMap<PartitionKey, PartitionBuilder> = HashMap::new();
        for offer in offers {
            let key = PartitionKey::of(&offer);
            let builder = builders
                .entry(key)
                .or_insert_with_key(|key| PartitionBuilder::new(key.clone()));
            builder.push(&offer);
        }
        let built = builders.into_values().filter_map(PartitionBuilder::finish);
        let mut partitions: Vec<_> = built.map(Arc::new).collect();
        partitions.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        let ids = index(&partitions);
        Self::of(generation, taken_at, partitions, ids, providers)
    }

    /// The next generation: some offers as they are now, new ones among them, and some gone.
    ///
    /// It shares unchanged partitions with this snapshot, and rebuilds the others. It equals a snapshot built
    /// from all its offers.
    #[must_use]
    pub fn patched(
        &self,
        generation: u64,
        taken_at: DateTime<Utc>,
        changed: &[Offer],
        removed: &[OfferId],
        providers: HashMap<ProviderId, ProviderView>,
    ) -> Self {
        let mut gone: HashMap<u32, HashSet<u32>> = HashMap::new();
        let mut lost = Vec::new();
        for id in changed.iter().map(|offer| &offer.offer_id).chain(removed) {
            if let Some(at) = self.find(id)
                && gone.entry(at.partition).or_default().insert(at.row)
            {
                lost.push((*id, at.partition));
            }
        }
        let mut touched: BTreeMap<PartitionKey, PartitionBuilder> = BTreeMap::new();
        for (at, rows) in &gone {
            let old = &self.partitions[*at as usize];
            let mut builder = PartitionBuilder::new(old.key().clone());
            builder.extend(old, |row| !rows.contains(&row));
            touched.insert(old.key().clone(), builder);
        }
        for offer in changed {
            let key = PartitionKey::of(offer);
            let builder = touched.entry(key).or_insert_with_key(|key| {
                let mut builder = PartitionBuilder::new(key.clone());
                if let Some(old) = self.partition_of(key) {
                    builder.extend(old, |_| true);
                }
                builder
            });
            builder.push(offer);
        }
        let stay = self
            .partitions
            .iter()
            .filter(|old| !touched.contains_key(old.key()));
        let mut partitions: Vec<_> = stay.map(Arc::clone).collect();
        partitions.extend(
            touched
                .into_values()
                .filter_map(PartitionBuilder::finish)
                .map(Arc::new),
        );
        partitions.sort_unstable_by(|a, b| a.key().cmp(b.key()));
        let same_keys = partitions.len() == self.partitions.len()
            && (partitions.iter().zip(&self.partitions)).all(|(new, old)| new.key() == old.key());
        let ids = if same_keys {
            let of = |offer: &Offer| {
                let key = PartitionKey::of(offer);
                let at = partitions.binary_search_by(|partition| partition.key().cmp(&key));
                Some((offer.offer_id, u32::try_from(at.ok()?).ok()?))
            };
            let mut gained: HashSet<_> = changed.iter().filter_map(of).collect();
            // An offer that changed only its place has its entry already.
            lost.retain(|entry| !gained.remove(entry));
            self.ids
                .patched(&lost, &gained.into_iter().collect::<Vec<_>>())
        } else {
            index(&partitions)
        };
        Self::of(generation, taken_at, partitions, ids, providers)
    }

    /// The same generation with other prices of some offers.
    pub(crate) fn repriced(&self, changed: &[Offer]) -> Self {
        let providers = self.providers.clone();
        self.patched(self.generation, self.taken_at, changed, &[], providers)
    }

    /// The next generation, which holds exactly these offers: patched from this one where most of it stays,
    /// else rebuilt.
    #[must_use]
    pub fn advanced(
        &self,
        generation: u64,
        taken_at: DateTime<Utc>,
        offers: Vec<Offer>,
        providers: HashMap<ProviderId, ProviderView>,
    ) -> Self {
        let differs = |offer: &&Offer| {
            self.offer(&offer.offer_id)
                .is_none_or(|known| !known.is(offer))
        };
        let changed = offers.iter().filter(differs).count();
        if changed * 2 > offers.len() {
            return Self::new(generation, taken_at, offers, providers);
        }
        let stay: HashSet<OfferId> = offers.iter().map(|offer| offer.offer_id).collect();
        let known = self.offers().map(OfferRef::offer_id);
        let removed: Vec<OfferId> = known.filter(|id| !stay.contains(id)).collect();
        let changed: Vec<Offer> = offers.into_iter().filter(|offer| differs(&offer)).collect();
        self.patched(generation, taken_at, &changed, &removed, providers)
    }

    fn of(
        generation: u64,
        taken_at: DateTime<Utc>,
        partitions: Vec<Arc<Partition>>,
        ids: IdIndex,
        providers: HashMap<ProviderId, ProviderView>,
    ) -> Self {
        let offers = partitions
            .iter()
            .map(|partition| partition.len() as usize)
            .sum();
        Self {
            generation,
            taken_at,
            partitions,
            ids,
            offers,
            providers,
        }
    }

    /// The database sequence of the last reading that is in it.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// When it was taken.
    #[must_use]
    pub const fn taken_at(&self) -> DateTime<Utc> {
        self.taken_at
    }

    /// How many offers it holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.offers
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.offers == 0
    }

    /// Its offers, in an order that depends on them alone: by GPU, node size and terms, then by provider and
    /// place, then by price.
    pub fn offers(&self) -> impl Iterator<Item = OfferRef<'_>> {
        let groups = self
            .partitions
            .iter()
            .flat_map(|partition| partition.groups());
        groups.flat_map(move |group| group.rows().map(move |row| self.offer_in(group, row)))
    }

    /// One offer.
    #[must_use]
    pub fn offer(&self, id: &OfferId) -> Option<OfferRef<'_>> {
        self.find(id).map(|at| self.offer_at(at))
    }

    /// Whose offers it holds.
    #[must_use]
    pub fn sellers(&self) -> BTreeSet<&ProviderId> {
        self.operators()
            .into_iter()
            .map(|(seller, _)| seller)
            .collect()
    }

    /// Whose offers it holds, and who runs the machines of them.
    pub(crate) fn operators(&self) -> BTreeSet<(&ProviderId, &MachineOperator)> {
        let groups = self.partitions.iter().flat_map(|one| one.groups());
        groups
            .map(|group| (group.provider(), group.operator()))
            .collect()
    }

    /// The facts about a provider.
    #[must_use]
    pub fn provider(&self, id: &ProviderId) -> Option<&ProviderView> {
        self.providers.get(id)
    }

    /// The facts on record about the operator of a provider's offers: the provider itself, or
    /// another cloud by its own record. `None` where that is not known, as with machines of other people.
    #[must_use]
    pub fn facts(
        &self,
        provider: &ProviderId,
        operator: &MachineOperator,
    ) -> Option<&ProviderFacts> {
        let runs_it = match operator {
            MachineOperator::Seller => provider,
            MachineOperator::Cloud(id) => id,
            MachineOperator::Peer(_) => return None,
        };
        self.provider(runs_it).map(|view| &view.facts)
    }

    /// Whether an offer is too old to be matched.
    ///
    /// An offer past its provider's limit is too old. Offers of price lists have no limit: they are listed
    /// for comparison at any age, with that age. An offer of an unknown provider, or an orderable offer
    /// without a limit, counts as too old.
    #[must_use]
    pub fn is_stale(&self, offer: &Offer, now: DateTime<Utc>) -> bool {
        let view = self.provider(&offer.provider);
        is_past_limit(view, offer.orderable, offer.observed_at, now)
    }

    /// The suspension of a provider that is in force at this time.
    #[must_use]
    pub fn quarantine(&self, id: &ProviderId, now: DateTime<Utc>) -> Option<&Quarantine> {
        let quarantine = self.provider(id)?.quarantine.as_ref()?;
        (now < quarantine.until).then_some(quarantine)
    }

    pub(crate) fn partitions(&self) -> &[Arc<Partition>] {
        &self.partitions
    }

    /// The position of an offer.
    pub(crate) fn find(&self, id: &OfferId) -> Option<RowId> {
        self.ids.partitions(id).find_map(|partition| {
            let row = self.partitions[partition as usize].find(id)?;
            Some(RowId { partition, row })
        })
    }

    /// The offer at a place.
    pub(crate) fn offer_at(&self, at: RowId) -> OfferRef<'_> {
        OfferRef {
            snapshot: self,
            group: self.partitions[at.partition as usize].group_of(at.row),
            row: at.row,
        }
    }

    /// The offer in a row of a group.
    pub(crate) const fn offer_in<'s>(&'s self, group: GroupRef<'s>, row: u32) -> OfferRef<'s> {
        OfferRef {
            snapshot: self,
            group,
            row,
        }
    }

    /// The price of a node of the offer at a place, for an hour.
    pub(crate) fn price_at(&self, at: RowId) -> Money {
        self.partitions[at.partition as usize].price(at.row)
    }

    /// The offer at a place, in full.
    pub(crate) fn row(&self, at: RowId) -> Row {
        Row::new(self.offer_at(at).to_offer())
    }

    fn partition_of(&self, key: &PartitionKey) -> Option<&Partition> {
        let at = self
            .partitions
            .binary_search_by(|partition| partition.key().cmp(key));
        at.ok().map(|at| &*self.partitions[at])
    }
}

fn index(partitions: &[Arc<Partition>]) -> IdIndex {
    let rows = (0..).zip(partitions);
    IdIndex::new(
        rows.flat_map(|(at, partition)| {
            (0..partition.len()).map(move |row| (partition.id(row), at))
        }),
    )
}

/// How far in the future an offer may have been read: by a clock that was ahead, and is wrong beyond this.
/// Units: seconds.
const MOST_AHEAD_SECONDS: i64 = 60;

/// Whether an offer that was read then is past its provider's limit, or was not read yet.
pub(crate) fn is_past_limit(
    view: Option<&ProviderView>,
    orderable: bool,
    observed_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> bool {
    match view.map(|view| view.freshness_limit_seconds) {
        Some(Some(limit)) => {
            let ahead = (observed_at - now).num_seconds() > MOST_AHEAD_SECONDS;
            ahead || age_seconds(observed_at, now) > limit
        }
        Some(None) => orderable,
        None => true,
    }
}

impl Row {
    fn new(offer: Offer) -> Self {
        let key = PartitionKey::of(&offer);
        Self {
            rate: key.rate(offer.price_per_node_hour).filter(|_| key.priced),
            spec: key.spec(),
            offer,
        }
    }
}

#[cfg(test)]
mod tests;
