//! Each class of failure of `docs/verification-checks.md`, and similar good cases, by the unmodified agent on the
//! fake driver.

use fake_driver::script::{Card, Fault, Script, VARIABLE};
use market::attestation::{Attestation, FindingCode, Outcome, Verdict};
use market::fabric::Internode;
use market::gpu::Gpu;
use market::verification::Level;
use verifier::order::{Mode, expected_node, order_for};

use crate::eventually::output_of;
use crate::machine::*;
use crate::stage::*;

/// A change that makes a good card bad.
type Change = fn(&mut Card);

/// The agent's findings on two H100s with the second changed, as failed codes.
fn found(change: impl FnOnce(&mut Card)) -> Vec<FindingCode> {
    found_at(Level::Quick, change)
}

fn found_at(level: Level, change: impl FnOnce(&mut Card)) -> Vec<FindingCode> {
    let attestation = Machine::new(&broken(change)).verify(&order(2, level));
    assert_eq!(attestation.verdict, Verdict::Fail, "{attestation:#?}");
    failures(&attestation)
}

#[test]
fn f01_a_gpu_that_falls_off_the_bus_is_lost_with_and_without_an_error_of_the_driver() {
    let silent = found(|card| card.fault = Fault::LostIn("memory_fill".to_owned()));
    assert_eq!(silent, [FindingCode::GpuLost]);
    let told = found(|card| card.xids = vec![79]);
    assert_eq!(told, [FindingCode::GpuLost]);
}

#[test]
fn f02_a_gpu_that_is_taken_from_the_container_is_missed() {
    let codes = found(|card| card.fault = Fault::WithdrawnIn("memory_fill".to_owned()));
    assert_eq!(codes, [FindingCode::InventoryRecount]);
}

#[test]
fn f03_a_fabric_that_is_not_ready_is_named() {
    let script = Script {
        init: 802,
        ..broken(|_| {})
    };
    let attestation = Machine::new(&script).verify(&order(2, Level::Quick));
    let codes = failures(&attestation);
    assert!(
        codes.contains(&FindingCode::FabricNotReady),
        "{attestation:#?}"
    );
    // Only whole boards of eight have a switch between their GPUs.
    let mut script = Script::default();
    script.gpus[5].fabric = Some(1);
    let attestation = Machine::new(&script).verify(&order(8, Level::Quick));
    assert_eq!(failures(&attestation), [FindingCode::FabricNotReady]);
}

#[test]
fn f03_a_machine_without_a_fabric_is_judged_where_it_is_said_what_was_sold() {
    let machine = Machine::new(&Script {
        init: 802,
        ..broken(|_| {})
    });
    let run = |sold: &[&str]| {
        let mut command = agent(Some(machine.folder.path()));
        command.env(VARIABLE, machine.path("script.json"));
        command.args(["--fabric-patience-seconds", "0", "--json"]);
        output_of(command.args(sold))
    };
    let output = run(&["--gpu", "H100-SXM", "--gpus", "2"]);
    assert_eq!(output.status.code(), Some(1));
    let failed = failures(&attestation(&output));
    assert!(failed.contains(&FindingCode::FabricNotReady), "{failed:?}");
    // There is no reference to compare it with.
    assert_eq!(run(&["--gpus", "2"]).status.code(), Some(2));
}

#[test]
fn f04_links_that_are_down_are_counted() {
    let half = found(|card| card.links[..9].fill(false));
    assert_eq!(half, [FindingCode::NvlinkActive]);
    assert_eq!(
        found(|card| card.links.fill(false)),
        [FindingCode::NvlinkActive]
    );
}

#[test]
fn f04_links_that_are_slow_or_add_wrongly_are_measured() {
    let found = |change: Change| {
        let mut script = Script::default();
        change(&mut script.gpus[5]);
        Machine::new(&script).verify(&order(8, Level::Standard))
    };
    let good = found(|_| {});
    assert_eq!(failures(&good), []);
    assert_eq!(outcome_of(&good, FindingCode::PairRates), Outcome::Met);
    let slow = found(|card| card.link_mb_per_s = 330_000.0);
    assert_eq!(failures(&slow), [FindingCode::PairRates]);
    let mut findings = slow.findings.iter();
    let pairs = findings.find(|found| found.code == FindingCode::PairRates);
    let pairs = pairs.expect("the finding");
    assert!(
        pairs.note.contains("GPU 0 to GPU 5 is the slowest"),
        "{pairs:?}"
    );
    assert_eq!(pairs.samples.len(), 56);
    let wrong = found(|card| card.fault = Fault::AddsWrongly);
    assert_eq!(failures(&wrong), [FindingCode::AllReduce]);
}

#[test]
fn f04_the_vendors_library_sums_as_well_where_the_node_has_it() {
    let verified = |fault: Fault, installed: bool, level: Level| {
        let mut script = Script::default();
        script.gpus[5].fault = fault;
        let machine = Machine::new(&script);
        if installed {
            machine.install("libnccl.so.2");
        }
        machine.verify(&order(8, level))
    };
    assert_eq!(failures(&verified(Fault::None, true, Level::Standard)), []);
    let wrong = verified(
        Fault::ErrsIn("ncclAllReduce".to_owned()),
        true,
        Level::Standard,
    );
    assert_eq!(failures(&wrong), [FindingCode::AllReduce]);
    let mut findings = wrong.findings.iter();
    let sum = findings.find(|found| found.code == FindingCode::AllReduce);
    let note = &sum.expect("the finding").note;
    assert_eq!(note, "Elements of NCCL's sum are wrong: 1.");
    // The diagnostic is skipped where it is not installed, and at level `quick`.
    for (installed, level) in [(false, Level::Standard), (true, Level::Quick)] {
        let unasked = verified(Fault::ErrsIn("ncclAllReduce".to_owned()), installed, level);
        assert_eq!(failures(&unasked), [], "{level:?}");
    }
}

#[test]
fn f05_dying_memory_fails_by_each_of_its_counters() {
    let cases: [(Change, FindingCode); 5] = [
        (|card| card.ecc_uncorrected = (1, 0), FindingCode::HealthEcc),
        (|card| card.ecc_uncorrected = (0, 1), FindingCode::HealthEcc),
        (|card| card.remap_pending = true, FindingCode::HealthRemap),
        (|card| card.remap_failed = true, FindingCode::HealthRemap),
        (|card| card.xids = vec![64], FindingCode::HealthXid),
    ];
    for (change, code) in cases {
        assert_eq!(found(change), [code]);
    }
    let flipped = found(|card| card.fault = Fault::FlipsBits(1));
    assert_eq!(
        flipped,
        [FindingCode::MemoryPattern, FindingCode::MemoryProof]
    );
}

#[test]
fn f06_a_capped_and_a_slow_gpu_fail() {
    assert_eq!(
        found(|card| card.power_limit_w = 350),
        [FindingCode::PowerLimit]
    );
    let slow = found(|card| card.copy_mb_per_s = 1_200_000.0);
    assert_eq!(
        slow,
        [FindingCode::MemoryBandwidth, FindingCode::MemoryRead]
    );
}

#[test]
fn f07_a_gpu_that_is_slowed_under_load_fails() {
    // 0x40: the hardware's own thermal slowdown.
    let hot = found_at(Level::Standard, |card| card.slowed_by = Some(0x40));
    assert_eq!(hot, [FindingCode::BurnThrottle]);
    let fading = found_at(Level::Standard, |card| card.fades_permille = 10);
    assert_eq!(fading, [FindingCode::BurnSustained]);
    // A clock without the driver's reasons does not count as unslowed.
    let hidden = Machine::new(&broken(|card| card.slowed_by = None));
    let hidden = hidden.verify(&order(2, Level::Standard));
    assert_eq!(failures(&hidden), []);
    let mut findings = hidden.findings.iter();
    let throttle = findings.find(|found| found.code == FindingCode::BurnThrottle);
    assert_eq!(throttle.expect("judged").outcome, Outcome::NotRun);
}

#[test]
fn f08_a_narrow_host_link_fails_by_its_lanes_and_by_its_rates() {
    let codes = found(|card| {
        card.host_link = (5, 4);
        card.host_mb_per_s = (13_000.0, 13_500.0);
    });
    let expected = [
        FindingCode::HostLinkShape,
        FindingCode::HostLinkIn,
        FindingCode::HostLinkOut,
    ];
    assert_eq!(codes, expected);
    let one_way = found(|card| card.host_mb_per_s = (11_000.0, 52_000.0));
    assert_eq!(one_way, [FindingCode::HostLinkIn]);
}

/// The agent's findings on two good H100s of a node that was sold with a port of 400 Gb/s for each, with one
/// port spoilt.
fn found_of_ports(spoil: impl FnOnce(&std::path::Path)) -> Attestation {
    let system = system_with_ports(2);
    spoil(system.path());
    let mut order = order(2, Level::Quick);
    order.expected.internode = Some(Internode::InfinibandNdr400);
    let root = system.path().to_str().expect("text");
    let machine = Machine::new(&broken(|_| {}));
    attestation(&machine.run(&order, &["--root", root, "--json"]))
}

#[test]
fn f09_a_port_to_other_nodes_that_is_down_or_slow_is_named() {
    let good = found_of_ports(|_| {});
    assert_eq!(failures(&good), []);
    let down = found_of_ports(|root| write_port(root, 1, "state", "1: DOWN\n"));
    let slow = found_of_ports(|root| write_port(root, 1, "rate", "100 Gb/sec (4X EDR)\n"));
    for (attestation, said) in [
        (down, "mlx5_1/1 is down"),
        (slow, "1 of 2 ports of 400 Gb/s"),
    ] {
        assert_eq!(failures(&attestation), [FindingCode::NetworkPorts]);
        let mut findings = attestation.findings.iter();
        let ports = findings.find(|found| found.code == FindingCode::NetworkPorts);
        let note = &ports.expect("the finding").note;
        assert!(note.contains(said), "{note}");
    }
}

#[test]
fn f10_a_gpu_left_in_slices_fails() {
    assert_eq!(
        found(|card| card.mig = Some(true)),
        [FindingCode::InventoryMig]
    );
}

#[test]
fn a_gpu_whose_driver_has_no_slices_to_offer_is_in_none() {
    let machine = Machine::new(&broken(|card| card.mig = None));
    let attestation = machine.verify(&order(2, Level::Quick));
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
    assert_eq!(
        outcome_of(&attestation, FindingCode::InventoryMig),
        Outcome::Met
    );
}

#[test]
fn f11_what_a_tenant_before_left_is_noticed() {
    let process = found(|card| card.processes = 1);
    assert_eq!(process, [FindingCode::InventoryResidue]);
    let memory = found(|card| card.used_mib = 4_000);
    assert!(
        memory.contains(&FindingCode::InventoryResidue),
        "{memory:?}"
    );
}

#[test]
fn f12_silent_corruption_fails_whether_it_repeats_or_not() {
    let once = found(|card| card.fault = Fault::Unrepeatable);
    assert_eq!(once, [FindingCode::SdcRepeat]);
    let always = found(|card| card.fault = Fault::WrongEntry);
    assert_eq!(always, [FindingCode::SdcExact]);
}

#[test]
fn f12_a_tensor_unit_that_flips_a_bit_now_and_then_does_not_repeat_itself() {
    // The last product of each sample is checked: the fourth, then one that is no multiple of four.
    let attestation = |fault, level| {
        let broken = broken(|card| card.fault = fault);
        Machine::new(&broken).verify(&order(2, level))
    };
    let units = attestation(Fault::FlipsTensor(4), Level::Quick);
    assert_eq!(failures(&units), [FindingCode::SdcRepeat], "{units:#?}");
    let note = note_of(&units, FindingCode::SdcRepeat);
    assert_eq!(note, "GPU 1: the same 16-bit product gave different bits.");
    let hot = attestation(Fault::FlipsUnderLoad, Level::Standard);
    assert_eq!(failures(&hot), [FindingCode::SdcRepeat], "{hot:#?}");
    let note = note_of(&hot, FindingCode::SdcRepeat);
    assert!(
        note.contains("GPU 1: the product of the load was another in"),
        "{note}"
    );
}

#[test]
fn f12_memory_that_is_streamed_through_in_part_only_fails_by_what_came_of_it() {
    for (kernel, said) in [
        ("stream_copy", "differs from its source"),
        ("stream_read", "is not that of its parts"),
        (
            "stream_triad",
            "the sum of two arrays in its memory is wrong",
        ),
    ] {
        let halves = broken(|card| card.fault = Fault::Halves(kernel.to_owned()));
        let attestation = Machine::new(&halves).verify(&order(2, Level::Quick));
        assert_eq!(
            failures(&attestation),
            [FindingCode::SdcRepeat],
            "{kernel}: {attestation:#?}"
        );
        let note = note_of(&attestation, FindingCode::SdcRepeat);
        assert!(note.contains("GPU 1") && note.contains(said), "{note}");
    }
}

#[test]
fn memory_of_which_the_cache_could_keep_an_array_is_not_taken_for_the_rates_of_memory() {
    // The order fills exactly three arrays of 8 times the cache, or the cache is one byte too large for that.
    let verified = |cache_bytes: i32| {
        let cached = broken(|card| card.cache_bytes = cache_bytes);
        Machine::new(&cached).verify(&order(2, Level::Quick))
    };
    let filled = order(2, Level::Quick).memory.pattern_bytes;
    let largest = i32::try_from(filled / 3 / 8).expect("a small cache");
    assert_eq!(failures(&verified(largest)), []);
    let attestation = verified(largest + 1);
    assert_eq!(failures(&attestation), [FindingCode::AgentTrouble]);
    let note = note_of(&attestation, FindingCode::AgentTrouble);
    let said = "rates of memory take 3 arrays of 21848 bytes, each 8 times its cache, and 65536 bytes \
                are filled";
    assert!(note.contains(said), "{note}");
}

#[test]
fn f13_lies_about_what_is_there_are_refused() {
    let smaller = found(|card| card.real_memory_mib = Some(40_960));
    assert_eq!(smaller, [FindingCode::MemoryCapacity]);
    let other_chip = found(|card| card.sm_count = 114);
    assert_eq!(other_chip, [FindingCode::InventoryIdentity]);
    let other_board = found(|card| card.pci_device = 0x2331_10de);
    assert_eq!(other_board, [FindingCode::InventoryIdentity]);
    let twice = found(|card| card.uuid = Card::h100(0).uuid);
    assert_eq!(twice, [FindingCode::InventoryUnique]);
    let skipped = found(|card| card.fault = Fault::SkipsMemory);
    assert_eq!(skipped, [FindingCode::MemoryProof]);
}

/// The agent's findings, by an order like a real one, on an H100 sold with 5 MiB of which this much can be
/// allocated.
fn found_with_memory(real_mib: u64) -> Attestation {
    let mut expected = expected_node(Gpu::parse("H100-SXM").expect("known"), 1);
    expected.memory_mib = 5;
    let mut order = order_for(expected, 0, Level::Quick, Mode::Real);
    (order.gemm.n, order.gemm.k) = (24, 128);
    order.bandwidth.samples = 2;
    let card = Card {
        memory_mib: 5,
        real_memory_mib: Some(real_mib),
        ..Card::h100(0)
    };
    let script = Script {
        gpus: vec![card],
        ..Script::default()
    };
    Machine::new(&script).verify(&order)
}

#[test]
fn memory_between_the_floor_and_what_is_ordered_is_filled_as_far_as_it_goes() {
    assert_eq!(failures(&found_with_memory(6)), []);
    // 4 MiB must be allocatable, and the order fills 4.8.
    let between = found_with_memory(4);
    assert_eq!(failures(&between), [], "{between:#?}");
    assert!(between.verdict.is_pass());
    let note = note_of(&between, FindingCode::MemoryCapacity);
    assert!(
        note.contains("4 MiB that were ordered, 3 were filled"),
        "{note}"
    );
}

#[test]
fn memory_of_which_half_is_not_there_fails_by_its_own_name_at_real_size() {
    let half = found_with_memory(2);
    assert_eq!(failures(&half), [FindingCode::MemoryCapacity]);
    let note = note_of(&half, FindingCode::MemoryCapacity);
    assert!(note.contains("only 2 MiB could be allocated"), "{note}");
}

#[test]
fn f13_a_management_library_that_shows_more_gpus_than_compute_is_caught() {
    let script = Script {
        gpus: vec![Card::h100(0)],
        managed: Some((0..2).map(Card::h100).collect()),
        ..Script::default()
    };
    let attestation = Machine::new(&script).verify(&order(2, Level::Quick));
    assert_eq!(attestation.verdict, Verdict::Fail);
    let expected = [FindingCode::InventoryCount, FindingCode::InventorySources];
    assert_eq!(failures(&attestation), expected);
}

#[test]
fn both_libraries_are_asked_about_the_same_gpu_where_one_shows_fewer() {
    let used = Card {
        processes: 1,
        ..Card::h100(0)
    };
    let script = Script {
        gpus: vec![Card::h100(1)],
        managed: Some(vec![used, Card::h100(1)]),
        ..Script::default()
    };
    let attestation = Machine::new(&script).verify(&order(1, Level::Quick));
    assert_eq!(failures(&attestation), [FindingCode::InventorySources]);
    let inventory = attestation.inventory.as_ref().expect("an inventory");
    assert_eq!(inventory.gpus[0].uuid, Card::h100(1).uuid);
}

#[test]
fn f13_a_driver_that_does_not_exist_and_one_that_is_preloaded_are_caught() {
    let script = Script {
        version: "591.86".to_owned(),
        ..broken(|_| {})
    };
    let order = order(2, Level::Quick);
    let attestation_of_windows = Machine::new(&script).verify(&order);
    assert_eq!(
        failures(&attestation_of_windows),
        [FindingCode::InventorySoftware]
    );

    let machine = Machine::new(&broken(|_| {}));
    let mut command = agent(Some(machine.folder.path()));
    command.env("LD_PRELOAD", machine.path("libcuda.so.1"));
    let shimmed = attestation(&machine.run_as(&mut command, &order, &["--json"]));
    assert_eq!(failures(&shimmed), [FindingCode::InventorySoftware]);
}

#[test]
fn f14_a_container_that_hides_errors_is_no_healthy_one() {
    let script = broken(|card| card.tells_xids = false);
    let attestation = Machine::new(&script).verify(&order(2, Level::Quick));
    assert_eq!(
        attestation.verdict,
        Verdict::Inconclusive,
        "{attestation:#?}"
    );
    assert_eq!(
        outcome_of(&attestation, FindingCode::HealthXid),
        Outcome::NotRun
    );
    assert_eq!(
        outcome_of(&attestation, FindingCode::HealthVisible),
        Outcome::Warned
    );
}
