//! The simulator from outside: HTTP against its loopback ports, with a manual clock.

#![forbid(unsafe_code)]

mod bench;
mod bills;
mod conformance;
mod control;
mod eventually;
mod every_twin;
mod faults;
mod fronts;
mod kit;
mod lambda;
mod nodes;
mod runpod;
mod ssh;
mod stage;
mod vocabulary;
mod voltagepark;
