//! Good nodes of many kinds, with the usual peculiarities of good nodes in the field.

use market::fabric::Internode;
use market::gpu::{Gpu, product_names};
use market::verification::{
    Digest, Filled, GpuClaim, GpuFacts, HostLink, Inventory, Level, NodeFacts, PortFacts, Step,
    VerificationOrder, Word64, XidEvent,
};
use verifier::evidence::{Evidence, MemoryEvidence, ReportEvidence, StepTime};
use verifier::floors::lane_mb_per_s;
use verifier::memory::work_where;
use verifier::order::{Mode, expected_node, order_for};
use verifier::pretend::{self, Kind, SeededRng};

use super::classes::Class;
use super::together::Together;

/// The leased nodes: GPUs in the numbers in which they are sold, more often the common ones.
const SOLD: &[(&str, &[u32])] = &[
    ("H100-SXM", &[8, 8, 8, 8, 4, 2, 1]),
    ("H100-SXM", &[8, 8, 8, 1]),
    ("H200-SXM", &[8, 8, 8, 1]),
    ("B200-SXM", &[8, 8, 1]),
    ("B300-SXM", &[8]),
    ("GB200", &[4]),
    ("GH200-96", &[1]),
    ("A100-SXM-80", &[8, 8, 4, 1]),
    ("A100-SXM-40", &[8, 1]),
    ("A100-PCIe-80", &[1, 2, 4, 8]),
    ("H100-PCIe", &[1, 2, 8]),
    ("H100-NVL", &[1, 2]),
    ("L40S", &[1, 2, 4, 8]),
    ("L40", &[1, 4]),
    ("L4", &[1, 4, 8]),
    ("A10", &[1, 4]),
    ("A10G", &[1, 4, 8]),
    ("A40", &[1, 8]),
    ("T4", &[1, 4]),
    ("RTX-A6000", &[1, 2, 4, 8]),
    ("RTX-6000-Ada", &[1, 4]),
    ("RTX-PRO-6000-SE", &[1, 8]),
    ("RTX-4090", &[1, 2, 4, 8]),
    ("RTX-5090", &[1, 2, 4, 8]),
    ("RTX-3090", &[1, 4]),
    ("V100-SXM2-32", &[4, 8]),
];

/// One node before the rules.
pub struct Seeded {
    /// Its kind, or the kind as which it is sold.
    pub kind: Kind,
    /// Its evidence.
    pub evidence: Evidence,
    /// The gang that it is leased with.
    pub together: Option<Together>,
    /// Its fault, in words.
    pub what: String,
    /// Why no measurement of an agent shows it, where none does.
    pub unseen: Option<&'static str>,
}

impl Seeded {
    /// A good node.
    pub fn good(number: u32) -> Self {
        let mut dice = SeededRng::new(format!("good node {number}").as_bytes());
        let kind = sold(&mut dice, |_| true);
        let mut node = Self::of(kind, &mut dice);
        node.age(&mut dice);
        node.set_up(&mut SeededRng::new(
            format!("set-up of good node {number}").as_bytes(),
        ));
        node.together = Together::of(&node.kind, &format!("good node {number}"));
        node
    }

    /// A node with a failure of a class.
    pub fn broken(number: u32, class: &Class) -> Self {
        let mut dice = SeededRng::new(format!("broken node {number}").as_bytes());
        let kind = sold(&mut dice, class.befalls);
        let mut node = Self::of(kind, &mut dice);
        node.age(&mut dice);
        node.set_up(&mut SeededRng::new(
            format!("set-up of broken node {number}").as_bytes(),
        ));
        node.together = Together::of(&node.kind, &format!("broken node {number}"));
        node.what = (class.befall)(&mut node, &mut dice);
        node
    }

    /// Its order.
    pub fn order_at(&self, level: Level) -> VerificationOrder {
        order_of(&self.kind, level)
    }

    /// A node of the model.
    pub fn of(kind: Kind, dice: &mut SeededRng) -> Self {
        let order = order_of(&kind, Level::Standard);
        let spec = kind.gpu.spec();
        let facts = pretend::node(&kind, dice);
        let count = kind.gpus as usize;
        let inventory = Inventory {
            driver: dice
                .one_of(&["535.183.01", "550.127.05", "570.86.15", "580.65.06"])
                .to_owned(),
            vcpus: kind.vcpus,
            memory_gib: kind.memory_gib,
            internode: kind.internode,
            gpus: (0..kind.gpus).map(|gpu| claim(&kind, gpu)).collect(),
            nics: Vec::new(),
            ssh_host_keys: Vec::new(),
        };
        let memory = MemoryEvidence {
            bad_words: 0,
            lowest_bad_offset: None,
            root: Digest([0; 32]),
            problem: None,
            unopened: false,
        };
        let copies = pretend::usual(kind.gpu, verifier::floors::Metric::HbmCopy);
        let copies = copies.unwrap_or(spec.memory_bandwidth_gbps * 900.0);
        let mut copy = || (copies * dice.around_one(0.01)) as u64;
        let copy_mb_per_s = (0..count)
            .map(|_| (0..5).map(|_| copy()).collect())
            .collect();
        let filled = had(
            &order,
            order.expected.memory_mib - reserved_mib(&kind, dice),
        );
        let evidence = Evidence {
            inventory: Some(inventory),
            product_roots: vec![Digest([0; 32]); count],
            checksums: vec![vec![Word64(5); order.gemm.iterations as usize]; count],
            products: Some(vec![None; count]),
            filled: Some(vec![filled; count]),
            memory_roots: vec![Digest([0; 32]); count],
            memory: Some(vec![memory; count]),
            report: Some(ReportEvidence {
                digest: Digest([0; 32]),
                signature_problem: None,
                content_problem: None,
                simulated: false,
                copy_mb_per_s,
                facts: Some(Box::new(facts)),
                troubles: Vec::new(),
            }),
            siblings: Vec::new(),
            pinned: None,
            history: None,
            apart: None,
            known_at: None,
            reported_at: None,
            times: Step::ALL[1..]
                .iter()
                .map(|step| StepTime {
                    step: *step,
                    elapsed_ms: match step {
                        Step::Memory => 900,
                        _ => 4_000 + u64::from(dice.below(12_000)),
                    },
                    deadline_ms: 60_000,
                })
                .collect(),
        };
        Self {
            kind,
            evidence,
            together: None,
            what: String::new(),
            unseen: None,
        }
    }

    /// The properties of nodes that have been in use, in containers and in machines of many makers, without
    /// being broken.
    fn age(&mut self, dice: &mut SeededRng) {
        let spec = self.kind.gpu.spec();
        if dice.chance(0.3) {
            // A container: the kernel's lists and its log are hidden.
            let facts = self.facts();
            facts.host.counts.kernel = None;
            facts.host.pci_ids = None;
            facts.host.ports = None;
            facts.xid_history_visible = Some(false);
            facts.recount.as_mut().expect("counted").kernel = None;
        }
        if dice.chance(0.02) {
            self.facts().xids = Some(vec![XidEvent {
                gpu: Some(0),
                xid: 13,
            }]);
        }
        for index in 0..self.kind.gpus as usize {
            let corrects = self.gpu(index).ecc_enabled == Some(true);
            if corrects && dice.chance(0.05) {
                let rows = 1 + dice.below(8);
                let (before, after) = self.health(index);
                (before.remapped_rows, after.remapped_rows) = (Some(rows), Some(rows));
                let lifetime = Some(u64::from(rows));
                (
                    before.ecc_uncorrected_lifetime,
                    after.ecc_uncorrected_lifetime,
                ) = (lifetime, lifetime);
            }
            if corrects && dice.chance(0.05) {
                let seen = u64::from(dice.below(40));
                let (before, after) = self.health(index);
                before.ecc_corrected = Some(seen);
                after.ecc_corrected = Some(seen + u64::from(dice.below(4)));
            }
            if dice.chance(0.05) {
                let seen = u64::from(dice.below(60));
                let (before, after) = self.health(index);
                before.pcie_replays = Some(seen);
                after.pcie_replays = Some(seen + u64::from(dice.below(3)));
            }
            if dice.chance(0.1) {
                self.gpu(index).used_memory_mib = Some(dice.below(500));
            }
        }
        // Set-ups that are slower than published and are sold as such.
        let all = |node: &mut Self, change: &dyn Fn(&mut GpuFacts)| {
            node.facts().gpus.iter_mut().for_each(change);
        };
        if spec.canonical == "B300-SXM" {
            all(self, &|gpu| in_older_slot(gpu, 5));
        }
        if spec.canonical == "V100-SXM2-32" && self.kind.gpus == 8 {
            // Quads, each GPU with one partner in the other one: two links, one, or the path through the
            // host.
            for pair in self.facts().pairs.iter_mut().flatten() {
                pair.mb_per_s = match pair.from ^ pair.to {
                    4 => 48_000,
                    1..4 => 24_000,
                    _ => 9_000,
                };
            }
        }
        if spec.canonical == "T4" && dice.chance(0.5) {
            all(self, &|gpu| {
                gpu.host_link = Some(HostLink {
                    generation: 3,
                    width: 8,
                });
                let rates = &mut gpu.rates;
                for rates in [&mut rates.from_host_mb_per_s, &mut rates.to_host_mb_per_s] {
                    rates.iter_mut().for_each(|rate| *rate = *rate * 52 / 100);
                }
                rates.from_host_together_mb_per_s = rates.from_host_mb_per_s.clone();
            });
        }
        if spec.canonical == "B200-SXM" && dice.chance(0.2) {
            // The maker ships some boards with a lower default.
            all(self, &|gpu| gpu.power_limit_w = Some(700));
        }
        if spec.canonical == "A100-SXM-80" && dice.chance(0.1) {
            all(self, &|gpu| gpu.power_limit_w = Some(500));
        }
    }

    /// The differences by which owners build and set up good machines.
    fn set_up(&mut self, dice: &mut SeededRng) {
        if let Some(ports) = &mut self.facts().host.ports {
            built_otherwise(ports, dice);
        }
        if self.kind.gpu.spec().ecc_default.as_deref() == Some("off") && dice.chance(0.1) {
            // Their owner has ECC on, which takes a sixteenth of the memory.
            for gpu in &mut self.facts().gpus {
                gpu.ecc_enabled = Some(true);
            }
            let order = self.order_at(Level::Standard);
            let taken = order.expected.memory_mib / 16;
            for claim in self.claims() {
                claim.memory_mib -= taken;
            }
            for filled in self.evidence.filled.iter_mut().flatten() {
                *filled = had(&order, filled.allocatable_mib - taken);
            }
        }
        if self.kind.gpu.name() == "RTX-5090" && dice.chance(0.3) {
            let gpus = &mut self.facts().gpus;
            gpus.iter_mut().for_each(|gpu| in_older_slot(gpu, 4));
        }
    }

    pub fn facts(&mut self) -> &mut NodeFacts {
        let report = self.evidence.report.as_mut().expect("a report");
        report.facts.as_mut().expect("facts")
    }

    pub fn report(&mut self) -> &mut ReportEvidence {
        self.evidence.report.as_mut().expect("a report")
    }

    pub fn gpu(&mut self, index: usize) -> &mut GpuFacts {
        &mut self.facts().gpus[index]
    }

    pub fn claims(&mut self) -> &mut Vec<GpuClaim> {
        &mut self.evidence.inventory.as_mut().expect("an inventory").gpus
    }

    fn health(
        &mut self,
        index: usize,
    ) -> (
        &mut market::verification::HealthCounters,
        &mut market::verification::HealthCounters,
    ) {
        let gpu = self.gpu(index);
        (&mut gpu.health_before, &mut gpu.health_after)
    }
}

/// Ports of machines that do not have exactly one for each GPU: two more for storage, half as many of twice
/// the rate, twice as many of half of it.
fn built_otherwise(ports: &mut Vec<PortFacts>, dice: &mut SeededRng) {
    let gbps = ports[0].rate_gbps.unwrap_or(0);
    let gbps = match dice.below(8) {
        0 | 1 => return ports.extend(storage_ports(&ports[0])),
        2 if ports.len() > 1 => {
            ports.truncate(ports.len() / 2);
            gbps * 2
        }
        3 => {
            ports.extend_from_within(..);
            gbps / 2
        }
        _ => return,
    };
    for port in ports {
        port.rate_gbps = Some(gbps);
    }
}

/// Puts it in a slot one generation older than its own, with that slot's rate.
fn in_older_slot(gpu: &mut GpuFacts, generation: u32) {
    let lane = |generation| lane_mb_per_s(generation).expect("known");
    let share = lane(generation) / lane(generation + 1);
    gpu.host_link = Some(HostLink {
        generation,
        width: 16,
    });
    let rates = &mut gpu.rates;
    for rates in [
        &mut rates.from_host_mb_per_s,
        &mut rates.to_host_mb_per_s,
        &mut rates.from_host_together_mb_per_s,
    ] {
        let slower = |rate: &mut u64| *rate = (*rate as f64 * share) as u64;
        rates.iter_mut().for_each(slower);
    }
}

/// Two ports to storage, at half the rate of one for a GPU.
pub fn storage_ports(like: &PortFacts) -> [PortFacts; 2] {
    [90, 91].map(|number| PortFacts {
        name: format!("mlx5_{number}/1"),
        rate_gbps: like.rate_gbps.map(|gbps| gbps / 2),
        ..like.clone()
    })
}

/// The part of a GPU's memory that nobody can allocate: the driver reserves 320 to 560 MiB of the memory it
/// reports, the agent's context takes 1 to 3 for each multiprocessor and a fixed part. Units: MiB.
fn reserved_mib(kind: &Kind, dice: &mut SeededRng) -> u32 {
    let multiprocessors = f64::from(kind.gpu.spec().sm_count.unwrap_or(100));
    let share = dice.share();
    let context = 60.0 + multiprocessors * (1.0 + 2.0 * share);
    (320.0 + 240.0 * share + context) as u32
}

/// The fill where this much can be allocated.
pub fn had(order: &VerificationOrder, allocatable_mib: u32) -> Filled {
    Filled {
        allocatable_mib,
        filled_bytes: work_where(&order.memory, allocatable_mib).pattern_bytes,
    }
}

fn claim(kind: &Kind, index: u32) -> GpuClaim {
    let expected = expected_node(kind.gpu, kind.gpus);
    GpuClaim {
        name: product_names(kind.gpu).swap_remove(0),
        uuid: format!("GPU-{index:04}"),
        memory_mib: expected.memory_mib,
        sm_count: kind.gpu.spec().sm_count,
    }
}

fn order_of(kind: &Kind, level: Level) -> VerificationOrder {
    let mut expected = expected_node(kind.gpu, kind.gpus);
    expected.vcpus = Some(kind.vcpus);
    expected.memory_gib = Some(kind.memory_gib);
    expected.internode = Some(kind.internode);
    order_for(expected, 0, level, Mode::Real)
}

/// A kind that is sold and that a failure can affect.
fn sold(dice: &mut SeededRng, befalls: fn(&Kind) -> bool) -> Kind {
    loop {
        let (gpu, counts) = dice.one_of(SOLD);
        let gpus = dice.one_of(counts);
        let gpu = Gpu::parse(gpu).expect("known");
        let internode = match gpus == 8 && gpu.spec().node_form.contains("HGX") && dice.chance(0.8)
        {
            true => dice.one_of(&[Internode::InfinibandNdr400, Internode::Roce400]),
            false => Internode::None,
        };
        let kind = Kind {
            gpu,
            gpus,
            vcpus: gpus * dice.one_of(&[12, 16, 24, 26]),
            memory_gib: gpus * dice.one_of(&[64, 117, 225]),
            internode,
        };
        if befalls(&kind) {
            return kind;
        }
    }
}
