//! How each class of failure affects a good node. Kinds and degrees are those of public reports; where only
//! the kind is known, the degree is drawn widely.

use market::verification::{
    FabricState, GpuFacts, HostLink, Level, Step, Trouble, TroubleKind, Word64, XidEvent,
};
use verifier::board;
use verifier::pretend::{self, SeededRng};

use super::node::{Seeded, had, storage_ports};

pub fn one(node: &Seeded, dice: &mut SeededRng) -> usize {
    dice.below(node.kind.gpus) as usize
}

/// The agent stops at a step and reports why; the later steps never happened.
pub fn stop(node: &mut Seeded, at: Step, kind: TroubleKind, gpu: Option<u32>) {
    let evidence = &mut node.evidence;
    evidence
        .times
        .retain(|time| time.step < at || time.step == Step::Report);
    if at <= Step::Openings {
        evidence.products = None;
        evidence.memory = None;
    }
    if at <= Step::Memory {
        evidence.memory_roots.clear();
    }
    if at <= Step::Fill {
        evidence.filled = None;
    }
    if at <= Step::Roots {
        evidence.product_roots.clear();
        evidence.checksums.clear();
    }
    let report = node.report();
    report.copy_mb_per_s.clear();
    report.facts = None;
    report.troubles = vec![Trouble {
        gpu,
        step: at,
        kind,
        detail: "as the driver says".to_owned(),
    }];
}

pub fn some_step(dice: &mut SeededRng) -> Step {
    dice.one_of(&[
        Step::Roots,
        Step::Fill,
        Step::Memory,
        Step::Openings,
        Step::Report,
    ])
}

pub fn xid(node: &mut Seeded, gpu: usize, xid: u32) {
    let events = node.facts().xids.get_or_insert_with(Vec::new);
    events.push(XidEvent {
        gpu: Some(gpu as u32),
        xid,
    });
}

pub fn scale(rates: &mut [u64], factor: f64) {
    rates
        .iter_mut()
        .for_each(|rate| *rate = (*rate as f64 * factor) as u64);
}

pub fn lost(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    if dice.chance(0.4) {
        xid(node, gpu, 79);
        return format!("GPU {gpu} with XID 79 at the end");
    }
    let step = some_step(dice);
    stop(node, step, TroubleKind::GpuLost, Some(gpu as u32));
    format!("GPU {gpu} at step {step} without an XID")
}

pub fn withdrawn(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let left = dice.below(node.kind.gpus);
    match dice.below(3) {
        0 => {
            let step = some_step(dice);
            stop(node, step, TroubleKind::GpuWithdrawn, None);
            format!("at step {step}")
        }
        1 => {
            let recount = node.facts().recount.as_mut().expect("counted");
            (recount.nvml, recount.cuda) = (Some(left), Some(left));
            format!("{left} left at the end")
        }
        _ => {
            let recount = node.facts().recount.as_mut().expect("counted");
            recount.device_nodes = (left > 0).then_some(left);
            format!("{left} device nodes left at the end")
        }
    }
}

pub fn fabric(node: &mut Seeded, dice: &mut SeededRng) -> String {
    if dice.chance(0.5) {
        stop(node, Step::Roots, TroubleKind::FabricNotReady, None);
        return "CUDA error 802".to_owned();
    }
    let state = dice.one_of(&[
        FabricState::NotStarted,
        FabricState::InProgress,
        FabricState::Failed,
    ]);
    let only = dice.chance(0.5).then(|| one(node, dice));
    for (index, gpu) in node.facts().gpus.iter_mut().enumerate() {
        if only.is_none_or(|only| only == index) {
            gpu.fabric = Some(state);
        }
    }
    format!(
        "{state:?} on {}",
        only.map_or("all".to_owned(), |gpu| gpu.to_string())
    )
}

pub fn links(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let links = node.kind.gpu.spec().nvlink_links.unwrap_or(1);
    // Drivers usually show missing links; those of a shimmed or confused driver show in the rates.
    let told = dice.chance(0.8);
    let gone = match told {
        true => 1 + dice.below(links),
        false => links / 4 + 1 + dice.below(links / 2),
    };
    let factor = f64::from(links - gone) / f64::from(links);
    let everywhere = dice.chance(0.3);
    for index in 0..node.kind.gpus as usize {
        if told && (everywhere || index == gpu) {
            node.gpu(index).nvlinks_active = Some(links - gone);
        }
    }
    let slow = factor.max(0.05);
    let (spec, gpus) = (node.kind.gpu.spec(), node.kind.gpus);
    if !told && !board::is_switched(spec, gpus) {
        // Without a switch between the two, one direction only: the other may be good.
        let to = (gpu as u32 + 1) % gpus;
        for pair in node.facts().pairs.iter_mut().flatten() {
            if (pair.from, pair.to) == (gpu as u32, to) {
                pair.mb_per_s = (pair.mb_per_s as f64 * slow) as u64;
            }
        }
        if slow > 0.48 || !board::pairs_are_alike(spec, gpus) {
            node.unseen = Some(
                "two GPUs without a switch that exchange less, but not much less than others do, untold by their driver",
            );
        }
        return format!("GPU {gpu} to GPU {to} at {slow:.2}, not told");
    }
    for pair in node.facts().pairs.iter_mut().flatten() {
        let touched = [pair.from, pair.to].contains(&(gpu as u32));
        if everywhere || touched {
            pair.mb_per_s = (pair.mb_per_s as f64 * slow) as u64;
        }
    }
    for run in &mut node.facts().collectives {
        run.bus_mb_per_s = (run.bus_mb_per_s as f64 * slow) as u64;
    }
    let whose = if everywhere {
        "every GPU".to_owned()
    } else {
        format!("GPU {gpu}")
    };
    format!(
        "{gone} of {links} links of {whose}, {}",
        if told { "told" } else { "not told" }
    )
}

pub fn memory(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let kind = dice.below(7);
    let facts = node.gpu(gpu);
    match kind {
        0 => {
            facts.health_before.remap_pending = Some(true);
            facts.health_after.remap_pending = Some(true);
            "a row pending".to_owned()
        }
        1 => {
            facts.health_after.remap_failed = Some(true);
            "a row that could not be replaced".to_owned()
        }
        2 => {
            let errors = Some(1 + u64::from(dice.below(50)));
            facts.health_before.ecc_uncorrected = errors;
            facts.health_after.ecc_uncorrected = errors;
            "uncorrected errors from the start".to_owned()
        }
        3 => {
            facts.health_after.ecc_uncorrected = Some(1 + u64::from(dice.below(5)));
            "uncorrected errors under the check".to_owned()
        }
        4 => {
            facts.health_after.retirement_pending = Some(true);
            "a page pending".to_owned()
        }
        5 => {
            let number = dice.one_of(&[48, 64, 94, 95]);
            xid(node, gpu, number);
            format!("XID {number}")
        }
        _ => {
            let words = 1 + u64::from(dice.below(4_000));
            let memory = node.evidence.memory.as_mut().expect("memory");
            memory[gpu].bad_words = words;
            format!("{words} bad words")
        }
    }
}

/// All rates of a GPU that depend on its clocks, as far as an agent measures them.
pub fn slow_down(gpu: &mut GpuFacts, factor: f64) {
    scale(&mut gpu.rates.gemm_16bit_gflops, factor);
    scale(&mut gpu.rates.gemm_fp8_gflops, factor);
    if let Some(burn) = &mut gpu.burn {
        burn.first_third_gflops = (burn.first_third_gflops as f64 * factor) as u64;
        burn.last_third_gflops = (burn.last_third_gflops as f64 * factor) as u64;
    }
}

/// The whole node slower by a factor, which no counter and no sibling shows.
pub fn slow_down_all(node: &mut Seeded, factor: f64) {
    for rates in &mut node.report().copy_mb_per_s {
        scale(rates, factor);
    }
    for gpu in &mut node.facts().gpus {
        slow_down(gpu, factor);
        scale(&mut gpu.rates.read_mb_per_s, factor);
        scale(&mut gpu.rates.triad_mb_per_s, factor);
    }
}

pub fn slow(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let tdp = node.kind.gpu.spec().tdp_w.unwrap_or(300);
    match dice.below(3) {
        // A cap that the driver reports: 150 of 300 W and 240 of 400 W were seen.
        0 => {
            let share = dice.between(0.25, 0.62);
            let everywhere = dice.chance(0.5);
            for (index, facts) in node.facts().gpus.iter_mut().enumerate() {
                if everywhere || index == gpu {
                    facts.power_limit_w = Some((f64::from(tdp) * share) as u32);
                    slow_down(facts, share.sqrt());
                }
            }
            format!("held at {share:.2} of its power")
        }
        // One GPU behind its siblings; one alone has none and must be far below its kind.
        1 => {
            let alone = node.kind.gpus == 1;
            let factor = dice.between(0.25, if alone { 0.5 } else { 0.9 });
            slow_down(node.gpu(gpu), factor);
            if alone && node.gpu(gpu).rates.gemm_16bit_gflops.is_empty() {
                node.unseen = Some("one GPU alone whose products no agent rates");
            }
            format!("one of {} at {factor:.2} of its rate", node.kind.gpus)
        }
        // Memory in a slow state.
        _ => {
            let factor = dice.between(0.2, 0.55);
            scale(&mut node.report().copy_mb_per_s[gpu], factor);
            let rates = &mut node.gpu(gpu).rates;
            scale(&mut rates.read_mb_per_s, factor);
            scale(&mut rates.triad_mb_per_s, factor);
            format!("memory at {factor:.2} of its rate")
        }
    }
}

pub fn hot(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let share = 60 + dice.below(900);
    let kept = 1.0 - f64::from(share) / 1_000.0 * 0.5;
    let which = dice.below(3);
    let burn = node.gpu(gpu).burn.as_mut().expect("a load");
    let what = match which {
        0 => {
            burn.thermal_permille = Some(share);
            burn.highest_temperature_c = Some(87);
            "heat"
        }
        1 => {
            burn.power_brake_permille = Some(share);
            "the power supply"
        }
        _ => {
            burn.hw_slowdown_permille = Some(share);
            "the hardware"
        }
    };
    burn.last_third_gflops = (burn.last_third_gflops as f64 * kept) as u64;
    format!("{what} in {share} of 1000 samples")
}

pub fn host_link(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let facts = node.gpu(gpu);
    let good = facts.host_link.expect("a link");
    if dice.chance(0.3) {
        // One direction only: 11 where the other has 25, and 6 of 26, were seen.
        let factor = dice.between(0.1, 0.45);
        let rates = &mut facts.rates;
        let (rates, what) = match dice.chance(0.5) {
            true => (&mut rates.from_host_mb_per_s, "from"),
            false => (&mut rates.to_host_mb_per_s, "to"),
        };
        scale(rates, factor);
        return format!("{what} the host at {factor:.2}");
    }
    // A riser: a quarter of the lanes or less, or a generation two below.
    let (link, factor) = match dice.chance(0.6) {
        true => {
            let part = dice.one_of(&[4, 8, 16]);
            let width = (good.width / part).max(1);
            (
                HostLink { width, ..good },
                f64::from(width) / f64::from(good.width),
            )
        }
        false => {
            let generation = good.generation.saturating_sub(2).max(1);
            (HostLink { generation, ..good }, 0.25)
        }
    };
    facts.host_link = Some(link);
    let rates = &mut facts.rates;
    scale(&mut rates.from_host_mb_per_s, factor);
    scale(&mut rates.to_host_mb_per_s, factor);
    scale(&mut rates.from_host_together_mb_per_s, factor);
    format!("generation {} with {} lanes", link.generation, link.width)
}

pub fn port(node: &mut Seeded, dice: &mut SeededRng) -> String {
    // Hidden ports are another class.
    let mut fresh = pretend::surroundings(&node.kind, dice).host.ports;
    // Two more for storage, which must not stand in for any.
    if let Some(ports) = &mut fresh {
        ports.extend(storage_ports(&ports[0]));
    }
    let index = one(node, dice);
    node.facts().host.ports = fresh;
    let port = &mut node.facts().host.ports.as_mut().expect("ports")[index];
    match dice.below(4) {
        0 => {
            port.active = false;
            format!("port {index} down")
        }
        1 => {
            port.rate_gbps = Some(dice.one_of(&[100, 200]));
            format!("port {index} at a lower rate")
        }
        2 => {
            port.downs_grown = Some(1 + u64::from(dice.below(5)));
            format!("port {index} flapping")
        }
        _ => {
            // Its state and its rate are those of a good one: only traffic through it shows the fault.
            let factor = dice.between(0.1, 0.6);
            node.unseen = Some(match &mut node.together {
                Some(together) => {
                    together.slow_down(index, factor);
                    "a port that is up at its rate and carries less, but not much less than TCP does"
                }
                None => {
                    "a port that is up at its rate and carries less, of a node that is leased alone"
                }
            });
            format!("port {index} at {factor:.2} of its rate")
        }
    }
}

pub fn sliced(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let mixed = dice.chance(0.5);
    let first = one(node, dice);
    for index in 0..node.kind.gpus as usize {
        if !mixed || index == first {
            node.gpu(index).mig_enabled = Some(true);
            let sms = node.claims()[index].sm_count;
            node.claims()[index].sm_count = sms.map(|sms| sms / 7);
        }
    }
    if mixed {
        "one GPU".to_owned()
    } else {
        "every GPU".to_owned()
    }
}

pub fn residue(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    let memory = node.claims()[gpu].memory_mib;
    let used = (f64::from(memory) * dice.between(0.05, 0.9)) as u32;
    // In a container the processes of others are hidden, but their memory is not.
    let processes = dice.chance(0.5).then(|| 1 + dice.below(4));
    let facts = node.gpu(gpu);
    facts.used_memory_mib = Some(used);
    facts.foreign_processes = processes;
    let order = node.order_at(Level::Standard);
    let filled = &mut node.evidence.filled.as_mut().expect("filled")[gpu];
    *filled = had(&order, filled.allocatable_mib.saturating_sub(used));
    format!("{used} MiB in use")
}

pub fn corruption(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let gpu = one(node, dice);
    match dice.below(4) {
        0 => {
            let sums = &mut node.evidence.checksums[gpu];
            let at = dice.below(sums.len() as u32) as usize;
            sums[at] = Word64(9);
            format!("product {at} differs from the others")
        }
        1 => {
            let products = node.evidence.products.as_mut().expect("products");
            products[gpu] = Some("C r is wrong".to_owned());
            "the same wrong product each time".to_owned()
        }
        2 => {
            node.gpu(gpu).dwell_bad_words = Some(1 + u64::from(dice.below(20)));
            "memory changes under load".to_owned()
        }
        _ => {
            let memory = node.evidence.memory.as_mut().expect("memory");
            memory[gpu].problem = Some("block 7 does not hold the pattern".to_owned());
            let products = node.evidence.products.as_mut().expect("products");
            products[gpu] = Some("row 3 is wrong".to_owned());
            "products and memory".to_owned()
        }
    }
}

pub fn blind(node: &mut Seeded, dice: &mut SeededRng) -> String {
    let counters = dice.chance(0.6);
    let events = !counters || dice.chance(0.5);
    let facts = node.facts();
    facts.xid_history_visible = Some(false);
    if events {
        facts.xids = None;
    }
    if counters {
        for gpu in &mut facts.gpus {
            gpu.health_before = Default::default();
            gpu.health_after = Default::default();
        }
    }
    format!("counters hidden: {counters}, errors hidden: {events}")
}
