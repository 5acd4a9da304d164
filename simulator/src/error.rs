//! What can go wrong before the first request, or with a command to the simulator.

use crate::{FaultKind, Operation, Provider};

/// Why the simulator refused.
#[derive(Debug, thiserror::Error)]
pub enum SimulatorError {
    /// No such provider is played.
    #[error(
        "the simulator does not play a provider called `{0}`: use lambda, runpod or voltagepark"
    )]
    UnknownProvider(String),
    /// A market file cannot be used.
    #[error("row {row} of the market file cannot be used: {why}")]
    Market {
        /// Counted from 1, the header left out; 0 is the file itself.
        row: usize,
        /// What is wrong, in words.
        why: String,
    },
    /// Nothing of that name is sold there.
    #[error("{provider} sells no `{sku}` at `{place}`: look at the market file")]
    NotSold {
        /// Who was asked.
        provider: Provider,
        /// What was asked for.
        sku: String,
        /// Where; `*` for anywhere.
        place: String,
    },
    /// Too few machines are free there.
    #[error(
        "{provider} has fewer than {nodes} free nodes of `{sku}` at `{place}`: ask for fewer or raise the capacity"
    )]
    NoCapacity {
        /// Who was asked.
        provider: Provider,
        /// What was asked for.
        sku: String,
        /// Where.
        place: String,
        /// How many nodes were wanted.
        nodes: u32,
    },
    /// The price cannot be said in the provider's wire format.
    #[error("{provider} cannot publish a price of {price} USD: {why}")]
    Price {
        /// Whose price it is.
        provider: Provider,
        /// The price that was given.
        price: rust_decimal::Decimal,
        /// What is wrong with it.
        why: &'static str,
    },
    /// That fault cannot happen there.
    #[error("{kind:?} cannot happen at {provider} on {operation:?}: {why}")]
    FaultDoesNotFit {
        /// Whose call was to break.
        provider: Provider,
        /// Which call was to break.
        operation: Operation,
        /// What was to happen.
        kind: FaultKind,
        /// Why it cannot.
        why: &'static str,
    },
    /// No node of such a machine runs with an SSH server.
    #[error("no node of a machine `{0}` runs: give the provider's id of one that is up")]
    NoSuchMachine(String),
    /// The loopback port could not be opened.
    #[error("the simulator could not listen on loopback: check the limits on open files")]
    Listen(#[source] std::io::Error),
    /// No directory for the pretend nodes.
    #[error("the simulator could not make a temporary directory: check TMPDIR")]
    Workspace(#[source] std::io::Error),
}
