//! One adapter per provider: it calls the provider and converts its answers.
//!
//! Here are the contract that every adapter keeps ([`Adapter`], [`Profile`]), the one way to make calls
//! ([`http::Http`], live or replayed), the adapters themselves (`providers/`), the reader of CSV price lists
//! ([`pricesheet`]) and the suite that every adapter passes ([`conformance`]). The broker handles an offer
//! after it was read (diff, history, snapshot) and a lease (its states).

#![forbid(unsafe_code)]

pub mod adapter;
pub mod auth;
pub mod conformance;
mod error;
mod gate;
pub mod http;
pub mod images;
pub mod pricesheet;
pub mod providers;
mod reading;
pub mod registry;

pub use adapter::{
    Adapter, Capability, Delivery, MachineChoices, NodesPerLease, Ports, Profile, Release,
};
pub use error::{AdapterError, Disposition, Refusal};
pub use http::{Http, HttpConfig};
