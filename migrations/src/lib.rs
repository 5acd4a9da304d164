//! The schema: its first version, a file for each subject, then a file for each later change; each up and
//! down. It imports nothing of ours.
//!
//! The files of 28 November 2026 are the first version. A later change is a migration of its own, and none is
//! edited once it has landed: a mistake is corrected by a new one. A change that breaks readers expands first
//! and contracts in a later release. `store` documents the meaning of the columns; its entities read them.

#![forbid(unsafe_code)]

mod append_only;
mod columns;
mod m20261128_000001_settings;
mod m20261128_000002_identity;
mod m20261128_000003_catalog;
mod m20261128_000004_sales;
mod m20261128_000005_reservations;
mod m20261128_000006_nodes;
mod m20261128_000007_verifications;
mod m20261128_000008_attestations;
mod m20261128_000009_ledger;
mod m20261128_000010_charges;
mod m20261128_000011_spending;
mod m20261128_000012_commitments;
mod m20261128_000013_events;
mod m20261128_000014_webhooks;
mod m20261128_000015_idempotency;
mod m20261128_000016_audit;
mod m20261128_000017_commit_marks;
mod m20261128_000018_missing_leases;
mod m20261128_000019_unread_records;
mod m20261128_000021_provider_binding;
mod m20261128_000022_unused_limits;
mod m20261128_000023_ended_holds;
mod m20261129_000024_later_starts;
mod tables;

use sea_orm_migration::{MigrationTrait, MigratorTrait};

/// Applies the changes in order.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m20261128_000001_settings::Migration),
            Box::new(m20261128_000002_identity::Migration),
            Box::new(m20261128_000003_catalog::Migration),
            Box::new(m20261128_000004_sales::Migration),
            Box::new(m20261128_000005_reservations::Migration),
            Box::new(m20261128_000006_nodes::Migration),
            Box::new(m20261128_000007_verifications::Migration),
            Box::new(m20261128_000008_attestations::Migration),
            Box::new(m20261128_000009_ledger::Migration),
            Box::new(m20261128_000010_charges::Migration),
            Box::new(m20261128_000011_spending::Migration),
            Box::new(m20261128_000012_commitments::Migration),
            Box::new(m20261128_000013_events::Migration),
            Box::new(m20261128_000014_webhooks::Migration),
            Box::new(m20261128_000015_idempotency::Migration),
            Box::new(m20261128_000016_audit::Migration),
            Box::new(m20261128_000017_commit_marks::Migration),
            Box::new(m20261128_000018_missing_leases::Migration),
            Box::new(m20261128_000019_unread_records::Migration),
            Box::new(m20261128_000021_provider_binding::Migration),
            Box::new(m20261128_000022_unused_limits::Migration),
            Box::new(m20261128_000023_ended_holds::Migration),
            Box::new(m20261129_000024_later_starts::Migration),
        ]
    }
}
