//! SkyPilot's catalogue files. The rows are written as those of the named clouds are.

use super::*;

const RUNPOD: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,SpotPrice,Price,AvailabilityZone,GpuInfo";
const PLAIN: &str =
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region";

fn cloud(name: &str, header: &str, rows: &[&str]) -> PriceSheets {
    let sheet = named(name, format!("{header}\n{}\n", rows.join("\n")));
    let read = read_price_sheets(&[sheet], DateTime::UNIX_EPOCH);
    let counted: u64 = read.skipped.iter().map(|skipped| skipped.rows).sum();
    assert_eq!(read.rows_read, rows.len() as u64);
    assert_eq!(read.rows_read, read.rows_offered + counted);
    read
}

fn why(read: &PriceSheets) -> Vec<(Option<u64>, u64, SkipReason)> {
    read.skipped
        .iter()
        .map(|skipped| (skipped.row, skipped.rows, skipped.reason))
        .collect()
}

#[test]
fn a_row_with_both_prices_is_two_offers_of_the_cloud_that_the_file_is_called_after() {
    for name in [
        "nebius.csv",
        "v8/nebius/vms.csv",
        "/data/Nebius.CSV",
        "nebius.vms.csv",
    ] {
        let row = "gpu-h100-sxm_8gpu-128vcpu-1600gb,H100,8.0,128.0,1600.0,eu-north1,9.5,23.6,,\"{'Gpus': [{'Name': 'H100', 'Manufacturer': 'NVIDIA', 'Count': 8.0, 'MemoryInfo': {'SizeInMiB': 81920}}], 'TotalGpuMemoryInMiB': 655360}\"";
        let read = cloud(name, RUNPOD, &[row]);
        assert_eq!(
            offers(&read),
            [
                ("on_demand".into(), "23.60".into()),
                ("spot".into(), "9.50".into())
            ]
        );
        let offer = &read.offers[0];
        assert_eq!(
            (offer.provider.as_str(), offer.gpu.to_string()),
            ("nebius", "H100-SXM".to_owned())
        );
        assert_eq!(
            (offer.gpu_memory_mib, offer.vcpus, offer.memory_gib),
            (Some(81_920), Some(128), Some(1_600))
        );
        assert_eq!(offer.place.country.expect("a country").code(), "FI");
    }
}

#[test]
fn rows_without_a_gpu_are_skipped_with_the_reason_and_counted() {
    let read = cloud(
        "gcp.csv",
        "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GPUInfo,Price,SpotPrice,Region,AvailabilityZone",
        &[
            "n1-highmem-8,,,8.0,52.0,,0.473212,0.099624,us-central2,us-central2-b",
            ",tpu-v3-32,1,,,tpu-v3-32,32.0,9.6,us-east1,us-east1-d",
            "TPU-VM,tpu-v6e-8,1,,,,21.6,4.1,us-east1,us-east1-d",
            ",A100,1,,,\"{'Gpus': [{'Name': 'A100'}]}\",3.10156,1.8563,us-central1,us-central1-a",
            "a2-highgpu-1g,A100,1.0,12.0,85.0,,3.67,2.2,us-central1,us-central1-a",
        ],
    );
    assert_eq!(
        why(&read),
        [
            (Some(1), 1, SkipReason::NoGpu),
            (Some(2), 1, SkipReason::NotAGpu),
            (Some(3), 1, SkipReason::NotAGpu),
            (Some(4), 1, SkipReason::Unreadable),
        ]
    );
    assert!(read.skipped[3].why.contains("accelerator alone"));
    assert_eq!(read.offers.len(), 2);
    assert_eq!(read.offers[0].place.zone.as_deref(), Some("us-central1-a"));
}

#[test]
fn the_memory_of_one_gpu_is_read_however_the_cloud_puts_it() {
    let memory = |file: &str, row: &str| {
        let read = cloud(file, PLAIN, &[row]);
        assert_eq!(read.offers.len(), 1, "{row}: {:?}", read.skipped);
        read.offers[0].gpu_memory_mib
    };
    let of = |count: u32, info: &str| format!("x,H100,{count},8,100,{info},{},,here", 2 * count);
    // Python's dictionary, JSON, a bare name, and nothing at all.
    let python = "\"{'Gpus': [{'Name': 'H100', 'MemoryInfo': {'SizeInMiB': 81559}}], 'TotalGpuMemoryInMiB': 163118}\"";
    assert_eq!(memory("acme.csv", &of(2, python)), Some(81_559));
    let json = "\"{\"\"Gpus\"\":[{\"\"Name\"\":\"\"H100\"\",\"\"MemoryInfo\"\":{\"\"SizeInMiB\"\":81920}}]}\"";
    assert_eq!(memory("acme.csv", &of(2, json)), Some(81_920));
    assert_eq!(memory("acme.csv", &of(2, "H100")), None);
    assert_eq!(memory("acme.csv", &of(2, "")), None);
    assert_eq!(
        memory("acme.csv", &of(2, "\"{'SizeInMiB': 'much'}\"")),
        None
    );
    assert_eq!(memory("acme.csv", &of(2, "\"{'SizeInMiB\"")), None);
    // GiB under the name of MiB, and sums over the GPUs of a row.
    let gib = "\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 80}}]}\"";
    assert_eq!(memory("runpod.csv", &of(1, gib)), Some(81_920));
    let sum = "\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 652472}}]}\"";
    assert_eq!(memory("vast.csv", &of(8, sum)), Some(81_559));
    assert_eq!(memory("primeintellect.csv", &of(8, sum)), Some(81_559));
}

#[test]
fn the_name_within_gpu_info_tells_the_form_that_the_other_leaves_open() {
    let gpu = |info: &str| {
        let row = format!("box,H100,8,8,100,{info},16,,here");
        cloud("acme.csv", PLAIN, &[&row]).offers[0].gpu.to_string()
    };
    assert_eq!(gpu(""), "H100");
    assert_eq!(gpu("\"{'Gpus': [{'Name': 'H100 PCIe'}]}\""), "H100-PCIe");
    // It never makes another model of it.
    assert_eq!(gpu("\"{'Gpus': [{'Name': 'L40S'}]}\""), "H100");
}

#[test]
fn odd_counts_and_prices_are_read_or_skipped_and_never_cheapest() {
    let read = cloud(
        "azure.csv",
        &format!("{PLAIN},Generation"),
        &[
            "Standard_NV6ads_A10_v5,A10,0.1666667,6.0,55.0,A10,0.454,0.0,eastus,V2",
            "Standard_NV6ads_A10_v5,A10,0.1666667,6.0,55.0,A10,0.454,0.5,eastus,V2",
            "Standard_ND96isr_H100_v5,H100,8,96,1900,H100,0,0.00,eastus,V2",
            "Standard_ND96isr_H100_v5,H100,8,96,1900,H100,,,eastus,V2",
            "Standard_ND96isr_H100_v5,H100,eight,96,1900,H100,98.3,,eastus,V2",
            "Standard_ND96isr_H100_v5,H100,,96,1900,H100,98.3,,eastus,V2",
            "Standard_ND96isr_H100_v5,H100,8,96,1900,H100,98.3,,eastus",
            "box,A100 1g.5gb,1,8,16,A100 1g.5gb,0.5,,eastus,V2",
        ],
    );
    assert_eq!(
        why(&read),
        [
            (Some(1), 0, SkipReason::NoPrice),
            (Some(2), 0, SkipReason::SpotAboveOnDemand),
            (Some(3), 1, SkipReason::NoPrice),
            (Some(3), 0, SkipReason::NoPrice),
            (Some(4), 1, SkipReason::NoPrice),
            (Some(5), 1, SkipReason::Unreadable),
            (Some(6), 1, SkipReason::Unreadable),
            (Some(7), 1, SkipReason::Unreadable),
            (Some(8), 1, SkipReason::UnknownGpu),
        ]
    );
    assert_eq!(read.offers[0].gpus.to_string(), "0.167");
}

#[test]
fn byte_order_mark_windows_lines_and_quoted_commas_change_nothing() {
    let rows = [
        "1x-H100_SXM-32-65536,H100,1,32,64.0,\"{'Gpus': [{'Name': 'H100', 'MemoryInfo': {'SizeInMiB': 81559}}]}\",1.87,0.00,\"Texas, US, NA\"",
        "1x-L40S-32-65536,L40S,1,32,64.0,,0.60,0.00,\"Taichung City, TW, AS\"",
    ];
    let read = cloud("vast.csv", PLAIN, &rows);
    assert_eq!(read.offers.len(), 2);
    let countries: Vec<_> = read
        .offers
        .iter()
        .map(|offer| offer.place.country.expect("a country").to_string())
        .collect();
    assert_eq!(countries, ["US", "TW"]);
    let windows = format!("\u{feff}{PLAIN}\r\n{}\r\n", rows.join("\r\n"));
    let same = read_price_sheets(&[named("vast.csv", windows)], DateTime::UNIX_EPOCH);
    assert_eq!((same.offers, same.skipped), (read.offers, read.skipped));
}

#[test]
fn a_file_that_names_no_cloud_counts_as_its_rows_in_one_entry() {
    for name in ["vms.csv", "my prices!.csv", "/vms.csv"] {
        let read = cloud(
            name,
            PLAIN,
            &["x,H100,8,8,100,,16,,here", "y,H100,8,8,100,,16,,here"],
        );
        assert_eq!(why(&read), [(None, 2, SkipReason::Unreadable)], "{name}");
        let words = &read.skipped[0].why;
        assert!(
            words.contains("lambda.csv") && words.contains(name),
            "{words}"
        );
    }
}

#[test]
fn a_header_with_a_column_twice_or_one_too_few_is_not_known() {
    for header in [
        format!("{PLAIN},GPUInfo"),
        format!("{PLAIN},Price"),
        PLAIN.replace(",SpotPrice", ""),
    ] {
        let read = cloud("lambda.csv", &header, &["x,H100,8,8,100,,16,,here,1"]);
        assert_eq!(
            why(&read),
            [(None, 1, SkipReason::UnknownHeader)],
            "{header}"
        );
    }
    let read = cloud("lambda.csv", &PLAIN.replace(",SpotPrice", ""), &["x"]);
    assert!(
        read.skipped[0].why.ends_with("missing: SpotPrice"),
        "{}",
        read.skipped[0].why
    );
}

/// A field of a row: sound, odd or hostile.
fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("H100".to_owned()),
        3 => Just("a2-highgpu-1g".to_owned()),
        3 => Just("1.0".to_owned()),
        3 => Just("3.67".to_owned()),
        1 => Just(String::new()),
        1 => Just("tpu-v3-8".to_owned()),
        1 => Just("{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}]}".to_owned()),
        1 => "['\": {}A-Za-z0-9]{0,20}",
        1 => ".{0,12}",
    ]
}

proptest! {
    #[test]
    fn every_row_is_offers_or_skipped_once(
        rows in prop::collection::vec(prop::collection::vec(field(), 9..11), 0..12),
    ) {
        let bytes = file(PLAIN, &rows, csv::Terminator::CRLF);
        assert_accounted_for(&bytes, rows.len() as u64);
    }
}
