//! The model that is trained or served, and how it is trained.

use serde::{Deserialize, Serialize};

/// Numbers of a model or a tensor.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// 32-bit floating point.
    Fp32,
    /// 16-bit brain floating point.
    Bf16,
    /// 16-bit floating point.
    Fp16,
    /// 8-bit floating point.
    Fp8,
    /// 8-bit integer.
    Int8,
    /// 4-bit floating point.
    Fp4,
    /// 4-bit integer.
    Int4,
}

impl Precision {
    /// Bytes of one number, as a fraction of bits.
    #[must_use]
    pub fn bytes(self) -> f64 {
        match self {
            Self::Fp32 => 4.0,
            Self::Bf16 | Self::Fp16 => 2.0,
            Self::Fp8 | Self::Int8 => 1.0,
            Self::Fp4 | Self::Int4 => 0.5,
        }
    }

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
            Self::Int8 => "int8",
            Self::Fp4 => "fp4",
            Self::Int4 => "int4",
        }
    }
}

/// A model: by a published name, or by its shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Model {
    /// The published name, such as `Llama 3 70B`.
    Named(String),
    /// The shape of a model that we do not know by name.
    Shaped(ModelShape),
}

/// The figures of a transformer that decide what fits and how fast it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelShape {
    /// All parameters. Units: 1e9.
    #[schema(minimum = 0.001, maximum = 100_000)]
    pub params_total_b: f64,
    /// Parameters used per token (less than all in a mixture of experts), at least a two-hundredth of
    /// all. Units: 1e9.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 100_000)]
    pub params_active_b: Option<f64>,
    /// Transformer layers.
    #[schema(minimum = 1, maximum = 1_000)]
    pub layers: u32,
    /// Width of the residual stream.
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub hidden: u32,
    /// Attention heads; times `head_dim` at most 4 times `hidden`. By default as many as make up `hidden`,
    /// rounded up to a multiple of `kv_heads`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10_000)]
    pub heads: Option<u32>,
    /// KV heads, of which `heads` is a multiple; times `head_dim` at most 4 times `hidden`.
    #[schema(minimum = 1, maximum = 10_000)]
    pub kv_heads: u32,
    /// Width of one attention head, at most `hidden`.
    #[schema(minimum = 1, maximum = 10_000)]
    pub head_dim: u32,
}

/// Which parameters are trained.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TrainMethod {
    /// All of them, with an Adam optimiser in mixed precision.
    #[default]
    Full,
    /// Low-rank adapters over frozen 16-bit weights.
    Lora,
    /// Low-rank adapters over frozen 4-bit weights.
    Qlora,
}

/// How checkpoints are written.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Checkpointing {
    /// Minutes between two checkpoints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100_000)]
    pub interval_minutes: Option<u32>,
    /// Size of one checkpoint. Units: 1e9 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 0.001, maximum = 1_000_000)]
    pub size_gb: Option<f64>,
}
