//! Places: the country, region and zone of an offer, and how we read sellers' words for them.
//!
//! The words of known regions are data (`data/regions.csv`). Other words are read as free text that ends in a
//! country, or as a code that begins with one (`gb-london-1`, `eu-de`). All other text stays as the seller
//! wrote it, in no known country.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::string_schema;
use crate::math::{asin, cos, sin};
use crate::table;

/// A text that is no country code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no country; write an ISO 3166 code of two letters such as `DE`")]
pub struct UnknownCountry(String);

/// A country: its ISO 3166 alpha-2 code, upper-case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Country([u8; 2]);

impl Country {
    /// The country of this code, in any case.
    ///
    /// Errors: [`UnknownCountry`] for anything that is not assigned in ISO 3166.
    pub fn parse(code: &str) -> Result<Self, UnknownCountry> {
        let upper: [u8; 2] = code
            .to_ascii_uppercase()
            .into_bytes()
            .try_into()
            .map_err(|_| UnknownCountry(code.chars().take(40).collect()))?;
        let country = Self(upper);
        if COUNTRIES.names.contains_key(&country) {
            return Ok(country);
        }
        Err(UnknownCountry(code.to_owned()))
    }

    /// The two letters.
    #[must_use]
    pub fn code(&self) -> &str {
        // Only ASCII is in the table that every country comes from, so the text is never replaced.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Country {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl FromStr for Country {
    type Err = UnknownCountry;

    fn from_str(code: &str) -> Result<Self, UnknownCountry> {
        Self::parse(code)
    }
}

string_schema!(Country, "Country", "^[A-Za-z]{2}$", 2, "DE");

/// Where an offer stands, as far as its seller states it.
#[derive(
    Debug,
    Clone,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
pub struct Place {
    /// The region as the seller writes it; `None`: not stated.
    pub region: Option<String>,
    /// The seller's zone within the region.
    pub zone: Option<String>,
    /// The country.
    pub country: Option<Country>,
    /// The city, or the state where no city is known.
    pub metro: Option<String>,
}

impl Place {
    /// The place that a seller's words mean; blank words mean an unknown place.
    #[must_use]
    pub fn resolve(seller: &str, region: &str, zone: &str) -> Self {
        let [region, zone] =
            [region, zone].map(|word| Some(word.trim()).filter(|word| !word.is_empty()));
        let (country, metro) = [region, zone]
            .into_iter()
            .flatten()
            .find_map(|word| listed(seller, word))
            .or_else(|| region.and_then(|words| read_free_text(seller, words)))
            .or_else(|| {
                region
                    .and_then(read_code)
                    .map(|country| (Some(country), None))
            })
            .unwrap_or_default();
        Self {
            region: region.map(str::to_owned),
            zone: zone.map(str::to_owned),
            country,
            metro,
        }
    }

    /// An unknown place.
    #[must_use]
    pub fn unknown() -> Self {
        Self::default()
    }

    /// Whether nothing is known of the place.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        *self == Self::unknown()
    }
}

/// Country and metro, each where known.
type Located = (Option<Country>, Option<String>);

#[derive(Deserialize)]
struct RegionRow {
    provider: String,
    region_as_written: String,
    country: Option<Country>,
    metro: Option<String>,
    lat: Option<f64>,
    lon: Option<f64>,
}

/// The table of providers' regions, with the country and position of each.
pub const REGION_TABLE: &str = include_str!("../data/regions.csv");

static REGIONS: LazyLock<HashMap<String, HashMap<String, Located>>> = LazyLock::new(|| {
    let mut regions: HashMap<String, HashMap<String, Located>> = HashMap::new();
    for row in table::rows::<RegionRow>(REGION_TABLE) {
        let of_provider = regions.entry(row.provider).or_default();
        of_provider.insert(
            row.region_as_written.to_lowercase(),
            (row.country, row.metro),
        );
    }
    regions
});

static POSITIONS: LazyLock<HashMap<String, HashMap<String, Position>>> = LazyLock::new(|| {
    let mut positions: HashMap<String, HashMap<String, Position>> = HashMap::new();
    for row in table::rows::<RegionRow>(REGION_TABLE) {
        if let (Some(latitude), Some(longitude)) = (row.lat, row.lon) {
            let at = Position {
                latitude,
                longitude,
            };
            let of_provider = positions.entry(row.provider).or_default();
            of_provider.insert(row.region_as_written.to_lowercase(), at);
        }
    }
    positions
});

/// A point on the globe. Units: degrees, north and east.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    /// North of the equator.
    pub latitude: f64,
    /// East of Greenwich.
    pub longitude: f64,
}

impl Position {
    /// The position of a seller's region or zone, if the table of regions has it.
    #[must_use]
    pub fn of(seller: &str, place: &Place) -> Option<Self> {
        let words = [place.zone.as_deref(), place.region.as_deref()];
        let of_seller = POSITIONS.get(seller)?;
        words
            .into_iter()
            .flatten()
            .find_map(|word| of_seller.get(&word.to_lowercase()))
            .copied()
    }

    /// The distance over ground. Units: kilometres.
    #[must_use]
    pub fn distance_km(&self, other: &Self) -> f64 {
        const MEAN_RADIUS_KM: f64 = 6_371.0;
        let (a, b) = (self.latitude.to_radians(), other.latitude.to_radians());
        let east = (other.longitude - self.longitude).to_radians();
        let (half_north, half_east) = (sin((b - a) / 2.0), sin(east / 2.0));
        let haversine = half_north * half_north + cos(a) * cos(b) * half_east * half_east;
        2.0 * MEAN_RADIUS_KM * asin(haversine.sqrt().min(1.0))
    }
}

/// A region or zone that the table lists for this seller.
fn listed(seller: &str, word: &str) -> Option<Located> {
    REGIONS.get(seller)?.get(&word.to_lowercase()).cloned()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CountryRow {
    alpha2: String,
    name: String,
    also_written: String,
}

struct Countries {
    names: HashMap<Country, String>,
    by_name: HashMap<String, Country>,
}

static COUNTRIES: LazyLock<Countries> = LazyLock::new(|| {
    let mut countries = Countries {
        names: HashMap::new(),
        by_name: HashMap::new(),
    };
    for row in table::rows::<CountryRow>(include_str!("../data/countries.csv")) {
        let Ok(code) = row.alpha2.into_bytes().try_into() else {
            continue;
        };
        let country = Country(code);
        for name in row
            .also_written
            .split('|')
            .chain([row.name.as_str()])
            .filter(|name| !name.is_empty())
        {
            countries.by_name.insert(name.to_lowercase(), country);
        }
        countries.names.insert(country, row.name);
    }
    countries
});

/// The one country that shares its name with a US state; only its code tells which.
const GEORGIA: &str = "georgia";

/// Continents as sellers write them after the country.
const CONTINENTS: [&str; 7] = ["AF", "AN", "AS", "EU", "NA", "OC", "SA"];

/// Codes of states and provinces of the US and Canada that are country codes as well.
const STATES_LIKE_COUNTRIES: [&str; 31] = [
    "AL", "AR", "AZ", "CA", "CO", "DE", "GA", "ID", "IL", "IN", "KY", "LA", "MA", "MD", "ME", "MN",
    "MO", "MS", "MT", "NC", "NE", "NL", "NU", "PA", "PE", "SC", "SD", "SK", "TN", "VA", "YT",
];

/// The seller whose free text always ends in a country code, so that `, CA` is Canada.
const ENDS_IN_COUNTRY_CODE: &str = "vast";

/// Reads free text that ends in a country: `Denmark, DK, EU`, `, CA, NA`, `Virginia, USA`.
fn read_free_text(seller: &str, text: &str) -> Option<Located> {
    let mut parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let with_continent = matches!(
        parts.as_slice(),
        [.., country, continent] if CONTINENTS.contains(continent) && Country::parse(country).is_ok()
    );
    if with_continent {
        parts.pop();
    }
    let (last, before) = parts.split_last()?;
    let code_is_meant =
        with_continent || seller == ENDS_IN_COUNTRY_CODE || !STATES_LIKE_COUNTRIES.contains(last);
    let by_code =
        (last.len() == 2 && code_is_meant && last.bytes().all(|b| b.is_ascii_uppercase()))
            .then(|| Country::parse(last).ok())
            .flatten();
    let by_name = || {
        COUNTRIES
            .by_name
            .get(&last.to_lowercase())
            .filter(|_| !last.eq_ignore_ascii_case(GEORGIA))
    };
    let country = by_code.or_else(|| by_name().copied())?;
    let metro = before.join(", ");
    let names_a_metro =
        !metro.is_empty() && COUNTRIES.by_name.get(&metro.to_lowercase()) != Some(&country);
    Some((Some(country), names_a_metro.then_some(metro)))
}

/// Beginnings of region codes that are no country, though some of them are country codes.
const NO_COUNTRIES: [&str; 8] = ["af", "ap", "as", "eu", "la", "me", "na", "sa"];

/// Points of the compass that are also country codes.
const DIRECTIONS: [&str; 2] = ["ne", "se"];

/// Country codes, also of states, that regions are known to begin with for the country.
const COUNTRIES_BEFORE_STATES: [&str; 5] = ["CA", "DE", "IL", "IN", "NL"];

/// Reads a code of several words that begins with a country, or with a continent and then a country:
/// `gb-london-1`, `us_east`, `eu-de`.
///
/// Sources: the regions of cudo and ibm in SkyPilot's catalogue (v5), of scaleway (`fr-par-1`).
fn read_code(region: &str) -> Option<Country> {
    let mut words = region.split(['-', '_']);
    let (first, second) = (words.next()?.to_ascii_lowercase(), words.next()?);
    let is_continent = |word: &str| NO_COUNTRIES.contains(&word);
    if !is_continent(&first) {
        return country_word(&first).filter(|country| {
            let code = country.code();
            COUNTRIES_BEFORE_STATES.contains(&code) || !STATES_LIKE_COUNTRIES.contains(&code)
        });
    }
    let second = second.to_ascii_lowercase();
    country_word(&second)
        .filter(|_| !is_continent(&second) && !DIRECTIONS.contains(&second.as_str()))
}

/// The country of a word of two letters.
fn country_word(word: &str) -> Option<Country> {
    match word {
        "uk" => Country::parse("GB").ok(),
        _ => Country::parse(word).ok(),
    }
}

#[cfg(test)]
mod tests;
