//! The market in a box: HTTP servers on loopback that speak the wire formats of real providers, create
//! pretend machines, bill for them, and fail on command.
//!
//! Each simulated provider ([`Provider::ALL`]) is a *twin*: one file of `twins` with its data and its dialect.
//! The offers, their places and list prices come from a market file ([`Market`]). Machines come up and go away
//! by the caller's [`Clock`] alone. A machine that has come up runs the start-up script of its order on each of
//! its nodes, as a child process whose environment names the node's pretend hardware. This applies only to
//! machines launched with the credential generated at start.
//!
//! It uses no type of the broker. The simulator is the other side, so an adapter is tested against a wire
//! format, and a ledger against a bill, that were written independently.
//!
//! To read it: `market` (the offers) → `world` (all that changes) → `machine` (its life) → `exchange` (one
//! call and its fault) → `twin`, `route` and `call` (what a dialect declares and uses) → `twins` (the
//! dialects) → `node` (child processes) → `ssh` (how they are reached) → `bill`.

#![forbid(unsafe_code)]

mod bill;
mod call;
mod clock;
mod cloud_init;
mod control;
mod error;
mod exchange;
mod faults;
mod fields;
mod front;
mod hardware;
pub mod kit;
mod machine;
mod market;
mod node;
mod page;
mod provider;
mod reply;
mod request;
mod route;
mod server;
mod simulator;
mod ssh;
mod state;
mod things;
mod token;
mod twin;
mod twins;
mod world;

pub use bill::{Bill, BillLine};
pub use clock::Clock;
pub use error::SimulatorError;
pub use faults::{Fault, FaultKind};
pub use front::Front;
pub use machine::{Launch, Machine, Phase};
pub use market::{Market, Network, PriceBasis, Row};
pub use node::{NodeEnd, NodeOutput};
pub use provider::{Operation, Provider};
pub use simulator::{Config, NodeRunner, Simulator};
pub use things::Thing;
pub use twin::Timing;
