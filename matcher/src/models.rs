//! Published model architectures, and the figures of a model that the arithmetic needs.
//!
//! The table is `data/models.csv`; its column `config_source` names where each row is published.

use std::sync::LazyLock;

use market::demand::{Model, ModelShape};
use serde::Deserialize;

use crate::MatchError;

/// The figures of a transformer that decide its memory and its speed.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelFigures {
    /// The name of the model, for reasons.
    pub name: String,
    /// All parameters.
    pub params_total: f64,
    /// Parameters used per token.
    pub params_active: f64,
    /// Transformer layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Attention heads.
    pub heads: u32,
    /// Width of one attention head.
    pub head_dim: u32,
    /// Parameters of a separate input embedding: a lookup table without matrix products. Zero where the
    /// output head shares it, since the output head does use matrix products.
    pub embedding_params: f64,
    /// The experts of a mixture whose layout is known.
    pub experts: Option<Experts>,
    /// Whether keys and values are kept as one latent vector a layer (MLA).
    pub latent_attention: bool,
    /// Heads that keep keys and values; one where a latent vector serves all.
    pub kv_heads: u32,
    /// Numbers kept in the key-value cache for each token, over all layers.
    pub kv_elements_per_token: f64,
    /// Attention with a limited window.
    pub sliding: Option<Sliding>,
}

/// The experts of a mixture.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Experts {
    /// Experts in each layer that has them.
    pub per_layer: u32,
    /// How many of them each token is sent to.
    pub per_token: u32,
    /// Layers that have experts; a fraction where not every layer has them.
    pub layers: f64,
    /// Parameters of all experts of all layers.
    pub params: f64,
    /// Columns of each of an expert's matrices.
    pub width: u32,
}

/// Layers whose attention has a limited window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sliding {
    /// How far. Units: tokens.
    pub window: u32,
    /// The share of layers with such a window.
    pub layer_fraction: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelRow {
    model: String,
    params_total_b: f64,
    params_active_b: f64,
    layers: u32,
    hidden: u32,
    heads: u32,
    head_dim: u32,
    vocab: u32,
    tied_embeddings: u8,
    experts: u32,
    experts_per_token: u32,
    moe_ffn: u32,
    first_dense_layers: u32,
    moe_every: u32,
    attention: String,
    kv_elements_per_token: f64,
    sliding_window: Option<u32>,
    sliding_layer_fraction: Option<f64>,
    config_source: String,
}

static MODELS: LazyLock<Vec<ModelRow>> = LazyLock::new(|| {
    csv::Reader::from_reader(include_str!("../data/models.csv").as_bytes())
        .into_deserialize()
        .collect::<Result<_, _>>()
        // The bytes are part of the program, and a test below reads all rows through this very
        // place: a program that passed it cannot fail here.
        .unwrap_or_else(|error| panic!("the table of models cannot be read: {error}"))
});

impl ModelFigures {
    /// The figures of the model that a demand names or shapes.
    ///
    /// A name is compared without case and punctuation, with the table's names and with the
    /// repositories that it takes them from.
    /// Errors: [`MatchError::UnknownModel`] with up to three nearest names.
    pub fn of(model: &Model) -> Result<Self, MatchError> {
        match model {
            Model::Named(name) => Self::named(name),
            Model::Shaped(shape) => Ok(Self::shaped(shape)),
        }
    }

    /// Whether each token uses only a part of the parameters.
    #[must_use]
    pub fn is_mixture(&self) -> bool {
        self.params_active < 0.9 * self.params_total
    }

    /// Attention heads that share the same keys, in a model without latent attention.
    #[must_use]
    pub fn query_group(&self) -> f64 {
        f64::from(self.heads) / f64::from(self.kv_heads)
    }

    fn named(name: &str) -> Result<Self, MatchError> {
        let wanted = squeeze(name);
        let row = MODELS
            .iter()
            .find(|row| squeeze(&row.model) == wanted || squeeze(&row.config_source) == wanted)
            .ok_or_else(|| MatchError::UnknownModel {
                name: name.chars().take(80).collect(),
                nearest: nearest(&wanted),
            })?;
        Ok(row.figures())
    }

    fn shaped(shape: &ModelShape) -> Self {
        let per_layer = f64::from(shape.kv_heads) * f64::from(shape.head_dim);
        // In most models the heads together are as wide as the hidden size, and each KV head serves the same
        // number of attention heads.
        let usual_heads = (shape.hidden / shape.head_dim).max(1);
        let usual_heads = usual_heads.next_multiple_of(shape.kv_heads.max(1));
        Self {
            name: format!("a model of {}B parameters", shape.params_total_b),
            params_total: shape.params_total_b * 1e9,
            params_active: shape.params_active_b.unwrap_or(shape.params_total_b) * 1e9,
            layers: shape.layers,
            hidden: shape.hidden,
            heads: shape.heads.unwrap_or(usual_heads),
            head_dim: shape.head_dim,
            embedding_params: 0.0,
            experts: None,
            latent_attention: false,
            kv_heads: shape.kv_heads,
            // One key and one value.
            kv_elements_per_token: 2.0 * f64::from(shape.layers) * per_layer,
            sliding: None,
        }
    }
}

impl ModelRow {
    fn figures(&self) -> ModelFigures {
        let own_table = if self.tied_embeddings == 0 { 1.0 } else { 0.0 };
        let sliding =
            self.sliding_window
                .zip(self.sliding_layer_fraction)
                .map(|(window, layer_fraction)| Sliding {
                    window,
                    layer_fraction,
                });
        ModelFigures {
            name: self.model.clone(),
            params_total: self.params_total_b * 1e9,
            params_active: self.params_active_b * 1e9,
            layers: self.layers,
            hidden: self.hidden,
            heads: self.heads,
            head_dim: self.head_dim,
            embedding_params: own_table * f64::from(self.vocab) * f64::from(self.hidden),
            experts: self.experts(),
            latent_attention: self.attention == "MLA",
            kv_heads: self.kv_heads(),
            kv_elements_per_token: self.kv_elements_per_token,
            sliding,
        }
    }

    /// Each keeps a key and a value a layer.
    fn kv_heads(&self) -> u32 {
        if self.attention == "MLA" {
            return 1;
        }
        let of_one_head = 2.0 * f64::from(self.layers) * f64::from(self.head_dim);
        // A whole number in every row, which a test holds.
        (self.kv_elements_per_token / of_one_head) as u32
    }

    /// An expert is a gated feed-forward network: three matrices of `hidden` by `moe_ffn`.
    fn experts(&self) -> Option<Experts> {
        let layers = f64::from(self.layers - self.first_dense_layers) / f64::from(self.moe_every);
        let params_each = 3.0 * f64::from(self.hidden) * f64::from(self.moe_ffn);
        (self.experts > 0).then(|| Experts {
            per_layer: self.experts,
            per_token: self.experts_per_token,
            layers,
            width: self.moe_ffn,
            params: params_each * f64::from(self.experts) * layers,
        })
    }
}

/// The repository of a model's weights, by its name in the table; `None` where the table takes its
/// figures from elsewhere.
#[must_use]
pub fn repository_of(name: &str) -> Option<&'static str> {
    let row = MODELS.iter().find(|row| row.model == name)?;
    let source = row.config_source.as_str();
    // A remark in brackets may follow.
    let (repository, rest) = source.split_once(' ').unwrap_or((source, ""));
    let is_repository =
        repository.split('/').count() == 2 && !rest.starts_with(char::is_alphabetic);
    is_repository.then_some(repository)
}

/// All known models, in the order of the table.
pub fn all() -> impl Iterator<Item = ModelFigures> {
    MODELS.iter().map(ModelRow::figures)
}

/// All known names, in the order of the table.
pub fn names() -> impl Iterator<Item = &'static str> {
    MODELS.iter().map(|row| row.model.as_str())
}

fn squeeze(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}

/// Up to three names that share the most pairs of neighbouring letters with the squeezed name.
fn nearest(wanted: &str) -> Vec<&'static str> {
    let mut ranked: Vec<(f64, &'static str)> = names()
        .map(|name| (likeness(wanted, &squeeze(name)), name))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    ranked
        .into_iter()
        .filter(|(like, _)| *like >= 0.4)
        .map(|(_, name)| name)
        .take(3)
        .collect()
}

/// Sørensen–Dice likeness of two texts by pairs of neighbouring letters, 0 to 1.
///
/// Unlike an edit distance it forgives words put before or after, such as `-Instruct`.
fn likeness(a: &str, b: &str) -> f64 {
    let pairs = |text: &str| -> Vec<[u8; 2]> {
        text.as_bytes()
            .windows(2)
            .map(|pair| [pair[0], pair[1]])
            .collect()
    };
    let (mut left, right) = (pairs(a), pairs(b));
    let total = left.len() + right.len();
    let mut shared = 0_u32;
    for pair in &right {
        if let Some(at) = left.iter().position(|other| other == pair) {
            left.swap_remove(at);
            shared += 1;
        }
    }
    if total == 0 {
        0.0
    } else {
        2.0 * f64::from(shared) / total as f64
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn named(name: &str) -> Result<ModelFigures, MatchError> {
        ModelFigures::of(&Model::Named(name.into()))
    }

    #[test]
    fn every_row_of_the_table_reads_makes_sense_and_has_a_name_of_its_own() {
        let mut seen = HashSet::new();
        for row in MODELS.iter() {
            assert!(seen.insert(squeeze(&row.model)), "{} twice", row.model);
            assert!(row.params_active_b <= row.params_total_b && row.params_active_b > 0.0);
            assert!(row.kv_elements_per_token > 0.0 && row.layers > 0 && row.hidden > 0);
            assert!(
                row.heads > 0 && row.head_dim > 0 && row.moe_every > 0 && row.tied_embeddings < 2
            );
            assert!(row.first_dense_layers < row.layers);
            let kept = f64::from(row.kv_heads() * row.layers * row.head_dim);
            assert!(row.attention == "MLA" || 2.0 * kept == row.kv_elements_per_token);
            assert!(row.heads.is_multiple_of(row.kv_heads()), "{}", row.model);
            if let Some(experts) = row.experts() {
                assert!(experts.params < row.params_total_b * 1e9, "{}", row.model);
                assert!(experts.per_token > 0 && experts.per_token <= experts.per_layer);
            }
            assert!(!row.config_source.is_empty(), "{} has no source", row.model);
            assert_eq!(
                row.sliding_window.is_some(),
                row.sliding_layer_fraction.is_some()
            );
        }
        assert!(seen.len() >= 60);
    }

    #[test]
    fn a_name_is_found_whatever_its_case_and_punctuation() {
        for name in [
            "Llama 3.1 70B",
            "llama-3.1-70b",
            "LLAMA3.1_70B",
            "meta-llama/Llama-3.1-70B",
        ] {
            assert_eq!(named(name).expect("known").name, "Llama 3.1 70B");
        }
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_nearest_ones() {
        let Err(MatchError::UnknownModel { nearest, .. }) = named("Llama 3.1 70B Instruct") else {
            panic!("it is not in the table")
        };
        assert_eq!(nearest[0], "Llama 3.1 70B");
        assert!(nearest.len() <= 3);
        let Err(MatchError::UnknownModel { nearest, .. }) = named("zzz") else {
            panic!("it is not in the table")
        };
        assert_eq!(nearest, Vec::<&str>::new());
    }

    #[test]
    fn a_shape_keeps_a_key_and_a_value_per_layer_head_and_width() {
        let llama = named("Llama 3 70B").expect("known");
        let shape = ModelShape {
            params_total_b: 70.554,
            params_active_b: None,
            layers: 80,
            hidden: 8_192,
            heads: None,
            kv_heads: 8,
            head_dim: 128,
        };
        let shaped = ModelFigures::of(&Model::Shaped(shape)).expect("a shape");
        assert_eq!(shaped.kv_elements_per_token, llama.kv_elements_per_token);
        assert_eq!(shaped.params_active, llama.params_active);
        assert_eq!((shaped.kv_heads, llama.kv_heads), (8, 8));
        let keeps = |name| named(name).expect("known").kv_heads;
        assert_eq!(keeps("Qwen3 235B-A22B"), 4);
        assert_eq!(keeps("DeepSeek V3"), 1);
    }

    #[test]
    fn every_known_model_may_be_given_by_its_shape_even_where_each_head_keeps_its_own_keys() {
        for row in MODELS.iter() {
            let shape = serde_json::json!({
                "kind": "train", "tokens": 5,
                "model": {
                    "params_total_b": row.params_total_b, "params_active_b": row.params_active_b,
                    "layers": row.layers, "hidden": row.hidden, "kv_heads": row.heads,
                    "head_dim": row.head_dim,
                },
            });
            let demand: market::demand::Demand = serde_json::from_value(shape).expect("a demand");
            assert_eq!(demand.check(crate::samples::now()), Ok(()), "{}", row.model);
        }
    }

    #[test]
    fn a_repository_is_named_without_the_remark_that_follows_it() {
        for (name, repository) in [
            ("DeepSeek V3", Some("deepseek-ai/DeepSeek-V3")),
            ("Llama 3.1 8B", Some("meta-llama/Llama-3.1-8B")),
            ("LLaMA 34B (fms)", None),
        ] {
            assert_eq!(repository_of(name), repository, "{name}");
        }
        for repository in names().filter_map(repository_of) {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._/".contains(c);
            assert!(repository.chars().all(plain), "{repository}");
        }
    }
}
