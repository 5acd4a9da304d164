//! The whole conversation: honest nodes, faulty nodes, liars, and nodes that must never pass.

#![forbid(unsafe_code)]

mod beside;
mod cheats;
mod classes;
mod codes;
mod coming_up;
mod command;
mod deep;
mod documents;
mod driver;
mod eventually;
mod faults;
mod floors_script;
mod gang;
mod gang_blame;
mod gang_nccl;
mod gang_nccl_pairs;
mod gang_nccl_played;
mod gang_played;
mod gang_players;
mod gang_sums;
mod hearing;
mod honest;
mod http;
mod last_look;
mod links;
mod machine;
mod neighbours;
mod patience;
mod protocol;
mod recheck;
mod recorded;
mod red_team;
mod repeat;
mod seeded;
mod server;
mod stage;
mod tensor_units;
mod vendors;
