//! Errors before the first request, or of a command to the simulator.

use crate::{FaultKind, Operation, Provider};

/// Why the simulator refused.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// No such provider is simulated.
    #[error("the simulator has no provider called `{0}`: use one of {list}", list = every_provider())]
    UnknownProvider(String),
    /// A market file cannot be used.
    #[error("row {row} of the market file cannot be used: {why}")]
    Market {
        /// Counted from 1, the header left out; 0 is the file itself.
        row: usize,
        /// The reason, in words.
        why: String,
    },
    /// Nothing with that name is sold there.
    #[error("{provider} sells no `{sku}` at `{place}`: look at the market file")]
    NotSold {
        /// The provider.
        provider: Provider,
        /// The SKU that was asked for.
        sku: String,
        /// The place; `*` for anywhere.
        place: String,
    },
    /// Too few machines are free there.
    #[error(
        "{provider} has fewer than {nodes} free nodes of `{sku}` at `{place}`: ask for fewer or raise the capacity"
    )]
    NoCapacity {
        /// The provider.
        provider: Provider,
        /// The SKU that was asked for.
        sku: String,
        /// The place.
        place: String,
        /// How many nodes were asked for.
        nodes: u32,
    },
    /// The provider's wire format cannot express the price.
    #[error("{provider} cannot publish a price of {price} USD: {why}")]
    Price {
        /// The provider.
        provider: Provider,
        /// The price that was given.
        price: rust_decimal::Decimal,
        /// The reason.
        why: &'static str,
    },
    /// That fault is not possible there.
    #[error("{kind:?} cannot happen at {provider} on {operation:?}: {why}")]
    FaultDoesNotFit {
        /// The provider of the call.
        provider: Provider,
        /// The call.
        operation: Operation,
        /// The fault.
        kind: FaultKind,
        /// The reason.
        why: &'static str,
    },
    /// No such machine was ever launched, or it has ended.
    #[error("no machine `{0}` is alive: give the provider's id of one that was not released")]
    NotAlive(String),
    /// No node of such a machine is running with an SSH server.
    #[error("no node of a machine `{0}` runs: give the provider's id of one that is up")]
    NoSuchMachine(String),
    /// The loopback port could not be opened.
    #[error("the simulator could not listen on loopback: check the limits on open files")]
    Listen(#[source] std::io::Error),
    /// No directory for the pretend nodes.
    #[error("the simulator could not make a temporary directory: check TMPDIR")]
    Workspace(#[source] std::io::Error),
}

fn every_provider() -> String {
    Provider::ALL.map(Provider::as_str).join(", ")
}
