//! The vocabulary of the broker: types and state machines.
//!
//! Types here have at least two users among the other crates. Nothing here does I/O, reads a clock or is
//! async; functions that depend on time take `now` as an argument.

#![forbid(unsafe_code)]

pub mod acceptance;
pub mod access;
pub mod attestation;
pub mod capacity;
pub mod catalog;
pub mod certification;
pub mod cooling;
pub mod counted;
pub mod credit;
pub mod demand;
pub mod event;
pub mod fabric;
pub mod gpu;
pub mod hold_rules;
pub mod identity;
pub mod ids;
pub mod lease;
pub mod ledger;
pub mod machine;
pub mod math;
pub mod money;
pub mod offer;
pub mod order;
pub mod place;
pub mod provider_facts;
pub mod quantity;
pub mod quote;
pub mod reservation;
pub mod spending;
pub mod table;
pub mod tags;
pub mod usage;
pub mod verification;
