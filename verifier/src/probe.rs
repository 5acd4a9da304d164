//! The probes: each gets work done by devices and makes the answer of one step from it.

pub mod bandwidth;
pub mod burn;
pub mod diagnostic;
pub mod facts;
pub mod gemm;
pub mod links;
pub mod memory;
pub mod storage;
