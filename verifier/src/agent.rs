//! The agent's side of the conversation, whatever carries it.

use std::time::Instant;

use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use market::verification::{
    AgentBuild, AgentReport, BlockChoices, Choices, Commit, CommitReply, DeviceKind, Digest, Fill,
    Filled, FreshKey, GpuOpenings, GpuReport, Openings, PROTOCOL, ReportReply, ReportSubmission,
    Roots, Step, StepDuration, VerificationOrder,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use crate::canonical::CanonicalError;
use crate::device::{DeviceError, Node, PatternCheck};
use crate::jws::{DocumentType, Header, JwsError, Signer};
use crate::order::{BadOrder, check_order};
use crate::probe;
use crate::probe::gemm::CommittedProduct;
use crate::probe::memory::ProvedMemory;
use crate::transcript::Transcript;

/// Why a message did not get its answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The broker said no.
    #[error("the broker refused step {step} with status {status}: {detail}")]
    Refused {
        /// The step.
        step: Step,
        /// The HTTP status.
        status: u16,
        /// What the broker said.
        detail: String,
    },
    /// The broker lost its clock of this conversation, as one that was restarted has: it can only be
    /// begun anew, under a fresh key.
    #[error("the broker was interrupted before step {step}; the conversation must begin anew")]
    Interrupted {
        /// The step.
        step: Step,
    },
    /// The broker could not be reached, or was not ready, for as long as was allowed.
    #[error("the broker did not take step {step} in time; the last attempt ended with: {last}")]
    GaveUp {
        /// The step.
        step: Step,
        /// How the last attempt ended.
        last: String,
    },
}

/// Why an agent could not finish.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// A GPU did not do its work.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The broker could not be talked to.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The order is impossible.
    #[error(transparent)]
    Order(#[from] BadOrder),
    /// A reference device was given an order for real hardware.
    #[error("this order is for real hardware; a reference device answers in simulation only")]
    NotSimulation,
    /// The connection is open to readers and the order is no simulation.
    #[error("plain http is for simulation only; use https")]
    PlainHttp,
    /// The broker's answer has not the expected form.
    #[error("the broker's answer to step {step} has not the expected form")]
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

/// What carries messages to the broker and its answers back.
pub trait Transport {
    /// Sends one step's JSON and gives the JSON of the answer.
    ///
    /// Errors: [`TransportError`], after whatever retries the carrier does.
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError>;

    /// Whether nobody on the way can read it.
    fn is_private(&self) -> bool;
}

/// How a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentOutcome {
    /// What the broker made of it.
    pub verdict: Verdict,
    /// Where the countersigned result is found.
    pub attestation_id: AttestationId,
    /// How long the steps took by the agent's clock.
    pub durations: Vec<StepDuration>,
}

/// This agent: its version and the hash of its own file.
#[must_use]
pub fn this_build() -> AgentBuild {
    let file = std::env::current_exe().and_then(std::fs::read);
    // A file that cannot be read is reported as the hash of nothing, which is no agent's.
    let hash = Sha256::digest(file.unwrap_or_default());
    AgentBuild {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        sha256: Digest(hash.into()),
    }
}

/// Talks to the broker from commitment to report.
///
/// `signer` must be fresh: its key is this conversation's only.
/// Errors: [`AgentError`]; a verdict other than pass is none.
pub fn converse(
    node: &mut Node,
    verification_id: VerificationId,
    signer: &Signer,
    transport: &mut dyn Transport,
) -> Result<AgentOutcome, AgentError> {
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
    let CommitReply { nonce, order } = line.exchange(Step::Commit, &commit, Instant::now())?;
    check_order(&order)?;
    if !order.simulation && node.kind == DeviceKind::Reference {
        return Err(AgentError::NotSimulation);
    }
    if !order.simulation && !line.transport.is_private() {
        return Err(AgentError::PlainHttp);
    }
    let mut work = Work {
        node,
        line,
        nonce,
        order,
        commit,
    };
    let computed = work.compute()?;
    let filled = work.fill()?;
    let (proved, blocks) = work.open(&computed, &filled)?;
    work.report(
        verification_id,
        signer,
        &computed,
        &filled,
        &proved,
        &blocks,
    )
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

/// What step 2 leaves for later ones.
struct Computed {
    roots: Roots,
    products: Vec<CommittedProduct>,
    choices: Choices,
}

/// What step 3 leaves for later ones.
struct FilledMemory {
    filled: Vec<Filled>,
    earlier: Vec<PatternCheck>,
    key: Digest,
}

/// An accepted order on a node.
struct Work<'a> {
    node: &'a mut Node,
    line: Line<'a>,
    nonce: Digest,
    order: VerificationOrder,
    commit: Commit,
}

impl Work<'_> {
    /// One thing for each GPU that needs nothing from an earlier step.
    fn nothing(&self) -> Vec<()> {
        vec![(); self.node.devices.len()]
    }

    fn compute(&mut self) -> Result<Computed, AgentError> {
        let began = Instant::now();
        let (nonce, work) = (&self.nonce, &self.order.gemm);
        let inventory = self.node.inventory();
        let (gpus, products) = self
            .node
            .on_all(self.nothing(), |gpu, device, ()| {
                probe::gemm::commit(device, nonce, gpu, work)
            })?
            .into_iter()
            .unzip();
        let roots = Roots {
            agent_key: self.commit.agent_key.clone(),
            inventory,
            gpus,
        };
        let choices = self.line.exchange(Step::Roots, &roots, began)?;
        Ok(Computed {
            roots,
            products,
            choices,
        })
    }

    fn fill(&mut self) -> Result<FilledMemory, AgentError> {
        let began = Instant::now();
        let (nonce, work) = (&self.nonce, &self.order.memory);
        let (filled, earlier): (Vec<Filled>, _) = self
            .node
            .on_all(self.nothing(), |gpu, device, ()| {
                probe::memory::fill(device, nonce, gpu, work)
            })?
            .into_iter()
            .unzip();
        let fill = Fill {
            agent_key: self.commit.agent_key.clone(),
            gpus: filled.clone(),
        };
        let FreshKey { key } = self.line.exchange(Step::Fill, &fill, began)?;
        Ok(FilledMemory {
            filled,
            earlier,
            key,
        })
    }

    fn open(
        &mut self,
        computed: &Computed,
        memory: &FilledMemory,
    ) -> Result<(Vec<ProvedMemory>, BlockChoices), AgentError> {
        let began = Instant::now();
        let (nonce, work, key) = (&self.nonce, &self.order.memory, &memory.key);
        let proved = self
            .node
            .on_all(memory.earlier.clone(), |gpu, device, earlier| {
                probe::memory::prove(device, nonce, gpu, work, key, earlier)
            })?;
        let seed = &computed.choices.freivalds_seed;
        let chosen = computed.products.iter().zip(&computed.choices.rows);
        let gpus = chosen.zip(&proved).map(|((product, rows), proved)| {
            let (rows, product) = product.open(seed, rows);
            GpuOpenings {
                rows,
                product,
                memory_root: proved.root(),
                bad_words: proved.check.bad_words,
                lowest_bad_offset: proved.check.lowest_bad_offset,
            }
        });
        let agent_key = self.commit.agent_key.clone();
        let openings = Openings {
            agent_key,
            gpus: gpus.collect(),
        };
        let blocks = self.line.exchange(Step::Openings, &openings, began)?;
        Ok((proved, blocks))
    }

    fn report(
        mut self,
        verification_id: VerificationId,
        signer: &Signer,
        computed: &Computed,
        memory: &FilledMemory,
        proved: &[ProvedMemory],
        blocks: &BlockChoices,
    ) -> Result<AgentOutcome, AgentError> {
        let began = Instant::now();
        let work = &self.order.bandwidth;
        let rates = self.node.on_all(self.nothing(), |_, device, ()| {
            probe::bandwidth::measure(device, work)
        })?;
        let gpus = computed
            .roots
            .gpus
            .iter()
            .zip(&memory.filled)
            .zip(proved)
            .zip(rates);
        let gpus = gpus.map(|(((committed, filled), proved), copy_mb_per_s)| GpuReport {
            checksums: committed.checksums.clone(),
            allocatable_mib: filled.allocatable_mib,
            bad_words: proved.check.bad_words,
            copy_mb_per_s,
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
            inventory: computed.roots.inventory.clone(),
            gpus: gpus.collect(),
            durations: self.line.durations.clone(),
        };
        let header = Header::new(DocumentType::Report, verification_id, Some(self.nonce));
        let opened = proved
            .iter()
            .zip(&blocks.blocks)
            .map(|(proved, blocks)| proved.open(blocks));
        let submission = ReportSubmission {
            agent_key: self.commit.agent_key,
            blocks: opened.collect(),
            report: signer.sign(&header, &report)?,
        };
        let reply: ReportReply = self.line.exchange(Step::Report, &submission, began)?;
        let ReportReply {
            verdict,
            attestation_id,
        } = reply;
        Ok(AgentOutcome {
            verdict,
            attestation_id,
            durations: self.line.durations,
        })
    }
}
