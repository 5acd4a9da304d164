//! The broker from outside: its API against the real server, and the house it stands in.

mod bad_input;
mod cli;
mod conformance;
mod credentials;
mod handoff;
mod house;
mod idempotency;
mod invariants;
mod lifecycle;
mod offers;
mod openapi;
mod plumbing;
mod requirements;
mod reservations;
mod routes;
mod service;
mod ssh_keys;
mod start;
mod tenants;
mod verifications;
