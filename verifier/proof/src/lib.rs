//! The arithmetic of a proof, the same on both sides: the GPU's computations, and the broker's recomputation
//! of them. Exact products and their checks ([`gemm`], [`tensor`], [`field`]), the contents of memory
//! ([`memory`]), the commitments to both ([`merkle`]) and the random source of both ([`prf`]).
//!
//! A crate of its own because it alone needs an optimising compiler in tests. Orders, rules and devices
//! belong to the `verifier`.

#![forbid(unsafe_code)]

pub mod field;
pub mod gemm;
pub mod memory;
pub mod merkle;
pub mod prf;
pub mod tensor;
