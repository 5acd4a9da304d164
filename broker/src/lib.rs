//! The broker: what is sold where, what of it serves a demand best, reserved, proved and billed.
//!
//! The rooms, from the bottom up; each uses those below it alone:
//!
//! - [`platform`]: what every part stands on, such as the running broker, its clock and its configuration.
//! - `terminal`: what commands print and how they end.
//! - [`flow`]: the stages, from a provider's catalogue to a cost report. Read them in that order.
//! - [`tenant`]: what tenants have beside the flow, such as budgets and webhooks.
//! - [`http`]: the routes and handlers.
//! - [`service`]: puts a broker together and starts its tasks.
//! - [`tools`]: the demo, the benchmarks and the simulated world.
//! - [`cli`]: the commands of the one binary.

#![forbid(unsafe_code)]

pub mod cli;
pub mod flow;
pub mod http;
pub mod platform;
#[cfg(test)]
mod samples;
pub mod service;
pub mod tenant;
mod terminal;
pub mod tools;

/// An error with all its causes in one line, for the log; each cause appears once.
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
