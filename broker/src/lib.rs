//! The broker: what is sold where, what of it serves a demand best, reserved, proved and billed.
//!
//! Read the stages in the order of the flow: [`ingest`], [`plan`], [`quote`], [`reserve`],
//! [`fulfil`] (with [`verify`], the broker's side of the conversation with the nodes), [`meter`],
//! [`reach`], [`sweep`], [`report`], [`books`]. [`http`] holds the routes and handlers, [`hot`] what
//! replicas share, [`app`] what all of them work with, [`start`] puts it together, [`background`] keeps it
//! going, [`pulse`] and [`metrics`] say how it goes, [`cli`] is the one binary's commands.

#![forbid(unsafe_code)]

mod absence;
pub mod app;
pub mod background;
pub mod bench;
pub mod books;
pub mod cli;
pub mod clock;
pub mod config;
pub mod cooling;
pub mod data_dir;
pub mod decision;
pub mod demo;
pub mod feed;
pub mod fulfil;
pub mod hot;
pub mod http;
pub mod ingest;
mod json_fault;
pub mod keys;
mod leader;
mod logging;
mod loopback;
mod memory;
pub mod meter;
pub mod metrics;
pub mod node_reports;
pub mod oidc;
pub mod plan;
pub mod provider_set;
pub mod providers;
pub mod pulse;
pub mod quote;
pub mod reach;
mod rechecks;
pub mod report;
pub mod reserve;
pub mod retention;
#[cfg(test)]
mod samples;
pub mod secrets;
pub mod simulation;
mod spans;
pub mod spending;
pub mod start;
pub mod start_error;
pub mod stop;
pub mod sweep;
pub mod tasks;
mod time_check;
mod turns;
pub mod verify;
pub mod webhooks;

/// An error with all its causes in one line, for the log; each is said once.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        // Errors of other crates often end in the words of their cause.
        if !text.ends_with(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        cause = next.source();
    }
    text
}
