//! The simulator from outside: HTTP against its loopback ports, with a manual clock.

#![forbid(unsafe_code)]

mod bench;
mod bills;
mod conformance;
mod control;
mod digitalocean;
mod eventually;
mod every_twin;
mod faults;
mod fronts;
mod hyperstack;
mod kit;
mod lambda;
mod nodes;
mod runpod;
mod shadeform;
mod ssh;
mod stage;
mod verda;
mod vocabulary;
mod voltagepark;
mod vultr;
