//! `verifier calibrate`: what known-good GPUs show with these kernels, from which floors are made.
//!
//! A card that gives a wrong or an unsteady result is no reference, and no floor is written then.
//! [`page()`] tells people, [`floors`] are rows for `data/floors.csv`, the [`Calibration`] itself is the
//! raw report, [`goals`] are what it is to show and [`missing`] what it could not.

mod check;
mod goals;
mod measure;
mod page;
mod rows;
pub mod trials;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use market::verification::{
    CollectiveAlgorithm, CollectiveRate, Digest, GpuClaim, GpuFacts, Pattern, Word64,
};
use serde::{Deserialize, Serialize};

use crate::agent::this_build;
use crate::device::{DeviceError, Node};
use crate::framework::FrameworkRun;
use crate::median;
use crate::probe::burn::Burned;
use crate::probe::links::{LibraryWork, LinkRates, LinkWork};
use crate::tensor::{Format, LibraryRun};
use crate::threads::of_each;
use crate::vectors::Played;
use measure::{PATIENCE, is_through, measure_gpu};
use trials::Trial;

pub use check::NoReference;
pub use goals::{Goal, Reached, goals, missing};
pub use page::{page, summary};
pub use rows::floors;

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Memory that is filled, at most. Units: bytes.
    pub memory_bytes: u64,
    /// Of the blocks that are hashed. Units: bytes.
    pub block_bytes: u32,
    /// Samples of each rate.
    pub samples: u32,
    /// Rows and columns of the products, and their inner dimension.
    pub n: u32,
    /// Products for each sample of their rate.
    pub timed: u32,
    /// Products of each format that are looked at for each sample of their rate.
    pub checked: u32,
    /// How long the load lasts.
    pub burn: Duration,
}

impl Size {
    /// All memory, the product of the standard level, and more than a thousand products of a format.
    pub const FULL: Self = Self {
        memory_bytes: u64::MAX,
        block_bytes: 1 << 20,
        samples: 9,
        n: 8_192,
        timed: 100,
        checked: 112,
        burn: Duration::from_secs(60),
    };

    /// Whether nothing of it is less than [`Self::FULL`]: less wakes no clock and heats nothing.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let Self {
            memory_bytes,
            block_bytes,
            samples,
            n,
            timed,
            checked,
            burn,
        } = Self::FULL;
        self.memory_bytes >= memory_bytes
            && self.block_bytes >= block_bytes
            && self.samples >= samples
            && self.n >= n
            && self.timed >= timed
            && self.checked >= checked
            && self.burn >= burn
    }
}

/// What GPUs showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Calibration {
    /// When it was begun.
    pub measured_at: DateTime<Utc>,
    /// The agent's version.
    pub agent: String,
    /// The hash of the agent's file.
    pub agent_sha256: Digest,
    /// The commit that it was built from, where the build said so.
    pub commit: Option<String>,
    /// The hash of its kernels, by which floors are kept.
    pub kernels: Digest,
    /// The driver's version.
    pub driver: String,
    /// The newest CUDA version that the driver serves: 1000 x major + 10 x minor.
    pub cuda_version: Option<u32>,
    /// Whether anything of it is modelled.
    pub simulated: bool,
    /// How much was done.
    pub size: Size,
    /// Its GPUs.
    pub gpus: Vec<GpuCalibration>,
    /// What was measured between them, where there are several.
    pub links: Option<LinkCalibration>,
    /// Runs of the agent on them, with a fault staged and without.
    pub trials: Vec<Trial>,
}

/// What was measured between GPUs, as a run of the agent measures it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LinkCalibration {
    /// Copies between each pair and the sum round a ring; none where they were not measured in time.
    pub rates: Option<LinkRates>,
    /// NCCL's sums, as it chooses and round a ring; none where it is not installed, or they were not measured in
    /// time.
    pub library: Vec<CollectiveRate>,
}

/// What a GPU showed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GpuCalibration {
    /// What its driver says of it.
    pub claim: GpuClaim,
    /// How many parts of the work on it came to their end: it goes on with the next one.
    pub parts: u32,
    /// Why it was given up before its end: then what follows is as far as it came.
    pub stopped: Option<String>,
    /// The vectors that kernels and reference share, as it played them.
    pub vectors: Vec<Played>,
    /// What its driver shows of it before the work.
    pub facts: Option<GpuFacts>,
    /// Memory that can be had in one piece. Units: MiB.
    pub allocatable_mib: u32,
    /// Each pattern over all of it.
    pub passes: Vec<Pass>,
    /// How long hashing all of it took, ms.
    pub digest_ms: u64,
    /// How long its proof takes.
    pub proof: Option<ProofTimes>,
    /// Copies within memory. Units of these and the next rates: 1e6 bytes per second.
    pub copy_mb_per_s: Vec<u64>,
    /// Copies within memory by the driver's own call.
    pub driver_copy_mb_per_s: Vec<u64>,
    /// Copies within memory by a framework that is installed.
    pub framework: Option<FrameworkRun>,
    /// Reading memory.
    pub read_mb_per_s: Vec<u64>,
    /// Two arrays into a third.
    pub triad_mb_per_s: Vec<u64>,
    /// From pinned host memory, one GPU at a time, as rules judge it.
    pub from_host_mb_per_s: Vec<u64>,
    /// To pinned host memory, likewise.
    pub to_host_mb_per_s: Vec<u64>,
    /// The checksums of the product on the integer units, one for each sample.
    pub exact: Vec<Word64>,
    /// How long chains of them take.
    #[serde(default)]
    pub chain: Option<ChainTimes>,
    /// The products on the tensor units, by format.
    pub tensor: Vec<TensorCalibration>,
    /// The vendor's library for collective operations, where it is installed.
    pub collective_library: Option<String>,
    /// The load, on the tensor units where there are kernels for them, and memory that was held meanwhile.
    pub burned: Option<Burned>,
}

impl GpuCalibration {
    /// Before anything was measured.
    const fn of(claim: GpuClaim) -> Self {
        Self {
            claim,
            parts: 0,
            stopped: None,
            vectors: Vec::new(),
            facts: None,
            allocatable_mib: 0,
            passes: Vec::new(),
            digest_ms: 0,
            proof: None,
            copy_mb_per_s: Vec::new(),
            driver_copy_mb_per_s: Vec::new(),
            framework: None,
            read_mb_per_s: Vec::new(),
            triad_mb_per_s: Vec::new(),
            from_host_mb_per_s: Vec::new(),
            to_host_mb_per_s: Vec::new(),
            exact: Vec::new(),
            chain: None,
            tensor: Vec::new(),
            collective_library: None,
            burned: None,
        }
    }
}

/// Memory filled with a pattern and compared with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Pass {
    /// The pattern.
    pub pattern: Pattern,
    /// How long filling took by the host's clock, ms.
    pub fill_ms: u64,
    /// How long comparing took by the host's clock, ms.
    pub compare_ms: u64,
    /// 32-bit words that differed.
    pub bad_words: u64,
}

/// How long it takes to hash memory in the blocks of a slow fill and to make the tree over them, as between
/// the key of a run and the agent's answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProofTimes {
    /// Memory that was hashed. Units: bytes.
    pub bytes: u64,
    /// Of a block. Units: bytes.
    pub block_bytes: u32,
    /// Threads that made the tree.
    pub threads: usize,
    /// The samples, by the host's clock. Units: microseconds.
    pub elapsed_us: Vec<u64>,
}

impl ProofTimes {
    /// The middle rate. Units: 1e6 bytes per second.
    #[must_use]
    pub fn mb_per_s(&self) -> Option<u64> {
        median::lower(&self.elapsed_us).map(|elapsed_us| self.bytes / elapsed_us.max(1))
    }
}

/// How long chained exact products take with the trees over their rows, as a run computes them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChainTimes {
    /// Rows, columns and inner dimension of the products.
    pub n: u32,
    /// Products of a chain.
    pub links: u32,
    /// The samples, by the host's clock. Units: microseconds.
    pub elapsed_us: Vec<u64>,
}

impl ChainTimes {
    /// The middle rate. Units: 1e9 operations per second.
    #[must_use]
    pub fn gops(&self) -> Option<u64> {
        let elapsed_us = median::lower(&self.elapsed_us)?.max(1);
        let operations = 2 * u128::from(self.n).pow(3) * u128::from(self.links);
        u64::try_from(operations / 1_000 / u128::from(elapsed_us)).ok()
    }
}

/// Products of one format.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TensorCalibration {
    /// The format.
    pub format: Format,
    /// The samples of the rate. Units: 1e9 operations per second.
    pub gflops: Vec<u64>,
    /// Products that were looked at.
    pub checked: u64,
    /// The checksum of the first.
    pub checksum: Option<Word64>,
    /// What it must be: that of the same integers on other units, which is for BF16 the integer units, and for
    /// FP8, whose entries are smaller, BF16's.
    pub integers: Option<Word64>,
    /// How many had another one than the first.
    pub different: u64,
    /// What the vendor's library made of the same inputs, one for each sample.
    pub library: Vec<LibraryRun>,
}

impl TensorCalibration {
    /// The middle rate of the vendor's library. Units: 1e9 operations per second.
    #[must_use]
    pub fn library_gflops(&self) -> Option<u64> {
        let runs = self.library.iter().filter_map(|run| match run {
            LibraryRun::Measured { gflops, .. } => Some(*gflops),
            _ => None,
        });
        median::lower(&runs.collect::<Vec<_>>())
    }
}

impl Calibration {
    /// Before anything was measured of a node.
    #[must_use]
    pub fn begin(node: &mut Node, kernels: Digest, size: Size) -> Self {
        let build = this_build();
        let facts = node.surroundings.as_mut().map(|known| known.before());
        let claims = node.inventory().gpus.into_iter();
        let commit = option_env!("AGENT_COMMIT").filter(|commit| !commit.is_empty());
        Self {
            measured_at: Utc::now(),
            agent: env!("CARGO_PKG_VERSION").to_owned(),
            agent_sha256: build.sha256,
            commit: commit.map(str::to_owned),
            kernels,
            driver: node.driver.clone(),
            cuda_version: facts.and_then(|facts| facts.driver.cuda_version),
            simulated: node.simulated,
            size,
            gpus: claims.map(GpuCalibration::of).collect(),
            links: None,
            trials: Vec::new(),
        }
    }

    /// Whether what was measured before is of the same GPUs, by the same agent and driver and in the same
    /// sizes: then it can be gone on with in place of this one.
    #[must_use]
    pub fn goes_on_from(&self, before: &Self) -> bool {
        let gpus = |of: &Self| -> Vec<String> {
            let all = of.gpus.iter();
            all.map(|gpu| gpu.claim.uuid.clone()).collect()
        };
        let agent = |of: &Self| (of.kernels, of.agent_sha256, of.driver.clone());
        agent(self) == agent(before) && self.size == before.size && gpus(self) == gpus(before)
    }

    /// Measures all GPUs of a node at once, then the links between them, as far as that was not done.
    /// `keep` is given what is known so far, again and again. A GPU that does not do its work is given up
    /// and says so; one that was given up before is tried again.
    #[must_use]
    pub fn measure(self, node: &mut Node, keep: &(dyn Fn(&Self) + Sync)) -> Self {
        let (size, before) = (self.size, self.gpus.clone());
        let so_far = Mutex::new(self);
        let note = |gpu: u32, shown: &GpuCalibration| {
            // One GPU's crash takes nothing from the others.
            let mut all = so_far.lock().unwrap_or_else(PoisonError::into_inner);
            all.gpus[gpu as usize].clone_from(shown);
            keep(&all);
        };
        let link = Mutex::new(());
        let threads = of_each(node.devices.len());
        let done = node.on_all(before, |gpu, device, shown| {
            let keep = |shown: &GpuCalibration| note(gpu, shown);
            measure_gpu((gpu, device), (&size, &link, threads), shown, &keep);
            Ok(())
        });
        let mut all = so_far.into_inner().unwrap_or_else(PoisonError::into_inner);
        for DeviceError { gpu, what, .. } in done.err().into_iter().flatten() {
            all.gpus[gpu as usize].stopped = Some(what);
        }
        if all.links.is_none() {
            all.links = measure_links(node, &size);
        }
        keep(&all);
        all
    }

    /// Whether every GPU came to its end, and what is between them too.
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.gpus.iter().all(is_through) && (self.links.is_some() || self.gpus.len() < 2)
    }

    /// The GPUs that were given up, by their numbers.
    #[must_use]
    pub fn given_up(&self) -> Vec<u32> {
        let all = (0..).zip(&self.gpus);
        let stopped = all.filter(|(_, gpu)| gpu.stopped.is_some());
        stopped.map(|(number, _)| number).collect()
    }
}

/// Measures between GPUs what a run of the agent measures; nothing where there is one.
fn measure_links(node: &mut Node, size: &Size) -> Option<LinkCalibration> {
    // No node has so many.
    let gpus = node.devices.len() as u32;
    let known = node.surroundings.as_mut().filter(|_| gpus > 1)?;
    let work = LinkWork::on(gpus, size.memory_bytes);
    Some(LinkCalibration {
        // Where some are missing, what is known of the others is no figure of a good node.
        rates: known
            .links(&work, Instant::now() + PATIENCE)
            .filter(|rates| rates.pairs.len() == work.pairs().len()),
        library: [
            CollectiveAlgorithm::NcclDefault,
            CollectiveAlgorithm::NcclRing,
        ]
        .into_iter()
        .flat_map(|way| known.library(&LibraryWork::sum(&work, way), Instant::now() + PATIENCE))
        .collect(),
    })
}

#[cfg(feature = "cuda")]
pub use command::{CalibrateArgs, run};

#[cfg(feature = "cuda")]
mod command;
#[cfg(feature = "cuda")]
mod staged;
#[cfg(test)]
mod tests;
