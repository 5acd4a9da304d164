//! The GPU agent and the rules by which its answers are checked.
//!
//! Three parts share this crate: the agent on the node ([`agent`], [`probe`], [`device`], [`driver`],
//! [`mod@reference`]), the broker's side ([`challenge`], [`evidence`], [`rules`], [`attest`]), and the
//! formats that both sign and send ([`canonical`], [`jws`], [`transcript`]). The computations of both sides
//! are the crate [`proof`]: [`prf`], [`gemm`], [`tensor`], [`memory`], [`merkle`], [`field`]. The vocabulary
//! of the conversation is in `market::verification`. The broker stores sessions, tokens and signing keys, and
//! serves HTTP.

#![cfg_attr(not(feature = "cuda"), forbid(unsafe_code))]
#![cfg_attr(feature = "cuda", deny(unsafe_code))]

pub mod address;
pub mod agent;
pub mod attest;
pub mod board;
pub mod canonical;
pub mod challenge;
mod child;
pub mod cli;
#[cfg(feature = "cuda")]
#[expect(
    unsafe_code,
    reason = "the driver is a C library; nothing outside this module may call it"
)]
pub mod cuda;
pub mod deadlines;
pub mod delivery;
pub mod device;
pub mod driver;
pub mod evidence;
pub mod floors;
pub mod gang;
pub mod host;
pub mod http;
pub mod jws;
mod kernel_log;
pub mod local;
mod median;
pub mod order;
pub mod plain;
mod preloaded;
pub mod pretend;
pub mod probe;
pub mod push;
pub mod reference;
pub mod rules;
mod threads;
pub mod transcript;
pub mod vectors;

pub use proof::{field, gemm, memory, merkle, prf, tensor};
