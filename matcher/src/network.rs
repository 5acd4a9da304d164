//! The network's part of the time to the first token: round trips between users and offers.
//!
//! Users are spread evenly over the places of their country in `data/user_places.csv`. The place of an offer
//! comes from `market`'s table of regions, else it is the first place of its country. A round trip is
//! estimated from the distance, since no table of measured round trips covers all providers.

use std::sync::LazyLock;

use market::demand::UserShare;
use market::offer::Offer;
use market::place::{Country, Position};
use serde::Deserialize;

/// How far light gets in fibre. Units: kilometres per millisecond. Source: index of refraction 1.5.
const FIBRE_KM_PER_MS: f64 = 200.0;

/// How much longer than the straight way over ground cables are, routers included: assumed.
const DETOUR: f64 = 1.4;

/// The assumed round trip of the last mile. Units: milliseconds.
const LAST_MILE_MS: f64 = 4.0;

/// The round trip that is assumed where the place of an offer is unknown: that of the farthest two points on
/// the globe. Units: milliseconds.
const FARTHEST_MS: f64 = LAST_MILE_MS + 2.0 * DETOUR * 20_015.0 / FIBRE_KM_PER_MS;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlaceRow {
    country: Country,
    // Read so that a row must name its place.
    #[serde(rename = "place")]
    _place: String,
    lat: f64,
    lon: f64,
}

static PLACES: LazyLock<Vec<PlaceRow>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("../data/user_places.csv").as_bytes())
        .into_deserialize()
        .collect::<Result<_, _>>()
        // The bytes are part of the program, and a test below reads all rows.
        .unwrap_or_else(|error| panic!("the table of users' places cannot be read: {error}"))
});

fn places_of(country: Country) -> impl Iterator<Item = Position> {
    let rows = PLACES.iter().filter(move |row| row.country == country);
    rows.map(|row| Position {
        latitude: row.lat,
        longitude: row.lon,
    })
}

/// Where users are, each place with its share of them.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Users(Vec<(Option<Position>, f64)>);

impl Users {
    /// `None` where the demand does not state its users. Users of a country that the table lacks count as
    /// being at the farthest distance.
    pub(crate) fn of(shares: &[UserShare]) -> Option<Self> {
        // The places of a country are evaluated once per offer, even if the demand names it several times.
        let mut countries: Vec<(Country, f64)> = Vec::new();
        for UserShare { country, share } in shares {
            match countries.iter_mut().find(|(known, _)| known == country) {
                Some((_, all)) => *all += share,
                None => countries.push((*country, *share)),
            }
        }
        let mut users = Vec::new();
        for (country, share) in countries {
            let places: Vec<_> = places_of(country).collect();
            let each = share / places.len().max(1) as f64;
            if places.is_empty() {
                users.push((None, share));
            }
            users.extend(places.into_iter().map(|place| (Some(place), each)));
        }
        (!users.is_empty()).then_some(Self(users))
    }

    /// The round trip of the users at this percentile. Units: milliseconds.
    pub(crate) fn round_trip_ms(&self, offer: &Offer, percentile: f64) -> f64 {
        let listed = Position::of(offer.provider.as_str(), &offer.place);
        let at = listed.or_else(|| places_of(offer.place.country?).next());
        let mut trips: Vec<(f64, f64)> = (self.0.iter())
            .map(|(user, share)| (at.zip(*user).map_or(FARTHEST_MS, round_trip), *share))
            .collect();
        trips.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted = percentile / 100.0 * trips.iter().map(|(_, share)| share).sum::<f64>();
        let mut reached = 0.0;
        let within = trips.iter().find(|(_, share)| {
            reached += share;
            // A share that was split evenly adds up to itself but for rounding.
            reached >= wanted - 1e-9
        });
        within.or(trips.last()).map_or(FARTHEST_MS, |(ms, _)| *ms)
    }
}

fn round_trip((from, to): (Position, Position)) -> f64 {
    LAST_MILE_MS + 2.0 * DETOUR * from.distance_km(&to) / FIBRE_KM_PER_MS
}

#[cfg(test)]
mod tests {
    use market::place::Place;

    use super::*;
    use crate::samples::offer;

    fn users(shares: &[(&str, f64)]) -> Users {
        let shares: Vec<_> = (shares.iter())
            .map(|(country, share)| UserShare {
                country: Country::parse(country).expect("a country"),
                share: *share,
            })
            .collect();
        Users::of(&shares).expect("users")
    }

    fn standing_in(country: &str) -> Offer {
        Offer {
            place: Place {
                country: Country::parse(country).ok(),
                ..Place::unknown()
            },
            ..offer("x", "L4", 1, "1.00")
        }
    }

    #[test]
    fn every_row_is_a_place_on_the_globe() {
        assert!(PLACES.len() > 70);
        for row in PLACES.iter() {
            assert!(row.lat.abs() <= 70.0 && row.lon.abs() <= 180.0);
            assert!(!row._place.is_empty());
        }
    }

    #[test]
    fn round_trips_grow_with_the_distance() {
        let germans = users(&[("DE", 1.0)]);
        let trip = |country| germans.round_trip_ms(&standing_in(country), 95.0);
        assert_eq!(trip("DE"), LAST_MILE_MS);
        assert!((8.0..15.0).contains(&trip("NL")), "{}", trip("NL"));
        assert!((80.0..110.0).contains(&trip("US")), "{}", trip("US"));
        assert!((130.0..170.0).contains(&trip("SG")), "{}", trip("SG"));
        // An offer whose place is unknown counts as being at the farthest distance.
        let nowhere = germans.round_trip_ms(&offer("x", "L4", 1, "1.00"), 95.0);
        assert_eq!(nowhere, FARTHEST_MS);
    }

    #[test]
    fn a_country_that_is_named_often_is_reckoned_once() {
        let often = users(&vec![("DE", 0.001); 1_000]);
        let once = users(&[("DE", 1.0)]);
        assert_eq!(often.0.len(), once.0.len());
        let trip = |users: &Users| users.round_trip_ms(&standing_in("US"), 95.0);
        assert_eq!(trip(&often), trip(&once));
    }

    #[test]
    fn a_percentile_is_of_all_users() {
        let all = users(&[("DE", 0.9), ("JP", 0.1)]);
        let trip = |percentile| all.round_trip_ms(&standing_in("DE"), percentile);
        assert_eq!(trip(90.0), LAST_MILE_MS);
        assert!(trip(91.0) > 100.0);
    }

    #[test]
    fn an_offer_in_a_listed_region_stands_there_and_not_in_the_middle_of_its_country() {
        let west = Offer {
            place: Place::resolve("lambda", "us-west-1", ""),
            ..offer("x", "L4", 1, "1.00")
        };
        let japan = users(&[("JP", 1.0)]);
        let east = japan.round_trip_ms(&standing_in("US"), 95.0);
        assert!(japan.round_trip_ms(&west, 95.0) < east - 20.0);
    }
}
