//! Closed-form arithmetic of memory and speed. Pure functions of a model's and a GPU's figures.
//!
//! [`memory`] says what fits, and is exact about what it counts. [`training`] and [`serving`] are
//! first estimates from peak figures and a few assumed fractions, each a named constant that is
//! shown in the reasons. What a GPU really does is measured by the verifier, not here.

pub mod memory;
pub mod serving;
pub mod training;
