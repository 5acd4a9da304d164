use chrono::TimeDelta;
use market::fabric::Internode;
use proptest::prelude::*;

use super::*;

mod offer_rows;
mod skypilot;

const HEADER: &str = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,price_usd_hour,spot_usd_hour,region,zone";

fn sheet(text: impl Into<Vec<u8>>) -> PriceSheet {
    named("list.csv", text)
}

fn named(name: &str, text: impl Into<Vec<u8>>) -> PriceSheet {
    PriceSheet {
        name: name.into(),
        bytes: text.into(),
        as_of: DateTime::UNIX_EPOCH,
    }
}

fn read(text: impl Into<Vec<u8>>) -> PriceSheets {
    let read = read_price_sheets(&[sheet(text)], DateTime::UNIX_EPOCH);
    let counted: u64 = read.skipped.iter().map(|skipped| skipped.rows).sum();
    assert_eq!(read.rows_read, read.rows_offered + counted);
    read
}

/// Reads one row of a good sheet.
fn row(text: &str) -> PriceSheets {
    let read = read(format!("{HEADER}\n{text}\n"));
    assert_eq!(read.rows_read, 1);
    read
}

fn offers(read: &PriceSheets) -> Vec<(String, String)> {
    read.offers
        .iter()
        .map(|offer| {
            (
                offer.terms.to_string(),
                offer.price_per_node_hour.to_string(),
            )
        })
        .collect()
}

/// Reason and counted rows of each entry.
fn reasons(read: &PriceSheets) -> Vec<(SkipReason, u64)> {
    read.skipped
        .iter()
        .map(|skipped| (skipped.reason, skipped.rows))
        .collect()
}

#[test]
fn each_price_of_a_row_is_an_offer() {
    let read = row("nebius,gpu-h100-sxm_8gpu,H100,8,128,1600,81920,23.6,10,eu-north1,");
    assert_eq!(
        offers(&read),
        [
            ("on_demand".into(), "23.60".into()),
            ("spot".into(), "10.00".into())
        ]
    );
    assert!(read.offers.iter().all(|offer| !offer.orderable));
    assert_ne!(read.offers[0].offer_id, read.offers[1].offer_id);
    let only_spot = row("verda,2B300.60V,B300,2,60,550,268800,,4.893,FIN-03,");
    assert_eq!(offers(&only_spot), [("spot".into(), "4.893".into())]);
    assert_eq!(reasons(&only_spot), []);
}

#[test]
fn spot_above_on_demand_drops_the_spot_offer_only() {
    let read = row("gcp,a2-highgpu-1g,A100,1,12,85,40960,2.6,2.61,us-central1,us-central1-a");
    assert_eq!(offers(&read), [("on_demand".into(), "2.60".into())]);
    assert_eq!(reasons(&read), [(SkipReason::SpotAboveOnDemand, 0)]);
    assert!(
        read.skipped[0].why.contains("2.61"),
        "{}",
        read.skipped[0].why
    );
    let equal = row("gcp,a2-highgpu-1g,A100,1,12,85,40960,2.6,2.60,us-central1,us-central1-a");
    assert_eq!(offers(&equal).len(), 2);
}

#[test]
fn zero_and_blank_are_no_price_and_never_the_cheapest() {
    assert_eq!(
        reasons(&row("gcp,a2-highgpu-1g,A100,1,12,85,40960,,,us-central1,")),
        [(SkipReason::NoPrice, 1)]
    );
    let zeros = row("gcp,a2-highgpu-1g,A100,1,12,85,40960,0,0.0,us-central1,");
    assert_eq!(
        reasons(&zeros),
        [(SkipReason::NoPrice, 1), (SkipReason::NoPrice, 0)]
    );
    let spot_left = row("gcp,a2-highgpu-1g,A100,1,12,85,40960,0,1.1,us-central1,");
    assert_eq!(offers(&spot_left), [("spot".into(), "1.10".into())]);
    assert_eq!(reasons(&spot_left), [(SkipReason::NoPrice, 0)]);
    for absurd in ["-2.5", "0.0001", "1000000"] {
        let read = row(&format!(
            "gcp,a2-highgpu-1g,A100,1,12,85,40960,{absurd},,us-central1,"
        ));
        assert_eq!(
            reasons(&read),
            [(SkipReason::ImplausiblePrice, 1)],
            "{absurd}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_with_its_row_and_the_rest_is_read() {
    let good = "hyperstack,n3-L40x1,L40,1,28,58,49152,1,,CANADA-1,";
    let bad = [
        "hyperstack,n3-L40x1,L40,1,28",
        "hyperstack,n3-L40x1,L40,eight,28,58,49152,1,,CANADA-1,",
        "hyperstack,n3-L40x1,L40,1,28,58,49152,$1,,CANADA-1,",
        "hyperstack,n3-L40x1,L40,1,28,58,49152,1,1e-1,CANADA-1,",
        "hyperstack,n3-L40x1,L40,1,-28,58,49152,1,,CANADA-1,",
        "Hyper Stack,n3-L40x1,L40,1,28,58,49152,1,,CANADA-1,",
        "hyperstack,,L40,1,28,58,49152,1,,CANADA-1,",
        "hyperstack,n3-L40x1,L40,,28,58,49152,1,,CANADA-1,",
        "hyperstack,n3-L40x1,L40,1,28,58,49152,NaN,,CANADA-1,",
    ];
    let mut text = format!("{HEADER}\n{good}\n").into_bytes();
    for line in bad {
        text.extend_from_slice(line.as_bytes());
        text.push(b'\n');
    }
    text.extend_from_slice(b"hyperstack,n3-\xFF,L40,1,28,58,49152,1,,CANADA-1,\n");
    text.extend_from_slice(good.as_bytes());
    let read = read(text);
    assert_eq!(read.rows_read, bad.len() as u64 + 3);
    assert_eq!(read.offers.len(), 2);
    let rows: Vec<u64> = read
        .skipped
        .iter()
        .filter_map(|skipped| skipped.row)
        .collect();
    assert_eq!(rows, (2..=bad.len() as u64 + 2).collect::<Vec<_>>());
    assert!(
        read.skipped
            .iter()
            .all(|skipped| skipped.reason == SkipReason::Unreadable && skipped.rows == 1)
    );
    assert!(
        read.skipped[2].why.contains("$1"),
        "{}",
        read.skipped[2].why
    );
}

#[test]
fn hardware_that_is_no_gpu_or_unknown_is_quarantined_by_name() {
    let cases = [
        (
            "gcp,TPU-VM,tpu-v6e-256,1,,,,691.2,131.69,us-west1,us-west1-c",
            SkipReason::NotAGpu,
        ),
        (
            "acme,zx-1,Zeus 4c,8,1,1,1024,10,,here,",
            SkipReason::UnknownGpu,
        ),
        ("acme,cpu-1,,0,1,1,,10,,here,", SkipReason::NoGpu),
        (
            "hyperstack,n3-L40x1,L40,0,28,58,49152,1,,CANADA-1,",
            SkipReason::ImpossibleCount,
        ),
        (
            "hyperstack,n3-L40x1,L40,18446744073709551615,28,58,49152,1,,CANADA-1,",
            SkipReason::ImpossibleCount,
        ),
    ];
    for (text, reason) in cases {
        let read = row(text);
        assert_eq!(reasons(&read), [(reason, 1)], "{text}");
        assert!(read.skipped[0].sku.is_some() && !read.skipped[0].why.is_empty());
    }
}

#[test]
fn a_header_is_known_by_its_set_of_columns() {
    let shuffled = "zone,region,spot_usd_hour,price_usd_hour,gpu_memory_mib,memory_gib,vcpus,gpu_count,gpu_name,instance_type,provider\n\
                    ,CANADA-1,,1,49152,58,28,1,L40,n3-L40x1,hyperstack\n";
    let same = row("hyperstack,n3-L40x1,L40,1,28,58,49152,1,,CANADA-1,");
    assert_eq!(read(shuffled).offers, same.offers);
    assert_eq!(read(format!("\u{feff}{shuffled}")).offers, same.offers);
    let unknown = read("vendor,price\nacme,1\nacme,\"2\n3\"\nacme,4\n");
    assert_eq!(unknown.rows_read, 3);
    assert_eq!(reasons(&unknown), [(SkipReason::UnknownHeader, 3)]);
    assert_eq!(unknown.skipped[0].row, None);
    assert!(
        unknown.skipped[0].why.contains("vendor"),
        "{}",
        unknown.skipped[0].why
    );
    assert_eq!(reasons(&read("")), [(SkipReason::UnknownHeader, 0)]);
    let twice = format!("{HEADER},zone\n{}", "x\n".repeat(2));
    assert_eq!(reasons(&read(twice)), [(SkipReason::UnknownHeader, 2)]);
}

#[test]
fn a_sum_of_memory_is_divided_and_a_blank_place_is_unknown() {
    let vast = row("vast,4x-RTX_3090-32-65536,RTX3090,4,32,64,98304,0.8,,,");
    assert_eq!(vast.offers[0].gpu_memory_mib, Some(24_576));
    assert!(vast.offers[0].place.is_unknown());
    let slice = row("azure,Standard_NV6ads_A10_v5,A10,0.1666667,6,55,,0.454,,eastus,");
    assert_eq!(slice.offers[0].gpus.to_string(), "0.167");
}

#[test]
fn equals_stay_apart_and_keep_their_ids_in_any_order_of_files_and_rows() {
    let one = "vast,1x-RTX_5090,RTX5090,1,32,64,32607,0.44,,\"Denmark, DK, EU\",";
    let other = "vast,1x-RTX_5090,RTX5090,1,16,64,32607,0.41,,\"Denmark, DK, EU\",";
    let ids = |sheets: &[&str]| {
        let sheets: Vec<PriceSheet> = sheets
            .iter()
            .map(|rows| sheet(format!("{HEADER}\n{rows}\n")))
            .collect();
        let offers = read_price_sheets(&sheets, DateTime::UNIX_EPOCH).offers;
        let mut ids: Vec<_> = offers
            .iter()
            .map(|o| (o.vcpus, o.price_per_node_hour, o.offer_id))
            .collect();
        ids.sort();
        ids
    };
    let expected = ids(&[one, other]);
    assert_ne!(expected[0].2, expected[1].2);
    assert_eq!(ids(&[other, one]), expected);
    assert_eq!(ids(&[&format!("{other}\n{one}")]), expected);
    // A new price makes no new offer.
    assert_eq!(
        ids(&[&one.replace("0.44", "0.47"), other])[1].2,
        expected[1].2
    );
}

#[test]
fn an_offer_is_as_old_as_its_list_and_never_from_the_future() {
    let text = format!("{HEADER}\nhyperstack,n3-L40x1,L40,1,28,58,49152,1,,CANADA-1,\n");
    let written = DateTime::UNIX_EPOCH + TimeDelta::days(3);
    let sheet = PriceSheet {
        as_of: written,
        ..sheet(text)
    };
    let seen = |now| read_price_sheets(std::slice::from_ref(&sheet), now).offers[0].observed_at;
    assert_eq!(seen(written + TimeDelta::days(400)), written);
    let before = written - TimeDelta::seconds(1);
    assert_eq!(seen(before), before);
}

#[test]
fn a_row_that_says_its_date_is_as_old_as_that() {
    let row = "hyperstack,n3-L40x1,L40,1,28,58,49152,1,,CANADA-1,";
    let written = DateTime::UNIX_EPOCH + TimeDelta::days(300);
    let dated = |as_of: &str| {
        let sheet = PriceSheet {
            as_of: written,
            ..sheet(format!("{HEADER},as_of\n{row},{as_of}\n"))
        };
        read_price_sheets(&[sheet], written + TimeDelta::days(1))
    };
    let day = dated("1970-01-31").offers[0].observed_at;
    assert_eq!(day.to_rfc3339(), "1970-01-31T00:00:00+00:00");
    let time = dated("1970-01-31T12:00:00+02:00").offers[0].observed_at;
    assert_eq!(time.to_rfc3339(), "1970-01-31T10:00:00+00:00");
    assert_eq!(dated("").offers[0].observed_at, written);
    // No observation is in the future.
    let last = dated("2030-01-01").offers[0].observed_at;
    assert_eq!(last, written + TimeDelta::days(1));
    let refused = dated("last spring");
    assert_eq!(reasons(&refused), [(SkipReason::Unreadable, 1)]);
    let why = &refused.skipped[0].why;
    assert!(why.contains("`as_of` is `last spring`"), "{why}");
}

#[test]
fn a_file_is_as_old_as_its_time_of_modification() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("list.csv");
    std::fs::write(&path, HEADER).expect("written");
    let written = DateTime::from_timestamp(1_234_567_890, 0).expect("a time");
    let file = File::options().append(true).open(&path).expect("opened");
    file.set_modified(written.into()).expect("dated");
    let opened = PriceSheet::open(&path).expect("readable");
    assert_eq!(
        (opened.as_of, opened.bytes.as_slice()),
        (written, HEADER.as_bytes())
    );
}

#[test]
fn the_bundled_sheet_is_as_old_as_its_source_can_be() {
    let now = DateTime::from_timestamp(1_800_000_000, 0).expect("a time");
    let source = include_str!("../../data/SOURCE.md");
    for offer in read_price_sheets(&[bundled()], now).offers {
        let dated = offer.observed_at.format("%Y-%m-%d").to_string();
        let said = format!("| `{}` |", offer.provider);
        let row = source.lines().find(|line| line.starts_with(&said));
        let row = row.expect("the source of each seller");
        assert!(row.ends_with(&format!("| {dated} |")), "{dated}: {row}");
        assert!(offer.observed_at < now, "{}", offer.sku);
    }
}

#[test]
fn the_bundled_sheet_is_read_to_its_last_row() {
    let read = read_price_sheets(&[bundled()], DateTime::UNIX_EPOCH);
    assert!(
        read.rows_read >= 10 && read.skipped.is_empty(),
        "{:?}",
        read.skipped
    );
    for offer in &read.offers {
        assert!(offer.gpu.known().is_some(), "{}", offer.sku);
        // Voltage Park gives its place as an id alone.
        let is_placed = offer.place.country.is_some();
        assert_eq!(is_placed, offer.provider.as_str() != "voltagepark");
    }
}

#[test]
fn the_bundled_sheet_sells_nodes_joined_by_infiniband_and_by_ethernet() {
    let read = read_price_sheets(&[bundled()], DateTime::UNIX_EPOCH);
    let joined = |internode| {
        let found = read.offers.iter().filter(|o| o.internode == internode);
        let found = found.map(|o| (o.provider.as_str(), o.gpu.to_string()));
        found.collect::<std::collections::BTreeSet<_>>()
    };
    let is = |seller, gpu: &str| (seller, gpu.to_owned());
    assert_eq!(
        joined(Internode::InfinibandNdr400),
        [
            is("azure", "H100-SXM"),
            is("azure", "H200-SXM"),
            is("voltagepark", "H100-SXM")
        ]
        .into()
    );
    assert_eq!(
        joined(Internode::Ethernet),
        [is("voltagepark", "H100-SXM")].into()
    );
}

#[test]
fn what_joins_the_nodes_is_what_the_row_says_or_else_what_its_seller_publishes() {
    let row = "azure,Standard_ND96isr_H100_v5,H100,8,96,1900,,98.32,,eastus,";
    let joined_by = |words: &[&str]| {
        let rows: Vec<_> = words.iter().map(|word| format!("{row},{word}")).collect();
        read(format!("{HEADER},fabric\n{}\n", rows.join("\n")))
    };
    for (word, internode) in [
        ("", Internode::InfinibandNdr400),
        ("none", Internode::None),
        ("Ethernet", Internode::Ethernet),
        ("roce400", Internode::Roce400),
        ("ib_xdr800", Internode::InfinibandXdr800),
    ] {
        assert_eq!(joined_by(&[word]).offers[0].internode, internode, "{word}");
    }
    let refused = joined_by(&["none", "infiniband"]);
    assert_eq!(reasons(&refused), [(SkipReason::Unreadable, 1)]);
    assert_eq!(refused.skipped[0].row, Some(2));
    assert_eq!(
        refused.skipped[0].why,
        "`fabric` is `infiniband`, not one of none, ethernet, roce200, roce400, ib_hdr200, ib_ndr400, \
         ib_xdr800, proprietary"
    );
}

/// A field of a row: sound, odd or hostile.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("nebius".to_owned()),
        Just("vast".to_owned()),
        Just("H100".to_owned()),
        Just("gpu-h100-sxm_8gpu-128vcpu-1600gb".to_owned()),
        Just("tpu-v6e-8".to_owned()),
        Just("8".to_owned()),
        Just("23.6".to_owned()),
        "[0-9]{0,30}(\\.[0-9]{0,30})?",
        ".{0,12}",
    ]
}

/// A file with this header and these rows.
fn file(header: &str, rows: &[Vec<String>], terminator: csv::Terminator) -> Vec<u8> {
    let mut writer = csv::WriterBuilder::new()
        .flexible(true)
        .terminator(terminator)
        .from_writer(Vec::new());
    writer.write_record(header.split(',')).expect("a header");
    for row in rows {
        writer.write_record(row).expect("a row");
    }
    writer.into_inner().expect("bytes")
}

/// Each row is either among the offers or among the skipped, and there once.
fn assert_accounted_for(bytes: &[u8], rows: u64) {
    let sheet = named("gcp.csv", bytes);
    let found = read_sheet(
        &sheet,
        &mut Reader::default(),
        Dates {
            of_list: DateTime::UNIX_EPOCH,
            now: DateTime::UNIX_EPOCH,
        },
    );
    assert_eq!(found.rows, rows);
    let mut standing: Vec<u64> = found.drafts.iter().map(|(row, _)| *row).collect();
    standing.dedup();
    let skipped = found.skipped.iter().filter(|skipped| skipped.rows > 0);
    standing.extend(skipped.filter_map(|skipped| skipped.row));
    standing.sort_unstable();
    assert_eq!(standing, (1..=rows).collect::<Vec<_>>());
    assert!(
        found.skipped.iter().all(|skipped| {
            skipped.file.as_deref() == Some("gcp.csv") && !skipped.why.is_empty()
        })
    );
}

proptest! {
    #[test]
    fn every_row_of_any_file_is_accounted_for(
        rows in prop::collection::vec(prop::collection::vec(field(), 9..13), 0..12),
        garbage in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let bytes = file(HEADER, &rows, csv::Terminator::Any(b'\n'));
        assert_accounted_for(&bytes, rows.len() as u64);
        read(garbage.clone());
        read([HEADER.as_bytes(), b"\n", &garbage].concat());
    }

    #[test]
    fn no_two_offers_ever_share_an_id(counts in prop::collection::vec((0_u8..3, 1_u8..4, 1_u32..9), 1..20)) {
        let rows: String = counts
            .iter()
            .map(|(sku, gpus, price)| format!("vast,s{sku},RTX4090,{gpus},1,1,,{price},0.5,here,\n"))
            .collect();
        let read = read(format!("{HEADER}\n{rows}"));
        let ids: std::collections::HashSet<_> = read.offers.iter().map(|offer| offer.offer_id).collect();
        prop_assert_eq!(ids.len(), read.offers.len());
    }
}
