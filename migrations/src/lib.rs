//! The schema, one change a file, up and down. It imports nothing of ours.
//!
//! A file here is never edited after a release: what is wrong is put right by a new one. A change
//! that breaks readers expands first and contracts in a later release. What the columns mean to
//! the program is said in `store`, whose entities read them.

#![forbid(unsafe_code)]

mod append_only;
mod columns;
mod m20261121_000001_settings;
mod m20261121_000002_identity;
mod m20261121_000003_catalog;
mod m20261121_000004_sales;
mod m20261121_000005_reservations;
mod m20261121_000006_verifications;
mod m20261121_000007_ledger;
mod m20261121_000008_charges;
mod m20261121_000009_idempotency;
mod m20261121_000010_lease_price;
mod m20261121_000011_events;
mod m20261121_000012_webhooks;
mod m20261121_000013_identity_rotation;
mod m20261121_000014_audit;
mod m20261121_000015_credits;
mod m20261121_000016_limits;
mod m20261121_000017_reachability;
mod m20261121_000018_provider_credentials;
mod m20261121_000019_lease_fall;
mod m20261121_000020_interrupted_sessions;
mod m20261121_000021_provider_quarantine;
mod m20261121_000023_event_horizon;
mod m20261121_000024_in_use;
mod m20261121_000025_lapsed_sales;
mod m20261121_000026_step_clock;
mod m20261121_000027_key_projects;
mod m20261121_000028_own_capacity;
mod m20261121_000029_gang_checks;
mod m20261121_000030_required_tags;
mod m20261122_000033_key_makers;
mod m20261122_000034_pushed_agents;
mod m20261122_000035_returned_leases;
mod m20261122_000036_node_reports;
mod m20261122_000037_gpu_sightings;
mod m20261123_000038_sales_of_tenants;
mod m20261123_000039_spent_rates;
mod m20261123_000044_reservations_by_age;
mod m20261123_000045_verification_levels;
mod m20261124_000046_plan_sources;
mod m20261124_000047_rechecks;
mod m20261124_000048_agent_keys;
mod m20261124_000049_let_go_rechecks;
mod m20261125_000050_refused_messages;

use sea_orm_migration::{MigrationTrait, MigratorTrait};

/// Applies the changes in order.
pub struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![
            Box::new(m20261121_000001_settings::Migration),
            Box::new(m20261121_000002_identity::Migration),
            Box::new(m20261121_000003_catalog::Migration),
            Box::new(m20261121_000004_sales::Migration),
            Box::new(m20261121_000005_reservations::Migration),
            Box::new(m20261121_000006_verifications::Migration),
            Box::new(m20261121_000007_ledger::Migration),
            Box::new(m20261121_000008_charges::Migration),
            Box::new(m20261121_000009_idempotency::Migration),
            Box::new(m20261121_000010_lease_price::Migration),
            Box::new(m20261121_000011_events::Migration),
            Box::new(m20261121_000012_webhooks::Migration),
            Box::new(m20261121_000013_identity_rotation::Migration),
            Box::new(m20261121_000014_audit::Migration),
            Box::new(m20261121_000015_credits::Migration),
            Box::new(m20261121_000016_limits::Migration),
            Box::new(m20261121_000017_reachability::Migration),
            Box::new(m20261121_000018_provider_credentials::Migration),
            Box::new(m20261121_000019_lease_fall::Migration),
            Box::new(m20261121_000020_interrupted_sessions::Migration),
            Box::new(m20261121_000021_provider_quarantine::Migration),
            Box::new(m20261121_000023_event_horizon::Migration),
            Box::new(m20261121_000024_in_use::Migration),
            Box::new(m20261121_000025_lapsed_sales::Migration),
            Box::new(m20261121_000026_step_clock::Migration),
            Box::new(m20261121_000027_key_projects::Migration),
            Box::new(m20261121_000028_own_capacity::Migration),
            Box::new(m20261121_000029_gang_checks::Migration),
            Box::new(m20261121_000030_required_tags::Migration),
            Box::new(m20261122_000033_key_makers::Migration),
            Box::new(m20261122_000034_pushed_agents::Migration),
            Box::new(m20261122_000035_returned_leases::Migration),
            Box::new(m20261122_000036_node_reports::Migration),
            Box::new(m20261122_000037_gpu_sightings::Migration),
            Box::new(m20261123_000038_sales_of_tenants::Migration),
            Box::new(m20261123_000039_spent_rates::Migration),
            Box::new(m20261123_000044_reservations_by_age::Migration),
            Box::new(m20261123_000045_verification_levels::Migration),
            Box::new(m20261124_000046_plan_sources::Migration),
            Box::new(m20261124_000047_rechecks::Migration),
            Box::new(m20261124_000048_agent_keys::Migration),
            Box::new(m20261124_000049_let_go_rechecks::Migration),
            Box::new(m20261125_000050_refused_messages::Migration),
        ]
    }
}
