//! What the broker knows of a node while the conversation goes on, and how answers become it.
//!
//! Checking happens here, judging in [`crate::rules`]: evidence says "row 7 is wrong", a rule says
//! what that means.

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

/// Where no more is ordered of a GPU's memory, the broker recomputes the whole tree over it. Units: bytes.
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

/// One GPU's memory as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryEvidence {
    /// Bad words that the agent counted.
    pub bad_words: u64,
    /// The lowest byte offset of such a word.
    pub lowest_bad_offset: Option<u64>,
    /// The root that the agent committed to.
    pub root: Digest,
    /// What the broker found wrong with the proof.
    pub problem: Option<String>,
    /// Whether its blocks were not opened, by a node that says what kept the GPU from it.
    #[serde(default)]
    pub unopened: bool,
}

/// The signed report as far as it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportEvidence {
    /// The hash of the report as sent.
    pub digest: Digest,
    /// What is wrong with signature or form.
    pub signature_problem: Option<String>,
    /// Where the report differs from this conversation.
    pub content_problem: Option<String>,
    /// Whether the report says that something was modelled.
    pub simulated: bool,
    /// Per GPU, the samples of the copy rate, 1e6 bytes per second.
    pub copy_mb_per_s: Vec<Vec<u64>>,
    /// What was observed beyond the conversation.
    pub facts: Option<Box<NodeFacts>>,
    /// What kept the agent from going on.
    pub troubles: Vec<Trouble>,
}

impl ReportEvidence {
    /// Whether it is signed by the committed key; nothing else in it counts otherwise.
    #[must_use]
    pub const fn is_signed(&self) -> bool {
        self.signature_problem.is_none()
    }
}

/// What another node of the rental has claimed so far.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sibling {
    /// Its number.
    pub node: u32,
    /// The ids of its GPUs.
    pub uuids: Vec<String>,
    /// The serial numbers of their boards, as far as it has told.
    pub serials: Vec<String>,
}

/// How a GPU is sold: by whom, and as which offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The provider.
    pub provider: ProviderId,
    /// The offer.
    pub offer: OfferId,
    /// Whether it is a machine of other people's, each of whom may say of his own what he likes.
    #[serde(default)]
    pub of_peers: bool,
}

/// What was seen of a GPU in another lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sighting {
    /// What it showed.
    pub gpu: ShownGpu,
    /// As what it was sold then.
    pub listing: Listing,
    /// What is known of it since.
    pub standing: Standing,
}

/// What is known of a GPU that was seen in another lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// That lease stands: it is used, or about to be.
    InUse,
    /// Its node failed these checks then, and that is not long ago.
    Quarantined(Vec<FindingCode>),
    /// That lease is over.
    Before,
}

/// What a GPU shows of itself, by which it is known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownGpu {
    /// Its id.
    pub uuid: String,
    /// The serial number of its board, where the driver tells and no other GPU has it too.
    pub serial: Option<String>,
    /// The name of its kind.
    pub name: String,
    /// Its memory, MiB.
    pub memory_mib: u32,
}

/// What was seen of a node's GPUs in other leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// As what the node is sold now.
    pub listing: Listing,
    /// What was seen, the latest first.
    pub seen: Vec<Sighting>,
}

/// Everything known so far. What is absent was not answered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// What the node claimed.
    pub inventory: Option<Inventory>,
    /// Per GPU, the root over its chain of products.
    pub product_roots: Vec<Digest>,
    /// Per GPU, the checksums of the first product after each iteration.
    pub checksums: Vec<Vec<Word64>>,
    /// Per GPU, what was found wrong with its products, once they were opened.
    pub products: Option<Vec<Option<String>>>,
    /// Per GPU, what was filled.
    pub filled: Option<Vec<Filled>>,
    /// Per GPU, the root of the tree over memory under the fresh key.
    #[serde(default)]
    pub memory_roots: Vec<Digest>,
    /// Per GPU, what memory turned out to be.
    pub memory: Option<Vec<MemoryEvidence>>,
    /// The report.
    pub report: Option<ReportEvidence>,
    /// The other nodes of the rental.
    #[serde(default)]
    pub siblings: Vec<Sibling>,
    /// The ids of the GPUs that were handed over with it; absent where it is not in use.
    #[serde(default)]
    pub pinned: Option<Vec<String>>,
    /// What was seen of its GPUs in other leases; absent where nobody keeps a history.
    #[serde(default)]
    pub history: Option<History>,
    /// Why it is not measured with all others of its gang, where that is so.
    #[serde(default)]
    pub apart: Option<Finding>,
    /// The address at which its provider has it, where that is no claim of the agent.
    #[serde(default)]
    pub known_at: Option<String>,
    /// When the report came, by the broker's clock; absent before.
    #[serde(default)]
    pub reported_at: Option<DateTime<Utc>>,
    /// The steps that were answered.
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

    /// What the order wants of a GPU's memory, as far as that says that so much can be had.
    #[must_use]
    pub fn memory_work(&self, ordered: &MemoryWork, gpu: u32) -> MemoryWork {
        let filled = self.filled.iter().flatten().nth(gpu as usize);
        filled.map_or_else(
            || ordered.clone(),
            |filled| memory::work_where(ordered, filled.allocatable_mib),
        )
    }

    /// The hash of the kernels that measured, as far as the node signed it.
    #[must_use]
    pub fn kernels(&self) -> Option<Digest> {
        let report = self.report.as_ref().filter(|report| report.is_signed())?;
        report.facts.as_ref()?.kernels
    }

    /// Takes over what step 2 said.
    pub fn add_roots(&mut self, roots: &Roots) {
        self.inventory = Some(roots.inventory.clone());
        self.product_roots = roots.gpus.iter().map(|gpu| gpu.chain).collect();
        self.checksums = roots.gpus.iter().map(|gpu| gpu.checksums.clone()).collect();
    }

    /// Checks what step 5 opened.
    ///
    /// Work: that of [`check_products`] per GPU leased, and the whole memory tree for small orders.
    /// What a node shows beyond those fails it by its count and is not computed for.
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

    /// Checks the blocks that step 6 opened, of the GPUs leased.
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

    /// Checks the signed report against the conversation that it belongs to.
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

/// The same facts, in which a serial number that is no name says nothing: kept and compared it would be two.
pub(crate) fn with_plain_serials(mut facts: Box<NodeFacts>) -> Box<NodeFacts> {
    for gpu in &mut facts.gpus {
        let fits = |serial: &String| serial.len() <= LONGEST_SERIAL && is_name(serial);
        gpu.serial = gpu.serial.take().filter(fits);
    }
    facts
}

/// Whether an agent that could not go on may report before its step: then it says what the steps
/// that are missing would have said, and nothing to hold that against is known.
fn is_early(report: &AgentReport) -> bool {
    !report.troubles.is_empty()
}

/// What the broker itself said in a conversation.
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

/// What is wrong with the tree over a memory, as far as that can be told without opening it. Whether all of it is
/// made anew follows from what was ordered, and not from how little the node says that it has.
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
