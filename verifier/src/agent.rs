//! The agent's side of the conversation, over any transport.

mod measure;
mod transport;

use std::time::{Duration, Instant};

use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use market::verification::{
    AgentBuild, AgentReport, BlockChoices, Choices, Commit, CommitReply, DeviceKind, Digest, Fill,
    Filled, FreshKey, GpuOpenings, GpuReport, Inventory, MemoryRoots, MemoryTaken, NodeFacts,
    OpenedBlock, Openings, PROTOCOL, ReportReply, ReportSubmission, Roots, Step, StepDuration,
    Trouble, VerificationOrder,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::canonical::CanonicalError;
use crate::device::{DeviceError, Node, PatternCheck};
use crate::jws::{DocumentType, Header, JwsError, Signer};
use crate::order::{BadOrder, check_order};
use crate::probe;
use crate::probe::gemm::{CommittedChain, OpenedChain};
use crate::probe::memory::ProvedMemory;
use crate::threads::of_each;
use crate::transcript::Transcript;

pub use transport::{Transport, TransportError};

/// For how long a first look is good: a node may wait for the other nodes of its lease after that.
const STALE: Duration = Duration::from_secs(10);
/// How long the first look at the GPUs may take.
const FIRST_LOOK: Duration = Duration::from_secs(30);
/// The most of a step's time that is reserved for the work after the GPUs'.
const MOST_KEPT_BACK: Duration = Duration::from_secs(5);
/// The part of the chained products' time that is reserved; their message is short.
const KEPT_OF_CHAIN: Duration = Duration::from_millis(500);

/// Why an agent could not finish.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The agent could not reach the broker.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The order is impossible.
    #[error(transparent)]
    Order(#[from] BadOrder),
    /// A reference device was given an order for real hardware.
    #[error("this order is for real hardware; a reference device answers in simulation only")]
    NotSimulation,
    /// The connection is unencrypted and the order is not a simulation.
    #[error("plain http is for simulation only; use https")]
    PlainHttp,
    /// The broker's answer does not have the expected form.
    #[error("the broker's answer to step {step} does not have the expected form")]
    Answer {
        /// The step.
        step: Step,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// A message cannot be written.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// The report cannot be signed.
    #[error(transparent)]
    Signing(#[from] JwsError),
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOutcome {
    /// The broker's verdict.
    pub verdict: Verdict,
    /// The id under which the countersigned result is found.
    pub attestation_id: AttestationId,
    /// Whether the node is now measured together with the others of its gang.
    pub gang: bool,
    /// How long the steps took, by the agent's clock.
    pub durations: Vec<StepDuration>,
    /// How long each GPU took for its chain but for the first product. Units of this and the next: microseconds.
    pub chain_us: Vec<u64>,
    /// How long each GPU took to hash its memory with the tree over it.
    pub proof_us: Vec<u64>,
}

/// This agent: its version and the hash of its own file.
#[must_use]
pub fn this_build() -> AgentBuild {
    let file = std::env::current_exe().and_then(std::fs::read);
    // A file that cannot be read is reported as the hash of nothing, which no agent has.
    let hash = Sha256::digest(file.unwrap_or_default());
    AgentBuild {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha256: Digest(hash.into()),
    }
}

/// Runs the conversation with the broker from commitment to report.
///
/// Inspects the GPUs first, so that the time of the second step covers only their work.
///
/// `signer` must be fresh: its key is used for this conversation only.
/// Errors: [`AgentError`]; a verdict other than pass is not an error.
pub fn converse(
    node: &mut Node,
    verification_id: VerificationId,
    signer: &Signer,
    transport: &mut dyn Transport,
) -> Result<AgentOutcome, AgentError> {
    let mut known = MeasuredSoFar::default();
    known.look_before_work(node);
    let commit = Commit {
        protocol: PROTOCOL,
        agent_key: signer.public_key().to_agent_key()?,
        host: node.host.clone(),
        agent: this_build(),
        device_kind: node.kind,
    };
    let mut line = Line {
        transport,
        transcript: Transcript::default(),
        durations: Vec::new(),
    };
    let asked = Instant::now();
    let CommitReply { nonce, order } = line.exchange(Step::Commit, &commit, asked)?;
    if asked.elapsed() > STALE {
        known.look_before_work(node);
    }
    check_order(&order)?;
    if !order.simulation && node.kind == DeviceKind::Reference {
        return Err(AgentError::NotSimulation);
    }
    if !order.simulation && !line.transport.is_private() {
        return Err(AgentError::PlainHttp);
    }
    let work = Work {
        node,
        line,
        nonce,
        over_by: Instant::now() + Duration::from_millis(order.deadlines.whole_ms),
        order,
        commit,
        known,
    };
    work.carry_out(verification_id, signer)
}

/// The messages so far.
struct Line<'a> {
    transport: &'a mut dyn Transport,
    transcript: Transcript,
    durations: Vec<StepDuration>,
}

impl Line<'_> {
    fn exchange<Q: Serialize, R: DeserializeOwned + Serialize>(
        &mut self,
        step: Step,
        request: &Q,
        began: Instant,
    ) -> Result<R, AgentError> {
        let unreadable = |source| AgentError::Answer { step, source };
        let body = serde_json::to_string(request).map_err(unreadable)?;
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.durations.push(StepDuration { step, elapsed_ms });
        let answer = self.transport.send(step, &body)?;
        let reply: R = serde_json::from_str(&answer).map_err(unreadable)?;
        self.transcript = self.transcript.with(step, request, &reply)?;
        Ok(reply)
    }
}

/// Results of the steps so far; lists have one entry per GPU of the inventory.
#[derive(Default)]
struct MeasuredSoFar {
    inventory: Option<Inventory>,
    facts: Option<NodeFacts>,
    observed: Option<Instant>,
    /// The GPUs that could not be inspected before their first work.
    failed_at_first: Vec<DeviceError>,
    committed: Vec<CommittedChain>,
    opened: Vec<OpenedChain>,
    filled: Vec<Filled>,
    /// The comparisons of the memory passes so far.
    checked: Vec<PatternCheck>,
    proved: Vec<ProvedMemory>,
    /// How long that took. Units: microseconds.
    proof_us: Vec<u64>,
    rates: Vec<Vec<u64>>,
    troubles: Vec<Trouble>,
}

/// Why a step was not taken.
enum Stop {
    /// The conversation cannot go on.
    Over(AgentError),
    /// GPUs did not do their work: the report states it at once.
    Troubles(Vec<Trouble>),
}

impl<E: Into<AgentError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Over(error.into())
    }
}

/// How long the GPUs may work in a step.
#[must_use]
pub(crate) fn for_gpus(allowed_ms: u64) -> Duration {
    but_for(allowed_ms, MOST_KEPT_BACK)
}

/// As [`for_gpus`], but reserves at most this much.
fn but_for(allowed_ms: u64, most_kept: Duration) -> Duration {
    let allowed = Duration::from_millis(allowed_ms);
    allowed - (allowed / 10).min(most_kept)
}

fn troubles(step: Step, errors: &[DeviceError]) -> Stop {
    Stop::Troubles(errors.iter().map(|error| error.trouble(step)).collect())
}

/// How long the GPU processes may take to open blocks; no GPU works on it.
const OPENING_BLOCKS: Duration = Duration::from_secs(10);

/// An accepted order on a node.
struct Work<'a> {
    node: &'a mut Node,
    line: Line<'a>,
    nonce: Digest,
    order: VerificationOrder,
    /// When the time of all steps together is over. The time that the broker takes to answer is added.
    over_by: Instant,
    commit: Commit,
    known: MeasuredSoFar,
}

impl Work<'_> {
    /// Takes the steps; a report with troubles replaces those that cannot be taken.
    fn carry_out(
        mut self,
        verification_id: VerificationId,
        signer: &Signer,
    ) -> Result<AgentOutcome, AgentError> {
        let blocks = match self.up_to_the_report() {
            Ok(blocks) => blocks.blocks,
            Err(Stop::Over(error)) => return Err(error),
            Err(Stop::Troubles(troubles)) => {
                self.known.troubles = troubles;
                Vec::new()
            }
        };
        self.report(verification_id, signer, &blocks)
    }

    fn up_to_the_report(&mut self) -> Result<BlockChoices, Stop> {
        if !self.node.troubles.is_empty() {
            return Err(Stop::Troubles(std::mem::take(&mut self.node.troubles)));
        }
        let choices = self.compute()?;
        let FreshKey { key } = self.fill(&choices)?;
        self.hold(&key)?;
        self.open(&choices.fill_seed)
    }

    /// One value per GPU for work that needs nothing from an earlier step.
    fn nothing(&self) -> Vec<()> {
        vec![(); self.node.devices.len()]
    }

    /// Begins a step: no GPU may work on it so long that its answer would be late.
    fn begin(&mut self, allowed_ms: u64) -> Instant {
        self.begin_but_for(allowed_ms, MOST_KEPT_BACK)
    }

    fn begin_but_for(&mut self, allowed_ms: u64, most_kept: Duration) -> Instant {
        let began = Instant::now();
        let works = but_for(self.left_of(allowed_ms), most_kept);
        self.node.set_deadline(began + works);
        began
    }

    /// How long the GPUs may work in a step, within the time left for all steps together.
    fn for_gpus(&self, allowed_ms: u64) -> Duration {
        for_gpus(self.left_of(allowed_ms))
    }

    /// How much of a step's time is left within the limit of all steps together. Units: ms.
    fn left_of(&self, allowed_ms: u64) -> u64 {
        let left = self.over_by.saturating_duration_since(Instant::now());
        let left_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        allowed_ms.min(left_ms)
    }

    /// Sends one step's message. The broker's time to answer does not count as the node's.
    fn exchange<Q: Serialize, R: DeserializeOwned + Serialize>(
        &mut self,
        step: Step,
        request: &Q,
        began: Instant,
    ) -> Result<R, AgentError> {
        let asked = Instant::now();
        let reply = self.line.exchange(step, request, began)?;
        self.over_by += asked.elapsed();
        Ok(reply)
    }

    fn compute(&mut self) -> Result<Choices, Stop> {
        const STEP: Step = Step::Roots;
        let began = self.begin_but_for(self.order.deadlines.roots_ms, KEPT_OF_CHAIN);
        let inventory = self.node.inventory();
        self.known.inventory = Some(inventory.clone());
        if !self.known.failed_at_first.is_empty() {
            return Err(troubles(STEP, &self.known.failed_at_first));
        }
        let (nonce, work) = (&self.nonce, &self.order.gemm);
        let computed = self.node.on_all(self.nothing(), |gpu, device, ()| {
            probe::gemm::commit(device, nonce, gpu, work)
        });
        let committed = computed.map_err(|errors| troubles(STEP, &errors))?;
        let roots = Roots {
            agent_key: self.commit.agent_key.clone(),
            inventory,
            gpus: committed.iter().map(CommittedChain::commitment).collect(),
        };
        let choices = self.exchange(STEP, &roots, began)?;
        self.known.committed = committed;
        Ok(choices)
    }

    /// Repeats the chosen products while memory is free for them, then fills memory.
    fn fill(&mut self, choices: &Choices) -> Result<FreshKey, Stop> {
        const STEP: Step = Step::Fill;
        let began = self.begin(self.order.deadlines.fill_ms);
        let (nonce, work) = (&self.nonce, &self.order.gemm);
        let committed = self.known.committed.iter().zip(&choices.rows).collect();
        let opened = self
            .node
            .on_all(committed, |gpu, device, (committed, rows)| {
                let asked = (&choices.freivalds_seed, &rows[..]);
                probe::gemm::open(device, (nonce, gpu, work), committed, asked)
            });
        self.known.opened = opened.map_err(|errors| troubles(STEP, &errors))?;
        let (seed, work) = (&choices.fill_seed, &self.order.memory);
        let fill = match self.order.recheck {
            true => probe::memory::fill_beside_others,
            false => probe::memory::fill,
        };
        let filled = self.node.on_all(self.nothing(), |gpu, device, ()| {
            fill(device, seed, gpu, work)
        });
        let filled = filled.map_err(|errors| troubles(STEP, &errors))?;
        let (filled, checked): (Vec<Filled>, Vec<_>) = filled.into_iter().unzip();
        let fill = Fill {
            agent_key: self.commit.agent_key.clone(),
            gpus: filled.clone(),
        };
        let key = self.exchange(STEP, &fill, began)?;
        self.known.filled = filled;
        self.known.checked = checked;
        Ok(key)
    }

    /// Hashes all memory under the fresh key and reports the digest at once; the comparison comes later.
    fn hold(&mut self, key: &Digest) -> Result<(), Stop> {
        const STEP: Step = Step::Memory;
        let began = self.begin(self.order.deadlines.memory_ms);
        let block_bytes = self.order.memory.block_bytes;
        let threads = of_each(self.node.devices.len());
        let hashed = self.node.on_all(self.nothing(), |_, device, ()| {
            let began = Instant::now();
            let proved = device.prove(block_bytes, key, threads)?;
            Ok((proved, began.elapsed().as_micros() as u64))
        });
        let hashed = hashed.map_err(|errors| troubles(STEP, &errors))?;
        let (hashed, proof_us): (Vec<_>, Vec<_>) = hashed.into_iter().unzip();
        let memory = MemoryRoots {
            agent_key: self.commit.agent_key.clone(),
            roots: hashed.iter().map(ProvedMemory::root).collect(),
        };
        let MemoryTaken {} = self.exchange(STEP, &memory, began)?;
        (self.known.proved, self.known.proof_us) = (hashed, proof_us);
        Ok(())
    }

    fn open(&mut self, seed: &Digest) -> Result<BlockChoices, Stop> {
        const STEP: Step = Step::Openings;
        let began = self.begin(self.order.deadlines.openings_ms);
        let work = &self.order.memory;
        let earlier = self.known.checked.clone();
        let checked = self.node.on_all(earlier, |gpu, device, earlier| {
            let last = probe::memory::read_back(device, seed, gpu, work)?;
            Ok(earlier.and(last))
        });
        let checked = checked.map_err(|errors| troubles(STEP, &errors))?;
        let opened = std::mem::take(&mut self.known.opened);
        let gpus = opened
            .into_iter()
            .zip(&checked)
            .map(|(opened, check)| GpuOpenings {
                rows: opened.rows,
                product: opened.product,
                bad_words: check.bad_words,
                lowest_bad_offset: check.lowest_bad_offset,
            });
        let agent_key = self.commit.agent_key.clone();
        let openings = Openings {
            agent_key,
            gpus: gpus.collect(),
        };
        let blocks = self.exchange(STEP, &openings, began)?;
        self.known.checked = checked;
        Ok(blocks)
    }

    /// The blocks of each GPU's memory that the broker drew. A GPU whose process is gone has none, and its
    /// problem is added to the troubles.
    fn opened(&mut self, blocks: &[Vec<u64>]) -> Vec<Vec<OpenedBlock>> {
        self.node.set_deadline(Instant::now() + OPENING_BLOCKS);
        let proved = std::mem::take(&mut self.known.proved);
        let asked: Vec<_> = proved.into_iter().zip(blocks).collect();
        let opened = self.node.on_each(asked, |_, device, (proved, blocks)| {
            proved.open(device, blocks)
        });
        let mut all = Vec::new();
        for opened in opened {
            all.push(opened.unwrap_or_else(|error| {
                self.known.troubles.push(error.trouble(Step::Report));
                Vec::new()
            }));
        }
        all
    }

    fn report(
        mut self,
        verification_id: VerificationId,
        signer: &Signer,
        blocks: &[Vec<u64>],
    ) -> Result<AgentOutcome, AgentError> {
        // Before any work that a GPU may not survive.
        let opened = self.opened(blocks);
        let began = self.begin(self.order.deadlines.report_ms);
        match self.known.troubles.is_empty() {
            true => self.measure(began),
            false => self.look_once_more(),
        }
        let known = self.known;
        let inventory = known.inventory.unwrap_or_else(|| self.node.inventory());
        let gpus = (0..inventory.gpus.len()).map(|gpu| GpuReport {
            checksums: known
                .committed
                .get(gpu)
                .map_or_else(Vec::new, |committed| committed.checksums().to_vec()),
            allocatable_mib: known.filled.get(gpu).map_or(0, |f| f.allocatable_mib),
            bad_words: known.checked.get(gpu).map_or(0, |c| c.bad_words),
            copy_mb_per_s: known.rates.get(gpu).cloned().unwrap_or_default(),
        });
        let report = AgentReport {
            protocol: PROTOCOL,
            verification_id,
            nonce: self.nonce,
            transcript: self.line.transcript.digest(),
            agent: self.commit.agent,
            device_kind: self.commit.device_kind,
            simulated: self.node.simulated,
            host: self.commit.host,
            gpus: gpus.collect(),
            inventory,
            durations: self.line.durations.clone(),
            facts: known.facts.map(Box::new),
            troubles: known.troubles,
        };
        let header = Header::new(DocumentType::Report, verification_id, Some(self.nonce));
        let submission = ReportSubmission {
            agent_key: self.commit.agent_key,
            blocks: opened,
            report: signer.sign(&header, &report)?,
        };
        let reply: ReportReply = self.line.exchange(Step::Report, &submission, began)?;
        let ReportReply {
            verdict,
            attestation_id,
            gang,
        } = reply;
        Ok(AgentOutcome {
            verdict,
            attestation_id,
            gang,
            durations: self.line.durations,
            chain_us: known.committed.iter().map(CommittedChain::us).collect(),
            proof_us: known.proof_us,
        })
    }
}
