//! The pricebook of the account: what one unit of everything costs for an hour, in US dollars.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use market::catalog::SkipReason;
use market::money::{Currency, Money};
use market::offer::{Extra, ExtraBasis};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde_json::Value;

use super::time;
use crate::gate::{self, Rejection};

/// The name of a public address, of which every machine gets one.
const ADDRESS: &str = "PublicIP";
/// The name of a GB of a volume.
const VOLUME: &str = "Cloud-SSD";

/// The entries in force, by name. Units: US dollars.
pub(super) struct Pricebook(BTreeMap<String, Result<Decimal, Rejection>>);

impl Pricebook {
    /// Reads the entries in force at `now`; those whose name cannot be read are returned beside them.
    pub(super) fn read(entries: &[Value], now: DateTime<Utc>) -> (Self, Vec<Rejection>) {
        let mut book = Self(BTreeMap::new());
        let mut unread = Vec::new();
        for entry in entries.iter().filter(|entry| is_in_force(entry, now)) {
            match entry["name"].as_str() {
                Some(name) => book.add(name, convert_price(entry)),
                None => {
                    let why = "an entry of the pricebook has no name";
                    unread.push(Rejection::new(SkipReason::Unreadable, why));
                }
            }
        }
        (book, unread)
    }

    /// Adds a price; of two different ones for one thing, neither is to be relied on.
    fn add(&mut self, name: &str, price: Result<Decimal, Rejection>) {
        let known = self.0.entry(name.to_owned());
        let known = known.or_insert_with(|| price.clone());
        if *known != price {
            let why = "the pricebook has two prices for it";
            *known = Err(Rejection::new(SkipReason::ContradictsList, why));
        }
    }

    /// The price of a machine with this many GPUs for an hour. `word` is the flavor's for the GPU, and
    /// `model` the same without what makes it spot.
    pub(super) fn node_price(
        &self,
        word: &str,
        model: &str,
        gpus: GpuCount,
    ) -> Result<Decimal, Rejection> {
        let price = self.price_of(word)?;
        // A price of zero is unknown.
        let on_demand = self.price_of(model).ok().filter(|other| !other.is_zero());
        if let Some(on_demand) = on_demand.filter(|other| price > *other) {
            let why = format!("the spot price of {price} is above {on_demand} on demand");
            return Err(Rejection::new(SkipReason::SpotAboveOnDemand, why));
        }
        let count = Decimal::new(i64::from(gpus.thousandths()), 3);
        price.checked_mul(count).ok_or_else(|| {
            let why = format!("the price `{price}` is beyond any price");
            Rejection::new(SkipReason::ImplausiblePrice, why)
        })
    }

    /// What is charged beside a machine, as far as the book has it. Traffic is not, by the price page of
    /// 2026-08-26.
    pub(super) fn extras(&self) -> Vec<Extra> {
        let extra = |per, name, units: u32| {
            let price = self.price_of(name).ok()?.checked_mul(units.into())?;
            let price_usd = Money::from_decimal(price, Currency::Usd).ok()?;
            price_usd.is_positive().then_some(Extra { per, price_usd })
        };
        let free = Extra {
            per: ExtraBasis::GbOut,
            price_usd: Money::usd_units(0),
        };
        // A volume is priced by the hour, of which a month has 730.
        let priced = [
            extra(ExtraBasis::DiskGbMonth, VOLUME, 730),
            Some(free),
            extra(ExtraBasis::AddressHour, ADDRESS, 1),
        ];
        priced.into_iter().flatten().collect()
    }

    fn price_of(&self, name: &str) -> Result<Decimal, Rejection> {
        let none = || {
            let why = format!("the pricebook has no price for `{}`", gate::shown(name));
            Err(Rejection::new(SkipReason::NoPrice, why))
        };
        self.0.get(name).cloned().unwrap_or_else(none)
    }
}

/// A date that cannot be read bounds nothing.
fn is_in_force(entry: &Value, now: DateTime<Utc>) -> bool {
    let date = |field: &str| entry[field].as_str().and_then(time);
    let has_begun = date("start_time").is_none_or(|start| start <= now);
    has_begun && date("end_time").is_none_or(|end| end > now)
}

fn convert_price(entry: &Value) -> Result<Decimal, Rejection> {
    // No currency is published; one that is sent is heeded.
    let currency = entry["currency"].as_str().unwrap_or("USD");
    if currency != "USD" {
        let why = format!("its price is in {}", gate::shown(currency));
        return Err(Rejection::new(SkipReason::NoPrice, why));
    }
    gate::needed_price(&entry["value"], "the price of one GPU")
}
