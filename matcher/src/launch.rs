//! How the engine of a fleet is started: a command line for one replica, the file of settings that it reads,
//! and the ports of all replicas on a node. The prediction assumes this setup; nothing here runs it.
//!
//! Each engine counts its share of memory in its own way. TensorRT-LLM counts the cache, as a share of the
//! memory that is free once the weights are loaded. vLLM counts everything, as a share of the whole memory.
//! Where each GPU attends to sequences of its own it has its own batch, and both engines count that batch.

use market::ids::OfferId;
use serde::{Deserialize, Serialize};

use crate::fleet_search::FleetLine;
use crate::models;
use crate::perf::chip::Chip;
use crate::perf::replica::{CacheFormat, Engine, Setup, WeightFormat};
use crate::perf::serving::Replica;
use crate::serve::ServeQuery;

/// The port of the first replica on a node; further replicas take the ports after it.
const FIRST_PORT: u16 = 8_000;

/// The file of settings, where the command line is run.
const CONFIG_FILE: &str = "engine.yaml";

/// The start command of the engine on each node of an offer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EngineLaunch {
    /// The offer.
    pub offer_id: OfferId,
    /// The engine.
    pub engine: String,
    /// Starts the first replica; further ones use the next GPUs and the next port. The command expects
    /// weights in the requested precision under the model's name.
    pub command: String,
    /// The file that the command reads; absent where it reads none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<EngineConfig>,
    /// The ports of all replicas on a node. The source of the requests must be able to reach them.
    #[schema(value_type = Vec<u32>)]
    pub ports: Vec<u16>,
}

/// A file of settings that an engine reads as it starts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EngineConfig {
    /// Its name in the directory in which the command is run.
    pub file: String,
    /// Its text, in YAML.
    pub contents: String,
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
    let setup = (query.work).setup(&chip, replica.tensor, replica.gpus / replica.tensor);
    let vllm = replica.engine == Engine::VllmAmd;
    let (command, config) = if vllm {
        (of_vllm(query, &setup, replica), None)
    } else {
        let (command, contents) = of_tensorrt_llm(query, &setup, replica);
        let file = CONFIG_FILE.to_owned();
        (command, Some(EngineConfig { file, contents }))
    };
    let copies = u16::try_from(line.node.replicas_per_node).unwrap_or(1);
    Some(EngineLaunch {
        offer_id: line.row.offer.offer_id,
        engine: if vllm { "vLLM" } else { "TensorRT-LLM" }.to_owned(),
        command,
        config,
        ports: (FIRST_PORT..FIRST_PORT + copies).collect(),
    })
}

/// Latent attention has one KV head, which all GPUs that share a matrix would keep. The prediction lets each
/// GPU keep the keys of its own sequences, so such mixtures run attention on each GPU.
///
/// Sources: vLLM's notes on data parallel and expert parallel deployment (`--max-num-seqs` is of one
/// rank).
fn of_vllm(query: &ServeQuery, setup: &Setup<'_>, replica: &Replica) -> String {
    let (tensor, stages) = (replica.tensor, replica.gpus / replica.tensor);
    let apart = setup.attends_per_gpu() && tensor > 1;
    let (spread, ranks) = if apart {
        (
            format!("--data-parallel-size {tensor} --enable-expert-parallel"),
            f64::from(tensor),
        )
    } else {
        (format!("--tensor-parallel-size {tensor}"), 1.0)
    };
    format!(
        "HIP_VISIBLE_DEVICES={} vllm serve {} {spread} --pipeline-parallel-size {stages} \
         --max-num-seqs {} --max-model-len {} --gpu-memory-utilization {:.3}{}{} --host 0.0.0.0 \
         --port {FIRST_PORT}",
        gpus(replica),
        model(query),
        (replica.whole_batch() / ranks).ceil(),
        longest(query),
        setup.taken_share(query.constants),
        match query.work.weights {
            WeightFormat::Fp8 => " --quantization fp8",
            _ => "",
        },
        match query.work.cache {
            CacheFormat::Fp8 => " --kv-cache-dtype fp8",
            _ => "",
        },
    )
}

/// The command line and the file that it reads. The precision of weights is read from the weights.
///
/// Sources: NVIDIA's reference of `trtllm-serve` and its example for DeepSeek R1; a batch is that of
/// one rank and of one stage (its executor takes `max_batch_size` times the stages on each rank).
fn of_tensorrt_llm(query: &ServeQuery, setup: &Setup<'_>, replica: &Replica) -> (String, String) {
    let (tensor, stages) = (replica.tensor, replica.gpus / replica.tensor);
    let ranks = setup.schedulers();
    let batch = (replica.whole_batch() / ranks / f64::from(stages)).ceil();
    let apart = ranks > 1.0;
    let experts = if apart {
        format!(" --ep_size {tensor}")
    } else {
        String::new()
    };
    let command = format!(
        "CUDA_VISIBLE_DEVICES={} trtllm-serve {} --tp_size {tensor} --pp_size {stages}{experts} \
         --max_batch_size {batch} --max_seq_len {} --extra_llm_api_options {CONFIG_FILE} \
         --host 0.0.0.0 --port {FIRST_PORT}",
        gpus(replica),
        model(query),
        longest(query),
    );
    let attention = if apart {
        "enable_attention_dp: true\n"
    } else {
        ""
    };
    let cache = match query.work.cache {
        CacheFormat::Bf16 => "auto",
        CacheFormat::Fp8 => "fp8",
        CacheFormat::Fp4 => "nvfp4",
    };
    let precision = match query.work.weights {
        WeightFormat::Bf16 => String::new(),
        _ => format!(
            "# The weights must lie in {} already: the engine takes their precision from the files.\n",
            query.weights.as_str()
        ),
    };
    // Batches above the default of its recorded graphs would be launched kernel by kernel.
    let contents = format!(
        "{precision}{attention}cuda_graph_config:\n  enable_padding: true\n  max_batch_size: {batch}\n\
         kv_cache_config:\n  dtype: {cache}\n  free_gpu_memory_fraction: {:.3}\n",
        query.constants.cache_memory_share,
    );
    (command, contents)
}

/// The GPUs of the first replica on a node.
fn gpus(replica: &Replica) -> String {
    let gpus: Vec<String> = (0..replica.gpus).map(|gpu| gpu.to_string()).collect();
    gpus.join(",")
}

fn model(query: &ServeQuery) -> &str {
    models::repository_of(&query.work.model.name).unwrap_or("MODEL")
}

/// Tokens of a request with its answer.
fn longest(query: &ServeQuery) -> f64 {
    query.work.input_tokens + query.work.output_tokens
}
