//! The arithmetic of a proof, the same on both sides: what a GPU is asked to compute, and what the broker
//! recomputes of it. Exact products and their checks ([`gemm`], [`tensor`], [`field`]), the contents of
//! memory ([`memory`]), what both are committed to ([`merkle`]) and drawn from ([`prf`]).
//!
//! A crate of its own because it alone needs an optimising compiler in tests. Orders, rules and devices
//! are the `verifier`'s.

#![forbid(unsafe_code)]

pub mod field;
pub mod gemm;
pub mod memory;
pub mod merkle;
pub mod prf;
pub mod tensor;
