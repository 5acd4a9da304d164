//! Seeded machines that the fake driver simulates, before the unmodified agent.

use std::path::Path;

use fake_driver::script::{Card, Fault, Script};
use market::attestation::Attestation;
use market::fabric::Internode;
use market::verification::Level;
use verifier::pretend::SeededRng;

use crate::machine::{Machine, attestation, order, system_with_ports, write_port};

/// How many good ones and how many broken ones.
const MACHINES: u32 = 20;

/// A good machine: figures vary as those of good cards do, and cards have been in use.
fn good(dice: &mut SeededRng) -> Script {
    let mut script = Script {
        gpus: (0..1 + dice.below(2)).map(Card::h100).collect(),
        ..Script::default()
    };
    for card in &mut script.gpus {
        let mut around = |rate: f64| rate * dice.around_one(0.01);
        card.copy_mb_per_s = around(card.copy_mb_per_s);
        card.link_mb_per_s = around(card.link_mb_per_s);
        card.tensor_gflops = (around(card.tensor_gflops.0), around(card.tensor_gflops.1));
        card.host_mb_per_s = (around(card.host_mb_per_s.0), around(card.host_mb_per_s.1));
        card.temperature_c = 28 + dice.below(12);
        card.power_w = 600 + dice.below(90);
        if dice.chance(0.2) {
            card.ecc_corrected = (u64::from(dice.below(40)), u64::from(dice.below(4)));
        }
        if dice.chance(0.2) {
            card.remapped_rows = Some((1 + dice.below(8), 0));
        }
        if dice.chance(0.2) {
            card.replays = (dice.below(60), dice.below(3));
        }
    }
    script
}

/// A failure that the fake driver can simulate, and whether only a load shows it.
type Befall = (&'static str, bool, fn(&mut Script, usize, &mut SeededRng));

/// One or more for each class but F9, whose ports are no driver's: see [`PORT_BEFALLS`].
const BEFALLS: [Befall; MACHINES as usize] = [
    ("F1", false, |s, at, dice| {
        let kernel = dice.one_of(&["gemm_inputs", "memory_fill", "memory_digest", "stream_copy"]);
        s.gpus[at].fault = Fault::LostIn(kernel.to_owned());
    }),
    ("F1", false, |s, at, _| s.gpus[at].xids = vec![79]),
    ("F2", false, |s, at, dice| {
        let kernel = dice.one_of(&["memory_fill", "memory_compare", "stream_read"]);
        s.gpus[at].fault = Fault::WithdrawnIn(kernel.to_owned());
    }),
    ("F3", false, |s, _, _| s.init = 802),
    ("F4", false, |s, at, dice| {
        // One GPU alone has no links.
        s.gpus = (0..2).map(Card::h100).collect();
        let down = 1 + dice.below(18) as usize;
        s.gpus[at].links[..down].fill(false);
    }),
    ("F5", false, |s, at, dice| {
        s.gpus[at].ecc_uncorrected = (u64::from(dice.below(3)), 1 + u64::from(dice.below(9)));
    }),
    ("F5", false, |s, at, _| s.gpus[at].remap_failed = true),
    ("F5", false, |s, at, dice| {
        s.gpus[at].fault = Fault::FlipsBits(1 + dice.below(4));
    }),
    ("F6", false, |s, at, dice| {
        s.gpus[at].power_limit_w = (700.0 * dice.between(0.25, 0.62)) as u32;
    }),
    ("F6", false, |s, at, dice| {
        s.gpus[at].copy_mb_per_s *= dice.between(0.2, 0.5);
    }),
    ("F6", false, |s, at, dice| {
        let factor = dice.between(0.25, 0.45);
        let (bf16, fp8) = s.gpus[at].tensor_gflops;
        s.gpus[at].tensor_gflops = (bf16 * factor, fp8 * factor);
    }),
    ("F7", true, |s, at, _| s.gpus[at].slowed_by = Some(0x40)),
    ("F8", false, |s, at, dice| {
        let width = dice.one_of(&[1, 2, 4]);
        s.gpus[at].host_link = (5, width);
        let rate = 55_000.0 * f64::from(width) / 16.0;
        s.gpus[at].host_mb_per_s = (rate, rate);
    }),
    ("F10", false, |s, at, _| s.gpus[at].mig = Some(true)),
    ("F11", false, |s, at, dice| {
        s.gpus[at].used_mib = 4_000 + u64::from(dice.below(60_000));
    }),
    ("F12", false, |s, at, _| {
        s.gpus[at].fault = Fault::Unrepeatable
    }),
    ("F12", false, |s, at, _| {
        s.gpus[at].fault = Fault::WrongEntry
    }),
    ("F13", false, |s, at, dice| {
        s.gpus[at].real_memory_mib = Some(20_000 + u64::from(dice.below(50_000)));
    }),
    ("F13", false, |s, at, _| s.gpus[at].sm_count = 114),
    ("F14", false, |s, at, _| s.gpus[at].tells_xids = false),
];

/// A failure of a port to the other nodes, whose files no driver shows.
type PortBefall = fn(&Path, &mut SeededRng);

const PORT_BEFALLS: [PortBefall; 2] = [
    |root, _| write_port(root, 0, "state", "1: DOWN\n"),
    |root, dice| {
        let rate = dice.one_of(&["100 Gb/sec (4X EDR)\n", "200 Gb/sec (4X HDR)\n"]);
        write_port(root, 0, "rate", rate);
    },
];

/// Whether the agent passes it, with the findings that counted against it.
fn passes(script: &Script, level: Level) -> (bool, String) {
    let gpus = script.gpus.len() as u32;
    against(&Machine::new(script).verify(&order(gpus, level)))
}

/// As [`passes`], for a machine that was sold with a port for each GPU, as these files show them.
fn passes_with_ports(script: &Script, root: &Path) -> (bool, String) {
    let mut order = order(script.gpus.len() as u32, Level::Quick);
    order.expected.internode = Some(Internode::InfinibandNdr400);
    let root = root.to_str().expect("text");
    let output = Machine::new(script).run(&order, &["--root", root, "--json"]);
    against(&attestation(&output))
}

fn against(attestation: &Attestation) -> (bool, String) {
    let against = attestation.findings.iter().filter(|found| {
        use market::attestation::Outcome;
        matches!(found.outcome, Outcome::Failed | Outcome::NotRun)
    });
    let against: Vec<String> = against
        .map(|found| format!("{}: {}", found.code, found.note))
        .collect();
    (attestation.verdict.is_pass(), against.join("; "))
}

#[test]
fn of_twenty_good_machines_the_agent_rejects_none() {
    for number in 0..MACHINES {
        let mut dice = SeededRng::new(format!("good machine {number}").as_bytes());
        let (passed, against) = passes(&good(&mut dice), Level::Quick);
        assert!(passed, "seed {number}: {against}");
    }
}

#[test]
fn of_machines_with_a_bad_port_the_agent_misses_none_and_of_good_ones_it_rejects_none() {
    for (befall, number) in PORT_BEFALLS.into_iter().zip(0..) {
        let mut dice = SeededRng::new(format!("machine with ports {number}").as_bytes());
        let script = good(&mut dice);
        let system = system_with_ports(script.gpus.len() as u32);
        let (passed, against) = passes_with_ports(&script, system.path());
        assert!(passed, "seed {number}: {against}");
        befall(system.path(), &mut dice);
        let (passed, _) = passes_with_ports(&script, system.path());
        assert!(!passed, "seed {number}: F9 was missed");
    }
}

#[test]
fn of_twenty_broken_machines_the_agent_misses_none() {
    for ((class, needs_load, befall), number) in BEFALLS.into_iter().zip(0..) {
        let mut dice = SeededRng::new(format!("broken machine {number}").as_bytes());
        let mut script = good(&mut dice);
        let at = dice.below(script.gpus.len() as u32) as usize;
        befall(&mut script, at, &mut dice);
        let level = match needs_load {
            true => Level::Standard,
            false => Level::Quick,
        };
        let (passed, _) = passes(&script, level);
        assert!(!passed, "seed {number}: {class} was missed");
    }
}
