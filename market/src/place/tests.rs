use std::io::Write as _;
use std::path::Path;

use proptest::prelude::*;

use super::*;

fn country(seller: &str, region: &str) -> Option<String> {
    Place::resolve(seller, region, "")
        .country
        .map(|country| country.to_string())
}

#[test]
fn every_row_of_the_regions_reads_back() {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct FullRow {
        provider: String,
        region_as_written: String,
        country: Option<Country>,
        metro: Option<String>,
        lat: Option<f64>,
        lon: Option<f64>,
        certainty: crate::gpu::Certainty,
    }
    let rows: Vec<FullRow> = table::rows(include_str!("../../data/regions.csv"));
    assert_eq!(
        rows.len(),
        include_str!("../../data/regions.csv").lines().count() - 1
    );
    for row in rows {
        let place = Place::resolve(&row.provider, &row.region_as_written, "");
        assert_eq!(
            (place.country, place.metro),
            (row.country, row.metro),
            "{}",
            row.region_as_written
        );
        assert_eq!(
            place.region.as_deref(),
            Some(row.region_as_written.as_str())
        );
        assert!(
            row.lat.is_none_or(|lat| lat.abs() <= 90.0)
                && row.lon.is_none_or(|lon| lon.abs() <= 180.0)
        );
        assert_eq!(
            row.lat.is_some(),
            row.lon.is_some(),
            "{}",
            row.region_as_written
        );
        assert!(row.certainty >= crate::gpu::Certainty::Low);
    }
}

#[test]
fn every_country_reads_back_by_code_and_name() {
    let rows: Vec<CountryRow> = table::rows(include_str!("../../data/countries.csv"));
    assert_eq!(rows.len(), 249);
    assert_eq!(COUNTRIES.names.len(), 249);
    for row in rows {
        assert_eq!(
            Country::parse(&row.alpha2)
                .expect("in the table")
                .to_string(),
            row.alpha2
        );
        assert_eq!(
            COUNTRIES
                .by_name
                .get(&row.name.to_lowercase())
                .map(Country::code),
            Some(row.alpha2.as_str())
        );
    }
    assert_eq!(Country::parse("de"), Country::parse("DE"));
    for bad in ["", "D", "DEU", "XX", "é", "d\u{e9}"] {
        assert!(Country::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn free_text_that_ends_in_a_country_is_read() {
    for (text, code, metro) in [
        (", CA, NA", "CA", None),
        ("Spain, ES, EU", "ES", None),
        ("Quebec, CA, NA", "CA", Some("Quebec")),
        ("Windhoek, NA, AF", "NA", Some("Windhoek")),
        (", CN", "CN", None),
        ("California, US", "US", Some("California")),
        ("Toronto, CA", "CA", Some("Toronto")),
    ] {
        let place = Place::resolve("vast", text, "");
        assert_eq!(
            place.country.map(|c| c.to_string()).as_deref(),
            Some(code),
            "{text}"
        );
        assert_eq!(place.metro.as_deref(), metro, "{text}");
        assert_eq!(place.region.as_deref(), Some(text));
    }
    assert_eq!(country("lambda", "Virginia, USA").as_deref(), Some("US"));
    assert_eq!(country("anyone", "Osaka, Japan").as_deref(), Some("JP"));
    assert_eq!(country("anyone", "London, UK").as_deref(), Some("GB"));
    assert_eq!(country("anyone", "Tbilisi, GE").as_deref(), Some("GE"));
}

#[test]
fn a_word_that_may_be_a_state_is_not_taken_for_a_country() {
    assert_eq!(
        country("anyone", "San Jose, CA"),
        None,
        "California or Canada"
    );
    assert_eq!(country("anyone", "Atlanta, Georgia"), None);
    assert_eq!(country("anyone", "Wilmington, DE"), None);
    assert_eq!(
        country("runpod", "US-DE-1").as_deref(),
        Some("US"),
        "Delaware"
    );
    assert_eq!(country("anyone", "ca-montreal").as_deref(), Some("CA"));
    assert_eq!(country("anyone", "va-ashburn"), None);
}

#[test]
fn a_code_names_the_country_that_it_begins_with_and_no_city() {
    let place = Place::resolve("anyone", "us-east-1", "");
    let code = place.country.map(|country| country.to_string());
    assert_eq!((code.as_deref(), place.metro), (Some("US"), None));
    for (region, code) in [
        ("gb-london-1", Some("GB")),
        ("uk_south", Some("GB")),
        ("eu-de", Some("DE")),
        ("eu-central-1", None),
        ("me-south-1", None),
        ("ap-ne-2", None),
        ("na", None),
        ("de1", None),
    ] {
        assert_eq!(country("anyone", region).as_deref(), code, "{region}");
    }
}

#[test]
fn one_region_word_is_a_different_place_at_each_seller() {
    let metro = |seller| Place::resolve(seller, "us-east-1", "").metro;
    assert_eq!(metro("aws").as_deref(), Some("Ashburn"));
    assert_eq!(metro("lambda").as_deref(), Some("Virginia"));
    assert_eq!(
        country("verda", "fin-03").as_deref(),
        Some("FI"),
        "site codes come in both cases"
    );
}

#[test]
fn a_zone_tells_where_no_region_does() {
    let place = Place::resolve("crusoe", "", "us-east1-a");
    assert_eq!(place.metro.as_deref(), Some("Culpeper"));
    assert_eq!(
        (place.region, place.zone.as_deref()),
        (None, Some("us-east1-a"))
    );
}

#[test]
fn blank_words_are_an_unknown_place_and_unread_words_are_not() {
    assert!(Place::resolve("azure", " ", "").is_unknown());
    let unread = Place::resolve("hyperbolic", "default", "");
    assert!(!unread.is_unknown());
    assert_eq!(
        (unread.region.as_deref(), unread.country),
        (Some("default"), None)
    );
}

#[test]
fn all_regions_of_the_real_price_lists_are_known() {
    #[derive(Deserialize)]
    struct Row {
        provider: String,
        region: String,
    }
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/market");
    let Ok(files) = std::fs::read_dir(&lists) else {
        // Not a print macro: the output of a passing test is not shown.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: needs the price lists in {}",
            lists.display()
        );
        return;
    };
    for file in files.map(|entry| entry.expect("readable folder").path()) {
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .expect("a file name");
        if !name.ends_with(".csv") || name.starts_with("sparecores") {
            continue;
        }
        for row in csv::Reader::from_path(&file)
            .expect("readable list")
            .into_deserialize()
        {
            let Row { provider, region } = row.expect("a row of a price list");
            assert!(
                region.is_empty() || listed(&provider, &region).is_some(),
                "{provider} {region}"
            );
        }
    }
}

proptest! {
    #[test]
    fn any_words_make_a_place_that_survives_json(region in "\\PC{0,40}", zone in "[ a-z0-9,-]{0,20}") {
        for seller in ["vast", "lambda", "nobody"] {
            let place = Place::resolve(seller, &region, &zone);
            let json = serde_json::to_string(&place).expect("serialises");
            prop_assert_eq!(&serde_json::from_str::<Place>(&json).expect("parses"), &place);
            prop_assert_eq!(place.is_unknown(), region.trim().is_empty() && zone.trim().is_empty());
        }
    }
}
