//! The life of a reservation from hold to closed, with everything that can go wrong on the way, on every
//! database. `scene` is the scene of the tests, `tap` the interceptor between the broker and its providers,
//! `sshd` the real SSH server of the nodes in `push`.

mod absent;
mod agent_keys;
mod begin;
mod budget;
mod ceiling;
mod commands;
mod cooling;
mod crash;
mod crowded;
mod depth;
mod ends;
mod faults;
mod fleet;
mod fronts;
pub(crate) mod gang;
mod gang_orders;
mod happy;
mod history;
mod joined;
mod later;
mod missed;
mod on_record;
mod paid;
mod pair;
mod push;
mod push_gang;
pub(crate) mod scene;
mod sellers;
mod silent;
mod spoken;
mod sshd;
mod stop;
mod sweep;
pub(crate) mod tap;
mod wanted;
mod window;
