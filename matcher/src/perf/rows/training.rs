//! Rows of training runs.

use serde::Deserialize;

use super::{RowError, RowFigures, Value, chip, model};
use crate::perf::chip::Product;
use crate::perf::constants::TrainingConstants;
use crate::perf::step_time::{Cluster, Job, Layout, Recompute, Stack, Strategy, step_time};

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
}

impl Row {
    fn layout(&self) -> Result<Layout, RowError> {
        let at_least_one = |cell: Option<f64>| cell.unwrap_or(1.0).max(1.0);
        Ok(Layout {
            tensor: at_least_one(self.tp),
            pipeline: at_least_one(self.pp),
            chunks: at_least_one(self.vpp),
            context: at_least_one(self.cp),
            expert: at_least_one(self.ep),
            strategy: strategy(&self.strategy)?,
            micro_batches: at_least_one(self.micro_batches),
        })
    }
}

pub(super) fn predict(constants: &TrainingConstants, row: &Row) -> Result<Value, RowError> {
    let figures = RowFigures {
        params_b: row.params_b,
        active_b: row.active_b,
        layers: row.layers,
        hidden: row.hidden,
        heads: row.heads,
        kv_heads: None,
    };
    let model = model(&row.model, &figures)?;
    let chip = chip(&row.gpu)?;
    if row.gpus < 1.0 || row.gpus_per_node < 1.0 {
        return Err(RowError::Missing("gpus and gpus_per_node of one or more"));
    }
    if row.gpus > row.gpus_per_node && row.internode_gb_s_per_node.is_none() {
        return Err(RowError::Missing("internode_gb_s_per_node"));
    }
    let cluster = Cluster {
        chip: &chip,
        gpus: row.gpus,
        domain_gpus: row.gpus_per_node,
        net_bytes_per_second: row.internode_gb_s_per_node.unwrap_or(0.0) * 1e9,
    };
    let job = Job {
        model: &model,
        sequence_tokens: row.seq.ok_or(RowError::Missing("seq"))?,
        micro_batch: row.mbs.unwrap_or(1.0).max(1.0),
        product: product(&row.precision)?,
        recompute: recompute(&row.recompute)?,
        flop_per_param: row.flops_mult.unwrap_or(6.0),
        stack: stack(&row.framework)?,
    };
    let step = step_time(constants, &cluster, &job, &row.layout()?);
    Ok(Value {
        value: step.tokens_per_second_gpu(),
        unit: "tok/s/GPU".to_owned(),
        basis: chip.training_basis,
        chip: chip.name.clone(),
    })
}

fn product(word: &str) -> Result<Product, RowError> {
    match word {
        "bf16" | "fp16" => Ok(Product::Bf16),
        "fp8" => Ok(Product::Fp8),
        "fp4" => Ok(Product::Fp4),
        _ => Err(unknown("precision", word, "bf16, fp16, fp8, fp4")),
    }
}

fn recompute(word: &str) -> Result<Recompute, RowError> {
    match word {
        "none" | "" => Ok(Recompute::None),
        "selective" => Ok(Recompute::Selective),
        "full" => Ok(Recompute::Full),
        _ => Err(unknown("recompute", word, "none, selective, full")),
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
        _ => Err(unknown(
            "framework",
            word,
            "megatron, megatron-deepspeed, pytorch-fsdp, torchtitan, internevo, deepspeed, hf-deepspeed",
        )),
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
        _ => Err(unknown(
            "strategy",
            word,
            "fsdp_full, fsdp_grad_op, fsdp_zero2, hsdp, zero1_node, zero1, ddp, lora, lora_zero3",
        )),
    }
}

fn unknown(column: &'static str, word: &str, known: &'static str) -> RowError {
    RowError::UnknownWord {
        column,
        word: word.to_owned(),
        known,
    }
}
