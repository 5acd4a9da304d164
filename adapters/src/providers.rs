//! One module per provider. A new one is named here and in [`crate::registry`], nowhere else in this crate.

mod address;
pub mod lambda;
pub mod runpod;
mod ssh;
pub mod voltagepark;
