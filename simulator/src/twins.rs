//! The list of the simulated providers: one file each, with all that is known of one of them.

mod digitalocean;
mod hyperstack;
mod lambda;
mod runpod;
mod shadeform;
mod verda;
mod voltagepark;
mod vultr;

use crate::Provider;

impl Provider {
    /// The sellers of a demonstration: one of virtual machines, one of containers, one of bare metal.
    pub const DEMONSTRATION: [Self; 3] = [Self::LAMBDA, Self::RUNPOD, Self::VOLTAGEPARK];

    /// Every simulated provider, in the order of their ids.
    pub const ALL: [Self; 8] = [
        Self::DIGITALOCEAN,
        Self::HYPERSTACK,
        Self::LAMBDA,
        Self::RUNPOD,
        Self::SHADEFORM,
        Self::VERDA,
        Self::VOLTAGEPARK,
        Self::VULTR,
    ];
}
