//! The requests to the market, and the expected answers: each offer is considered by itself.

use chrono::{DateTime, Utc};
use market::demand::{Ceiling, Counts, Demand, GpusDemand, Places};
use market::gpu::{Gpu, GpuWanted};
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Offer, Terms};
use market::place::{Country, Place};
use market::tags::Tags;
use matcher::{Candidate, Plan, ReasonCode, Snapshot};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use std::collections::BTreeMap;
use std::iter;

use super::market::{Market, PRICE_STEP};

/// How many requests of each kind are made.
pub(super) const REQUESTS: usize = 200;

/// How many candidates are asked for.
pub(super) const TOP: usize = 10;

const CONTINENTS: [&[&str]; 3] = [
    &[
        "AT", "BE", "CH", "CZ", "DE", "DK", "ES", "FI", "FR", "GB", "IE", "IS", "IT", "NL", "NO",
        "PL", "PT", "SE",
    ],
    &["US", "CA", "MX"],
    &["HK", "ID", "IN", "JP", "KR", "MY", "SG", "TH", "TW"],
];

/// So many nodes of one kind, cheapest first.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Request {
    /// This GPU, else any.
    pub(super) gpu: Option<Gpu>,
    pub(super) gpus: u32,
    pub(super) nodes: u32,
    pub(super) spot: bool,
    /// The most that a node may cost for an hour. Units: 1e-8 US dollars.
    pub(super) most_units: Option<i64>,
    /// Where it may stand; anywhere, where none is named.
    pub(super) countries: Vec<Country>,
}

/// The requests of each kind, by the seed of the market.
pub(super) struct Requests {
    /// One GPU at a price, most on one continent.
    pub(super) narrow: Vec<Request>,
    /// Any GPU, anywhere.
    pub(super) wide: Vec<Request>,
    /// Several nodes in one fabric.
    pub(super) gang: Vec<Request>,
}

impl Requests {
    pub(super) fn of(market: &Market, seed: u64) -> anyhow::Result<Self> {
        let mut rng = StdRng::seed_from_u64(seed);
        let whole = |offer: &&Offer| {
            let size = offer.gpus.as_whole();
            offer.gpu.known().is_some() && size.is_some_and(|gpus| gpus.is_power_of_two())
        };
        let list: Vec<&Offer> = market.list().iter().filter(whole).collect();
        anyhow::ensure!(
            !list.is_empty(),
            "the price lists sell no whole GPU that is known"
        );
        let mut narrow = || -> anyhow::Result<Request> {
            let like = list.choose(&mut rng).copied().unwrap_or(list[0]);
            let continent = CONTINENTS.choose(&mut rng).filter(|_| rng.random_bool(0.6));
            let countries = continent.into_iter().flat_map(|codes| codes.iter());
            let most = like.price_per_node_hour.units() as f64 * rng.random_range(0.8..1.5);
            Ok(Request {
                gpu: like.gpu.known(),
                gpus: like.gpus.as_whole().unwrap_or(1),
                nodes: 1,
                spot: like.terms == Terms::Spot,
                most_units: Some(most as i64 / PRICE_STEP * PRICE_STEP),
                countries: countries
                    .map(|code| Country::parse(code))
                    .collect::<Result<_, _>>()?,
            })
        };
        let narrow = (0..REQUESTS)
            .map(|_| narrow())
            .collect::<Result<Vec<_>, _>>()?;
        let mut nodes = StdRng::seed_from_u64(seed + 1);
        let wide = narrow.iter().map(|request| Request {
            gpu: None,
            most_units: None,
            countries: Vec::new(),
            ..*request
        });
        let gang = narrow.iter().map(|request| Request {
            nodes: nodes.random_range(2..=32),
            ..request.clone()
        });
        Ok(Self {
            wide: wide.collect(),
            gang: gang.collect(),
            narrow,
        })
    }
}

impl Request {
    pub(super) fn demand(&self) -> Demand {
        let most = self.most_units.map(|units| units * i64::from(self.nodes));
        Demand::Gpus(GpusDemand {
            gpu: self.gpu.map_or(GpuWanted::Any, GpuWanted::Exactly).into(),
            count: Counts::exactly(self.gpus),
            nodes: self.nodes,
            fabric: None,
            spot: self.spot,
            gpu_memory_gib: None,
            host_memory_gib: None,
            vcpus: None,
            window: None,
            ceiling: most.map(|units| Ceiling {
                usd_per_hour: Some(Money::usd_units(units)),
                ..Ceiling::default()
            }),
            places: Some(Places {
                countries: self.countries.clone(),
                regions: Vec::new(),
            })
            .filter(|_| !self.countries.is_empty()),
            tenancy: None,
            policy: None,
            verification: None,
            tags: Tags::default(),
        })
    }

    /// Why an offer is not eligible, if it is not; in the order of [`ReasonCode::ALL`].
    fn refuses(&self, offer: &Offer, is_stale: bool) -> Option<ReasonCode> {
        let terms = if self.spot {
            Terms::Spot
        } else {
            Terms::OnDemand
        };
        let forms: Vec<Gpu> = offer.gpu.forms_of(offer.gpu_memory_mib).collect();
        let (takes, open) = match (offer.gpu.known(), self.gpu) {
            (Some(gpu), wanted) => (wanted.is_none_or(|wanted| wanted == gpu), false),
            (None, None) => (true, forms.is_empty()),
            (None, Some(gpu)) => {
                // By its memory it is the one and no other of its family.
                let is_it = forms == [gpu] && offer.gpu.forms().count() > 1;
                (forms.contains(&gpu), !is_it)
            }
        };
        let country = offer.place.country;
        let placed = !self.countries.is_empty();
        let rules = [
            (
                !offer.price_per_node_hour.is_positive(),
                ReasonCode::NoPrice,
            ),
            (!takes, ReasonCode::Gpu),
            (open, ReasonCode::GpuFormUnknown),
            (offer.gpus.as_whole().is_none(), ReasonCode::Slice),
            (
                offer.gpus.as_whole() != Some(self.gpus),
                ReasonCode::GpusPerNode,
            ),
            (offer.terms != terms, ReasonCode::Terms),
            (placed && country.is_none(), ReasonCode::PlaceUnknown),
            (
                placed && country.is_some_and(|c| !self.countries.contains(&c)),
                ReasonCode::Place,
            ),
            (is_stale, ReasonCode::Stale),
            (offer.availability.is_sold_out(), ReasonCode::SoldOut),
            (
                !offer.availability.may_hold(self.nodes),
                ReasonCode::NotEnoughNodes,
            ),
            (
                self.most_units
                    .is_some_and(|most| offer.price_per_node_hour.units() > most),
                ReasonCode::Ceiling,
            ),
        ];
        rules
            .into_iter()
            .find(|(applies, _)| *applies)
            .map(|(_, code)| code)
    }
}

/// The expected answer to a request.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Expected {
    pub(super) eligible: usize,
    pub(super) rejected: BTreeMap<ReasonCode, usize>,
    /// The best, best first, in the order of ranks.
    best: Vec<Rank>,
}

type Rank = (i64, ProviderId, String, Place, OfferId);

/// Where an offer at this place ranks.
fn rank(offer: &Offer, place: &Place, id: OfferId) -> Rank {
    let price = offer.price_per_node_hour.units();
    let (provider, sku) = (offer.provider.clone(), offer.sku.clone());
    (price, provider, sku, place.clone(), id)
}

impl Expected {
    /// The answers to requests, found by looking at each offer of a market by itself.
    pub(super) fn of<'a>(
        requests: impl Iterator<Item = &'a Request>,
        offers: impl Iterator<Item = Offer>,
        snapshot: &Snapshot,
        now: DateTime<Utc>,
    ) -> Vec<Self> {
        let mut expected: Vec<(&Request, Self)> =
            requests.map(|request| (request, Self::default())).collect();
        for offer in offers {
            let is_stale = snapshot.is_stale(&offer, now);
            for (request, expected) in &mut expected {
                match request.refuses(&offer, is_stale) {
                    Some(code) => *expected.rejected.entry(code).or_default() += 1,
                    None => expected.take(&offer),
                }
            }
        }
        expected.into_iter().map(|(_, expected)| expected).collect()
    }

    fn take(&mut self, offer: &Offer) {
        self.eligible += 1;
        let price = offer.price_per_node_hour.units();
        let worst = self.best.last().filter(|_| self.best.len() == TOP);
        if worst.is_some_and(|worst| price > worst.0) {
            return;
        }
        let rank = rank(offer, &offer.place, offer.offer_id);
        let at = self.best.partition_point(|known| *known < rank);
        self.best.insert(at, rank);
        self.best.truncate(TOP);
    }

    /// The prices of the best. Units: 1e-8 US dollars for a node and hour.
    pub(super) fn prices(&self) -> impl Iterator<Item = i64> {
        self.best.iter().map(|rank| rank.0)
    }

    /// Whether a plan agrees exactly. Offers that differ in place alone are in one candidate there.
    pub(super) fn is(&self, plan: &Plan) -> bool {
        let places = |candidate: &Candidate| {
            let offer = &candidate.lines[0].offer;
            let also = candidate.also_at.iter();
            let also = also.map(|one| rank(offer, &one.place, one.offer_id));
            let own = rank(offer, &offer.place, offer.offer_id);
            iter::once(own).chain(also).collect::<Vec<_>>()
        };
        let mut found: Vec<Rank> = plan.candidates.iter().flat_map(places).collect();
        found.sort_unstable();
        found.truncate(self.best.len());
        plan.eligible == self.eligible
            && plan.rejected.by_reason == self.rejected
            && found == self.best
    }
}
