//! One module per provider. A new one is named here and in [`crate::registry`], nowhere else in this crate.

mod address;
pub mod digitalocean;
pub mod hyperstack;
pub mod lambda;
pub mod runpod;
pub mod shadeform;
mod ssh;
mod user_data;
pub mod verda;
pub mod voltagepark;
pub mod vultr;
