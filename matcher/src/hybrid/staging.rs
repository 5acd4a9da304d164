//! The transfer of weights from the nodes that trained them to a fleet: its duration, and the provider's
//! charge for it.

use std::collections::HashMap;
use std::sync::LazyLock;

use market::ids::ProviderId;
use market::money::{Currency, Money, divide_half_even};
use market::offer::Offer;
use serde::Deserialize;

use super::StagingLeg;
use crate::plan::CandidateLine;

/// The assumed rate between two sites: 5 Gb/s. Units: bytes per second.
const BETWEEN_SITES_BYTES_PER_SECOND: u64 = 625_000_000;

/// The assumed rate between nodes of one site: 10 Gb/s. Units: bytes per second.
const WITHIN_SITE_BYTES_PER_SECOND: u64 = 1_250_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EgressRow {
    provider: ProviderId,
    usd_per_gb: String,
    // Read so that a row must name its source.
    #[serde(rename = "source")]
    _source: String,
}

/// The egress prices of providers. Units: US dollars per 1e9 bytes.
struct Egress {
    listed: HashMap<ProviderId, Money>,
    dearest: Money,
}

static EGRESS: LazyLock<Egress> = LazyLock::new(|| {
    let rows = csv::Reader::from_reader(include_str!("../../data/egress.csv").as_bytes())
        .into_deserialize()
        .collect::<Result<Vec<EgressRow>, _>>()
        // The bytes are part of the program, and a test below reads all rows.
        .unwrap_or_else(|error| panic!("the table of egress prices cannot be read: {error}"));
    let listed: HashMap<_, _> = (rows.into_iter())
        .map(|row| {
            let price = Money::parse(&row.usd_per_gb, Currency::Usd)
                .unwrap_or_else(|error| panic!("an egress price of {}: {error}", row.provider));
            (row.provider, price)
        })
        .collect();
    let dearest = listed.values().copied().max();
    Egress {
        listed,
        dearest: dearest.unwrap_or(Money::zero(Currency::Usd)),
    }
});

/// The longest that weights of this size take to one site. Units: seconds.
pub(super) fn slowest_seconds(bytes: u64) -> i64 {
    seconds_at(bytes, BETWEEN_SITES_BYTES_PER_SECOND)
}

/// The transfer of the weights to each site of a fleet, in the order of its lines.
///
/// `None` where an amount overflows.
pub(super) fn legs(bytes: u64, from: &Offer, fleet: &[CandidateLine]) -> Option<Vec<StagingLeg>> {
    let mut sites: Vec<&Offer> = Vec::new();
    for line in fleet {
        if !sites.iter().any(|known| same_site(known, &line.offer)) {
            sites.push(&line.offer);
        }
    }
    sites.into_iter().map(|to| leg(bytes, from, to)).collect()
}

fn leg(bytes: u64, from: &Offer, to: &Offer) -> Option<StagingLeg> {
    let stays = same_site(from, to);
    let listed = EGRESS.listed.get(&from.provider).copied();
    let usd_per_gb = usd_per_gb(from, stays);
    Some(StagingLeg {
        provider: to.provider.clone(),
        region: to.place.region.clone(),
        seconds: seconds(bytes, stays),
        usd_per_gb,
        price_listed: stays || listed.is_some(),
        usd: egress(bytes, usd_per_gb)?,
    })
}

/// The least time and cost of moving the weights to offers of the same provider in each of these regions.
/// Units: seconds.
///
/// Where neither region is known, the target may be the offer itself. `None` where an amount overflows.
pub(super) fn least(bytes: u64, from: &Offer, regions: &[Option<&str>]) -> Option<(i64, Money)> {
    let (mut waits, mut pays) = (0, Money::zero(Currency::Usd));
    for region in regions {
        let stays = from.place.region.as_deref() == *region;
        waits += seconds(bytes, stays);
        let usd = egress(bytes, usd_per_gb(from, stays))?;
        pays = pays.checked_add(usd).ok()?;
    }
    Some((waits, pays))
}

fn seconds(bytes: u64, stays: bool) -> i64 {
    let rate = if stays {
        WITHIN_SITE_BYTES_PER_SECOND
    } else {
        BETWEEN_SITES_BYTES_PER_SECOND
    };
    seconds_at(bytes, rate)
}

fn usd_per_gb(from: &Offer, stays: bool) -> Money {
    if stays {
        return Money::zero(Currency::Usd);
    }
    let listed = EGRESS.listed.get(&from.provider).copied();
    listed.unwrap_or(EGRESS.dearest)
}

fn egress(bytes: u64, usd_per_gb: Money) -> Option<Money> {
    let units = divide_half_even(
        i128::from(usd_per_gb.units()) * i128::from(bytes),
        1_000_000_000,
    );
    Some(Money::from_units(i64::try_from(units).ok()?, Currency::Usd))
}

/// Whether two offers are at one site: at one provider, in a region that both name.
///
/// Traffic that leaves a region pays the provider's egress price; between regions of one provider it often
/// pays less, never more.
fn same_site(a: &Offer, b: &Offer) -> bool {
    let one_region = a.place.region.is_some() && a.place.region == b.place.region;
    a.offer_id == b.offer_id || (a.provider == b.provider && one_region)
}

fn seconds_at(bytes: u64, per_second: u64) -> i64 {
    // At most 1e15 bytes, so it fits.
    i64::try_from(bytes.div_ceil(per_second)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use market::place::Place;

    use super::*;
    use crate::samples::{offer, provider, usd};

    fn at(seller: &str, region: Option<&str>, sku: &str) -> Offer {
        Offer {
            provider: provider(seller),
            place: Place {
                region: region.map(str::to_owned),
                ..Place::unknown()
            },
            ..offer(sku, "H100-SXM", 8, "20.00")
        }
    }

    /// A line as read from a stored plan.
    fn line(offer: Offer) -> CandidateLine {
        let stored = serde_json::json!({"offer": offer, "nodes": 2});
        serde_json::from_value(stored).expect("a line")
    }

    #[test]
    fn every_row_is_a_price_of_at_most_a_dollar() {
        assert!(EGRESS.listed.len() >= 5);
        assert!(
            EGRESS
                .listed
                .values()
                .all(|price| *price < usd("1.00") && *price >= Money::zero(Currency::Usd))
        );
        assert_eq!(EGRESS.dearest, usd("0.12"));
    }

    #[test]
    fn each_site_gets_the_weights_once_and_only_what_leaves_a_site_is_charged() {
        let fleet = [
            line(at("aws", Some("east"), "a")),
            line(at("aws", Some("east"), "b")),
            line(at("aws", Some("west"), "c")),
            line(at("lambda", Some("east"), "d")),
        ];
        let from = at("aws", Some("east"), "t");
        let legs = legs(140_000_000_000, &from, &fleet).expect("legs");
        let told: Vec<_> = (legs.iter())
            .map(|leg| (leg.seconds, leg.usd.to_string()))
            .collect();
        assert_eq!(
            told,
            [
                (112, "0.00".to_owned()),
                (224, "12.60".to_owned()),
                (224, "12.60".to_owned())
            ]
        );
        assert!(legs.iter().all(|leg| leg.price_listed));
    }

    #[test]
    fn where_no_price_is_listed_the_dearest_is_reckoned_with() {
        let from = at("nobody", None, "t");
        let other = [line(at("nobody", None, "u"))];
        let leg = &legs(10_000_000_000, &from, &other).expect("legs")[0];
        assert!(!leg.price_listed);
        assert_eq!(leg.usd, usd("1.20"));
        // The offer itself is at one site with itself, even without a known region.
        let itself = [line(from.clone())];
        let leg = &legs(10_000_000_000, &from, &itself).expect("legs")[0];
        assert_eq!((leg.usd, leg.seconds), (usd("0"), 8));
    }
}
