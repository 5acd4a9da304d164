//! Features of tenants beside the flow: spending limits and budgets, reports on nodes, webhooks, streams of
//! events, the ledger check, and retention.

pub mod books;
pub mod event_streams;
pub mod node_reports;
pub(crate) mod rechecks;
pub mod retention;
pub mod spending;
pub mod webhooks;
