//! The list of the simulated providers: one file each, with all that is known of one of them.

mod lambda;
mod runpod;
mod voltagepark;

use crate::Provider;

impl Provider {
    /// Every simulated provider, in the order of their ids.
    pub const ALL: [Self; 3] = [Self::LAMBDA, Self::RUNPOD, Self::VOLTAGEPARK];
}
