//! What the adapters promise, over recordings and against scripted servers on loopback.

mod conformance;
mod http;
mod lambda;
mod pricesheet;
mod recorded;
mod server;
mod voltagepark;
