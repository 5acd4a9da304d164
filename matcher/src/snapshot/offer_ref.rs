//! One offer of a snapshot, read from its columns.

use std::cmp::Ordering;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::ids::{OfferId, ProviderId};
use market::money::{Money, MoneyError, Rate};
use market::offer::{Availability, MachineOperator, Offer, Particulars, Tenancy, Terms, node_rate};
use market::place::{Country, Place};
use market::quantity::GpuCount;

use super::Snapshot;
use super::partition::{GroupRef, Partition};

/// One offer of a snapshot. It reads its fields in place, and makes an [`Offer`] only on request.
#[derive(Debug, Clone, Copy)]
pub struct OfferRef<'s> {
    pub(super) snapshot: &'s Snapshot,
    pub(super) group: GroupRef<'s>,
    pub(super) row: u32,
}

impl<'s> OfferRef<'s> {
    fn partition(self) -> &'s Partition {
        self.group.partition()
    }

    /// The offer's id.
    #[must_use]
    pub fn offer_id(self) -> OfferId {
        self.partition().id(self.row)
    }

    /// Its provider.
    #[must_use]
    pub fn provider(self) -> &'s ProviderId {
        self.group.provider()
    }

    /// The provider's own name for the thing.
    #[must_use]
    pub fn sku(self) -> &'s str {
        self.partition().sku(self.row)
    }

    /// Memory of one GPU as its provider states it. Units: MiB.
    #[must_use]
    pub fn gpu_memory_mib(self) -> Option<u64> {
        self.partition().listing(self.row).gpu_memory_mib
    }

    /// The GPU as we know it.
    #[must_use]
    pub fn gpu(self) -> &'s GpuIdentity {
        &self.partition().key().gpu
    }

    /// GPUs of one node.
    #[must_use]
    pub fn gpus(self) -> GpuCount {
        self.partition().key().gpus
    }

    /// The terms on which it is sold.
    #[must_use]
    pub fn terms(self) -> Terms {
        self.partition().key().terms
    }

    /// The kind of machine.
    #[must_use]
    pub fn tenancy(self) -> Tenancy {
        self.group.tenancy()
    }

    /// The fabric between its nodes.
    #[must_use]
    pub fn internode(self) -> Internode {
        self.group.internode()
    }

    /// Its country, where that is known.
    #[must_use]
    pub fn country(self) -> Option<Country> {
        self.group.country()
    }

    /// The region as the provider writes it.
    #[must_use]
    pub fn region(self) -> Option<&'s str> {
        self.group.region()
    }

    /// The price of one node for one hour.
    #[must_use]
    pub fn price_per_node_hour(self) -> Money {
        self.partition().price(self.row)
    }

    /// The rate per GPU-hour of the node's price; see [`Offer::rate`].
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn rate(self) -> Result<Rate, MoneyError> {
        node_rate(self.price_per_node_hour(), self.gpus())
    }

    /// The provider's stock as it reports it. Units of the count: nodes.
    #[must_use]
    pub fn availability(self) -> Availability {
        self.partition().availability(self.row)
    }

    /// Whether we can order it.
    #[must_use]
    pub fn orderable(self) -> bool {
        self.group.orderable()
    }

    /// Who runs the machine, without a host.
    #[must_use]
    pub fn operator(self) -> &'s MachineOperator {
        self.group.operator()
    }

    /// What is included, charged beside it, and for how long one is bound.
    #[must_use]
    pub fn particulars(self) -> &'s Arc<Particulars> {
        self.partition().particulars(self.row)
    }

    /// When the provider reported it.
    #[must_use]
    pub fn observed_at(self) -> DateTime<Utc> {
        self.partition().observed_at(self.row)
    }

    /// Whether it is too old to be matched; see [`Snapshot::is_stale`].
    #[must_use]
    pub fn is_stale(self, now: DateTime<Utc>) -> bool {
        let view = self.snapshot.provider(self.provider());
        super::is_past_limit(view, self.orderable(), self.observed_at(), now)
    }

    /// The offer as a whole.
    #[must_use]
    pub fn to_offer(self) -> Offer {
        let partition = self.partition();
        let key = partition.key();
        let listing = partition.listing(self.row);
        Offer {
            offer_id: self.offer_id(),
            provider: self.provider().clone(),
            sku: self.sku().to_owned(),
            raw_gpu_name: partition.string(listing.raw_gpu_name).to_owned(),
            gpu: key.gpu.clone(),
            gpus: key.gpus,
            gpu_memory_mib: listing.gpu_memory_mib,
            vcpus: self.group.vcpus(),
            memory_gib: self.group.memory_gib(),
            place: self.group.place(),
            tenancy: self.tenancy(),
            terms: key.terms,
            internode: self.internode(),
            price_per_node_hour: self.price_per_node_hour(),
            availability: self.availability(),
            orderable: self.orderable(),
            particulars: Arc::clone(self.particulars()),
            observed_at: self.observed_at(),
        }
    }

    /// Whether it is this very offer, unchanged.
    pub(super) fn is(self, offer: &Offer) -> bool {
        let (partition, listing) = (self.partition(), self.partition().listing(self.row));
        let place = &offer.place;
        let metro = place.metro.as_deref();
        self.offer_id() == offer.offer_id
            && self.price_per_node_hour() == offer.price_per_node_hour
            && self.observed_at() == offer.observed_at
            && self.availability() == offer.availability
            && *self.gpu() == offer.gpu
            && self.gpus() == offer.gpus
            && self.terms() == offer.terms
            && *self.provider() == offer.provider
            && self.sku() == offer.sku
            && partition.string(listing.raw_gpu_name) == offer.raw_gpu_name
            && listing.gpu_memory_mib == offer.gpu_memory_mib
            && self.group.vcpus() == offer.vcpus
            && self.group.memory_gib() == offer.memory_gib
            && self.group.place_key()
                == (
                    place.region.as_deref(),
                    place.zone.as_deref(),
                    place.country,
                    metro,
                )
            && self.tenancy() == offer.tenancy
            && self.internode() == offer.internode
            && self.orderable() == offer.orderable
            && *self.particulars() == offer.particulars
    }

    /// Its place.
    pub(crate) fn place(self) -> Place {
        self.group.place()
    }

    /// Whether another one is the same thing on the same terms at the same price, elsewhere or listed
    /// again.
    pub(crate) fn differs_in_place_alone(self, other: Self) -> bool {
        let (one, two) = (self.partition(), other.partition());
        let gpu_memory = |partition: &Partition, row| partition.listing(row).gpu_memory_mib;
        self.provider() == other.provider()
            && self.sku() == other.sku()
            && one.key() == two.key()
            && self.price_per_node_hour() == other.price_per_node_hour()
            && self.tenancy() == other.tenancy()
            && self.internode() == other.internode()
            && self.orderable() == other.orderable()
            && self.operator() == other.operator()
            && self.group.vcpus() == other.group.vcpus()
            && self.group.memory_gib() == other.group.memory_gib()
            && gpu_memory(one, self.row) == gpu_memory(two, other.row)
    }

    /// The order of offers that are equally good: total, and the same on every run.
    pub(crate) fn tie_order(self, other: Self) -> Ordering {
        let key = |offer: Self| {
            (
                offer.provider(),
                offer.sku(),
                offer.group.place_key(),
                offer.offer_id(),
            )
        };
        key(self).cmp(&key(other))
    }
}
