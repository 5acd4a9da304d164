//! A market made by chance, the same for the same seed: offers that look like those of real lists.
//!
//! The offers are drawn from a list of some thousand: the price lists that were given, or one made here with
//! as many GPUs, node sizes and regions of each seller as such lists have. Each offer of the market is one of
//! them at a price and with a stock of its own.

use std::sync::Arc;

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, TimeDelta, Utc};
use market::fabric::Internode;
use market::gpu::{Gpu, GpuIdentity};
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use matcher::ProviderView;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// How many offers the list that is made here has: about as many as the price lists of eleven
/// sellers had in November 2026.
const LISTED: usize = 4_500;

/// Prices are multiples of this, as in price lists. Units: 1e-8 US dollars.
pub(super) const PRICE_STEP: i64 = 10_000;

/// How old an offer may be. Units: seconds.
const FRESHNESS_LIMIT: u64 = 600;

/// A GPU as it is often sold: its name, how many of a hundred offers have it, US cents an hour of
/// one, and whether eight of them stand on one board.
const GPUS: [(&str, u32, i64, bool); 16] = [
    ("T4", 16, 40, false),
    ("L4", 12, 75, false),
    ("H100-SXM", 11, 299, true),
    ("V100-SXM2-16", 8, 250, false),
    ("A10", 8, 95, false),
    ("A100-SXM-80", 8, 179, true),
    ("A100-SXM-40", 7, 129, true),
    ("P100-PCIe-16", 4, 110, false),
    ("B200-SXM", 4, 550, true),
    ("RTX-A6000", 4, 60, false),
    ("H200-SXM", 4, 380, true),
    ("L40S", 4, 110, false),
    ("MI300X", 2, 250, true),
    ("RTX-4090", 4, 45, false),
    ("H100-PCIe", 2, 219, false),
    ("RTX-5090", 2, 60, false),
];

/// A seller: its word, how many of a hundred offers it has, and its regions.
const SELLERS: [(&str, u32, &[&str]); 8] = [
    (
        "gcp",
        62,
        &[
            "us-central1",
            "us-east1",
            "us-east4",
            "us-west1",
            "us-west4",
            "europe-west1",
            "europe-west4",
            "europe-west2",
            "europe-west3",
            "asia-east1",
            "asia-northeast1",
            "asia-southeast1",
            "asia-south1",
            "me-west1",
            "australia-southeast1",
        ],
    ),
    (
        "azure",
        17,
        &[
            "eastus",
            "westus2",
            "westeurope",
            "northeurope",
            "uksouth",
            "japaneast",
            "southeastasia",
        ],
    ),
    (
        "lambda",
        8,
        &[
            "us-west-1",
            "us-east-1",
            "us-south-1",
            "europe-central-1",
            "asia-south-1",
        ],
    ),
    (
        "shadeform",
        4,
        &["us-central-2", "canada-1", "norway-1", ""],
    ),
    (
        "vast",
        4,
        &["Denmark, DK, EU", "Texas, US, NA", "Japan, JP, AS", ""],
    ),
    ("hyperstack", 2, &["CANADA-1", "NORWAY-1", "US-1"]),
    ("nebius", 2, &["eu-north1", "eu-west1", "us-central1"]),
    ("verda", 1, &["FIN-01", "FIN-02", "ICE-01"]),
];

/// A market by its seed.
#[derive(Debug)]
pub(super) struct Market {
    list: Vec<Offer>,
    read_at: HashMap<ProviderId, DateTime<Utc>>,
    seed: u64,
    now: DateTime<Utc>,
}

impl Market {
    /// A market that draws from these offers, or from a random list if there are none.
    pub(super) fn new(list: Vec<Offer>, seed: u64, now: DateTime<Utc>) -> anyhow::Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let list = if list.is_empty() {
            (0..LISTED)
                .map(|_| listed(&mut rng, now))
                .collect::<Result<_, _>>()?
        } else {
            list
        };
        let sellers: BTreeSet<_> = list.iter().map(|offer| offer.provider.clone()).collect();
        let read_at = sellers.into_iter().map(|seller| {
            // One in a dozen was read too long ago.
            let age = rng.random_range(0..FRESHNESS_LIMIT as i64 * 12 / 11);
            (seller, now - TimeDelta::seconds(age))
        });
        Ok(Self {
            read_at: read_at.collect(),
            list,
            seed,
            now,
        })
    }

    /// When requests are made.
    pub(super) const fn now(&self) -> DateTime<Utc> {
        self.now
    }

    /// The offers to draw from.
    pub(super) fn list(&self) -> &[Offer] {
        &self.list
    }

    /// The facts about the sellers.
    pub(super) fn providers(&self) -> HashMap<ProviderId, ProviderView> {
        let view = ProviderView {
            freshness_limit_seconds: Some(FRESHNESS_LIMIT),
            ..ProviderView::default()
        };
        let sellers = self.read_at.keys();
        sellers
            .map(|seller| (seller.clone(), view.clone()))
            .collect()
    }

    /// Its first so many offers, one after the other.
    pub(super) fn offers(&self, count: usize) -> impl Iterator<Item = Offer> {
        self.priced(count, 0)
    }

    /// The same offers at other prices, one set of prices per `turn`.
    pub(super) fn priced(&self, count: usize, turn: u64) -> impl Iterator<Item = Offer> {
        let mut rng = StdRng::seed_from_u64(self.seed + 1);
        let mut prices = StdRng::seed_from_u64(self.seed + 2 + turn);
        (0..count).filter_map(move |nth| {
            let mut offer = self.list.choose(&mut rng)?.clone();
            offer.offer_id = OfferId::of_identity(&["bench", &nth.to_string()]);
            let units = offer.price_per_node_hour.units() as f64 * prices.random_range(0.7..1.4);
            let steps = (units / PRICE_STEP as f64).round().max(1.0) as i64;
            offer.price_per_node_hour = Money::usd_units(steps * PRICE_STEP);
            offer.availability = match rng.random_range(0..20) {
                0 => Availability::NONE,
                1..6 => Availability::exactly(rng.random_range(1..64)),
                6 => Availability {
                    at_least: true,
                    ..Availability::exactly(10)
                },
                _ => Availability::PRESENT,
            };
            offer.observed_at = self.read_at[&offer.provider];
            Some(offer)
        })
    }
}

/// One of several by their shares of a whole.
fn drawn<'a, T>(
    rng: &mut StdRng,
    all: &'a [T],
    share: impl Fn(&T) -> u32,
) -> anyhow::Result<&'a T> {
    Ok(all.choose_weighted(rng, share)?)
}

fn listed(rng: &mut StdRng, now: DateTime<Utc>) -> anyhow::Result<Offer> {
    let (name, _, cents, board) = *drawn(rng, &GPUS, |gpu| gpu.1)?;
    let (seller, _, regions) = *drawn(rng, &SELLERS, |seller| seller.1)?;
    let sizes = [
        (1_000_u32, 60),
        (2_000, 14),
        (4_000, 14),
        (8_000, 10),
        (333, 2),
    ];
    let thousandths = if board && rng.random_bool(0.6) {
        8_000
    } else {
        drawn(rng, &sizes, |size| size.1)?.0
    };
    let region = regions.choose(rng).copied().unwrap_or_default();
    let zone = match seller {
        "gcp" => format!("{region}-{}", ["a", "b", "c"][rng.random_range(0..3)]),
        _ => String::new(),
    };
    let gang = board && thousandths == 8_000;
    let spot = rng.random_bool(0.45);
    let gpu = Gpu::parse(name)?;
    // One in thirty sellers leaves the form of the GPU open.
    let identity = if rng.random_range(0..30) == 0 {
        GpuIdentity::parse(gpu.family())?
    } else {
        GpuIdentity::Known(gpu)
    };
    let cents = cents * if spot { 60 } else { 100 } / 100;
    let units = cents * 1_000_000 * i64::from(thousandths) / 1_000;
    Ok(Offer {
        offer_id: OfferId::of_identity(&[]),
        provider: ProviderId::parse(seller)?,
        sku: format!("{}x-{name}", GpuCount::from_thousandths(thousandths)?),
        raw_gpu_name: gpu.family().to_owned(),
        gpu: identity,
        gpus: GpuCount::from_thousandths(thousandths)?,
        gpu_memory_mib: Some((gpu.spec().memory_gb * 1e9 / 1_048_576.0) as u64),
        vcpus: Some(thousandths.div_ceil(1_000) * 12),
        memory_gib: Some(thousandths.div_ceil(1_000) * 96),
        place: Place::resolve(seller, region, &zone),
        tenancy: match seller {
            "vast" => Tenancy::Container,
            _ if gang && rng.random_bool(0.4) => Tenancy::BareMetal,
            _ => Tenancy::Vm,
        },
        terms: if spot { Terms::Spot } else { Terms::OnDemand },
        internode: match rng.random_range(0..3) {
            _ if !gang => Internode::None,
            0 => Internode::Ethernet,
            1 => Internode::Roce400,
            _ => Internode::InfinibandNdr400,
        },
        price_per_node_hour: Money::usd_units(units),
        availability: Availability::PRESENT,
        orderable: true,
        particulars: Arc::default(),
        observed_at: now,
    })
}
