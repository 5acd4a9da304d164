//! Puts a broker together and starts its tasks.

pub mod start;
pub mod tasks;
