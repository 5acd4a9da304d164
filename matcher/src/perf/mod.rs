//! Closed-form models of memory and speed. Pure functions of a model's and a chip's figures.
//!
//! [`memory`] says what fits, and is exact about what it counts. [`step_time`] is a training step,
//! [`replica`] a replica of a model that serves, [`goodput`] what failures leave of a run: formulas
//! with [`constants`] that were fitted to public measurements of [`chip`]s, and [`rows`] predicts
//! tables of such measurements anew. [`run`] lays a training run out on an offer; [`serving`] is
//! the first estimate that fleets are sized by. What a GPU really does is measured by the verifier, not here.

pub mod calibration;
pub mod chip;
pub mod constants;
pub mod goodput;
pub mod memory;
pub mod replica;
pub mod rows;
pub mod run;
pub mod serving;
pub mod step_time;
