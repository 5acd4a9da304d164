//! The GPU agent and the rules by which its answers are checked.

pub mod attest;
pub mod canonical;
pub mod challenge;
pub mod evidence;
pub mod field;
pub mod floors;
pub mod gemm;
pub mod jws;
pub mod memory;
pub mod merkle;
pub mod order;
pub mod prf;
pub mod rules;
pub mod transcript;
