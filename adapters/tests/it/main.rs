//! The promises of the adapters, over recordings and against scripted servers on loopback.

#![forbid(unsafe_code)]

mod auth;
mod conformance;
mod digitalocean;
mod http;
mod hyperstack;
mod lambda;
mod mutations;
mod pages;
mod pricesheet;
mod recorded;
mod runpod;
mod server;
mod shadeform;
mod verda;
mod voltagepark;
mod vultr;
