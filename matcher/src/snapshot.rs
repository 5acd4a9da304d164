//! All live offers at one generation, immutable. Built once by the ingest, then only read.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::gpu::{Gpu, GpuSpec};
use market::ids::{OfferId, ProviderId};
use market::money::Rate;
use market::offer::Offer;
use pricing::rate::per_gpu_hour;

/// What a match must know of a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderView {
    /// Past this age an offer of the provider is not matched; `None` where its offers stand in
    /// price lists, which say what was asked at their date and have no limit. Units: seconds.
    pub freshness_limit_seconds: Option<u64>,
    /// Why the last reading changed nothing; `None` while readings come in well.
    ///
    /// A provider that is marked so is still matched until its offers pass the limit.
    pub stale: Option<String>,
    /// Why nothing new is to be taken there, and until when.
    pub quarantine: Option<Quarantine>,
}

/// Why and until when nothing new is to be taken at a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quarantine {
    /// Why, in words that tenants read.
    pub reason: String,
    /// When it ends by itself.
    pub until: DateTime<Utc>,
}

/// All live offers, immutable, with a generation.
#[derive(Debug)]
pub struct Snapshot {
    generation: u64,
    taken_at: DateTime<Utc>,
    rows: Vec<Row>,
    providers: HashMap<ProviderId, ProviderView>,
    positions: HashMap<OfferId, usize>,
}

/// An offer and what every search would otherwise compute again.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) offer: Offer,
    /// The rate; `None` where the price is unknown (zero, less, or absurd).
    pub(crate) rate: Option<Rate>,
    /// What is published of the GPU; `None` while its form is unknown.
    pub(crate) spec: Option<&'static GpuSpec>,
}

impl Snapshot {
    /// Takes in offers, each with an id of its own, and what is known of their providers.
    ///
    /// An offer whose provider is not among `providers` has no freshness limit that it could
    /// meet, so it is never matched.
    #[must_use]
    pub fn new(
        generation: u64,
        taken_at: DateTime<Utc>,
        offers: impl IntoIterator<Item = Offer>,
        providers: HashMap<ProviderId, ProviderView>,
    ) -> Self {
        let rows: Vec<Row> = offers.into_iter().map(Row::new).collect();
        let positions = rows
            .iter()
            .enumerate()
            .map(|(at, row)| (row.offer.offer_id, at))
            .collect();
        Self {
            generation,
            taken_at,
            rows,
            providers,
            positions,
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
        self.rows.len()
    }

    /// Whether it holds none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Its offers, in the order that they were given.
    pub fn offers(&self) -> impl ExactSizeIterator<Item = &Offer> {
        self.rows.iter().map(|row| &row.offer)
    }

    /// One offer.
    #[must_use]
    pub fn offer(&self, id: &OfferId) -> Option<&Offer> {
        self.positions.get(id).map(|at| &self.rows[*at].offer)
    }

    /// What is known of a provider.
    #[must_use]
    pub fn provider(&self, id: &ProviderId) -> Option<&ProviderView> {
        self.providers.get(id)
    }

    /// Whether an offer is too old to be matched.
    ///
    /// Past its provider's limit it is. Offers of price lists have none: they are compared with,
    /// however old, and say how old. Where nothing is known of a provider, or an offer could be
    /// ordered and has no limit, nothing says that it is fresh.
    #[must_use]
    pub fn is_stale(&self, offer: &Offer, now: DateTime<Utc>) -> bool {
        let view = self.provider(&offer.provider);
        match view.map(|view| view.freshness_limit_seconds) {
            Some(Some(limit)) => offer.age_seconds(now) > limit,
            Some(None) => offer.orderable,
            None => true,
        }
    }

    /// The quarantine of a provider that holds at this time.
    #[must_use]
    pub fn quarantine(&self, id: &ProviderId, now: DateTime<Utc>) -> Option<&Quarantine> {
        let quarantine = self.provider(id)?.quarantine.as_ref()?;
        (now < quarantine.until).then_some(quarantine)
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }
}

impl Row {
    fn new(offer: Offer) -> Self {
        let rate = per_gpu_hour(offer.price_per_node_hour, 3_600, offer.gpus).ok();
        let spec = offer.gpu.known().map(Gpu::spec);
        Self { offer, rate, spec }
    }
}
