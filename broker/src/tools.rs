//! The demo, the benchmarks, and the simulated world that both play in.

pub mod bench;
pub mod demo;
pub mod simulation;
