//! Rows of serving tests.

use serde::Deserialize;

use super::{RowError, RowFigures, Value, chip, model};
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::InferenceConstants;
use crate::perf::replica::{
    CacheFormat, CannotServe, Engine, Limits, Rates, Served, Setup, WeightFormat, serve,
    serve_as_well_as_it_can,
};

/// The columns that are read.
#[derive(Debug, Deserialize)]
pub(super) struct Row {
    metric: String,
    model: String,
    params_b: Option<f64>,
    active_b: Option<f64>,
    layers: Option<u32>,
    hidden: Option<u32>,
    heads: Option<u32>,
    kv_heads: Option<u32>,
    isl: f64,
    osl: f64,
    concurrency: Option<f64>,
    num_requests: Option<f64>,
    weight_precision: String,
    kv_precision: String,
    gpu: String,
    gpus: u32,
    tp: Option<u32>,
    pp: Option<u32>,
    framework: String,
    tpot_limit_ms: Option<f64>,
    unit: Option<String>,
}

/// What a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    OfflineThroughput,
    StaticBatchThroughput,
    SingleStreamDecode,
    PrefillThroughput,
    FirstToken,
    /// A submission to MLPerf, whose layout is not recorded: the best one is taken.
    MlperfOffline,
    /// The same with Poisson arrivals.
    MlperfServer,
}

pub(super) fn predict(constants: &InferenceConstants, row: &Row) -> Result<Value, RowError> {
    let figures = RowFigures {
        params_b: row.params_b,
        active_b: row.active_b,
        layers: row.layers,
        hidden: row.hidden,
        heads: row.heads,
        kv_heads: row.kv_heads,
    };
    let model = model(&row.model, &figures)?;
    let chip = chip(&row.gpu)?;
    let metric = metric(&row.metric)?;
    let setup = row.setup(&model, &chip)?;
    let value = match metric {
        Metric::MlperfOffline => best_layout(constants, &setup, row)?,
        Metric::MlperfServer => best_layout(constants, &setup, row)? * constants.poisson_share,
        metric => of_layout(constants, &row.laid_out(setup)?, metric, row)?,
    };
    Ok(Value {
        value,
        unit: row.unit.clone().unwrap_or_else(|| metric.unit().to_owned()),
        basis: chip.inference_basis,
        chip: chip.name.clone(),
    })
}

impl Row {
    /// What is served, on one GPU.
    fn setup<'a>(&self, model: &'a ModelFigures, chip: &'a Chip) -> Result<Setup<'a>, RowError> {
        if self.isl < 1.0 || self.osl < 1.0 || self.gpus == 0 {
            return Err(RowError::Missing("isl, osl and gpus of one or more"));
        }
        Ok(Setup {
            model,
            chip,
            tensor: 1.0,
            pipeline: 1.0,
            weights: weights(&self.weight_precision)?,
            cache: cache(&self.kv_precision)?,
            engine: engine(&self.framework)?,
            input_tokens: self.isl,
            output_tokens: self.osl,
        })
    }

    fn laid_out<'a>(&self, setup: Setup<'a>) -> Result<Setup<'a>, RowError> {
        let cell = |cell: Option<u32>, name| match cell {
            Some(0) | None => Err(RowError::Missing(name)),
            Some(gpus) => Ok(f64::from(gpus)),
        };
        Ok(Setup {
            tensor: cell(self.tp, "tp")?,
            pipeline: cell(self.pp, "pp")?,
            ..setup
        })
    }
}

impl Metric {
    const fn unit(self) -> &'static str {
        match self {
            Self::FirstToken => "ms",
            Self::PrefillThroughput => "prompt tok/s",
            _ => "output tok/s (whole system)",
        }
    }
}

fn of_layout(
    constants: &InferenceConstants,
    setup: &Setup<'_>,
    metric: Metric,
    row: &Row,
) -> Result<f64, RowError> {
    let rates = Rates::new(constants, setup);
    let alone = |context: f64| rates.step_seconds(1.0, context);
    let prompt_token = rates.prompt_token_seconds(row.isl);
    let throughput = |requests: Option<f64>| {
        let limits = Limits {
            concurrency: row.concurrency,
            requests,
            ..Limits::default()
        };
        serve(constants, setup, &limits).map(|served| served.tokens_per_second)
    };
    Ok(match metric {
        Metric::SingleStreamDecode => alone(row.isl + row.osl / 2.0).recip(),
        Metric::PrefillThroughput => prompt_token.recip(),
        Metric::FirstToken => {
            // Prompts that come in together are read one after the other.
            let prompts = row.concurrency.unwrap_or(1.0) * row.isl * prompt_token;
            prompts.max(alone(row.isl)) * 1e3
        }
        Metric::StaticBatchThroughput => throughput(None)?,
        _ => throughput(row.num_requests)?,
    })
}

/// Throughput of the whole machine in its best layout: copies of a power of two of GPUs, and where
/// none fits, one pipeline over all.
fn best_layout(
    constants: &InferenceConstants,
    setup: &Setup<'_>,
    row: &Row,
) -> Result<f64, RowError> {
    let limits = Limits {
        per_token_seconds: row.tpot_limit_ms.map(|limit| limit / 1e3),
        ..Limits::default()
    };
    let domain = setup.chip.domain_gpus;
    let widths = [1, 2, 4, 8, 16].into_iter().filter(|width| {
        row.gpus.is_multiple_of(*width)
            && *width <= domain.max(8)
            && (*width <= 8 || domain >= *width)
    });
    let throughput = |served: Served, copies: u32| served.tokens_per_second * f64::from(copies);
    let best = widths
        .filter_map(|width| {
            let setup = Setup {
                tensor: f64::from(width),
                ..*setup
            };
            let served = serve_as_well_as_it_can(constants, &setup, &limits).ok()?;
            Some(throughput(served, row.gpus / width))
        })
        .reduce(f64::max);
    match best {
        Some(best) => Ok(best),
        None if row.gpus < 2 => Err(CannotServe::TooLarge.into()),
        None => {
            let setup = Setup {
                pipeline: f64::from(row.gpus.min(8)),
                ..*setup
            };
            Ok(throughput(serve(constants, &setup, &Limits::default())?, 1))
        }
    }
}

fn metric(word: &str) -> Result<Metric, RowError> {
    match word {
        "offline_throughput" => Ok(Metric::OfflineThroughput),
        "static_batch_throughput" => Ok(Metric::StaticBatchThroughput),
        "single_stream_decode" => Ok(Metric::SingleStreamDecode),
        "prefill_throughput" => Ok(Metric::PrefillThroughput),
        "ttft" => Ok(Metric::FirstToken),
        "mlperf_offline" => Ok(Metric::MlperfOffline),
        "mlperf_server" | "mlperf_interactive" => Ok(Metric::MlperfServer),
        _ => Err(unknown(
            "metric",
            word,
            "offline_throughput, static_batch_throughput, single_stream_decode, \
             prefill_throughput, ttft, mlperf_offline, mlperf_server, mlperf_interactive",
        )),
    }
}

fn weights(word: &str) -> Result<WeightFormat, RowError> {
    match word {
        "bf16" | "fp16" => Ok(WeightFormat::Bf16),
        "fp8" => Ok(WeightFormat::Fp8),
        "int8" => Ok(WeightFormat::Int8),
        "fp4" => Ok(WeightFormat::Fp4),
        "int4_g" => Ok(WeightFormat::Int4Group),
        "int4_k" => Ok(WeightFormat::Int4Mixed),
        _ => Err(unknown(
            "weight_precision",
            word,
            "bf16, fp16, fp8, int8, fp4, int4_g, int4_k",
        )),
    }
}

fn cache(word: &str) -> Result<CacheFormat, RowError> {
    match word {
        "bf16" | "fp16" => Ok(CacheFormat::Bf16),
        "fp8" => Ok(CacheFormat::Fp8),
        "fp4" => Ok(CacheFormat::Fp4),
        _ => Err(unknown("kv_precision", word, "bf16, fp16, fp8, fp4")),
    }
}

fn engine(word: &str) -> Result<Engine, RowError> {
    match word {
        "trtllm-0.5" | "trtllm-0.13" => Ok(Engine::TensorRtLlm),
        "trtllm-0.20" => Ok(Engine::TensorRtLlm020),
        "trtllm-1.0" | "trtllm-mlperf" => Ok(Engine::TensorRtLlm10),
        "vllm" => Ok(Engine::VllmUntuned),
        "vllm-2024" => Ok(Engine::Vllm2024),
        "amd-vllm" => Ok(Engine::VllmAmd),
        "llama.cpp" => Ok(Engine::LlamaCpp),
        "mlc-llm" => Ok(Engine::Mlc),
        _ => Err(unknown(
            "framework",
            word,
            "trtllm-0.5, trtllm-0.13, trtllm-0.20, trtllm-1.0, trtllm-mlperf, vllm, vllm-2024, \
             amd-vllm, llama.cpp, mlc-llm",
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
