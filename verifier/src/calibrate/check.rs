//! Whether floors may be made of a calibration.

use market::verification::Level;

use super::Calibration;
use super::measure::is_through;
use super::trials::{CLEAN_RUNS, FAULT_RUNS, Staged, Trial};
use crate::rules::named_gpu;
use crate::tensor::Format;

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
    /// A GPU was not measured to its end.
    #[error("GPU {gpu} was not measured to its end")]
    NotMeasured {
        /// Which GPU.
        gpu: usize,
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
    /// The tensor units give another product than that of the integers.
    #[error("GPU {gpu}: the {} product is not that of the integers", format.words())]
    Inexact {
        /// Which GPU.
        gpu: usize,
        /// Of which format.
        format: Format,
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

impl NoReference {
    /// Whether it is of what a GPU showed, which neither another try nor a run of the agent changes.
    #[must_use]
    pub const fn is_of_a_gpu(&self) -> bool {
        match self {
            Self::Vector { .. }
            | Self::Memory { .. }
            | Self::Unsteady { .. }
            | Self::Inexact { .. }
            | Self::Unknown { .. } => true,
            Self::Simulated
            | Self::Shortened
            | Self::Stopped { .. }
            | Self::NotMeasured { .. }
            | Self::Misjudged { .. }
            | Self::NotStaged { .. }
            | Self::TooFewRuns { .. } => false,
        }
    }
}

impl Calibration {
    /// Whether floors may be made of it.
    ///
    /// Errors: [`NoReference`] names the first thing found wrong.
    pub fn check(&self) -> Result<(), NoReference> {
        for (gpu, shown) in self.gpus.iter().enumerate() {
            if let Some(why) = shown.stopped.clone() {
                return Err(NoReference::Stopped { gpu, why });
            }
            let held = shown.burned.as_ref().map_or(0, |b| b.dwell_bad_words);
            if !is_through(shown) {
                return Err(NoReference::NotMeasured { gpu });
            }
            let bad_words = shown.passes.iter().map(|pass| pass.bad_words).sum::<u64>() + held;
            if bad_words > 0 {
                return Err(NoReference::Memory { gpu, bad_words });
            }
            let unsteady = shown.exact.windows(2).any(|pair| pair[0] != pair[1]);
            if unsteady || shown.tensor.iter().any(|tensor| tensor.different > 0) {
                return Err(NoReference::Unsteady { gpu });
            }
            let mut tensor = shown.tensor.iter();
            if let Some(inexact) = tensor.find(|tensor| tensor.checksum != tensor.integers) {
                let format = inexact.format;
                return Err(NoReference::Inexact { gpu, format });
            }
            if let Some(vector) = shown.vectors.iter().find(|v| v.is_equal() == Some(false)) {
                let name = vector.to_string();
                return Err(NoReference::Vector { gpu, name });
            }
            if named_gpu(&shown.claim).is_none() {
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

    /// Whether there were as many runs of the agent as floors need, on all GPUs that are not given up.
    ///
    /// Errors: [`NoReference::TooFewRuns`] names the first thing of which there were fewer.
    pub(super) fn check_runs(&self) -> Result<(), NoReference> {
        let left_out = self.given_up();
        let faults = Staged::FAULTS.map(|fault| (fault, FAULT_RUNS));
        for (staged, wanted) in [(Staged::Nothing, CLEAN_RUNS)].into_iter().chain(faults) {
            let of_it = |trial: &&Trial| {
                (trial.staged, trial.level) == (staged, Level::Quick) && trial.left_out == left_out
            };
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
