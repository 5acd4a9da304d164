//! What the adapters promise, over recordings and against scripted servers on loopback.

mod http;
mod pricesheet;
mod server;
