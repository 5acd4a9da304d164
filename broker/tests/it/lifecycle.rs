//! The life of a reservation from hold to closed, with everything that can go wrong on the way, on
//! every database. The scene that the tests play in is `scene`, what stands between the broker and
//! its providers is `tap`.

mod budget;
mod ceiling;
mod commands;
mod crash;
mod faults;
mod fleet;
mod gang;
mod happy;
mod paid;
pub(crate) mod scene;
mod stop;
mod sweep;
pub(crate) mod tap;
mod window;
