//! Lists in which every row is one offer.

use market::fabric::Internode;
use market::offer::{Availability, Tenancy, Terms};

use super::*;

const HEADER: &str = "offer_id,provider,instance_type,gpu,gpu_count,gpu_memory_gib,vcpus,memory_gib,disk_gib,region,country,continent,kind,fabric,fabric_gbps,spot,price_micro_usd_hour,nodes_available,min_term_hours,reliability_bp";
const GOOD: &str = "o-1,acme,h100x8,H100-SXM,8,80,192,2048,15000,eu-1,DE,EU,bare_metal,ib_ndr400,3200,false,23920000,12,0,9990";

fn list(rows: &[&str]) -> PriceSheets {
    super::read(format!("{HEADER}\n{}\n", rows.join("\n")))
}

/// The good row with one field changed.
fn with(column: &str, text: &str) -> String {
    let at = HEADER
        .split(',')
        .position(|name| name == column)
        .expect("a column");
    let mut fields: Vec<&str> = GOOD.split(',').collect();
    fields[at] = text;
    fields.join(",")
}

fn one(row: &str) -> Offer {
    let read = list(&[row]);
    assert_eq!(read.offers.len(), 1, "{row}: {:?}", read.skipped);
    read.offers[0].clone()
}

#[test]
fn a_row_is_one_offer_with_everything_that_its_columns_say() {
    let offer = one(GOOD);
    assert_eq!(
        (offer.provider.as_str(), offer.sku.as_str(), offer.terms),
        ("acme", "h100x8", Terms::OnDemand)
    );
    assert_eq!(
        (offer.gpu.to_string(), offer.gpus.to_string()),
        ("H100-SXM".to_owned(), "8".to_owned())
    );
    assert_eq!(
        (offer.gpu_memory_mib, offer.vcpus, offer.memory_gib),
        (Some(81_920), Some(192), Some(2_048))
    );
    assert_eq!(offer.price_per_node_hour.to_string(), "23.92");
    assert_eq!(offer.availability, Availability::exactly(12));
    assert_eq!(offer.place.country.expect("a country").code(), "DE");
    assert_eq!(offer.place.region.as_deref(), Some("eu-1"));
    assert!(!offer.orderable);
}

#[test]
fn the_words_for_machines_and_fabrics_are_ours_in_the_end() {
    for (word, tenancy) in [
        ("vm", Tenancy::Vm),
        ("bare_metal", Tenancy::BareMetal),
        ("container", Tenancy::Container),
    ] {
        assert_eq!(one(&with("kind", word)).tenancy, tenancy);
    }
    for (word, internode) in [
        ("none", Internode::None),
        ("ethernet", Internode::Ethernet),
        ("roce200", Internode::Roce200),
        ("roce400", Internode::Roce400),
        ("ib_hdr200", Internode::InfinibandHdr200),
        ("ib_ndr400", Internode::InfinibandNdr400),
        ("ib_xdr800", Internode::InfinibandXdr800),
        ("proprietary", Internode::Proprietary),
        ("", Internode::Unknown),
    ] {
        assert_eq!(one(&with("fabric", word)).internode, internode, "{word}");
    }
}

#[test]
fn terms_follow_from_spot_and_from_the_shortest_time_that_is_sold() {
    for (column, text, terms) in [
        ("spot", "true", Terms::Spot),
        ("spot", "1", Terms::Spot),
        ("spot", "False", Terms::OnDemand),
        ("spot", "", Terms::OnDemand),
        ("min_term_hours", "", Terms::OnDemand),
        ("min_term_hours", "1", Terms::OnDemand),
        ("min_term_hours", "720", Terms::Reserved),
    ] {
        assert_eq!(one(&with(column, text)).terms, terms, "{column} {text}");
    }
}

#[test]
fn stock_is_counted_where_the_list_counts_it() {
    assert!(
        one(&with("nodes_available", "0"))
            .availability
            .is_sold_out()
    );
    let unknown = one(&with("nodes_available", ""));
    assert_eq!(unknown.availability, Availability::UNKNOWN);
}

#[test]
fn what_cannot_be_meant_is_skipped_by_its_row_with_the_reason() {
    let bad = [
        ("kind", "kubernetes", SkipReason::Unreadable),
        ("fabric", "ib_hdr100", SkipReason::Unreadable),
        ("spot", "perhaps", SkipReason::Unreadable),
        ("country", "Europe", SkipReason::Unreadable),
        ("price_micro_usd_hour", "0", SkipReason::NoPrice),
        ("price_micro_usd_hour", "", SkipReason::NoPrice),
        ("price_micro_usd_hour", "-5", SkipReason::ImplausiblePrice),
        ("price_micro_usd_hour", "23", SkipReason::ImplausiblePrice),
        ("gpu_count", "0", SkipReason::ImpossibleCount),
        ("gpu", "Zeus 4c", SkipReason::UnknownGpu),
        ("nodes_available", "100001", SkipReason::ImpossibleCount),
        ("nodes_available", "-1", SkipReason::Unreadable),
        ("min_term_hours", "a day", SkipReason::Unreadable),
        ("instance_type", "", SkipReason::Unreadable),
        ("provider", "A C M E", SkipReason::Unreadable),
    ];
    let mut rows: Vec<String> = bad
        .iter()
        .map(|(column, text, _)| with(column, text))
        .collect();
    rows.push(GOOD.to_owned());
    let read = list(&rows.iter().map(String::as_str).collect::<Vec<_>>());
    let expected: Vec<_> = (1..)
        .zip(bad)
        .map(|(row, bad)| (Some(row), 1, bad.2))
        .collect();
    let found: Vec<_> = read
        .skipped
        .iter()
        .map(|skipped| (skipped.row, skipped.rows, skipped.reason))
        .collect();
    assert_eq!(found, expected);
    assert_eq!(read.offers.len(), 1);
}

#[test]
fn spot_above_on_demand_drops_the_spot_row_only_wherever_it_stands() {
    let spot = |price: &str| with("price_micro_usd_hour", price).replace(",false,", ",true,");
    let (dear, fair) = (spot("23920001"), spot("23920000"));
    let read = list(&[&dear, GOOD, &fair, &with("spot", "perhaps")]);
    let terms: Vec<_> = read.offers.iter().map(|offer| offer.terms).collect();
    assert_eq!(terms, [Terms::OnDemand, Terms::Spot]);
    let found: Vec<_> = read
        .skipped
        .iter()
        .map(|skipped| (skipped.row, skipped.rows, skipped.reason))
        .collect();
    assert_eq!(
        found,
        [
            (Some(1), 1, SkipReason::SpotAboveOnDemand),
            (Some(4), 1, SkipReason::Unreadable)
        ]
    );
    // Nothing to compare with: it stays.
    assert_eq!(list(&[&dear]).offers.len(), 1);
}

/// A field: sound, odd or hostile.
fn field(column: &'static str) -> impl Strategy<Value = String> {
    let sound = GOOD
        .split(',')
        .zip(HEADER.split(','))
        .find(|(_, name)| *name == column)
        .map(|(text, _)| text.to_owned())
        .expect("a column");
    prop_oneof![
        12 => Just(sound),
        1 => Just(String::new()),
        1 => Just("true".to_owned()),
        1 => "[0-9]{0,12}(\\.[0-9]{0,9})?",
        1 => ".{0,8}",
    ]
}

proptest! {
    #[test]
    fn every_row_is_an_offer_or_skipped_once(
        rows in prop::collection::vec(HEADER.split(',').map(field).collect::<Vec<_>>(), 0..12),
    ) {
        let bytes = file(HEADER, &rows, csv::Terminator::CRLF);
        assert_accounted_for(&bytes, rows.len() as u64);
    }
}
