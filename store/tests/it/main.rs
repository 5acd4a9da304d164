//! The store against real databases: every test runs on SQLite and on PostgreSQL.

mod catalog;
mod commands;
mod given_up;
mod holds;
mod idempotency;
mod keys;
mod ledger;
mod metering;
mod schema;
mod support;
mod tenants;
mod verifications;
mod work;
