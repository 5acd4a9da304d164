//! The broker's knowledge of a node during the conversation, and how answers are added to it.
//!
//! Checking happens here, judging in [`crate::rules`]: evidence states "row 7 is wrong", a rule decides its
//! meaning.

use chrono::{DateTime, Utc};
use market::attestation::{Finding, FindingCode};
use market::ids::{OfferId, ProviderId};
use market::verification::{
    AgentReport, BlockChoices, Choices, Commit, Digest, Filled, Inventory, MemoryWork, NodeFacts,
    OpenedBlock, Openings, ReportSubmission, Roots, Step, Trouble, VerificationOrder, Word64,
};
use serde::{Deserialize, Serialize};

use crate::gemm::{Chain, OpenedProduct, check_products, freivalds_vector};
use crate::jws::{DocumentType, PublicKey};
use crate::memory::{self, Contents};
use crate::plain::is_name;

/// For orders up to this much of a GPU's memory, the broker recomputes the whole tree. Units: bytes.
const RECOMPUTED_BYTES: u64 = 16 << 20;

/// When one step was answered, by the broker's clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepTime {
    /// The step.
    pub step: Step,
    /// From the broker's answer before to this answer, ms.
    pub elapsed_ms: u64,
    /// What the order allowed, ms.
    pub deadline_ms: u64,
}

impl StepTime {
    /// Whether the answer came after its deadline.
    #[must_use]
    pub const fn is_late(&self) -> bool {
        self.elapsed_ms > self.deadline_ms
    }
}

/// One GPU's memory, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvidence {
    /// Bad words that the agent counted.
    pub bad_words: u64,
    /// The lowest byte offset of such a word.
    pub lowest_bad_offset: Option<u64>,
    /// The root that the agent committed to.
    pub root: Digest,
    /// The error that the broker found in the proof.
    pub problem: Option<String>,
    /// Whether its blocks were not opened and the node gives a reason.
    #[serde(default)]
    pub unopened: bool,
}

/// The signed report, as far as it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEvidence {
    /// The hash of the report as sent.
    pub digest: Digest,
    /// The error in signature or form.
    pub signature_problem: Option<String>,
    /// Where the report differs from this conversation.
    pub content_problem: Option<String>,
    /// Whether the report declares that something was modelled.
    pub simulated: bool,
    /// Per GPU, the samples of the copy rate, 1e6 bytes per second.
    pub copy_mb_per_s: Vec<Vec<u64>>,
    /// Observations beyond the conversation.
    pub facts: Option<Box<NodeFacts>>,
    /// The reasons why the agent could not go on.
    pub troubles: Vec<Trouble>,
}

impl ReportEvidence {
    /// Whether it is signed by the committed key; otherwise nothing else in it counts.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        self.signature_problem.is_none()
    }
}

/// Claims of another node of the rental so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sibling {
    /// Its number.
    pub node: u32,
    /// The ids of its GPUs.
    pub uuids: Vec<String>,
    /// The serial numbers of their boards, as far as the node reported them.
    pub serials: Vec<String>,
}

/// How a GPU is sold: by whom, and as which offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The provider.
    pub provider: ProviderId,
    /// The offer.
    pub offer: OfferId,
    /// Whether the provider is a marketplace, whose sellers each describe their own machines.
    #[serde(default)]
    pub of_peers: bool,
}

/// An earlier sighting of a GPU in another lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// The GPU as it showed itself.
    pub gpu: ShownGpu,
    /// How it was sold then.
    pub listing: Listing,
    /// Its standing since.
    pub standing: Standing,
}

/// The standing of a GPU that was seen in another lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// That lease is live: it is used, or about to be.
    InUse,
    /// Its node failed these checks recently.
    Quarantined(Vec<FindingCode>),
    /// That lease is over.
    Before,
}

/// A GPU's claims about itself, by which it is recognised later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGpu {
    /// Its id.
    pub uuid: String,
    /// The serial number of its board, where the driver reports it and no other GPU has the same.
    pub serial: Option<String>,
    /// The name of its kind.
    pub name: String,
    /// Its memory, MiB.
    pub memory_mib: u32,
}

/// Earlier sightings of a node's GPUs in other leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// How the node is sold now.
    pub listing: Listing,
    /// The sightings, the latest first.
    pub seen: Vec<Sighting>,
}

/// Everything known so far. An absent field was not answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The node's claims.
    pub inventory: Option<Inventory>,
    /// Per GPU, the root over its chain of products.
    pub product_roots: Vec<Digest>,
    /// Per GPU, the checksums of the first product after each iteration.
    pub checksums: Vec<Vec<Word64>>,
    /// Per GPU, the errors found in its products, once they were opened.
    pub products: Option<Vec<Option<String>>>,
    /// Per GPU, its filled memory.
    pub filled: Option<Vec<Filled>>,
    /// Per GPU, the root of the tree over memory under the fresh key.
    #[serde(default)]
    pub memory_roots: Vec<Digest>,
    /// Per GPU, the evidence on its memory.
    pub memory: Option<Vec<MemoryEvidence>>,
    /// The report.
    pub report: Option<ReportEvidence>,
    /// The other nodes of the rental.
    #[serde(default)]
    pub siblings: Vec<Sibling>,
    /// The ids of the GPUs that were handed over with it; absent unless the node is in use.
    #[serde(default)]
    pub pinned: Option<Vec<String>>,
    /// Sightings of its GPUs in other leases; absent where nobody keeps a history.
    #[serde(default)]
    pub history: Option<History>,
    /// Why it is not measured with all others of its gang, if it is not.
    #[serde(default)]
    pub apart: Option<Finding>,
    /// Its address at the provider, where that does not come from the agent.
    #[serde(default)]
    pub known_at: Option<String>,
    /// When the report came, by the broker's clock; absent before.
    #[serde(default)]
    pub reported_at: Option<DateTime<Utc>>,
    /// The steps that the node has answered.
    pub times: Vec<StepTime>,
}

impl Evidence {
    /// How many GPUs the node claimed.
    #[must_use]
    pub fn gpu_count(&self) -> usize {
        self.inventory
            .as_ref()
            .map_or(0, |inventory| inventory.gpus.len())
    }

    /// The order's part of a GPU's memory, limited to the part that can be allocated.
    #[must_use]
    pub fn memory_work(&self, ordered: &MemoryWork, gpu: u32) -> MemoryWork {
        let filled = self.filled.iter().flatten().nth(gpu as usize);
        filled.map_or_else(
            || ordered.clone(),
            |filled| memory::work_where(ordered, filled.allocatable_mib),
        )
    }

    /// The hash of the kernels that measured, if the node signed it.
    #[must_use]
    pub fn kernels(&self) -> Option<Digest> {
        let report = self.report.as_ref().filter(|report| report.is_signed())?;
        report.facts.as_ref()?.kernels
    }

    /// Adds the answer to step 2.
    pub fn add_roots(&mut self, roots: &Roots) {
        self.inventory = Some(roots.inventory.clone());
        self.product_roots = roots.gpus.iter().map(|gpu| gpu.chain).collect();
        self.checksums = roots.gpus.iter().map(|gpu| gpu.checksums.clone()).collect();
    }

    /// Checks the openings of step 5.
    ///
    /// Work: that of [`check_products`] per leased GPU, and the whole memory tree for small orders. GPUs
    /// beyond the lease fail the node by their count; nothing is computed for them.
    pub fn add_openings(
        &mut self,
        nonce: &Digest,
        order: &VerificationOrder,
        choices: &Choices,
        key: &Digest,
        openings: &Openings,
    ) {
        let mut products = Vec::new();
        let mut memory = Vec::new();
        let answers = openings
            .gpus
            .iter()
            .zip(&self.product_roots)
            .zip(&self.memory_roots)
            .zip(&choices.rows);
        for ((((opened, root), held), rows), gpu) in answers.zip(0..) {
            let claimed = |problem| MemoryEvidence {
                bad_words: opened.bad_words,
                lowest_bad_offset: opened.lowest_bad_offset,
                root: *held,
                problem,
                unopened: false,
            };
            if gpu >= order.expected.gpus {
                memory.push(claimed(None));
                continue;
            }
            let chain = Chain::derive(nonce, gpu, &order.gemm);
            let vector = freivalds_vector(&choices.freivalds_seed, gpu, order.gemm.n);
            let answer = OpenedProduct {
                root,
                rows: &opened.rows,
                product: &opened.product,
            };
            let ordered = (&chain, order.gemm.links);
            let checked = check_products(ordered, &vector, rows, answer);
            products.push(checked.err().map(|wrong| wrong.to_string()));
            let work = self.memory_work(&order.memory, gpu);
            let work = (&order.memory, &work);
            let wrong = wrong_memory(&choices.fill_seed, gpu, work, key, held);
            memory.push(claimed(wrong));
        }
        self.products = Some(products);
        self.memory = Some(memory);
    }

    /// Checks the blocks opened in step 6, for the leased GPUs.
    pub fn add_blocks(
        &mut self,
        fill_seed: &Digest,
        order: &VerificationOrder,
        key: &Digest,
        choices: &BlockChoices,
        submission: &ReportSubmission,
    ) {
        let leased = order.expected.gpus;
        let works: Vec<MemoryWork> = (0..leased)
            .map(|gpu| self.memory_work(&order.memory, gpu))
            .collect();
        let report = self.report.as_ref().filter(|report| report.is_signed());
        let troubles = report.map_or(&[][..], |report| &report.troubles);
        let memory = self.memory.iter_mut().flatten().zip(&works);
        let answers = memory.zip(&submission.blocks).zip(&choices.blocks).zip(0..);
        for ((((evidence, work), opened), chosen), gpu) in answers {
            let contents = Contents::derive(fill_seed, gpu, memory::proved_pattern(work));
            let root = evidence.root;
            let is_in_trouble = troubles.iter().any(|trouble| trouble.gpu == Some(gpu));
            if opened.is_empty() && is_in_trouble {
                evidence.unopened = true;
                continue;
            }
            evidence.problem = evidence
                .problem
                .take()
                .or_else(|| wrong_block(&contents, work, key, &root, chosen, opened));
        }
    }

    /// Checks the signed report against its conversation.
    pub fn add_report(&mut self, jws: &str, commit: &Commit, said: &Said<'_>) {
        let digest = Digest(*blake3::hash(jws.as_bytes()).as_bytes());
        let read = PublicKey::parse(commit.agent_key.as_str())
            .and_then(|key| key.verify::<AgentReport>(jws, &[DocumentType::Report]));
        self.report = Some(match read {
            Err(refusal) => ReportEvidence {
                digest,
                signature_problem: Some(refusal.to_string()),
                content_problem: None,
                simulated: false,
                copy_mb_per_s: Vec::new(),
                facts: None,
                troubles: Vec::new(),
            },
            Ok((header, report)) => {
                if self.inventory.is_none() && is_early(&report) {
                    self.inventory = Some(report.inventory.clone());
                }
                let header_fits = header.verification_id == report.verification_id
                    && header.nonce == Some(report.nonce);
                let problem = (!header_fits)
                    .then(|| "header and report name different conversations".to_owned())
                    .or_else(|| self.report_problem(&report, commit, said));
                ReportEvidence {
                    digest,
                    signature_problem: None,
                    content_problem: problem,
                    simulated: report.simulated,
                    copy_mb_per_s: report
                        .gpus
                        .into_iter()
                        .map(|gpu| gpu.copy_mb_per_s)
                        .collect(),
                    facts: report.facts.map(with_plain_serials),
                    troubles: report.troubles,
                }
            }
        });
    }

    fn report_problem(
        &self,
        report: &AgentReport,
        commit: &Commit,
        said: &Said<'_>,
    ) -> Option<String> {
        let early = is_early(report);
        let checksums = report.gpus.iter().map(|gpu| &gpu.checksums);
        let facts = report.facts.as_ref();
        let memory = self.memory.iter().flatten();
        let filled = self.filled.iter().flatten();
        let checks = [
            (report.protocol == commit.protocol, "the protocol version"),
            (
                report.verification_id == said.verification_id,
                "the verification",
            ),
            (report.nonce == *said.nonce, "the nonce"),
            (report.transcript == said.transcript, "the transcript"),
            (report.agent == commit.agent, "the agent"),
            (
                report.device_kind == commit.device_kind,
                "the kind of device",
            ),
            (report.host == commit.host, "the host"),
            (
                Some(&report.inventory) == self.inventory.as_ref(),
                "the inventory",
            ),
            (report.gpus.len() == self.gpu_count(), "the number of GPUs"),
            (
                facts.is_none_or(|facts| facts.gpus.len() == self.gpu_count()),
                "the number of GPUs that were observed",
            ),
            (
                early && self.checksums.is_empty() || checksums.eq(&self.checksums),
                "the checksums",
            ),
            (
                early && self.memory.is_none()
                    || report
                        .gpus
                        .iter()
                        .map(|g| g.bad_words)
                        .eq(memory.map(|m| m.bad_words)),
                "the bad words",
            ),
            (
                early && self.filled.is_none()
                    || report
                        .gpus
                        .iter()
                        .map(|g| g.allocatable_mib)
                        .eq(filled.map(|f| f.allocatable_mib)),
                "the memory that could be allocated",
            ),
            (
                !report.simulated || said.may_be_simulated,
                "whether it is of a simulated device",
            ),
        ];
        let (_, what) = checks.into_iter().find(|(same, _)| !same)?;
        Some(format!("{what} differs from what this conversation said"))
    }
}

/// The longest serial number of a board. Units: bytes.
const LONGEST_SERIAL: usize = 128;

/// The same facts without serial numbers that are not valid names: such a number could differ between storage
/// and comparison.
pub(crate) fn with_plain_serials(mut facts: Box<NodeFacts>) -> Box<NodeFacts> {
    for gpu in &mut facts.gpus {
        let fits = |serial: &String| serial.len() <= LONGEST_SERIAL && is_name(serial);
        gpu.serial = gpu.serial.take().filter(fits);
    }
    facts
}

/// Whether an agent that could not go on may report before its step. Its report then includes the data of the
/// missing steps, and nothing is known to compare that with.
fn is_early(report: &AgentReport) -> bool {
    !report.troubles.is_empty()
}

/// The broker's own part of a conversation.
#[derive(Debug, Clone, Copy)]
pub struct Said<'a> {
    /// Its id.
    pub verification_id: market::ids::VerificationId,
    /// Its nonce.
    pub nonce: &'a Digest,
    /// The hash over the steps before.
    pub transcript: Digest,
    /// Whether simulated devices are accepted.
    pub may_be_simulated: bool,
}

/// The errors in the tree over a memory that show without opening it. The order decides whether the whole
/// tree is recomputed, not the amount that the node claims to hold.
fn wrong_memory(
    fill_seed: &Digest,
    gpu: u32,
    (ordered, work): (&MemoryWork, &MemoryWork),
    key: &Digest,
    root: &Digest,
) -> Option<String> {
    if work.pattern_bytes == 0 {
        return Some("no block of it was filled".to_owned());
    }
    let contents = Contents::derive(fill_seed, gpu, memory::proved_pattern(work));
    let wrong = ordered.pattern_bytes <= RECOMPUTED_BYTES
        && memory::expected_root(&contents, work, key) != *root;
    wrong.then(|| "the hash of memory is not that of the pattern".to_owned())
}

fn wrong_block(
    contents: &Contents,
    work: &MemoryWork,
    key: &Digest,
    root: &Digest,
    chosen: &[u64],
    opened: &[OpenedBlock],
) -> Option<String> {
    if !opened
        .iter()
        .map(|block| block.block)
        .eq(chosen.iter().copied())
    {
        return Some("other blocks than the chosen ones were opened".to_owned());
    }
    let count = memory::block_count(work);
    opened.iter().find_map(|block| {
        let at = block.block;
        if !memory::is_committed(root, block, count) {
            return Some(format!("block {at} is not in the committed tree"));
        }
        let right = memory::expected_digest(contents, work, at, key) == block.digest;
        (!right).then(|| format!("block {at} does not hold the pattern"))
    })
}
