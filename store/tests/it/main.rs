//! The store against real databases: every test runs on SQLite and on PostgreSQL.

#![forbid(unsafe_code)]

mod agent_keys;
mod audit;
mod beginning;
mod budgets;
mod catalog;
mod commands;
mod credits;
mod events;
mod files;
mod given_up;
mod hold_rules;
mod holds;
mod idempotency;
mod keys;
mod later;
mod lease_price;
mod ledger;
mod limits;
mod measures;
mod metering;
mod node_reports;
mod providers;
mod reach;
mod recheck_retention;
mod rechecks;
mod refused;
mod retention;
mod returned;
mod saves;
mod schema;
mod sealed;
mod sightings;
mod support;
mod tenants;
mod trouble;
mod verifications;
mod webhooks;
mod work;
