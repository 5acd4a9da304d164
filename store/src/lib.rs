//! The only SQL of the broker: one set of entities on SQLite and on PostgreSQL.
//!
//! [`Store`] has a handle for each noun, in the file of that noun: `store.quotes()`, `store.reservations()`,
//! `store.work()`. A tenant's rows are reached through `.of(tenant)`; reads across tenants are explicit, with
//! `.across_tenants()`. A forgotten tenant therefore does not compile.
//!
//! Rules for every function here:
//! - `now` and ids come from the caller; moments are stored in whole microseconds.
//! - A write is one short transaction, retried when the database asks for it (see `tx`). A transaction
//!   contains only database work.
//! - Rows are plain structs with the market's types; the tables behind them never leave the crate.
//! - The callers and `market` decide permissions and the order of states; the store only refuses to overwrite
//!   a row that changed meanwhile ([`StoreError::Stale`]).

#![forbid(unsafe_code)]

mod answers;
pub mod api_keys;
pub mod attempts;
pub mod audit;
pub mod backup;
pub mod budgets;
pub mod cancelled;
pub mod catalog;
pub mod change;
pub mod charges;
pub mod commands;
pub mod commitments;
mod connect;
mod coverage;
pub mod credits;
mod entity;
mod error;
pub mod events;
mod failure;
#[cfg(feature = "fixture")]
pub mod fixture;
pub mod followers;
pub mod hold;
pub mod idempotency;
pub mod indexed_query;
pub mod leases;
pub mod ledger;
pub mod limits;
pub mod measures;
mod migrate;
pub mod node_reports;
pub mod offers;
pub mod plans;
pub mod provider_accounts;
pub mod providers;
pub mod quotes;
pub mod reach;
pub mod rechecks;
mod repairs;
pub mod reservations;
pub mod retention;
mod room;
mod scope;
pub mod sealed;
pub mod settings;
pub mod sightings;
pub mod signing_keys;
pub mod spending;
pub mod ssh_keys;
pub mod start;
mod stock;
pub mod tenants;
mod tx;
pub mod verifications;
pub mod webhooks;
pub mod work;

pub use connect::{Database, Store};
pub use error::{Conflict, StoreError};
pub use migrate::MigrationStatus;
pub use stock::StockPolicy;
