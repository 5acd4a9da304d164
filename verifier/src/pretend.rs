//! The results of a good node of a kind: the model behind simulated nodes.
//!
//! Figures are measurements of others where there are any (`data/floors.csv`), otherwise a usual share of the
//! published rate. They vary as published runs of good cards do. A reference device reports them marked as
//! simulated; tests break them on purpose, class by class.

use market::fabric::Internode;
use market::gpu::{Gpu, GpuVendor};
use market::verification::{
    BurnFacts, CollectiveAlgorithm, CollectiveOperation, CollectiveRate, DriverFacts, FabricState,
    GpuCounts, GpuFacts, GpuRates, HealthCounters, HostFacts, HostLink, NodeFacts, PairRate,
    PortFacts,
};

use crate::board;
use crate::floors::{Floors, Metric};
use crate::tensor::Format;

/// How much runs of one good card differ, as a share. Published runs of one kind lie within 4 %.
const SCATTER: f64 = 0.01;

/// Random numbers that depend on a seed only, on every machine and in every version.
#[derive(Debug)]
pub struct SeededRng(blake3::OutputReader);

impl SeededRng {
    /// A generator for a seed.
    #[must_use]
    pub fn new(seed: &[u8]) -> Self {
        Self(
            blake3::Hasher::new_derive_key("verification 1: pretended nodes")
                .update(seed)
                .finalize_xof(),
        )
    }

    /// A share in 0..1.
    pub fn share(&mut self) -> f64 {
        let mut bytes = [0; 4];
        self.0.fill(&mut bytes);
        f64::from(u32::from_le_bytes(bytes)) / 4_294_967_296.0
    }

    /// Between two bounds.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.share()
    }

    /// A whole number below a bound that is not zero.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.share() * f64::from(bound)) as u32
    }

    /// Whether something of this likelihood happens.
    pub fn chance(&mut self, likelihood: f64) -> bool {
        self.share() < likelihood
    }

    /// One of several.
    pub fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }

    /// A factor around 1, normal with this deviation: the sum of twelve shares is near enough.
    pub fn around_one(&mut self, deviation: f64) -> f64 {
        let sum: f64 = (0..12).map(|_| self.share()).sum();
        1.0 + (sum - 6.0) * deviation
    }
}

/// A node's properties, as far as its results depend on them.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Its GPUs.
    pub gpu: Gpu,
    /// How many.
    pub gpus: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Host memory, GiB.
    pub memory_gib: u32,
    /// The network to its sibling nodes.
    pub internode: Internode,
}

/// A good GPU's usual result for a metric; none where the metric does not apply to it.
#[must_use]
pub fn usual(gpu: Gpu, metric: Metric) -> Option<f64> {
    let published = metric.published(gpu.spec())? as f64;
    let known = Floors::current()
        .of(gpu, metric, None)
        .and_then(|floor| floor.expected);
    let share = match metric {
        Metric::HbmCopy | Metric::HbmTriad => 0.90,
        Metric::HbmRead => 0.94,
        Metric::HostLink => 0.82,
        Metric::GpuLink => 0.86,
        Metric::AllreduceNcclDefault => 0.80,
        Metric::AllreduceNcclRing | Metric::AllreduceOwnRing => 0.75,
        // Small cards reach their power limit long before their published rate.
        Metric::Gemm16Bit | Metric::GemmFp8 if gpu.spec().tdp_w.is_some_and(|tdp| tdp < 100) => {
            0.58
        }
        Metric::Gemm16Bit => 0.80,
        Metric::GemmFp8 => 0.68,
        // Nothing is published about these.
        Metric::MemoryProof | Metric::ExactChain => return None,
    };
    Some(known.map_or(published * share, |known| known as f64))
}

/// The surroundings of a good node, without its GPUs.
#[must_use]
pub fn surroundings(kind: &Kind, dice: &mut SeededRng) -> NodeFacts {
    let spec = kind.gpu.spec();
    let counts = GpuCounts {
        kernel: Some(kind.gpus),
        nvml: Some(kind.gpus),
        cuda: Some(kind.gpus),
        device_nodes: Some(kind.gpus),
    };
    let pci_ids = spec
        .pci_device_ids
        .first()
        .map(|id| vec![id.clone(); kind.gpus as usize]);
    let switched = board::is_switched(spec, kind.gpus);
    NodeFacts {
        kernels: None,
        host: HostFacts {
            counts,
            pci_ids,
            vcpus: Some(kind.vcpus),
            memory_gib: Some(kind.memory_gib),
            preloaded: Vec::new(),
            hypervisor: Some(false),
            machine: None,
            clock_ms: None,
            ports: ports(kind),
        },
        driver: DriverFacts {
            kernel_version: None,
            cuda_version: Some(12_080),
            libraries: Vec::new(),
            waited_s: None,
        },
        gpus: Vec::new(),
        xids: None,
        xids_unheard: Vec::new(),
        xid_history_visible: Some(true),
        xid_history: Vec::new(),
        xids_logged: Vec::new(),
        recount: Some(counts),
        pairs: (kind.gpus > 1).then(|| pairs(kind, switched, dice)),
        collectives: collectives(kind, dice),
        // A model runs no processes, and it has no storage.
        diagnostic: None,
        storage: None,
    }
}

fn ports(kind: &Kind) -> Option<Vec<PortFacts>> {
    let rate_gbps = kind.internode.gbps_per_gpu()?;
    let port = |number| PortFacts {
        name: format!("mlx5_{number}/1"),
        active: true,
        rate_gbps: Some(rate_gbps),
        downs: Some(1),
        downs_grown: Some(0),
    };
    Some((0..kind.gpus).map(port).collect())
}

fn pairs(kind: &Kind, switched: bool, dice: &mut SeededRng) -> Vec<PairRate> {
    let over_links = usual(kind.gpu, Metric::GpuLink).filter(|_| switched);
    // Without a switch copies share the host links.
    let usual = over_links.or_else(|| Some(usual(kind.gpu, Metric::HostLink)? * 0.85));
    let of_node = usual.unwrap_or(0.0) * dice.around_one(SCATTER);
    let all = (0..kind.gpus).flat_map(|from| (0..kind.gpus).map(move |to| (from, to)));
    all.filter(|(from, to)| from != to)
        .map(|(from, to)| PairRate {
            from,
            to,
            mb_per_s: (of_node * dice.between(0.988, 1.012)) as u64,
        })
        .collect()
}

/// NCCL's rates for all operations by its own choice, and for the sum by a ring.
fn collectives(kind: &Kind, dice: &mut SeededRng) -> Vec<CollectiveRate> {
    let Some(sum) = all_reduce(kind, dice) else {
        return Vec::new();
    };
    let chosen = CollectiveOperation::ALL.map(|operation| CollectiveRate {
        operation,
        ..sum.clone()
    });
    let ring = CollectiveRate {
        algorithm: CollectiveAlgorithm::NcclRing,
        bus_mb_per_s: sum.bus_mb_per_s / 4 * 3,
        ..sum
    };
    chosen.into_iter().chain([ring]).collect()
}

fn all_reduce(kind: &Kind, dice: &mut SeededRng) -> Option<CollectiveRate> {
    if kind.gpus < 2 {
        return None;
    }
    let over_links = usual(kind.gpu, Metric::AllreduceNcclDefault);
    let usual = over_links.or_else(|| Some(usual(kind.gpu, Metric::HostLink)? * 0.5))?;
    Some(CollectiveRate {
        operation: CollectiveOperation::AllReduce,
        algorithm: CollectiveAlgorithm::NcclDefault,
        payload_bytes: 1 << 30,
        bus_mb_per_s: (usual * dice.around_one(SCATTER)) as u64,
        wrong_elements: 0,
    })
}

/// A good GPU of a node.
#[must_use]
pub fn gpu(kind: &Kind, dice: &mut SeededRng) -> GpuFacts {
    let spec = kind.gpu.spec();
    let corrects = match spec.ecc_default.as_deref() {
        Some("on") => Some(true),
        Some("off") => Some(false),
        _ => None,
    };
    let joined = board::has_gpu_links(spec, kind.gpus);
    let health = HealthCounters {
        ecc_corrected: corrects.map(|_| 0),
        ecc_uncorrected: corrects.map(|_| 0),
        ecc_uncorrected_lifetime: corrects.map(|_| 0),
        remapped_rows: corrects.map(|_| 0),
        remap_pending: corrects.map(|_| false),
        remap_failed: corrects.map(|_| false),
        retired_pages: Some(0),
        retirement_pending: Some(false),
        pcie_replays: Some(0),
        nvlink_errors: Some(0),
    };
    let mut rates = rates(kind, dice);
    let sustained = rates.gemm_16bit_gflops.last().copied().unwrap_or(1_000);
    // Only what an agent measures.
    let rated = |format: Format| format.is_rated_on(&spec.compute_capability);
    for (format, samples) in [
        (Format::Bf16, &mut rates.gemm_16bit_gflops),
        (Format::Fp8, &mut rates.gemm_fp8_gflops),
    ] {
        if !rated(format) {
            samples.clear();
        }
    }
    GpuFacts {
        serial: None,
        bus_id: None,
        pci_id: spec.pci_device_ids.first().cloned(),
        compute_capability: (spec.vendor == GpuVendor::Nvidia)
            .then(|| spec.compute_capability.clone()),
        mig_enabled: (spec.mig_max_instances.unwrap_or(0) > 0).then_some(false),
        ecc_enabled: corrects,
        power_limit_w: spec.tdp_w,
        temperature_c: Some(28 + dice.below(12)),
        host_link: host_link(kind.gpu),
        nvlinks_active: spec.nvlink_links.filter(|_| joined),
        fabric: joined.then_some(FabricState::Completed),
        used_memory_mib: Some(dice.below(16)),
        foreign_processes: Some(0),
        health_before: health,
        health_after: health,
        health_elapsed_ms: Some(80_000),
        // A simulated GPU has no tensor units.
        gemm_16bit_sums: Vec::new(),
        gemm_fp8_sums: Vec::new(),
        gemm_16bit_common_sum: None,
        gemm_fp8_common_sum: None,
        burn: Some(burn(spec.tdp_w.unwrap_or(300), sustained, dice)),
        dwell_bad_words: Some(0),
        rates,
    }
}

fn host_link(gpu: Gpu) -> Option<HostLink> {
    let spec = gpu.spec();
    Some(HostLink {
        generation: spec.pcie_gen.as_deref()?.parse().ok()?,
        width: spec.pcie_lanes?,
    })
}

fn rates(kind: &Kind, dice: &mut SeededRng) -> GpuRates {
    let mut some = |metric: Metric, samples: u32| -> Vec<u64> {
        let Some(usual) = usual(kind.gpu, metric) else {
            return Vec::new();
        };
        let of_card = usual * dice.around_one(SCATTER);
        // Samples of one card differ by a few per mille.
        (0..samples)
            .map(|_| (of_card * dice.between(0.996, 1.0)) as u64)
            .collect()
    };
    let from_host_mb_per_s = some(Metric::HostLink, 3);
    GpuRates {
        read_mb_per_s: some(Metric::HbmRead, 5),
        triad_mb_per_s: some(Metric::HbmTriad, 5),
        to_host_mb_per_s: some(Metric::HostLink, 3),
        gemm_16bit_gflops: some(Metric::Gemm16Bit, 9),
        gemm_fp8_gflops: some(Metric::GemmFp8, 9),
        from_host_together_mb_per_s: from_host_mb_per_s
            .iter()
            .map(|rate| rate * 8 / 10)
            .collect(),
        from_host_mb_per_s,
    }
}

fn burn(limit_w: u32, gflops: u64, dice: &mut SeededRng) -> BurnFacts {
    BurnFacts {
        elapsed_ms: 25_000,
        samples: 125,
        first_third_gflops: gflops,
        last_third_gflops: (gflops as f64 * dice.between(0.975, 1.0)) as u64,
        hw_slowdown_permille: Some(0),
        thermal_permille: Some(dice.below(17)),
        power_brake_permille: Some(0),
        mean_power_w: Some((f64::from(limit_w) * dice.between(0.85, 0.99)) as u32),
        highest_temperature_c: Some(55 + dice.below(22)),
        slowdown_temperature_c: Some(87),
        lowest_sm_mhz: Some(1_200 + dice.below(600)),
        changed_samples: Some(0),
    }
}

/// The results of a good node: its surroundings with all of its GPUs, and no GPU errors.
#[must_use]
pub fn node(kind: &Kind, dice: &mut SeededRng) -> NodeFacts {
    let facts = surroundings(kind, dice);
    NodeFacts {
        gpus: (0..kind.gpus).map(|_| gpu(kind, dice)).collect(),
        xids: Some(Vec::new()),
        ..facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_shows_the_same_node() {
        let kind = Kind {
            gpu: Gpu::parse("H100-SXM").expect("known"),
            gpus: 8,
            vcpus: 208,
            memory_gib: 1_800,
            internode: Internode::InfinibandNdr400,
        };
        let of = |seed: &[u8]| node(&kind, &mut SeededRng::new(seed));
        assert_eq!(of(b"1"), of(b"1"));
        assert_ne!(of(b"1"), of(b"2"));
        let facts = of(b"1");
        assert_eq!(facts.pairs.expect("pairs").len(), 56);
        assert_eq!(facts.gpus[0].nvlinks_active, Some(18));
        assert_eq!(facts.host.ports.expect("ports").len(), 8);
    }

    #[test]
    fn dice_stay_within_their_bounds() {
        let mut dice = SeededRng::new(b"bounds");
        for _ in 0..1_000 {
            assert!((0.0..1.0).contains(&dice.share()));
            assert!(dice.below(7) < 7);
            assert!((2.0..3.0).contains(&dice.between(2.0, 3.0)));
        }
        let mean: f64 = (0..1_000).map(|_| dice.around_one(0.02)).sum::<f64>() / 1_000.0;
        assert!((0.99..1.01).contains(&mean), "{mean}");
    }
}
