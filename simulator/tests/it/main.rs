//! The simulator from outside: HTTP against its loopback ports, with a manual clock.

#![forbid(unsafe_code)]

mod bills;
mod control;
mod eventually;
mod faults;
mod fronts;
mod lambda;
mod nodes;
mod runpod;
mod ssh;
mod stage;
mod vocabulary;
mod voltagepark;
