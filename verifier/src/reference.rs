//! The CPU reference device: every answer is computed bit for bit, speed is modelled.
//!
//! It simulates the node of a description file. It really fills and checks the ordered memory and really
//! computes the product; only bandwidth, identity and capacity come from the description. All its reports are
//! marked as simulated.

use std::path::Path;

use market::fabric::Internode;
use market::gpu::Gpu;
use market::verification::{
    DeviceKind, Digest, ExpectedNode, GpuClaim, GpuFacts, NodeFacts, TroubleKind, Word64,
};
use serde::{Deserialize, Serialize};

use crate::device::{Device, DeviceError, Node, PatternCheck, Rate, Surroundings};
use crate::gemm::{GemmInputs, checksum, row_sum};
use crate::memory::{Contents, digests, hash_point};
use crate::pretend::{self, Kind, SeededRng};
use crate::tensor::{Format, TensorRun, TensorWork, expected_checksum};

/// The description format that is read here.
const SCHEMA: &str = "simulated-node-1";
/// The share of the published bandwidth that a good simulated GPU reaches.
const GOOD_SHARE: f64 = 0.95;
/// The virtual CPUs of a node whose seller does not publish them.
const USUAL_VCPUS: u32 = 32;
/// The memory of a node whose seller does not publish it, GiB.
const USUAL_MEMORY_GIB: u32 = 256;
/// The driver of a node.
const USUAL_DRIVER: &str = "570.124.06";

/// Why a description cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum DescriptionError {
    /// The file cannot be read.
    #[error("cannot read the node description {path}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a description.
    #[error("the node description does not have the form `{SCHEMA}`")]
    Form(#[from] serde_json::Error),
    /// The description contradicts itself.
    #[error("the node description is impossible: {0}")]
    Impossible(&'static str),
}

/// A simulated node, as its author describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeDescription {
    /// Always `simulated-node-1`.
    pub schema: String,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// Its address.
    pub host: String,
    /// The kind of its GPUs.
    pub gpu: Gpu,
    /// How many GPUs it shows.
    pub gpus: u32,
    /// Memory of one GPU as its driver reports it, MiB.
    pub memory_mib: u32,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Host memory, GiB.
    pub memory_gib: u32,
    /// The ids of its GPUs.
    pub uuids: Vec<String>,
    /// The driver's version.
    pub driver: String,
    /// The speed of memory, 1.0 for a good card.
    #[serde(default = "full_speed")]
    pub memory_speed: f64,
    /// The network to its sibling nodes.
    pub internode: Internode,
    /// The adapters to that network, in the system's order.
    #[serde(default)]
    pub nics: Vec<String>,
    /// The public keys of its SSH server.
    #[serde(default)]
    pub ssh_host_keys: Vec<String>,
    /// How many words of the first GPU lose a bit each time memory is filled.
    #[serde(default)]
    pub bad_words: u32,
    /// The other node of its lease or gang to which its link is slow.
    #[serde(default)]
    pub slow_link_to: Option<u32>,
}

const fn full_speed() -> f64 {
    1.0
}

impl NodeDescription {
    /// A good node that matches its offer, at this address, with GPUs of these ids.
    #[must_use]
    pub fn as_sold(sold: &ExpectedNode, host: String, uuids: Vec<String>) -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            node_index: 0,
            host,
            gpu: sold.gpu,
            gpus: sold.gpus,
            memory_mib: sold.memory_mib,
            vcpus: sold.vcpus.unwrap_or(USUAL_VCPUS),
            memory_gib: sold.memory_gib.unwrap_or(USUAL_MEMORY_GIB),
            uuids,
            driver: USUAL_DRIVER.to_owned(),
            memory_speed: full_speed(),
            internode: sold.internode.unwrap_or(Internode::Unknown),
            nics: Vec::new(),
            ssh_host_keys: Vec::new(),
            bad_words: 0,
            slow_link_to: None,
        }
    }

    /// Reads a description from its file.
    ///
    /// Errors: [`DescriptionError`].
    pub fn read(path: &Path) -> Result<Self, DescriptionError> {
        let text =
            std::fs::read_to_string(path).map_err(|source| DescriptionError::Unreadable {
                path: path.display().to_string(),
                source,
            })?;
        Self::parse(&text)
    }

    /// Reads a description from JSON.
    ///
    /// Errors: [`DescriptionError::Form`], [`DescriptionError::Impossible`].
    pub fn parse(text: &str) -> Result<Self, DescriptionError> {
        let description: Self = serde_json::from_str(text)?;
        if description.schema != SCHEMA {
            return Err(DescriptionError::Impossible("its schema is another one"));
        }
        if description.gpus > 64 || description.uuids.len() != description.gpus as usize {
            return Err(DescriptionError::Impossible(
                "it needs one id per GPU, of at most 64 GPUs",
            ));
        }
        if !(0.0..=100.0).contains(&description.memory_speed) {
            return Err(DescriptionError::Impossible(
                "memory_speed lies between 0 and 100",
            ));
        }
        Ok(description)
    }

    /// The inputs of the model of good nodes.
    fn kind(&self) -> Kind {
        Kind {
            gpu: self.gpu,
            gpus: self.gpus,
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            internode: self.internode,
        }
    }

    /// The node that it describes.
    #[must_use]
    pub fn node(&self) -> Node {
        let device = |(uuid, gpu): (&String, u32)| -> Box<dyn Device> {
            let bad_words = if gpu == 0 { self.bad_words } else { 0 };
            Box::new(ReferenceDevice::new(self, gpu, uuid, bad_words))
        };
        Node {
            host: self.host.clone(),
            kind: DeviceKind::Reference,
            simulated: true,
            driver: self.driver.clone(),
            vcpus: self.vcpus,
            memory_gib: self.memory_gib,
            internode: self.internode,
            nics: self.nics.clone(),
            ssh_host_keys: self.ssh_host_keys.clone(),
            devices: self.uuids.iter().zip(0..).map(device).collect(),
            surroundings: Some(Box::new(Pretended {
                facts: pretend::surroundings(
                    &self.kind(),
                    &mut SeededRng::new(self.host.as_bytes()),
                ),
            })),
            troubles: Vec::new(),
            slow_link_to: self.slow_link_to,
        }
    }
}

/// A simulated node's facts beyond its GPUs: those of a good one.
struct Pretended {
    facts: NodeFacts,
}

impl Surroundings for Pretended {
    fn before(&mut self) -> NodeFacts {
        self.facts.clone()
    }

    fn after(&mut self, _facts: &mut NodeFacts) {}
}

/// One simulated GPU.
#[derive(Debug)]
pub struct ReferenceDevice {
    gpu: u32,
    claim: GpuClaim,
    facts: GpuFacts,
    memory_speed: f64,
    good_mb_per_s: f64,
    bad_words: u32,
    memory: Vec<u32>,
    product: Vec<i32>,
}

impl ReferenceDevice {
    fn new(description: &NodeDescription, gpu: u32, uuid: &str, bad_words: u32) -> Self {
        let spec = description.gpu.spec();
        Self {
            gpu,
            claim: GpuClaim {
                name: description.gpu.name().to_owned(),
                uuid: uuid.to_owned(),
                memory_mib: description.memory_mib,
                sm_count: spec.sm_count,
            },
            facts: pretend::gpu(&description.kind(), &mut SeededRng::new(uuid.as_bytes())),
            memory_speed: description.memory_speed,
            good_mb_per_s: spec.memory_bandwidth_gbps
                * 1_000.0
                * GOOD_SHARE
                * description.memory_speed,
            bad_words,
            memory: Vec::new(),
            product: Vec::new(),
        }
    }
}

impl ReferenceDevice {
    /// The rows of the last product.
    fn rows(&self) -> impl Iterator<Item = &[i32]> {
        self.product.chunks(self.product.len().isqrt().max(1))
    }
}

impl Device for ReferenceDevice {
    fn claim(&self) -> GpuClaim {
        self.claim.clone()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        self.product = inputs.product();
        Ok(checksum(&self.product))
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        let rows = (0..).zip(self.rows());
        Ok(rows.map(|(row, values)| row_sum(row, values)).collect())
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        let row = |row: &u32| self.rows().nth(*row as usize).map(<[i32]>::to_vec);
        Ok(rows.iter().filter_map(row).collect())
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        // The driver reserves about a hundredth.
        Ok(self.claim.memory_mib - self.claim.memory_mib / 100)
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        let error = |what: String| DeviceError {
            gpu: self.gpu,
            kind: TroubleKind::OutOfMemory,
            what,
        };
        let words = usize::try_from(bytes / 4).map_err(|e| error(e.to_string()))?;
        self.memory.clear();
        self.memory
            .try_reserve_exact(words)
            .map_err(|e| error(e.to_string()))?;
        contents.write(words, &mut self.memory);
        let stride = words / (self.bad_words as usize + 1);
        for fault in 1..=self.bad_words as usize {
            if let Some(word) = self.memory.get_mut(fault * stride) {
                *word ^= 1 << (fault % 32);
            }
        }
        Ok(self.memory.len() as u64 * 4)
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        let (bad_words, first) = contents.differences(&self.memory);
        Ok(PatternCheck {
            bad_words,
            lowest_bad_offset: first.map(|index| index as u64 * 4),
        })
    }

    fn invert(&mut self, contents: &Contents, _down: bool) -> Result<PatternCheck, DeviceError> {
        let check = self.compare(contents)?;
        for word in &mut self.memory {
            *word = !*word;
        }
        Ok(check)
    }

    fn digest_blocks(
        &mut self,
        block_bytes: u32,
        key: &Digest,
    ) -> Result<Vec<Word64>, DeviceError> {
        Ok(digests(
            &self.memory,
            block_bytes as usize / 4,
            hash_point(key),
        ))
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        // Real samples vary by a few per mille; so do these, always in the same way.
        let scatter = 1.0 - f64::from(sample % 5) / 1_000.0;
        Ok((self.good_mb_per_s * scatter) as u64)
    }

    fn rate_mb_per_s(&mut self, rate: Rate, sample: u32) -> Result<Option<u64>, DeviceError> {
        let rates = &self.facts.rates;
        let (samples, speed) = match rate {
            Rate::Read => (&rates.read_mb_per_s, self.memory_speed),
            Rate::Triad => (&rates.triad_mb_per_s, self.memory_speed),
            Rate::FromHost => (&rates.from_host_mb_per_s, 1.0),
            Rate::ToHost => (&rates.to_host_mb_per_s, 1.0),
        };
        let shown = samples.iter().cycle().nth(sample as usize);
        Ok(shown.map(|rate| (*rate as f64 * speed) as u64))
    }

    fn tensor_products(&mut self, work: &TensorWork) -> Result<Option<TensorRun>, DeviceError> {
        let rates = &self.facts.rates;
        let samples = match work.format {
            Format::Bf16 => &rates.gemm_16bit_gflops,
            Format::Fp8 => &rates.gemm_fp8_gflops,
        };
        let run = |gflops: &u64| TensorRun {
            gflops: *gflops,
            checksums: match work.checked {
                0 => Vec::new(),
                checked => vec![expected_checksum(&work.inputs, work.most); checked as usize],
            },
        };
        Ok(samples.first().map(run))
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        Ok(self.facts.clone())
    }

    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        Ok(Some(Vec::new()))
    }
}
