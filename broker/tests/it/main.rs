//! The broker from outside: its API against the real server, and the house it stands in.

#![forbid(unsafe_code)]

mod access;
mod audit;
mod backup;
mod bad_input;
mod belongings;
mod budgets;
mod chaos;
mod cli;
mod client;
mod conformance;
mod credentials;
mod credits;
mod cross_tenant;
mod events;
mod handoff;
mod hot;
mod house;
mod idempotency;
mod invariants;
mod lifecycle;
mod limits;
mod memory;
mod metrics;
mod offers;
mod oidc;
mod openapi;
mod plumbing;
mod price_lists;
mod reach;
mod readme;
mod redaction;
mod replicas;
mod requirements;
mod reservations;
mod roles;
mod routes;
mod service;
mod shared_market;
mod ssh_keys;
mod start;
mod tenants;
mod verifications;
mod webhooks;
