//! One file per provider: talk to it, convert what it says.
//!
//! Here live the contract every adapter keeps ([`Adapter`], [`Profile`]), the one way to talk
//! ([`http::Http`], live or replayed), the adapters themselves (`providers/`), the reader of CSV
//! price lists ([`pricesheet`]) and the suite that every adapter passes ([`conformance`]).
//! What happens to an offer after it was read (diff, history, snapshot) and to a lease (its
//! states) is the broker's business.

#![forbid(unsafe_code)]

pub mod adapter;
pub mod conformance;
mod error;
mod gate;
pub mod http;
pub mod pricesheet;
pub mod providers;
pub mod registry;

pub use adapter::{Adapter, Capability, Delivery, NodesPerLease, Profile, Release};
pub use error::{AdapterError, Disposition, Refusal};
pub use http::{Http, HttpConfig};
