//! The base of every part: the running broker, its clock, configuration, keys and database of settings, the
//! state that replicas share, and the supervision of tasks. It names no stage.

pub mod address_guard;
pub mod app;
pub mod background;
pub mod clock;
pub mod config;
pub mod coordination;
pub mod data_dir;
pub(crate) mod fair_queue;
pub mod heartbeat;
pub(crate) mod json_fault;
pub mod keys;
pub(crate) mod leader;
pub(crate) mod logging;
pub(crate) mod loopback;
pub(crate) mod memory;
pub mod metrics;
pub mod oidc;
pub mod provider_set;
pub mod secrets;
pub(crate) mod spans;
pub mod start_error;
pub mod stop;
pub(crate) mod time_check;
