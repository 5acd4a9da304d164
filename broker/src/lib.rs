//! The broker: what is sold where, what of it serves a demand best, reserved, proved and billed.
//!
//! Read the stages in the order of the flow: [`ingest`], [`plan`], [`quote`], [`reserve`],
//! [`fulfil`] (with [`verify`], the broker's side of the conversation with the nodes), [`meter`],
//! [`sweep`], [`report`]. [`http`] holds the routes and handlers, [`app`] what all of them work
//! with, [`start`] puts it together, [`cli`] is the one binary's commands.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod demo;
pub mod fulfil;
pub mod http;
pub mod ingest;
pub mod keys;
pub mod meter;
pub mod plan;
pub mod quote;
pub mod report;
pub mod reserve;
#[cfg(test)]
mod samples;
pub mod secrets;
pub mod start;
pub mod sweep;
pub mod verify;

/// An error with all its causes in one line, for the log.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}
