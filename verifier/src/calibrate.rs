//! `verifier calibrate`: what known-good GPUs show with these kernels, from which floors are made.
//!
//! A card that gives a wrong or an unsteady result is no reference, and no floor is written then.
//! [`page()`] tells people, [`floors`] are rows for `data/floors.csv`, the [`Calibration`] itself is the
//! raw report, [`goals`] are what it is to show and [`missing`] what it could not.

mod goals;
mod measure;
mod page;
mod played;
pub mod trials;

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use market::gpu::Gpu;
use market::verification::{CollectiveRate, Digest, GpuClaim, GpuFacts, Level, Pattern, Word64};
use serde::Serialize;

use crate::agent::this_build;
use crate::device::{DeviceError, Node};
use crate::floors::Metric;
use crate::probe::burn::Burned;
use crate::probe::links::{LinkRates, LinkWork};
use crate::rules::named_gpu;
use crate::tensor::{Format, LibraryRun};
use measure::{PATIENCE, measure_gpu};
use trials::{CLEAN_RUNS, FAULT_RUNS, Staged, Trial};

pub use goals::{Goal, Reached, goals, missing};
pub use page::{page, summary};
pub use played::Played;

/// How much is done.
#[derive(Debug, Clone, Copy, Serialize)]
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
#[derive(Debug, Clone, Serialize)]
pub struct Calibration {
    /// When.
    pub measured_at: DateTime<Utc>,
    /// The agent's version.
    pub agent: &'static str,
    /// The hash of the agent's file.
    pub agent_sha256: Digest,
    /// The commit that it was built from, where the build said so.
    pub commit: Option<&'static str>,
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
#[derive(Debug, Clone, Serialize)]
pub struct LinkCalibration {
    /// Copies between each pair and the sum round a ring; none where they were not measured in time.
    pub rates: Option<LinkRates>,
    /// NCCL's sum; none where it is not installed, or was not measured in time.
    pub library: Option<CollectiveRate>,
}

/// What a GPU showed.
#[derive(Debug, Clone, Serialize)]
pub struct GpuCalibration {
    /// What its driver says of it.
    pub claim: GpuClaim,
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
    /// Copies within memory. Units of this and the next five: 1e6 bytes per second.
    pub copy_mb_per_s: Vec<u64>,
    /// Copies within memory by the driver's own call.
    pub driver_copy_mb_per_s: Vec<u64>,
    /// Reading memory.
    pub read_mb_per_s: Vec<u64>,
    /// Two arrays into a third.
    pub triad_mb_per_s: Vec<u64>,
    /// From pinned host memory, all GPUs at once.
    pub from_host_mb_per_s: Vec<u64>,
    /// To pinned host memory, all GPUs at once.
    pub to_host_mb_per_s: Vec<u64>,
    /// The checksums of the product on the integer units, one for each sample.
    pub exact: Vec<Word64>,
    /// The products on the tensor units, by format.
    pub tensor: Vec<TensorCalibration>,
    /// The vendor's library for collective operations, where it is installed.
    pub collective_library: Option<String>,
    /// The load on the integer units, and memory that was held meanwhile.
    pub burned: Option<Burned>,
}

impl GpuCalibration {
    /// Before anything was measured.
    const fn of(claim: GpuClaim) -> Self {
        Self {
            claim,
            stopped: None,
            vectors: Vec::new(),
            facts: None,
            allocatable_mib: 0,
            passes: Vec::new(),
            digest_ms: 0,
            copy_mb_per_s: Vec::new(),
            driver_copy_mb_per_s: Vec::new(),
            read_mb_per_s: Vec::new(),
            triad_mb_per_s: Vec::new(),
            from_host_mb_per_s: Vec::new(),
            to_host_mb_per_s: Vec::new(),
            exact: Vec::new(),
            tensor: Vec::new(),
            collective_library: None,
            burned: None,
        }
    }
}

/// Memory filled with a pattern and compared with it.
#[derive(Debug, Clone, Serialize)]
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

/// Products of one format.
#[derive(Debug, Clone, Serialize)]
pub struct TensorCalibration {
    /// The format.
    pub format: Format,
    /// The samples of the rate. Units: 1e9 operations per second.
    pub gflops: Vec<u64>,
    /// Products that were looked at.
    pub checked: u64,
    /// The checksum of the first.
    pub checksum: Option<Word64>,
    /// How many had another one.
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
        median(&runs.collect::<Vec<_>>())
    }
}

/// Why GPUs are no reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReference {
    /// Nothing was really measured.
    #[error("a pretended GPU is no reference")]
    Simulated,
    /// Less was done than a floor needs.
    #[error("less was done than a whole calibration; leave the sizes out")]
    Shortened,
    /// A GPU was given up.
    #[error("GPU {gpu} was given up: {why}")]
    Stopped {
        /// Which GPU.
        gpu: usize,
        /// Why.
        why: String,
    },
    /// A vector came out otherwise than it must.
    #[error("GPU {gpu}: the vector {name} came out wrong")]
    Vector {
        /// Which GPU.
        gpu: usize,
        /// The vector.
        name: String,
    },
    /// Memory did not hold what was written.
    #[error("GPU {gpu}: {bad_words} words of memory were not what had been written")]
    Memory {
        /// Which GPU.
        gpu: usize,
        /// 32-bit words that differed.
        bad_words: u64,
    },
    /// Products differed.
    #[error("GPU {gpu}: products of the same inputs differ")]
    Unsteady {
        /// Which GPU.
        gpu: usize,
    },
    /// The tensor units give another product than the integer units.
    #[error("GPU {gpu}: the 16-bit product is not that of the integers")]
    Inexact {
        /// Which GPU.
        gpu: usize,
    },
    /// Runs of the agent did not end as they should.
    #[error("{right} of {runs} runs ended as they should with {} staged", staged.words())]
    Misjudged {
        /// What was staged.
        staged: Staged,
        /// How many there were.
        runs: u32,
        /// How many ended as they should.
        right: u32,
    },
    /// A fault could not be staged, or a run did not end.
    #[error("no runs with {} staged: {why}", staged.words())]
    NotStaged {
        /// What was to be staged.
        staged: Staged,
        /// Why it was not.
        why: String,
    },
    /// The agent was tried out too little.
    #[error("{runs} runs with {} staged; floors need {wanted}", staged.words())]
    TooFewRuns {
        /// What was staged.
        staged: Staged,
        /// How many there were.
        runs: u32,
        /// How many there must be.
        wanted: u32,
    },
    /// It is none that the catalogue knows.
    #[error("GPU {gpu} is called `{name}`, which no GPU of the catalogue is")]
    Unknown {
        /// Which GPU.
        gpu: usize,
        /// Its driver's name of it.
        name: String,
    },
}

impl Calibration {
    /// Measures all GPUs of a node at once, then the links between them. `keep` is given what is known
    /// so far, again and again. A GPU that does not do its work is given up and says so.
    pub fn measure(
        node: &mut Node,
        kernels: Digest,
        size: Size,
        keep: &(dyn Fn(&Self) + Sync),
    ) -> Self {
        let build = this_build();
        let facts = node.surroundings.as_mut().map(|known| known.before());
        let claims = node.inventory().gpus.into_iter();
        let so_far = Mutex::new(Self {
            measured_at: Utc::now(),
            agent: env!("CARGO_PKG_VERSION"),
            agent_sha256: build.sha256,
            commit: option_env!("AGENT_COMMIT").filter(|commit| !commit.is_empty()),
            kernels,
            driver: node.driver.clone(),
            cuda_version: facts.and_then(|facts| facts.driver.cuda_version),
            simulated: node.simulated,
            size,
            gpus: claims.map(GpuCalibration::of).collect(),
            links: None,
            trials: Vec::new(),
        });
        let note = |gpu: u32, shown: &GpuCalibration| {
            // One GPU's crash takes nothing from the others.
            let mut all = so_far.lock().unwrap_or_else(PoisonError::into_inner);
            all.gpus[gpu as usize].clone_from(shown);
            keep(&all);
        };
        let nothing = vec![(); node.devices.len()];
        let done = node.on_all(nothing, |gpu, device, ()| {
            measure_gpu(gpu, device, &size, &|shown| note(gpu, shown));
            Ok(())
        });
        let mut all = so_far.into_inner().unwrap_or_else(PoisonError::into_inner);
        for DeviceError { gpu, what, .. } in done.err().into_iter().flatten() {
            all.gpus[gpu as usize].stopped = Some(what);
        }
        all.links = measure_links(node, &size);
        keep(&all);
        all
    }

    /// Whether every GPU came to its end.
    #[must_use]
    pub fn is_through(&self) -> bool {
        self.gpus.iter().all(|gpu| gpu.stopped.is_none())
    }

    /// Whether floors may be made of it.
    ///
    /// Errors: [`NoReference`] names the first thing found wrong.
    pub fn check(&self) -> Result<(), NoReference> {
        for (gpu, shown) in self.gpus.iter().enumerate() {
            if let Some(why) = shown.stopped.clone() {
                return Err(NoReference::Stopped { gpu, why });
            }
            let held = shown.burned.as_ref().map_or(0, |b| b.dwell_bad_words);
            let bad_words = shown.passes.iter().map(|pass| pass.bad_words).sum::<u64>() + held;
            if bad_words > 0 {
                return Err(NoReference::Memory { gpu, bad_words });
            }
            let unsteady = shown.exact.windows(2).any(|pair| pair[0] != pair[1]);
            if unsteady || shown.tensor.iter().any(|tensor| tensor.different > 0) {
                return Err(NoReference::Unsteady { gpu });
            }
            let of_integers = shown.exact.first();
            let mut bf16 = shown.tensor.iter().filter(|t| t.format == Format::Bf16);
            if bf16.any(|tensor| tensor.checksum.as_ref() != of_integers) {
                return Err(NoReference::Inexact { gpu });
            }
            if let Some(vector) = shown.vectors.iter().find(|v| v.equal == Some(false)) {
                let name = vector.name.clone();
                return Err(NoReference::Vector { gpu, name });
            }
            if named_gpu(&shown.claim.name).is_none() {
                let name = shown.claim.name.clone();
                return Err(NoReference::Unknown { gpu, name });
            }
        }
        self.check_trials()?;
        if self.simulated {
            return Err(NoReference::Simulated);
        }
        if !self.size.is_full() {
            return Err(NoReference::Shortened);
        }
        self.check_runs()
    }

    /// Whether there were as many runs of the agent as floors need.
    ///
    /// Errors: [`NoReference::TooFewRuns`] names the first thing of which there were fewer.
    fn check_runs(&self) -> Result<(), NoReference> {
        let faults = Staged::FAULTS.map(|fault| (fault, FAULT_RUNS));
        for (staged, wanted) in [(Staged::Nothing, CLEAN_RUNS)].into_iter().chain(faults) {
            let of_it = |trial: &&Trial| trial.staged == staged && trial.level == Level::Quick;
            let runs = self.trials.iter().filter(of_it).map(|t| t.runs).sum();
            if runs < wanted {
                return Err(NoReference::TooFewRuns {
                    staged,
                    runs,
                    wanted,
                });
            }
        }
        Ok(())
    }
}

/// Measures between GPUs what a run of the agent measures; nothing where there is one.
fn measure_links(node: &mut Node, size: &Size) -> Option<LinkCalibration> {
    // No node has so many.
    let gpus = node.devices.len() as u32;
    let known = node.surroundings.as_mut().filter(|_| gpus > 1)?;
    let work = LinkWork::on(gpus, size.memory_bytes);
    Some(LinkCalibration {
        rates: known.links(&work, Instant::now() + PATIENCE),
        library: known.library_sum(&work, Instant::now() + PATIENCE),
    })
}

impl Calibration {
    fn check_trials(&self) -> Result<(), NoReference> {
        let wrong = self.trials.iter().find(|trial| !trial.is_right());
        let Some(&Trial {
            staged,
            runs,
            right,
            ref not_staged,
            ..
        }) = wrong
        else {
            return Ok(());
        };
        Err(match not_staged.clone() {
            Some(why) => NoReference::NotStaged { staged, why },
            None => NoReference::Misjudged {
                staged,
                runs,
                right,
            },
        })
    }
}

/// The middle of the samples; the lower one of two.
#[must_use]
pub fn median(samples: &[u64]) -> Option<u64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len().checked_sub(1)? / 2).copied()
}

/// What a good card must show of its own kernel's figure. Units: thousandths.
///
/// Bandwidths scatter by less than products, which hang on power and heat; the host link hangs on
/// the host.
const fn share(metric: Metric) -> u32 {
    match metric {
        Metric::HbmCopy | Metric::HbmRead | Metric::HbmTriad => 930,
        Metric::HostLink => 850,
        _ => 920,
    }
}

/// The metrics of a GPU with its figure.
fn figures(shown: &GpuCalibration) -> Vec<(&'static str, Metric, u64)> {
    let tensor = |format| {
        let of = shown.tensor.iter().find(|tensor| tensor.format == format);
        of.and_then(|tensor| median(&tensor.gflops))
    };
    let links = [&shown.from_host_mb_per_s, &shown.to_host_mb_per_s];
    let figures = [
        ("hbm_copy", Metric::HbmCopy, median(&shown.copy_mb_per_s)),
        ("hbm_read", Metric::HbmRead, median(&shown.read_mb_per_s)),
        ("hbm_triad", Metric::HbmTriad, median(&shown.triad_mb_per_s)),
        (
            "host_link",
            Metric::HostLink,
            links.into_iter().filter_map(|l| median(l)).min(),
        ),
        ("gemm_16bit", Metric::Gemm16Bit, tensor(Format::Bf16)),
        ("gemm_fp8", Metric::GemmFp8, tensor(Format::Fp8)),
    ];
    let there = figures.into_iter();
    there
        .filter_map(|(name, metric, figure)| Some((name, metric, figure?)))
        .collect()
}

/// Rows for `data/floors.csv`, under this version of it: of each kind of GPU the slowest one's.
///
/// Errors: [`NoReference`] when one of the GPUs is none.
pub fn floors(calibration: &Calibration, version: u32) -> Result<String, NoReference> {
    calibration.check()?;
    let mut slowest: std::collections::BTreeMap<(&str, &str), (Metric, u64)> = Default::default();
    for shown in &calibration.gpus {
        let Some(gpu) = named_gpu(&shown.claim.name) else {
            continue;
        };
        for (name, metric, figure) in figures(shown) {
            let row = slowest
                .entry((Gpu::name(gpu), name))
                .or_insert((metric, figure));
            row.1 = row.1.min(figure);
        }
    }
    let rows = slowest.into_iter().map(|((gpu, name), (metric, figure))| {
        format!(
            "{version},{gpu},{name},{},{figure},{},expected,calibrated,verifier calibrate on {} \
             with driver {}\n",
            calibration.kernels,
            share(metric),
            calibration.measured_at.format("%Y-%m-%d"),
            calibration.driver,
        )
    });
    Ok(rows.collect())
}

#[cfg(feature = "cuda")]
pub use command::{CalibrateArgs, run};

#[cfg(feature = "cuda")]
mod command;
#[cfg(feature = "cuda")]
mod staged;
#[cfg(test)]
mod tests;
