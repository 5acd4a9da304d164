//! The whole conversation: honest nodes, faulty nodes, liars, and what must never pass.

#![forbid(unsafe_code)]

mod cheats;
mod command;
mod driver;
mod faults;
mod honest;
mod http;
mod protocol;
mod seeded;
mod stage;
