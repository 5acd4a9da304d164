//! Links between the GPUs of a node, through the unmodified agent on the fake driver.

use std::collections::BTreeMap;

use fake_driver::script::{Card, Fault, Script};
use market::attestation::{FindingCode, Outcome};
use market::gpu::Gpu;
use market::verification::{Level, VerificationOrder};
use verifier::order::expected_node;

use crate::machine::*;
use crate::stage::*;

/// The fill of each GPU, and so the size of a copy between them, where a real order copies 512 MiB.
const BYTES: u64 = 512 << 10;
const STANDS_FOR: f64 = 1_024.0;
/// How long links and the sums over them may take at level `standard`. Units: milliseconds.
const MOST_MS: f64 = 20_000.0;

/// Eight cards on a board without any link between them, which reach each other at this many GB/s.
fn over_the_bus(gb_per_s: f64) -> Script {
    let card = |number| Card {
        name: "NVIDIA L40S".to_owned(),
        memory_mib: 46_068,
        sm_count: 142,
        capability: (8, 9),
        pci_device: 0x26b9_10de,
        mig: None,
        power_limit_w: 350,
        power_w: 330,
        host_link: (4, 16),
        links: Vec::new(),
        fabric: None,
        copy_mb_per_s: 720_000.0,
        host_mb_per_s: (26_000.0, 26_000.0),
        tensor_gflops: (260_000.0, 520_000.0),
        link_mb_per_s: gb_per_s * 1e3 / STANDS_FOR,
        ..Card::h100(number)
    };
    Script {
        gpus: (0..8).map(card).collect(),
        ..Script::default()
    }
}

fn order_of_eight() -> VerificationOrder {
    let mut order = order(8, Level::Standard);
    order.expected = expected_node(Gpu::parse("L40S").expect("known"), 8);
    order.memory.pattern_bytes = BYTES;
    order
}

/// The clocks of the one process that used all cards, where the vendor's library is missing. Units:
/// milliseconds.
fn of_the_links(machine: &Machine) -> BTreeMap<usize, f64> {
    let mut all = machine.clocks_of_each_process_ms();
    all.retain(|clocks| clocks.len() == 8);
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

#[test]
fn f04_eight_gpus_over_the_bus_have_every_pair_measured_in_time_and_a_slow_one_is_named() {
    let mut script = over_the_bus(20.0);
    script.gpus[2].slow_to = Some(6);
    let machine = Machine::new(&script);
    let attestation = machine.verify(&order_of_eight());
    assert_eq!(failures(&attestation), [], "{attestation:#?}");
    let mut findings = attestation.findings.iter();
    let pairs = findings.find(|found| found.code == FindingCode::PairRates);
    let pairs = pairs.expect("the finding");
    assert_eq!(pairs.outcome, Outcome::Warned, "{pairs:?}");
    assert_eq!(pairs.samples.len(), 56);
    let named = "GPU 2 to GPU 6 is the slowest pair";
    assert!(pairs.note.starts_with(named), "{pairs:?}");
    // One pair after the other: all pairs would take 26 seconds without a limit.
    let took_ms: f64 = of_the_links(&machine).values().sum();
    assert!(took_ms > 1_000.0, "{took_ms} ms are too few to be true");
    assert!(took_ms < MOST_MS / 2.0, "{took_ms} ms");
}

#[test]
fn f04_eight_gpus_that_reach_each_other_over_the_bus_have_time_for_the_sums() {
    let mut script = over_the_bus(12.0);
    for card in &mut script.gpus {
        card.over_bus = true;
    }
    let machine = Machine::new(&script);
    let order = order_of_eight();
    let attestation = machine.verify(&order);
    assert_eq!(failures(&attestation), [], "{attestation:#?}");
    let note = note_of(&attestation, FindingCode::AllReduce);
    assert!(note.starts_with("The sum is right"), "{note}");
    for (gpu, ms) in of_the_links(&machine) {
        assert!(ms < MOST_MS / 2.0, "GPU {gpu}: {ms} ms");
    }
    // A GPU that adds wrongly is found as well.
    script.gpus[3].fault = Fault::AddsWrongly;
    let wrong = Machine::new(&script).verify(&order);
    assert_eq!(failures(&wrong), [FindingCode::AllReduce]);
}

#[test]
fn f04_of_links_of_which_one_hangs_the_others_are_kept_and_the_vendors_library_sums_all_the_same() {
    let mut script = Script::default();
    script.gpus[5].fault = Fault::HangsIn("cuMemcpyPeerAsync".to_owned());
    script.gpus[6].fault = Fault::ErrsIn("ncclAllReduce".to_owned());
    let machine = Machine::new(&script);
    machine.install("libnccl.so.2");
    let attestation = machine.verify(&order(8, Level::Standard));
    let mut findings = attestation.findings.iter();
    let pairs = findings.find(|found| found.code == FindingCode::PairRates);
    let pairs = pairs.expect("the finding");
    assert_eq!(pairs.outcome, Outcome::NotRun, "{pairs:?}");
    assert!(pairs.note.contains("GPU 5 to GPU 0"), "{pairs:?}");
    assert_eq!(pairs.samples.len(), 5 * 7);
    let note = note_of(&attestation, FindingCode::AllReduce);
    assert_eq!(note, "Elements of NCCL's sum are wrong: 1.");
}
