//! Rows of training runs.

use market::counted::counted;
use serde::Deserialize;

use super::ranges::{COUNT, GPUS, TOKENS, check_split, whole, whole_or_one, within};
use super::{RowError, RowFigures, chip, model};
use crate::models::ModelFigures;
use crate::perf::chip::{Chip, Product};
use crate::perf::constants::{TrainingConstants, TrainingGround};
use crate::perf::step_time::{
    Cluster, Job, Layout, Recompute, Release, Stack, Strategy, step_time,
};

// The words that the columns accept.
pub(super) const PRECISIONS: &str = "bf16, fp16, fp8, fp4";
pub(super) const RECOMPUTATIONS: &str = "none, selective, full";
pub(super) const FRAMEWORKS: &str = "megatron, megatron-deepspeed, pytorch-fsdp, torchtitan, internevo, \
    deepspeed, hf-deepspeed";
pub(super) const STRATEGIES: &str = "fsdp_full, fsdp_grad_op, fsdp_zero2, hsdp, zero1_node, zero1, ddp, \
    lora, lora_zero3";

/// The columns that are read; blank ones are the usual of a small run.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    model: String,
    params_b: Option<f64>,
    active_b: Option<f64>,
    layers: Option<u32>,
    hidden: Option<u32>,
    heads: Option<u32>,
    seq: Option<f64>,
    mbs: Option<f64>,
    micro_batches: Option<f64>,
    precision: String,
    gpu: String,
    gpus: f64,
    gpus_per_node: f64,
    internode_gb_s_per_node: Option<f64>,
    framework: String,
    strategy: String,
    tp: Option<f64>,
    pp: Option<f64>,
    vpp: Option<f64>,
    cp: Option<f64>,
    ep: Option<f64>,
    recompute: String,
    flops_mult: Option<f64>,
    /// Where the row was published, with the release of the software where it is named.
    source_version: Option<String>,
}

impl Row {
    /// The layout of the model over so many GPUs.
    fn layout(&self, model: &ModelFigures, gpus: f64) -> Result<Layout, RowError> {
        let layout = Layout {
            tensor: whole_or_one("tp", self.tp, GPUS)?,
            pipeline: whole_or_one("pp", self.pp, GPUS)?,
            chunks: whole_or_one("vpp", self.vpp, GPUS)?,
            context: whole_or_one("cp", self.cp, GPUS)?,
            expert: whole_or_one("ep", self.ep, GPUS)?,
            strategy: strategy(&self.strategy)?,
            micro_batches: whole_or_one("micro_batches", self.micro_batches, COUNT)?,
        };
        check_split(model, layout.tensor, layout.pipeline)?;
        let replica = layout.tensor * layout.pipeline * layout.context;
        if gpus % replica != 0.0 {
            return Err(RowError::Layout(format!(
                "`tp` x `pp` x `cp` is {replica} and does not divide the {}; give a layout that does",
                counted(gpus, "GPU")
            )));
        }
        if layout.expert > gpus {
            return Err(RowError::Layout(format!(
                "`ep` {} is more than the {}; give no more",
                layout.expert,
                counted(gpus, "GPU")
            )));
        }
        Ok(layout)
    }
}

/// A run that was read, its model and chip found.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) model: ModelFigures,
    pub(super) chip: Chip,
    gpus: f64,
    domain_gpus: f64,
    net_bytes_per_second: f64,
    pub(super) sequence_tokens: f64,
    micro_batch: f64,
    pub(super) product: Product,
    recompute: Recompute,
    flop_per_param: f64,
    stack: Stack,
    release: Release,
    layout: Layout,
}

impl Run {
    pub(super) fn read(row: &Row) -> Result<Self, RowError> {
        let figures = RowFigures {
            params_b: row.params_b,
            active_b: row.active_b,
            layers: row.layers,
            hidden: row.hidden,
            heads: row.heads,
            kv_heads: None,
        };
        let gpus = whole("gpus", row.gpus, GPUS)?;
        let domain_gpus = whole("gpus_per_node", row.gpus_per_node, GPUS)?;
        let net_gb_s = match row.internode_gb_s_per_node {
            None if gpus > domain_gpus => {
                return Err(RowError::Missing("internode_gb_s_per_node"));
            }
            Some(rate) if gpus > domain_gpus => {
                within("internode_gb_s_per_node", rate, 0.001..=1e6)?
            }
            // One node has no use for it.
            rate => within("internode_gb_s_per_node", rate.unwrap_or(0.0), 0.0..=1e6)?,
        };
        let model = model(&row.model, &figures)?;
        let sequence_tokens = row.seq.ok_or(RowError::Missing("seq"))?;
        Ok(Self {
            layout: row.layout(&model, gpus)?,
            model,
            chip: chip(&row.gpu)?,
            gpus,
            domain_gpus,
            net_bytes_per_second: net_gb_s * 1e9,
            sequence_tokens: whole("seq", sequence_tokens, TOKENS)?,
            micro_batch: whole_or_one("mbs", row.mbs, COUNT)?,
            product: product(&row.precision)?,
            recompute: recompute(&row.recompute)?,
            flop_per_param: within("flops_mult", row.flops_mult.unwrap_or(6.0), 0.1..=100.0)?,
            stack: stack(&row.framework)?,
            release: release(row.source_version.as_deref().unwrap_or_default()),
        })
    }

    pub(super) fn ground(&self) -> TrainingGround {
        TrainingGround {
            mixture: self.model.is_mixture(),
            several_domains: self.gpus > self.domain_gpus,
            basis: self.chip.training_basis,
        }
    }

    /// Tokens per second on each GPU.
    pub(super) fn predict(&self, constants: &TrainingConstants) -> f64 {
        let cluster = Cluster {
            chip: &self.chip,
            gpus: self.gpus,
            domain_gpus: self.domain_gpus,
            net_bytes_per_second: self.net_bytes_per_second,
        };
        let job = Job {
            model: &self.model,
            sequence_tokens: self.sequence_tokens,
            micro_batch: self.micro_batch,
            product: self.product,
            recompute: self.recompute,
            flop_per_param: self.flop_per_param,
            // The reference counts no gathers of frozen weights.
            frozen_weight_bytes: 0.0,
            stack: self.stack,
            release: self.release,
        };
        step_time(constants, &cluster, &job, &self.layout).tokens_per_second_gpu()
    }
}

fn product(word: &str) -> Result<Product, RowError> {
    match word {
        "bf16" | "fp16" => Ok(Product::Bf16),
        "fp8" => Ok(Product::Fp8),
        "fp4" => Ok(Product::Fp4),
        _ => Err(unknown("precision", word, PRECISIONS)),
    }
}

fn recompute(word: &str) -> Result<Recompute, RowError> {
    match word {
        "none" | "" => Ok(Recompute::None),
        "selective" => Ok(Recompute::Selective),
        "full" => Ok(Recompute::Full),
        _ => Err(unknown("recompute", word, RECOMPUTATIONS)),
    }
}

fn stack(word: &str) -> Result<Stack, RowError> {
    match word {
        "megatron" => Ok(Stack::Megatron),
        "megatron-deepspeed" => Ok(Stack::MegatronDeepSpeed),
        "pytorch-fsdp" => Ok(Stack::PytorchFsdp),
        "torchtitan" => Ok(Stack::Torchtitan),
        "internevo" => Ok(Stack::InternEvo),
        "deepspeed" | "hf-deepspeed" => Ok(Stack::DeepSpeed),
        _ => Err(unknown("framework", word, FRAMEWORKS)),
    }
}

/// The age of the software, from words such as `26.04 NeMo Container`; without a version the software counts
/// as current.
fn release(version: &str) -> Release {
    let words: Vec<&str> = version.split_whitespace().collect();
    let number = words
        .windows(2)
        .find_map(|pair| (pair[1] == "NeMo").then_some(pair[0]));
    let mut parts = number.unwrap_or_default().split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(year)), Some(Ok(month))) if (year, month) < (26, 6) => Release::Earlier,
        _ => Release::Recent,
    }
}

fn strategy(word: &str) -> Result<Strategy, RowError> {
    match word {
        "fsdp_full" => Ok(Strategy::FullShard),
        "fsdp_grad_op" | "fsdp_zero2" => Ok(Strategy::GradientShard),
        "hsdp" => Ok(Strategy::HybridShard),
        "zero1_node" => Ok(Strategy::OptimiserInNode),
        "zero1" => Ok(Strategy::OptimiserShard),
        "ddp" => Ok(Strategy::Replicated),
        "lora" | "lora_zero3" => Ok(Strategy::Adapters),
        _ => Err(unknown("strategy", word, STRATEGIES)),
    }
}

fn unknown(column: &'static str, word: &str, known: &'static str) -> RowError {
    RowError::UnknownWord {
        column,
        word: word.to_owned(),
        known,
    }
}
