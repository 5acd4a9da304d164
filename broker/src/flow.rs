//! The stages in the order of the flow: [`ingest`], [`plan`], [`quote`], [`reserve`], [`fulfil`] (with
//! [`verify`], the broker's side of the conversation with the nodes), [`meter`], [`reach`], [`reconcile`],
//! [`report`].

pub(crate) mod absence;
pub mod cooldown;
pub mod decision;
pub mod fulfil;
pub mod ingest;
pub(crate) mod lead;
pub mod meter;
pub mod plan;
pub mod providers;
pub mod quote;
pub mod reach;
pub mod reconcile;
pub mod report;
pub mod reserve;
pub mod verify;
