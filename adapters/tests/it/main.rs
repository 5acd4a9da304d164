//! The promises of the adapters, over recordings and against scripted servers on loopback.

#![forbid(unsafe_code)]

mod conformance;
mod http;
mod lambda;
mod pricesheet;
mod recorded;
mod runpod;
mod server;
mod voltagepark;
