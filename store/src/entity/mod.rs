//! The tables as sea-orm sees them. Nothing here leaves the crate; the rows that do are in the file
//! of each noun.

pub(crate) mod api_keys;
pub(crate) mod attempts;
pub(crate) mod attestations;
pub(crate) mod charges;
pub(crate) mod column;
pub(crate) mod holds;
pub(crate) mod idempotency_keys;
pub(crate) mod leases;
pub(crate) mod node_sessions;
pub(crate) mod offer_history;
pub(crate) mod offers;
pub(crate) mod plans;
pub(crate) mod postings;
pub(crate) mod projects;
pub(crate) mod providers;
pub(crate) mod quotes;
pub(crate) mod readings;
pub(crate) mod reservations;
pub(crate) mod settings;
pub(crate) mod signing_keys;
pub(crate) mod ssh_keys;
pub(crate) mod tenants;
pub(crate) mod transactions;
pub(crate) mod verifications;
