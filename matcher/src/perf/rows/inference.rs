//! Rows of serving tests.

use serde::Deserialize;

use super::ranges::{COUNT, GPUS, TOKENS, check_split, whole, within};
use super::{RowError, RowFigures, chip, model};
use crate::models::ModelFigures;
use crate::perf::chip::Chip;
use crate::perf::constants::{InferenceConstants, InferenceGround};
use crate::perf::replica::{
    CacheFormat, CannotServe, Engine, Limits, Rates, Served, Setup, WeightFormat, serve,
    serve_as_well_as_it_can,
};

// The words that the columns accept.
pub(super) const METRICS: &str = "offline_throughput, static_batch_throughput, single_stream_decode, \
    prefill_throughput, ttft, mlperf_offline, mlperf_server, mlperf_interactive";
pub(super) const WEIGHTS: &str = "bf16, fp16, fp8, int8, fp4, int4_g, int4_k";
pub(super) const CACHES: &str = "bf16, fp16, fp8, fp4";
pub(super) const FRAMEWORKS: &str = "trtllm-0.5, trtllm-0.13, trtllm-0.20, trtllm-1.0, trtllm-mlperf, \
    vllm, vllm-2024, amd-vllm, llama.cpp, mlc-llm";

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

/// The quantity that a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    OfflineThroughput,
    StaticBatchThroughput,
    SingleStreamDecode,
    PrefillThroughput,
    FirstToken,
    /// A submission to MLPerf, whose layout is not recorded: the prediction uses the best layout.
    MlperfOffline,
    /// The same with Poisson arrivals.
    MlperfServer,
}

/// A test that was read, its model and chip found.
#[derive(Debug, Clone)]
pub(super) struct Test {
    pub(super) model: ModelFigures,
    pub(super) chip: Chip,
    metric: Metric,
    pub(super) unit: String,
    gpus: u32,
    tensor: f64,
    pipeline: f64,
    pub(super) weights: WeightFormat,
    cache: CacheFormat,
    engine: Engine,
    pub(super) input_tokens: f64,
    output_tokens: f64,
    concurrency: Option<f64>,
    requests: Option<f64>,
    per_token_seconds: Option<f64>,
}

impl Test {
    pub(super) fn read(row: Row) -> Result<Self, RowError> {
        let figures = RowFigures {
            params_b: row.params_b,
            active_b: row.active_b,
            layers: row.layers,
            hidden: row.hidden,
            heads: row.heads,
            kv_heads: row.kv_heads,
        };
        let metric = metric(&row.metric)?;
        whole("gpus", row.gpus.into(), GPUS)?;
        let cell = |cell: Option<u32>, name| match (cell, metric) {
            (_, Metric::MlperfOffline | Metric::MlperfServer) => Ok(1.0),
            (None, _) => Err(RowError::Missing(name)),
            (Some(gpus), _) => whole(name, gpus.into(), GPUS),
        };
        let (tensor, pipeline) = (cell(row.tp, "tp")?, cell(row.pp, "pp")?);
        if tensor * pipeline > f64::from(row.gpus) {
            return Err(RowError::Layout(format!(
                "`tp` {tensor} x `pp` {pipeline} is more than the machine's GPUs, {}; give a layout that fits",
                row.gpus
            )));
        }
        let model = model(&row.model, &figures)?;
        check_split(&model, tensor, pipeline)?;
        let count = |cell: Option<f64>, name| cell.map(|count| within(name, count, COUNT));
        let limit_ms = row.tpot_limit_ms;
        let limit_ms = limit_ms.map(|limit| within("tpot_limit_ms", limit, 0.001..=3.6e6));
        Ok(Self {
            model,
            chip: chip(&row.gpu)?,
            metric,
            unit: row.unit.unwrap_or_else(|| metric.unit().to_owned()),
            gpus: row.gpus,
            tensor,
            pipeline,
            weights: weights(&row.weight_precision)?,
            cache: cache(&row.kv_precision)?,
            engine: match (engine(&row.framework)?, metric) {
                (Engine::VllmAmd, Metric::MlperfOffline | Metric::MlperfServer) => {
                    Engine::VllmAmdMlperf
                }
                (engine, _) => engine,
            },
            input_tokens: within("isl", row.isl, TOKENS)?,
            output_tokens: within("osl", row.osl, TOKENS)?,
            concurrency: count(row.concurrency, "concurrency").transpose()?,
            requests: count(row.num_requests, "num_requests").transpose()?,
            per_token_seconds: limit_ms.transpose()?.map(|limit| limit / 1e3),
        })
    }

    /// The prediction of the measured quantity, in the unit of the row.
    pub(super) fn predict(&self, constants: &InferenceConstants) -> Result<f64, CannotServe> {
        match self.metric {
            Metric::MlperfOffline => self.best_layout(constants),
            Metric::MlperfServer => Ok(self.best_layout(constants)? * constants.poisson_share),
            _ => self.as_laid_out(constants),
        }
    }

    pub(super) fn weights_share(&self) -> f64 {
        let setup = self.setup(self.tensor, self.pipeline);
        setup.weight_bytes() / (setup.gpus() * self.chip.memory_bytes)
    }

    pub(super) fn ground(&self) -> InferenceGround {
        match (self.metric, self.engine) {
            (Metric::MlperfOffline | Metric::MlperfServer, _) => InferenceGround::LayoutUnknown,
            (_, engine) => engine.ground(&self.model),
        }
    }

    fn setup(&self, tensor: f64, pipeline: f64) -> Setup<'_> {
        Setup {
            model: &self.model,
            chip: &self.chip,
            tensor,
            pipeline,
            weights: self.weights,
            cache: self.cache,
            engine: self.engine,
            input_tokens: self.input_tokens,
            output_tokens: self.output_tokens,
        }
    }

    fn as_laid_out(&self, constants: &InferenceConstants) -> Result<f64, CannotServe> {
        let setup = self.setup(self.tensor, self.pipeline);
        let rates = Rates::new(constants, &setup);
        let alone = |context: f64| rates.step_seconds(1.0, context);
        let prompt = rates.prompt(self.input_tokens);
        let throughput = |requests: Option<f64>| {
            let limits = Limits {
                concurrency: self.concurrency,
                requests,
                ..Limits::default()
            };
            serve(constants, &setup, &limits).map(|served| served.tokens_per_second)
        };
        Ok(match self.metric {
            Metric::SingleStreamDecode => {
                alone(self.input_tokens + self.output_tokens / 2.0).recip()
            }
            Metric::PrefillThroughput => self.input_tokens / prompt.each,
            Metric::FirstToken => {
                // The last of the prompts that arrive together waits for all.
                let prompts = prompt.together(self.concurrency.unwrap_or(1.0));
                prompts.max(alone(self.input_tokens)) * 1e3
            }
            Metric::StaticBatchThroughput => throughput(None)?,
            _ => throughput(self.requests)?,
        })
    }

    /// Throughput of the whole machine in its best layout: replicas on a power of two of GPUs, or one
    /// pipeline over all GPUs where none fits.
    fn best_layout(&self, constants: &InferenceConstants) -> Result<f64, CannotServe> {
        let limits = Limits {
            per_token_seconds: self.per_token_seconds,
            ..Limits::default()
        };
        let domain = self.chip.domain_gpus;
        let widths = [1, 2, 4, 8, 16].into_iter().filter(|width| {
            self.gpus.is_multiple_of(*width)
                && *width <= domain.max(8)
                && (*width <= 8 || domain >= *width)
        });
        let throughput = |served: Served, copies: u32| served.tokens_per_second * f64::from(copies);
        let best = widths
            .filter_map(|width| {
                let setup = self.setup(f64::from(width), 1.0);
                let served = serve_as_well_as_it_can(constants, &setup, &limits).ok()?;
                Some(throughput(served, self.gpus / width))
            })
            .reduce(f64::max);
        match best {
            Some(best) => Ok(best),
            None if self.gpus < 2 => Err(CannotServe::TooLarge),
            None => {
                let setup = self.setup(1.0, f64::from(self.gpus.min(8)));
                Ok(throughput(serve(constants, &setup, &Limits::default())?, 1))
            }
        }
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

fn metric(word: &str) -> Result<Metric, RowError> {
    match word {
        "offline_throughput" => Ok(Metric::OfflineThroughput),
        "static_batch_throughput" => Ok(Metric::StaticBatchThroughput),
        "single_stream_decode" => Ok(Metric::SingleStreamDecode),
        "prefill_throughput" => Ok(Metric::PrefillThroughput),
        "ttft" => Ok(Metric::FirstToken),
        "mlperf_offline" => Ok(Metric::MlperfOffline),
        "mlperf_server" | "mlperf_interactive" => Ok(Metric::MlperfServer),
        _ => Err(unknown("metric", word, METRICS)),
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
        _ => Err(unknown("weight_precision", word, WEIGHTS)),
    }
}

fn cache(word: &str) -> Result<CacheFormat, RowError> {
    match word {
        "bf16" | "fp16" => Ok(CacheFormat::Bf16),
        "fp8" => Ok(CacheFormat::Fp8),
        "fp4" => Ok(CacheFormat::Fp4),
        _ => Err(unknown("kv_precision", word, CACHES)),
    }
}

fn engine(word: &str) -> Result<Engine, RowError> {
    match word {
        "trtllm-0.5" | "trtllm-0.13" => Ok(Engine::TensorRtLlm),
        "trtllm-0.20" => Ok(Engine::TensorRtLlm020),
        "trtllm-1.0" => Ok(Engine::TensorRtLlm10),
        "trtllm-mlperf" => Ok(Engine::TensorRtLlmMlperf),
        "vllm" => Ok(Engine::VllmUntuned),
        "vllm-2024" => Ok(Engine::Vllm2024),
        "amd-vllm" => Ok(Engine::VllmAmd),
        "llama.cpp" => Ok(Engine::LlamaCpp),
        "mlc-llm" => Ok(Engine::Mlc),
        _ => Err(unknown("framework", word, FRAMEWORKS)),
    }
}

fn unknown(column: &'static str, word: &str, known: &'static str) -> RowError {
    RowError::UnknownWord {
        column,
        word: word.to_owned(),
        known,
    }
}
