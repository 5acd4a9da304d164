//! The simulator from outside: HTTP against its loopback ports, with a clock turned by hand.

mod bills;
mod control;
mod faults;
mod lambda;
mod nodes;
mod stage;
mod vocabulary;
mod voltagepark;
