//! How the engine of a fleet is started: a command line for one copy, and the ports of all copies
//! on a node. It is what the prediction is of; nothing here runs it.
//!
//! How much of the memory an engine may take, each counts in its own way: TensorRT-LLM for the cache,
//! of what is free once the weights are loaded; vLLM for all, of the whole memory.

use market::ids::OfferId;
use serde::{Deserialize, Serialize};

use crate::fleet_search::FleetLine;
use crate::models;
use crate::perf::chip::Chip;
use crate::perf::replica::{CacheFormat, Engine, WeightFormat};
use crate::serve::ServeQuery;

/// The port of the first copy on a node; further copies take the ports after it.
const FIRST_PORT: u16 = 8_000;

/// How the engine is started on each node of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EngineLaunch {
    /// The offer.
    pub offer_id: OfferId,
    /// The engine.
    pub engine: String,
    /// Starts the first copy; further ones take the next GPUs and the next port. Weights in the
    /// wanted precision are expected under the model's name.
    pub command: String,
    /// The ports of all copies on a node, to be reached from where requests come in.
    #[schema(value_type = Vec<u32>)]
    pub ports: Vec<u16>,
}

/// The launch of each line of a fleet.
pub(crate) fn launches(query: &ServeQuery, lines: &[FleetLine<'_>]) -> Vec<EngineLaunch> {
    lines
        .iter()
        .filter_map(|line| launch(query, line))
        .collect()
}

/// `None` for a GPU that the models do not know, on which no fleet is predicted either.
fn launch(query: &ServeQuery, line: &FleetLine<'_>) -> Option<EngineLaunch> {
    let chip = line.row.spec.and_then(Chip::of_spec)?;
    let replica = &line.node.replica;
    let vllm = replica.engine == Engine::VllmAmd;
    let model = models::repository_of(&query.work.model.name).unwrap_or("MODEL");
    let (tensor, stages) = (replica.tensor, replica.gpus / replica.tensor);
    let batch = replica.whole_batch();
    let longest = query.work.input_tokens + query.work.output_tokens;
    let gpus: Vec<String> = (0..replica.gpus).map(|gpu| gpu.to_string()).collect();
    let gpus = gpus.join(",");
    let command = if vllm {
        format!(
            "HIP_VISIBLE_DEVICES={gpus} vllm serve {model} --tensor-parallel-size {tensor} \
             --pipeline-parallel-size {stages} --max-num-seqs {batch} --max-model-len {longest} \
             --gpu-memory-utilization {:.3}{}{} --host 0.0.0.0 --port {FIRST_PORT}",
            query
                .work
                .setup(&chip, tensor, stages)
                .taken_share(query.constants),
            match query.work.weights {
                WeightFormat::Fp8 => " --quantization fp8",
                _ => "",
            },
            match query.work.cache {
                CacheFormat::Fp8 => " --kv-cache-dtype fp8",
                _ => "",
            },
        )
    } else {
        // Precisions are read from the weights.
        format!(
            "CUDA_VISIBLE_DEVICES={gpus} trtllm-serve {model} --tp_size {tensor} --pp_size {stages} \
             --max_batch_size {batch} --max_seq_len {longest} \
             --kv_cache_free_gpu_memory_fraction {:.3} --host 0.0.0.0 --port {FIRST_PORT}",
            query.constants.cache_memory_share,
        )
    };
    let copies = u16::try_from(line.node.replicas_per_node).unwrap_or(1);
    Some(EngineLaunch {
        offer_id: line.row.offer.offer_id,
        engine: if vllm { "vLLM" } else { "TensorRT-LLM" }.to_owned(),
        command,
        ports: (FIRST_PORT..FIRST_PORT + copies).collect(),
    })
}
