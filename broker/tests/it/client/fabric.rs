//! `broker plan` with the examples of `docs/demands/` on machines that differ in their fabric alone.

use std::path::Path;

use broker::tools::simulation::SimulatedMarketOptions;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::{Market, NodeRunner, Provider};

use super::Shell;
use crate::service::Service;

/// Boards of eight H100, joined by InfiniBand NDR400 or by Ethernet; the latter for less.
const MARKET: &str = "\
provider,sku,network,place,place_label,gpu,gpu_label,gpus,gpu_memory_mib,cpu_model,vcpus,memory_gib,storage_gib,price_usd_hour,per,free_nodes,internode,certainty,source
voltagepark,h100-sxm5-80gb,infiniband,3f0c7b9e-52d4-4a86-9c1e-7d2b8a6f4e10,,H100-SXM,,8,81559,Intel Xeon Platinum 8480+,104,1024,24000,2.49,gpu,64,infiniband_ndr400,low,made up
voltagepark,h100-sxm5-80gb,ethernet,3f0c7b9e-52d4-4a86-9c1e-7d2b8a6f4e10,,H100-SXM,,8,81559,Intel Xeon Platinum 8480+,104,1024,24000,1.99,gpu,64,ethernet,low,made up
";

/// Tokens a second of a GPU and the share of a step that is spent waiting, over both fabrics: 8 x
/// 400 Gb/s with RDMA, and one 100 Gb/s by TCP. Llama 3 70B in bf16, all state sharded, 8,192 tokens
/// of each of 256 GPUs in a step. Source: the reference model, whose figures for six fabrics are in
/// `matcher/src/perf/step_time/tests.rs`.
const TOLD: [(f64, f64); 2] = [(940.0, 0.0), (124.0, 0.85)];

/// The factor within which the reference model holds in nine of ten cases.
const WITHIN: f64 = 1.5;

fn example(name: &str) -> Value {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demands");
    let text = std::fs::read_to_string(folder.join(name)).expect("an example");
    serde_json::from_str(&text).expect("JSON")
}

async fn service() -> Service {
    let place = tempfile::tempdir().expect("a folder");
    Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Off,
        // They have nothing to sell in this market.
        unconnected: vec![Provider::LAMBDA, Provider::RUNPOD],
        configure_market: Box::new(|market| {
            market.market = Market::parse(MARKET).expect("a market file");
        }),
        ..SimulatedMarketOptions::new(place.path())
    })
    .await
}

/// Plans a demand by the command. Gives the candidates over InfiniBand and over Ethernet.
async fn planned(service: &Service, demand: &Value) -> [Value; 2] {
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(service, &key);
    let file = shell.write("demand.json", &demand.to_string());
    let plan = shell.json(&format!("plan --demand {file}")).await;
    let candidates = plan["candidates"].as_array().expect("candidates").clone();
    ["infiniband_ndr400", "ethernet"].map(|fabric| {
        let over = |one: &&Value| one["lines"][0]["internode"] == fabric;
        let found = candidates.iter().find(over);
        found
            .unwrap_or_else(|| panic!("none over {fabric}"))
            .clone()
    })
}

fn fact(candidate: &Value, name: &str) -> f64 {
    candidate["facts"][name].as_f64().expect("a figure")
}

// S08
#[tokio::test(flavor = "multi_thread")]
async fn a_70b_on_256_gpus_runs_over_both_fabrics_as_the_reference_tells() {
    let service = service().await;
    let mut demand = example("llama-70b-256-gpus.json");
    let [fast, slow] = planned(&service, &demand).await;
    assert!(fact(&fast, "tokens_per_second") > 4.0 * fact(&slow, "tokens_per_second"));
    assert_eq!(fast["rank"], 1, "though its hour costs a quarter more");

    // As many tokens in a step as the figures are of.
    demand["global_batch_sequences"] = json!(512);
    let both = planned(&service, &demand).await;
    let each = |one: &Value| fact(one, "tokens_per_second") / 256.0;
    let near = |found: f64, told: f64| (1.0 / WITHIN..WITHIN).contains(&(found / told));
    for (candidate, (told, waits)) in both.iter().zip(TOLD) {
        assert!(near(each(candidate), told), "{told}: {}", each(candidate));
        let waited = fact(candidate, "exposed_communication");
        assert!((waited - waits).abs() < 0.15, "{waits}: {waited}");
    }
    let (told, found) = (TOLD[0].0 / TOLD[1].0, each(&both[0]) / each(&both[1]));
    assert!((found / told - 1.0).abs() < 0.12, "{told}: {found}");
    service.stop().await;
}

// S30
#[tokio::test(flavor = "multi_thread")]
async fn adapters_run_as_fast_over_ethernet_so_the_cheaper_machines_come_first() {
    let service = service().await;
    let [fabric, plain] = planned(&service, &example("lora-over-ethernet.json")).await;
    let rate = |one: &Value| fact(one, "tokens_per_second");
    assert!((rate(&fabric) / rate(&plain) - 1.0).abs() < 1e-9);
    let cost = |one: &Value| -> f64 {
        let text = one["facts"]["run_cost_usd"].as_str().expect("a sum");
        text.parse().expect("a number")
    };
    assert!((cost(&plain) / cost(&fabric) - 1.99 / 2.49).abs() < 1e-4);
    assert!(plain["rank"].as_u64() < fabric["rank"].as_u64());
    service.stop().await;
}
