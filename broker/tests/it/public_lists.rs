//! Price lists as public catalogues and interfaces have them, written small: the content of each, and the
//! cheapest offer in it. Sources stand beside the rows.

mod fits;
mod wanted;

use std::collections::HashMap;

use adapters::pricesheet::{PriceSheet, PriceSheets, read_price_sheets};
use adapters::{Http, registry};
use chrono::{DateTime, Utc};
use market::catalog::{SkipReason, Skipped};
use market::demand::Demand;
use market::gpu::Gpu;
use market::ids::ProviderId;
use market::offer::Offer;
use matcher::{Held, Plan, ProviderView, SearchOptions, Snapshot};
use serde_json::{Value, json};

const TWO_PRICES: &str = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,price_usd_hour,spot_usd_hour,region,zone";
const SKYPILOT: &str = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone";

fn now() -> DateTime<Utc> {
    "2026-11-28T00:00:00Z".parse().expect("a time")
}

/// A file of these rows.
fn list(name: &str, header: &str, rows: &[&str]) -> PriceSheet {
    PriceSheet {
        name: name.to_owned(),
        bytes: format!("{header}\n{}\n", rows.join("\n")).into_bytes(),
        as_of: now(),
    }
}

fn read(lists: &[PriceSheet]) -> PriceSheets {
    let read = read_price_sheets(lists, now());
    let uncounted: u64 = read.skipped.iter().map(|skipped| skipped.rows).sum();
    assert_eq!(read.rows_read, read.rows_offered + uncounted);
    read
}

/// SKU, GPU, terms and price of each offer.
fn shown(offers: &[Offer]) -> Vec<String> {
    let line = |offer: &Offer| {
        let Offer { sku, gpus, gpu, .. } = offer;
        let price = offer.price_per_node_hour;
        format!("{sku}: {gpus} x {gpu}, {} {price}", offer.terms)
    };
    offers.iter().map(line).collect()
}

fn reasons(skipped: &[Skipped]) -> Vec<(Option<&str>, SkipReason)> {
    let skipped = skipped.iter();
    skipped
        .map(|one| (one.sku.as_deref(), one.reason))
        .collect()
}

fn plan(lists: &[PriceSheet], demand: &Value) -> Plan {
    let offers = read(lists).offers;
    let sellers = offers.iter().map(|offer| offer.provider.clone());
    let views: HashMap<_, _> = sellers.map(|id| (id, ProviderView::default())).collect();
    let snapshot = Snapshot::new(0, now(), offers, views);
    let demand: Demand = serde_json::from_value(demand.clone()).expect("a demand");
    let options = SearchOptions::default();
    matcher::search(&snapshot, &demand, &Held::new(), now(), &options).expect("a plan")
}

/// Provider, SKU and price of the candidates, the best first.
fn ranked(plan: &Plan) -> Vec<String> {
    let candidates = plan.candidates.iter();
    let line = |one: &matcher::Candidate| {
        let offer = &one.lines[0].offer;
        format!("{} {} {}", offer.provider, offer.sku, one.cost_per_hour)
    };
    candidates.map(line).collect()
}

#[test]
fn a_name_that_is_one_card_needs_no_memory() {
    // skypilot-org/skypilot-catalog, catalogs/v5/runpod/vms.csv: GpuInfo is the name alone.
    let runpod = |name: &str| format!("1x_{name}_SECURE,{name},1.0,8,48,{name},0.44,,US,");
    let names = [
        ("L4", "L4"),
        ("A40", "A40"),
        ("L40", "L40"),
        ("RTX4090", "RTX-4090"),
        ("RTX3090", "RTX-3090"),
        ("RTXA6000", "RTX-A6000"),
        ("RTX6000-Ada", "RTX-6000-Ada"),
        ("A100-80GB-SXM", "A100-SXM-80"),
        ("H100-SXM", "H100-SXM"),
    ];
    let rows: Vec<String> = names.iter().map(|(name, _)| runpod(name)).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let found = read(&[list("runpod/vms.csv", SKYPILOT, &rows)]);
    let gpus: Vec<String> = found.offers.iter().map(|one| one.gpu.to_string()).collect();
    assert_eq!(gpus, names.map(|(_, gpu)| gpu), "{:?}", found.skipped);

    // A list may write the names that `broker gpus` lists.
    let canonical: Vec<&str> = Gpu::all().map(Gpu::name).collect();
    let rows = canonical.iter();
    let rows: Vec<String> = rows
        .map(|name| format!("acme,{name},{name},1,8,64,,2,,US,"))
        .collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let found = read(&[list("list.csv", TWO_PRICES, &rows)]);
    let gpus: Vec<String> = found.offers.iter().map(|one| one.gpu.to_string()).collect();
    assert_eq!(gpus, canonical, "{:?}", found.skipped);

    // OutpostLabs/seedling-catalog: the cheapest L4 is the one without a memory.
    let aws = "g6.xlarge,L4,1,4,16,\"{'Gpus': [{'Name': 'L4', 'MemoryInfo': {'SizeInMiB': 22888}}]}\",0.8048,0.3,us-east-1,";
    let lists = [
        list("aws/vms.csv", SKYPILOT, &[aws]),
        list("runpod/vms.csv", SKYPILOT, &[&runpod("L4")]),
    ];
    let best = ranked(&plan(
        &lists,
        &json!({"kind": "gpus", "gpu": "L4", "count": 1}),
    ));
    assert_eq!(best, ["runpod 1x_L4_SECURE 0.44", "aws g6.xlarge 0.8048"]);
}

#[test]
fn a_name_is_no_other_card_than_it_says() {
    // Names of drivers as issues quote them (akash-network/provider-configs 79, leptonai/gpud 1206).
    for (name, mib, gpu) in [
        ("NVIDIA GH200 480GB", "97871", Some("GH200-96")),
        ("NVIDIA H200 NVL", "143771", Some("H200-NVL")),
        ("NVIDIA B300 SXM6 AC", "275040", Some("B300-SXM")),
        ("NVIDIA A800-SXM4-80GB", "81920", Some("A800-SXM-80")),
        ("NVIDIA  RTX A4500", "20470", Some("RTX-A4500")),
        ("Tesla P4", "", Some("P4")),
        ("Tesla P40", "", Some("P40")),
        ("NVIDIA A30", "", Some("A30")),
        ("Tesla V100-SXM2-32GB", "32768", Some("V100-SXM2-32")),
        ("Tesla V100-SXM3-32GB", "32768", None),
        ("NVIDIA GeForce RTX 5090 D", "32607", None),
        ("NVIDIA GeForce RTX 4090", "49140", None),
        ("GRID A100D-40C", "40960", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", "9856", None),
        ("RTX3060", "", None),
    ] {
        let row = format!("acme,box,{name},1,8,64,{mib},2,,US,");
        let found = read(&[list("list.csv", TWO_PRICES, &[&row])]);
        let read = found.offers.first().map(|offer| offer.gpu.to_string());
        assert_eq!(read.as_deref(), gpu, "{name}: {:?}", found.skipped);
    }
}

#[test]
fn what_a_memory_column_holds_is_decided_by_its_own_list() {
    let memory = |rows: &[&str]| -> Vec<String> {
        let found = read(&[list("list.csv", TWO_PRICES, rows)]);
        assert!(found.skipped.is_empty(), "{:?}", found.skipped);
        let line = |offer: &Offer| format!("{} {:?}", offer.gpu, offer.gpu_memory_mib);
        found.offers.iter().map(line).collect()
    };
    let two_a100 = "acme,a100x2,A100,2,8,64,81920,4,,US,";
    let two_80 = "A100 Some(81920)".to_owned();
    let two_40 = "A100 Some(40960)".to_owned();
    // Eight cards of 24 GB have 192 GB together, and no card of that name has.
    let sum = "acme,l4x8,L4,8,8,64,196608,8,,US,";
    let each = "acme,l4x8,L4,8,8,64,24576,8,,US,";
    assert_eq!(memory(&[each, two_a100])[1], two_80);
    assert_eq!(memory(&[sum, two_a100])[1], two_40);
    assert_eq!(memory(&[two_a100]), ["A100 None"], "never the cheaper card");
    // A list of several sellers has both.
    let mixed = memory(&[each, sum, two_a100]);
    assert_eq!(mixed, ["L4 Some(24576)", "L4 Some(24576)", "A100 None"]);
}

#[test]
fn rows_that_contradict_their_own_list_are_set_aside_and_named() {
    // The class of skypilot-org/skypilot-catalog pull request 44: a price that does not grow.
    let pod = |gpus: u32, price: &str| {
        format!(
            "{gpus}x_A100-80GB-SXM4_SECURE,A100-80GB-SXM4,{gpus},16,80,A100_80GB_SXM4,{price},1.16,US,"
        )
    };
    let rows = [1, 2, 4, 8].map(|gpus| pod(gpus, "2.29"));
    let runpod = list(
        "runpod/vms.csv",
        SKYPILOT,
        &rows.each_ref().map(String::as_str),
    );
    let lambda = "gpu_8x_a100_80gb_sxm4,A100-80GB,8,240,1800,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 81920}}]}\",14.32,,us-east-1,";
    let lambda = list("lambda/vms.csv", SKYPILOT, &[lambda]);
    let found = read(std::slice::from_ref(&runpod));
    assert_eq!(found.offers.len(), 2, "one GPU on demand and as spot");
    assert_eq!(
        reasons(&found.skipped),
        [
            "2x_A100-80GB-SXM4_SECURE",
            "4x_A100-80GB-SXM4_SECURE",
            "8x_A100-80GB-SXM4_SECURE",
        ]
        .map(|sku| (Some(sku), SkipReason::ContradictsList))
    );
    let demand = json!({"kind": "gpus", "gpu": "A100-SXM-80", "count": 8});
    let best = ranked(&plan(&[runpod, lambda], &demand));
    assert_eq!(best, ["lambda gpu_8x_a100_80gb_sxm4 14.32"]);
    // At six tenths it is a discount.
    let rows = [pod(1, "2.00"), pod(8, "9.60")];
    let rows = rows.each_ref().map(String::as_str);
    assert_eq!(read(&[list("runpod/vms.csv", SKYPILOT, &rows)]).skipped, []);
    // A host costs as much with one GPU as with four, and other machines have another name for it.
    let rows = [
        "gcp,n1-standard-8,T4,1,8,30,16384,0.79,,asia-east1,",
        "gcp,n1-standard-8,T4,4,8,30,16384,1.84,,asia-east1,",
        "gcp,a3-highgpu-1g,H100,1,26,234,81920,12.089,,europe-west1,",
        "gcp,a3-megagpu-8g,H100-MEGA,8,208,1872,81920,45.808,,europe-west1,",
    ];
    let found = read(&[list("list.csv", TWO_PRICES, &rows)]);
    assert_eq!((found.offers.len(), found.skipped), (4, vec![]));
    // A count that the SKU does not have: published, or by its other rows.
    let count = |sku: &str, gpus: u32, region: &str| {
        format!("acme,{sku},L4,{gpus},8,64,24576,{gpus},,{region},")
    };
    let rows = [
        count("box", 4, "a"),
        count("box", 4, "b"),
        count("box", 4, "c"),
        count("box", 8, "d"),
        count("8x_L4", 4, "a"),
    ];
    let found = read(&[list(
        "list.csv",
        TWO_PRICES,
        &rows.each_ref().map(String::as_str),
    )]);
    let rows: Vec<_> = found
        .skipped
        .iter()
        .map(|one| (one.row, one.reason))
        .collect();
    let contradicts = SkipReason::ContradictsList;
    assert_eq!(rows, [(Some(4), contradicts), (Some(5), contradicts)]);
}

#[test]
fn a_machine_and_its_accelerator_in_rows_of_their_own_are_one_offer() {
    // skypilot-org/skypilot-catalog issue 31: gcp prices them apart.
    let rows = [
        "a2-highgpu-1g,,,12,85,,0.739,0.222,us-central1,us-central1-a",
        ",A100,1,,,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 40960}}]}\",2.933908,0.88017,us-central1,us-central1-a",
        "g2-standard-4,,,4,16,,0.1464,0.0439,us-central1,us-central1-a",
        "g2-standard-8,,,8,32,,0.2928,0.0878,us-central1,us-central1-b",
        ",L4,1,,,\"{'Gpus': [{'MemoryInfo': {'SizeInMiB': 24576}}]}\",0.56004,0.168,us-central1,us-central1-a",
        "n1-standard-8,,,8,30,,0.38,0.08,us-central1,us-central1-a",
        ",T4,1,,,,0.35,0.11,us-central1,us-central1-a",
    ];
    let found = read(&[list("gcp/vms.csv", SKYPILOT, &rows)]);
    assert_eq!(
        shown(&found.offers),
        [
            "a2-highgpu-1g: 1 x A100-SXM-40, on_demand 3.672908",
            "a2-highgpu-1g: 1 x A100-SXM-40, spot 1.10217",
            "g2-standard-4: 1 x L4, on_demand 0.70644",
            "g2-standard-4: 1 x L4, spot 0.2119",
        ]
    );
    // Another zone has no accelerator, and any may be attached to an n1.
    assert_eq!(
        reasons(&found.skipped),
        [
            (Some("g2-standard-8"), SkipReason::NoGpu),
            (Some("n1-standard-8"), SkipReason::NoGpu),
            (None, SkipReason::Unreadable),
        ]
    );
}

#[test]
fn surplus_cells_and_rounded_prices_cost_no_offer() {
    // anycloud-sh/catalog azure/vms.csv: the last column holds `V1,V2` without quotes.
    let header = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,Region,Generation";
    let row = "Standard_NC16as_T4_v3,T4,1,16,110,T4,1.204,0.2,eastus,V1,V2";
    let found = read(&[list("azure/vms.csv", header, &[row])]);
    assert_eq!(found.offers.len(), 2, "{:?}", found.skipped);
    // Where the last column is read, surplus cells may have shifted it.
    let row = format!("{row},x");
    let found = read(&[list("azure/vms.csv", SKYPILOT, &[&row])]);
    assert_eq!(reasons(&found.skipped)[0].1, SkipReason::Unreadable);
    // OutpostLabs/seedling-catalog, catalogs/v5/aws: spot is given with four decimals.
    let spot = |price: &str| {
        let row = format!(
            "g5.48xlarge,A10G,8,192,768,\"{{'Gpus': [{{'MemoryInfo': {{'SizeInMiB': 24576}}}}]}}\",20.02809,{price},eu-central-1,euc1-az1"
        );
        shown(&read(&[list("aws/vms.csv", SKYPILOT, &[&row])]).offers).pop()
    };
    let at_full_price = "g5.48xlarge: 8 x A10G, spot 20.02809";
    assert_eq!(spot("20.0281").as_deref(), Some(at_full_price));
    let dearer = "g5.48xlarge: 8 x A10G, on_demand 20.02809";
    assert_eq!(spot("20.0282").as_deref(), Some(dearer));
}

#[test]
fn a_region_that_begins_with_its_country_is_there() {
    // skypilot-org/skypilot-catalog, catalogs/v5: cudo and ibm.
    let rows = [
        ("cudo", "gb-london-1", Some("GB")),
        ("cudo", "no-luster-1", Some("NO")),
        ("ibm", "eu-de", Some("DE")),
        ("ibm", "us-south", Some("US")),
        ("ibm", "jp-tok", Some("JP")),
        ("scaleway", "fr-par-1", Some("FR")),
        ("acme", "eu-central-1", None),
        ("acme", "me-south-1", None),
        ("acme", "sa-east-1", None),
        ("acme", "ap-se-1", None),
        ("acme", "va-ashburn", None),
        ("acme", "gb", None),
    ];
    for (seller, region, country) in rows {
        let row = format!("{seller},box,L4,1,8,64,24576,1,,{region},");
        let found = read(&[list("list.csv", TWO_PRICES, &[&row])]);
        let read = found.offers[0].place.country.map(|one| one.to_string());
        assert_eq!(read.as_deref(), country, "{region}");
    }
    let row = "cudo,box,RTX-A4500,1,8,64,20480,0.3,,gb-london-1,";
    let demand = |country: &str| json!({"kind": "gpus", "gpu": "RTX-A4500", "count": 1, "places": {"countries": [country]}});
    let lists = [list("list.csv", TWO_PRICES, &[row])];
    assert_eq!(ranked(&plan(&lists, &demand("GB"))), ["cudo box 0.30"]);
    let unread = [list(
        "list.csv",
        TWO_PRICES,
        &[&row.replace("gb-london-1", "north-7")],
    )];
    let refused = plan(&unread, &demand("GB")).refused;
    assert!(refused[0].why.contains("`north-7`"), "{refused:?}");
}

#[test]
fn an_open_form_serves_where_each_that_it_may_be_would() {
    // SkyPilot's commonest names leave the form open: `A100-80GB`, `H100`.
    let row = "ovhcloud,a100-360,A100-80GB,2,30,360,81920,6.15,,US,";
    let fleet = |weights: &str| {
        json!({
            "kind": "serve_realtime", "model": "Llama 3.1 70B", "input_tokens": 1000, "output_tokens": 200,
            "concurrency": 1, "weights": weights,
        })
    };
    let lists = [list("list.csv", TWO_PRICES, &[row])];
    let met = plan(&lists, &fleet("int8"));
    assert_eq!(ranked(&met), ["ovhcloud a100-360 6.15"]);
    let told = met.candidates[0].reasons.join("\n");
    assert!(told.contains("planned as A100-PCIe-80"), "{told}");
    // A model that fits into neither of the two is served by none.
    let mut larger = fleet("bf16");
    larger["model"] = json!("Llama 3.1 405B");
    assert_eq!(plan(&lists, &larger).eligible, 0);
}

#[test]
fn what_is_listed_in_many_zones_at_one_price_stands_once() {
    // The class of skypilot-org/skypilot pull request 2946: each type once, at its cheapest.
    let zone = |n: usize| {
        format!(
            "g4dn.xlarge,T4,1,4,16,\"{{'Gpus': [{{'MemoryInfo': {{'SizeInMiB': 16384}}}}]}}\",0.526,0.2,us-east-1,use1-az{n:02}"
        )
    };
    let rows: Vec<String> = (1..=12).map(zone).collect();
    let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
    let azure = "Standard_NC4as_T4_v3,T4,1,4,28,T4,0.5261,0.05,eastus,";
    let lists = [
        list("aws/vms.csv", SKYPILOT, &rows),
        list("azure/vms.csv", SKYPILOT, &[azure]),
    ];
    let found = plan(&lists, &json!({"kind": "gpus", "gpu": "T4", "count": 1}));
    assert_eq!(found.eligible, 13);
    let best = ["aws g4dn.xlarge 0.526", "azure Standard_NC4as_T4_v3 0.5261"];
    assert_eq!(ranked(&found), best);
    let also = found.candidates[0].also_at.iter();
    let zones: Vec<_> = also.map(|one| one.place.zone.clone()).collect();
    let zones: Vec<_> = zones.iter().flatten().map(String::as_str).collect();
    assert_eq!(zones.len(), 11);
    assert_eq!((zones[0], zones[10]), ("use1-az02", "use1-az12"));
}

#[test]
fn names_without_a_memory_column_of_a_public_table_are_read() {
    // the-full-stack/the-full-stack-website docs/cloud-gpus/cloud-gpus.csv (2026-03-18).
    let rows = [
        "aws,p4de.24xlarge,A100 (80 GB),8,96,1152,,40.97,,,",
        "aws,p3.2xlarge,V100 (16 GB),1,8,61,,3.06,0.92,,",
        "aws,p3.16xlarge,V100 (16 GB),8,64,488,,24.48,7.34,,",
        "azure,NC24ads A100 v4,A100 (80 GB),1,24,220,,3.67,1.47,,",
        "cudo-compute,A4000 (16 GB),A4000 (16 GB),1,2,4,,0.30,,,",
    ];
    let found = read(&[list("list.csv", TWO_PRICES, &rows)]);
    assert_eq!((found.offers.len(), found.skipped.len()), (8, 0));
    // catalogs/v1/gcp.csv of SkyPilot lacks a column: the list is reported as a whole.
    let header = "InstanceType,AcceleratorName,AcceleratorCount,MemoryGiB,GpuInfo,Price,SpotPrice,Region,AvailabilityZone";
    let row = "a2-highgpu-1g,A100,1,85,A100,3.67,1.1,us-central1,us-central1-a";
    let found = read(&[list("gcp.csv", header, &[row])]);
    assert_eq!(reasons(&found.skipped), [(None, SkipReason::UnknownHeader)]);
    assert!(found.skipped[0].why.contains("vCPUs"));
}

/// Reads an answer of a provider's interface, as a recording of it.
async fn answered(provider: &str, body: Value) -> (Vec<String>, Vec<(String, SkipReason)>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("answer.json");
    std::fs::write(&file, body.to_string()).expect("written");
    let provider = ProviderId::parse(provider).expect("an id");
    let adapter = registry::by_id(&provider).expect("an adapter");
    let http = Http::replay(&file).expect("a recording");
    let reading = adapter.read_catalog(&http, now()).await.expect("a reading");
    let skipped = reading.skipped.into_iter();
    let named = skipped.filter_map(|one| Some((one.sku?, one.reason)));
    (shown(&reading.offers), named.collect())
}

#[tokio::test]
async fn an_absent_flag_is_no_no_and_the_reason_that_counts_is_given() {
    // A type as open clients quote it (profullstack/sh1pt pull request 748), in the shape of RunPod's REST v2.
    let kind = |more: Value| {
        let price = json!({"secure": 3.19, "community": 2.59});
        let mut kind = json!({"id": "NVIDIA H100 NVL", "memory": 94, "price": price});
        let more = more.as_object().expect("fields").clone();
        kind.as_object_mut().expect("a kind").extend(more);
        json!({ "gpus": [kind] })
    };
    let no_place = ("NVIDIA H100 NVL (secure)".to_owned(), SkipReason::NoPlace);
    // It has a price and no data centre lists it, with and without flags.
    for flags in [json!({}), json!({"secure": true, "community": false})] {
        let read = answered("runpod", kind(flags)).await;
        assert_eq!(read, (vec![], vec![no_place.clone()]));
    }
    let centres = json!([{"id": "US-KS-2", "availability": "LOW"}]);
    let read = answered("runpod", kind(json!({ "dataCenters": centres }))).await;
    let offer = "1x NVIDIA H100 NVL: 1 x H100-NVL, on_demand 3.19";
    assert_eq!(read, (vec![offer.to_owned()], vec![]));
}

#[tokio::test]
async fn answers_in_the_shapes_of_the_live_interfaces_are_read() {
    // Lambda (inference-book/inference-plane, payload checked on 2026-08-15): no descriptions.
    let kind = |name: &str, gpus: u32| {
        json!({
            "instance_type": {"name": name, "price_cents_per_hour": 2399, "specs": {"vcpus": 208, "memory_gib": 1800, "storage_gib": 100, "gpus": gpus}},
            "regions_with_capacity_available": [{"name": "us-west-3"}],
        })
    };
    let types = ["gpu_8x_h100_sxm5", "gpu_8x_b200", "cpu_4x_general"];
    let data = types.map(|name| (name, kind(name, u32::from(name.starts_with("gpu")) * 8)));
    let data: serde_json::Map<String, Value> = data
        .map(|(name, kind)| (name.to_owned(), kind))
        .into_iter()
        .collect();
    let (offers, skipped) = answered("lambda", json!({"data": data})).await;
    assert_eq!(offers, ["gpu_8x_h100_sxm5: 8 x H100-SXM, on_demand 23.99"]);
    let expected = [
        ("cpu_4x_general", SkipReason::NoGpu),
        ("gpu_8x_b200", SkipReason::UnknownGpu),
    ];
    assert_eq!(
        skipped,
        expected.map(|(sku, reason)| (sku.to_owned(), reason))
    );

    // RunPod (runpod/docs issue 633): two spaces in a name, which is kept as it came.
    let centres = json!([{"id": "US-KS-2", "availability": "MEDIUM"}]);
    let kind = json!({
        "id": "NVIDIA  RTX A4500", "memory": 20, "secure": true, "price": {"secure": 0.25},
        "availability": "MEDIUM", "dataCenters": centres,
    });
    let (offers, _) = answered("runpod", json!({ "gpus": [kind] })).await;
    assert_eq!(
        offers,
        ["1x NVIDIA  RTX A4500: 1 x RTX-A4500, on_demand 0.25"]
    );

    // Voltage Park: prices as numbers or as text, no stock beside a price, the form left open.
    let place = |id: &str, price: Value, free: u32| {
        json!({
            "id": id, "gpu_price_ethernet": price, "gpu_count_ethernet": free,
            "specs_per_node": {"gpu_model": "NVIDIA H100", "gpu_count": 8},
        })
    };
    let results = json!([place("a", json!(1.99), 16), place("b", json!("1.99"), 0)]);
    let page = json!({"results": results, "total_result_count": 2, "has_next": false});
    let (offers, _) = answered("voltagepark", page).await;
    assert_eq!(
        offers,
        ["NVIDIA H100-ethernet: 8 x H100, on_demand 15.92"; 2]
    );
}
