//! The least that a match could cost: the same rules over twelve packed bytes an offer, and over
//! lists that are sorted by price beforehand. Neither explains anything.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use market::gpu::Gpu;
use market::offer::{Offer, Terms};
use market::place::Country;
use matcher::Snapshot;

use super::market::PRICE_STEP;
use super::requests::{Request, TOP};

/// Offers as a scan reads them: 12 bytes each.
#[derive(Default)]
pub(super) struct Columns {
    /// Units: [`PRICE_STEP`].
    price: Vec<u32>,
    gpu: Vec<u16>,
    /// The largest number of nodes available.
    stock: Vec<u16>,
    gpus: Vec<u8>,
    country: Vec<u8>,
    terms: Vec<u8>,
    /// One where the offer may be taken at all: fresh, and not sold out.
    open: Vec<u8>,
}

/// The codes for the values of the columns.
#[derive(Default)]
pub(super) struct Codes {
    gpus: HashMap<Gpu, u16>,
    countries: HashMap<Country, u8>,
}

/// A GPU of which no form is known.
const NO_GPU: u16 = 0;
/// One of several forms of a GPU.
const OPEN_FORM: u16 = u16::MAX - 1;
/// A place that is not known.
const UNKNOWN: u8 = 0;
/// GPUs of a node that are no whole number of at most 255.
const NO_SIZE: u8 = 0;

/// A request as the columns read it.
pub(super) struct Scan {
    most: u32,
    gpu: Option<u16>,
    nodes: u16,
    gpus: u8,
    terms: u8,
    allowed: [bool; 256],
}

const fn terms_code(terms: Terms) -> u8 {
    terms as u8
}

impl Columns {
    pub(super) fn of(
        offers: impl Iterator<Item = Offer>,
        snapshot: &Snapshot,
        now: DateTime<Utc>,
    ) -> (Self, Codes) {
        let (mut columns, mut codes) = (Self::default(), Codes::default());
        for offer in offers {
            let stock = &offer.availability;
            let most = match stock.nodes {
                Some(nodes) if !stock.at_least => nodes,
                _ => u32::MAX,
            };
            let open = !snapshot.is_stale(&offer, now) && !stock.is_sold_out();
            let steps = offer.price_per_node_hour.units() / PRICE_STEP;
            columns.price.push(u32::try_from(steps).unwrap_or(u32::MAX));
            columns.gpu.push(match offer.gpu.known() {
                Some(gpu) => codes.gpu(gpu),
                None if offer.gpu.forms().next().is_some() => OPEN_FORM,
                None => NO_GPU,
            });
            columns.stock.push(u16::try_from(most).unwrap_or(u16::MAX));
            let size = offer
                .gpus
                .as_whole()
                .and_then(|gpus| u8::try_from(gpus).ok());
            columns.gpus.push(size.unwrap_or(NO_SIZE));
            let country = offer.place.country.map(|country| codes.country(country));
            columns.country.push(country.unwrap_or(UNKNOWN));
            columns.terms.push(terms_code(offer.terms));
            columns.open.push(u8::from(open));
        }
        (columns, codes)
    }

    /// The eligible, cheapest first: how many, and the prices of the first.
    pub(super) fn scan(&self, scan: &Scan, found: &mut Vec<u64>) -> usize {
        found.clear();
        match scan.gpu {
            Some(gpu) => self.scan_where(scan, found, |at| self.gpu[at] == gpu),
            None => self.scan_where(scan, found, |at| self.gpu[at] != NO_GPU),
        }
        let eligible = found.len();
        if eligible > TOP {
            found.select_nth_unstable(TOP - 1);
            found.truncate(TOP);
        }
        found.sort_unstable();
        eligible
    }

    fn scan_where(&self, scan: &Scan, found: &mut Vec<u64>, is_gpu: impl Fn(usize) -> bool) {
        for at in 0..self.price.len() {
            if is_gpu(at) && self.gpus[at] == scan.gpus && self.matches(scan, at) {
                found.push(u64::from(self.price[at]) << 32 | at as u64);
            }
        }
    }

    /// All rules but those on the GPU and its count.
    fn matches(&self, scan: &Scan, at: usize) -> bool {
        self.terms[at] == scan.terms
            && self.open[at] == 1
            && scan.allowed[usize::from(self.country[at])]
            && self.stock[at] >= scan.nodes
            && self.price[at] <= scan.most
    }
}

impl Codes {
    fn gpu(&mut self, gpu: Gpu) -> u16 {
        let next = self.gpus.len() as u16 + 1;
        *self.gpus.entry(gpu).or_insert(next)
    }

    fn country(&mut self, country: Country) -> u8 {
        let next = self.countries.len() as u8 + 1;
        *self.countries.entry(country).or_insert(next)
    }

    pub(super) fn scan(&self, request: &Request) -> Scan {
        let mut allowed = [request.countries.is_empty(); 256];
        for country in &request.countries {
            if let Some(code) = self.countries.get(country) {
                allowed[usize::from(*code)] = true;
            }
        }
        let most = request
            .most_units
            .map_or(i64::MAX, |units| units / PRICE_STEP);
        let terms = if request.spot {
            Terms::Spot
        } else {
            Terms::OnDemand
        };
        Scan {
            most: u32::try_from(most).unwrap_or(u32::MAX),
            // A GPU that nobody sells belongs to no seller.
            gpu: request
                .gpu
                .map(|gpu| self.gpus.get(&gpu).copied().unwrap_or(u16::MAX)),
            nodes: u16::try_from(request.nodes).unwrap_or(u16::MAX),
            gpus: u8::try_from(request.gpus).unwrap_or(NO_SIZE),
            terms: terms_code(terms),
            allowed,
        }
    }
}

/// The offers of each GPU, node size and terms, cheapest first.
pub(super) struct SortedIndex<'c> {
    columns: &'c Columns,
    lists: HashMap<(u16, u8, u8), Vec<u32>>,
}

impl<'c> SortedIndex<'c> {
    pub(super) fn of(columns: &'c Columns) -> Self {
        let mut lists: HashMap<_, Vec<u32>> = HashMap::new();
        for at in 0..columns.price.len() {
            let key = (columns.gpu[at], columns.gpus[at], columns.terms[at]);
            lists.entry(key).or_default().push(at as u32);
        }
        for list in lists.values_mut() {
            list.sort_unstable_by_key(|at| (columns.price[*at as usize], *at));
        }
        Self { columns, lists }
    }

    /// The first eligible, cheapest first.
    pub(super) fn top(&self, scan: &Scan, found: &mut Vec<u64>) {
        found.clear();
        let key = (scan.gpu.unwrap_or(0), scan.gpus, scan.terms);
        let list = self.lists.get(&key).map_or(&[][..], Vec::as_slice);
        for at in list {
            let price = self.columns.price[*at as usize];
            if found.len() == TOP || price > scan.most {
                return;
            }
            if self.columns.matches(scan, *at as usize) {
                found.push(u64::from(price) << 32 | u64::from(*at));
            }
        }
    }
}
