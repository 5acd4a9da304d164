//! How sellers pass nodes off as others.

use market::verification::Level;
use verifier::pretend::{Kind, SeededRng};

use super::broken::*;
use super::classes::lookalike;
use super::node::{Seeded, had};

pub fn fraud(node: &mut Seeded, dice: &mut SeededRng) -> String {
    match dice.below(8) {
        0 | 1 => impostor(node, dice),
        2 => fewer(node, dice),
        3 => {
            node.evidence
                .inventory
                .as_mut()
                .expect("an inventory")
                .driver = "591.86".to_owned();
            "a driver that exists for Windows only".to_owned()
        }
        4 => {
            node.facts().host.preloaded = vec!["/usr/lib/libshim.so".to_owned()];
            "a shim under every program".to_owned()
        }
        5 => {
            node.report().content_problem = Some("the nonce differs".to_owned());
            "a report of another conversation".to_owned()
        }
        6 => {
            let share = dice.between(0.1, 0.45);
            let vcpus = (f64::from(node.kind.vcpus) * share) as u32;
            node.facts().host.vcpus = Some(vcpus);
            node.evidence
                .inventory
                .as_mut()
                .expect("an inventory")
                .vcpus = vcpus;
            format!("{share:.2} of the cores")
        }
        _ => {
            let share = dice.between(0.25, 0.9);
            let memory = node.evidence.memory.as_mut().expect("memory");
            memory[0].problem = Some("block 12 does not hold the pattern".to_owned());
            format!("{share:.2} of the memory behind a full name")
        }
    }
}

/// Other GPUs than sold: reported by an honest driver, or hidden by a shim over NVML that can lie about some
/// facts but not about those that chip, bus and clock show.
fn impostor(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let other = lookalike(&node.kind).expect("a lookalike");
    let real = Seeded::of(
        Kind {
            gpu: other,
            ..node.kind
        },
        dice,
    );
    let sold = node.claims().clone();
    let shown: Vec<_> = node.facts().gpus.clone();
    let shimmed = dice.chance(0.5);
    let order = node.order_at(Level::Standard);
    node.evidence = real.evidence;
    for filled in node.evidence.filled.iter_mut().flatten() {
        *filled = had(&order, filled.allocatable_mib);
    }
    if shimmed {
        for (index, (sold, shown)) in sold.into_iter().zip(shown).enumerate() {
            let claim = &mut node.claims()[index];
            let sm_count = claim.sm_count;
            *claim = sold;
            claim.sm_count = sm_count;
            let gpu = node.gpu(index);
            gpu.pci_id = shown.pci_id;
            gpu.power_limit_w = shown.power_limit_w;
            gpu.nvlinks_active = shown.nvlinks_active;
            gpu.fabric = shown.fabric;
            gpu.ecc_enabled = shown.ecc_enabled;
            gpu.mig_enabled = shown.mig_enabled;
            gpu.health_before = shown.health_before;
            gpu.health_after = shown.health_after;
            gpu.host_link = shown.host_link;
        }
        node.facts().host.pci_ids = None;
    }
    format!(
        "{other} as {}, {}",
        node.kind.gpu,
        if shimmed { "shimmed" } else { "told" }
    )
}

/// Fewer GPUs than sold: reported, or each shown several times, which share its rates.
fn fewer(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let sold = node.kind.gpus;
    let real = dice.below(sold.max(2)).max(1).min(sold);
    if real == sold {
        // One sold, none present.
        node.claims().clear();
        return "no GPU at all".to_owned();
    }
    if dice.chance(0.5) {
        node.claims().truncate(real as usize);
        node.facts().gpus.truncate(real as usize);
        let counts = &mut node.facts().host.counts;
        (counts.nvml, counts.cuda, counts.device_nodes) = (Some(real), Some(real), Some(real));
        return format!("{real} of {sold}, told");
    }
    // Those that share a real one share its rate, for all work at once.
    for shown in 0..sold {
        let sharers = (0..sold)
            .filter(|other| other % real == shown % real)
            .count();
        let share = 1.0 / sharers as f64;
        scale(&mut node.report().copy_mb_per_s[shown as usize], share);
        let gpu = node.gpu(shown as usize);
        slow_down(gpu, share);
        let rates = &mut gpu.rates;
        scale(&mut rates.read_mb_per_s, share);
        scale(&mut rates.triad_mb_per_s, share);
    }
    format!("{real} of {sold}, shown several times")
}
