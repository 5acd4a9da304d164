//! A driver of GPUs that do not exist, for tests: loaded as `libcuda.so.1` and as
//! `libnvidia-ml.so.1` under the unmodified agent, and where a test wants it as `libnccl.so.2`.
//!
//! Its GPUs and their faults are a [`script::Script`] in the JSON file named by [`script::VARIABLE`]. It
//! knows the agent's kernels by name and runs them with the reference arithmetic of the `verifier` crate; an
//! unknown kernel is an error, as is a call that is not exported. Time is virtual: events give the time that
//! a card of the scripted speed would have taken. Processes on one card see each other (`neighbours.rs`):
//! they share its memory and its rate of copies. It also plays the adversary: names, counters and speeds are
//! those of the script, true or not. Its internals may change; only the agent's tests may use it.

#![expect(
    unsafe_code,
    reason = "it exports the C interface of a driver; every pointer comes from the agent's wrappers"
)]

mod clocks;
mod collective;
mod compute;
mod duty;
mod kernels;
mod manage;
pub mod neighbours;
mod nodes;
pub mod script;
mod state;
mod tensor;
