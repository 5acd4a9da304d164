//! Runs of the agent on a card with a fault that was staged, and on the same card without one: every
//! fault must be noticed, and nothing else. No setting of the card is touched for it.

use std::collections::BTreeMap;

use market::attestation::Attestation;
use market::verification::Level;
use serde::{Deserialize, Serialize};

/// Runs with nothing staged, at level `quick`, without which no floor is made.
pub const CLEAN_RUNS: u32 = 50;
/// Runs with each fault without which no floor is made.
pub const FAULT_RUNS: u32 = 20;

/// What is done to a card, or to the agent on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Staged {
    /// Nothing: the run must pass.
    Nothing,
    /// Two other processes stream through memory, beginning after the agent's first look.
    BandwidthHogs,
    /// Another process holds 30 % of the memory.
    MemoryHeld,
    /// A library stands before the driver's: it halves times and adds a quarter to the memory.
    PreloadedShim,
    /// Each card is shown twice, the second time under another id.
    OnePosesAsTwo,
    /// The agent does half of the product and half of the memory, and says that it did all.
    WorkShrunk,
    /// The agent claims 1.25 times the memory and answers for what is not there with what is.
    MemoryInvented,
}

impl Staged {
    /// All faults.
    pub const FAULTS: [Self; 6] = [
        Self::BandwidthHogs,
        Self::MemoryHeld,
        Self::PreloadedShim,
        Self::OnePosesAsTwo,
        Self::WorkShrunk,
        Self::MemoryInvented,
    ];

    /// As it is named where a part is chosen.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::BandwidthHogs => "bandwidth_hogs",
            Self::MemoryHeld => "memory_held",
            Self::PreloadedShim => "preloaded_shim",
            Self::OnePosesAsTwo => "one_poses_as_two",
            Self::WorkShrunk => "work_shrunk",
            Self::MemoryInvented => "memory_invented",
        }
    }

    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::BandwidthHogs => "two processes that stream through memory meanwhile",
            Self::MemoryHeld => "30 % of the memory held by another process",
            Self::PreloadedShim => "a preloaded library that lies of time and memory",
            Self::OnePosesAsTwo => "each card posing as two",
            Self::WorkShrunk => "an agent that does half of the work",
            Self::MemoryInvented => "an agent that claims 1.25 times the memory",
        }
    }
}

/// Runs with the same thing staged.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Trial {
    /// What was staged.
    pub staged: Staged,
    /// The level of the runs.
    pub level: Level,
    /// GPUs that had been given up and were in none of the runs, by their numbers.
    pub left_out: Vec<u32>,
    /// How many there were.
    pub runs: u32,
    /// How many came out as they should: passed where nothing was staged, and otherwise did not.
    pub right: u32,
    /// How often each check spoke against the node.
    pub spoke: BTreeMap<String, u32>,
    /// The middle rate of each process that streamed through memory meanwhile. Units: 1e6 bytes per second.
    pub guests_mb_per_s: Vec<u64>,
    /// How long each took by the host's clock, ms.
    pub elapsed_ms: Vec<u64>,
    /// What kept it from being staged, or a run from its end.
    pub not_staged: Option<String>,
}

impl Trial {
    /// Before the first run.
    #[must_use]
    pub const fn new(staged: Staged, level: Level, left_out: Vec<u32>) -> Self {
        Self {
            staged,
            level,
            left_out,
            runs: 0,
            right: 0,
            spoke: BTreeMap::new(),
            guests_mb_per_s: Vec::new(),
            elapsed_ms: Vec::new(),
            not_staged: None,
        }
    }

    /// Counts a run.
    pub fn count(&mut self, attestation: &Attestation, elapsed_ms: u64) {
        let passed = attestation.verdict.is_pass();
        self.runs += 1;
        self.right += u32::from(passed == (self.staged == Staged::Nothing));
        self.elapsed_ms.push(elapsed_ms);
        let against = attestation
            .findings
            .iter()
            .filter(|finding| finding.counts_against() || finding.leaves_open());
        for finding in against {
            *self.spoke.entry(finding.code.to_string()).or_default() += 1;
        }
    }

    /// Whether every run that was wanted came out as it should.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.right == self.runs && self.not_staged.is_none()
    }
}
