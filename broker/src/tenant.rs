//! What tenants have beside the flow: spending limits and budgets, reports on nodes, webhooks, streams of
//! events, the books, and how long things are kept.

pub mod books;
pub mod event_streams;
pub mod node_reports;
pub(crate) mod rechecks;
pub mod retention;
pub mod spending;
pub mod webhooks;
