//! `broker gpus` and `broker models`: the names that demands and price lists may use. No server, no
//! database.

use clap::Args;
use market::gpu::{Gpu, GpuSpec};
use matcher::models::{self, ModelFigures};
use serde_json::{Value, json};

use crate::terminal::ending::Ending;
use crate::terminal::table::table;
use crate::terminal::text::print_line;

/// Lists the known GPUs with their published specifications; no server, no database.
///
/// A demand names a GPU (`H100-SXM`), a family (`H100`) or `any`. The names of sellers work too:
/// `NVIDIA H100 80GB SXM5`.
#[derive(Debug, Args)]
pub(super) struct GpusArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Lists the models that demands can name; no server, no database.
///
/// A demand names a model, or the repository of its weights. Describe any other model by its shape
/// (docs/demands).
#[derive(Debug, Args)]
pub(super) struct ModelsArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

pub(super) fn gpus(args: &GpusArgs) -> Result<(), Ending> {
    let mut specs: Vec<&GpuSpec> = Gpu::all().map(Gpu::spec).collect();
    specs.sort_unstable_by(|a, b| a.canonical.cmp(&b.canonical));
    if args.json {
        return Ok(print_line(&json!({ "items": specs }).to_string())?);
    }
    let number = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| figure.to_string());
    let rows = specs.iter().map(|spec| {
        vec![
            spec.canonical.clone(),
            spec.family.clone(),
            format!("{} {}", spec.memory_gb, spec.memory_type),
            spec.memory_bandwidth_gbps.to_string(),
            number(spec.bf16_tflops_dense),
            number(spec.fp8_tflops_dense),
            spec.node_form.clone(),
        ]
    });
    let headings = [
        "GPU",
        "family",
        "GB",
        "GB/s",
        "BF16 TFLOPS",
        "FP8 TFLOPS",
        "sold as",
    ];
    Ok(print_line(&table(&headings, rows))?)
}

pub(super) fn models(args: &ModelsArgs) -> Result<(), Ending> {
    if args.json {
        let items: Vec<Value> = models::all().map(|model| described(&model)).collect();
        return Ok(print_line(&json!({ "items": items }).to_string())?);
    }
    let rows = models::all().map(|model| {
        vec![
            model.name.clone(),
            format!("{:.1}", model.params_total / 1e9),
            format!("{:.1}", model.params_active / 1e9),
            model.layers.to_string(),
            model.hidden.to_string(),
            models::repository_of(&model.name).unwrap_or("-").to_owned(),
        ]
    });
    let headings = [
        "model",
        "billion parameters",
        "used per token",
        "layers",
        "width",
        "repository",
    ];
    Ok(print_line(&table(&headings, rows))?)
}

/// A model in JSON. Parameters are in billions.
fn described(model: &ModelFigures) -> Value {
    json!({
        "name": model.name,
        "params_total_b": model.params_total / 1e9,
        "params_active_b": model.params_active / 1e9,
        "layers": model.layers,
        "hidden": model.hidden,
        "heads": model.heads,
        "head_dim": model.head_dim,
        "kv_elements_per_token": model.kv_elements_per_token,
        "repository": models::repository_of(&model.name),
    })
}
