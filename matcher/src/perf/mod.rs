//! Closed-form models of memory and speed. Pure functions of a model's and a chip's figures.
//!
//! [`memory`] counts bytes exactly. [`step_time`] predicts a training step, [`replica`] a serving replica of
//! a model, and [`goodput`] the useful share of a run with failures. These are formulas with [`constants`]
//! that were fitted to public measurements of [`chip`]s, and [`rows`] predicts tables of such measurements
//! again. [`run`] lays a training run out on an offer; [`serving`] gives the first estimate for the size of a
//! fleet. The verifier, not this module, measures real GPUs.

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
