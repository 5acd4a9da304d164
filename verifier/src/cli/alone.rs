//! A check of this machine on its own, with a broker in this process.

use market::attestation::Attestation;
use market::gpu::Gpu;
use market::ids::{AttestationId, LeaseId, VerificationId};
use market::verification::{Level, VerificationOrder};
use uuid::Uuid;

use super::order::read_order;
use super::{OpenGpus, RunArgs, RunError, node, table};
use crate::agent::{AgentError, AgentOutcome, converse};
use crate::challenge::Opening;
use crate::device::Node;
use crate::jws::Signer;
use crate::local::LocalBroker;
use crate::order::{Mode, expected_node, order_for};
use crate::rules::named_gpu;

/// The expectations of a node that is checked on its own.
#[derive(Debug)]
pub enum Expectation {
    /// The SKU as stated, else what the node shows.
    Sold {
        /// How much is checked.
        level: Level,
        /// The GPU; else what the first one says that it is.
        gpu: Option<Gpu>,
        /// How many; else as many as there are.
        gpus: Option<u32>,
    },
    /// An order for all of it.
    Order(Box<VerificationOrder>),
}

impl Expectation {
    /// What the node itself shows.
    #[must_use]
    pub const fn what_it_shows(level: Level) -> Self {
        Self::Sold {
            level,
            gpu: None,
            gpus: None,
        }
    }

    /// Whether nothing of it has to be read from the driver.
    #[cfg(feature = "cuda")]
    pub(super) const fn is_said(&self) -> bool {
        match self {
            Self::Sold { gpu, gpus, .. } => gpu.is_some() && gpus.is_some(),
            Self::Order(_) => true,
        }
    }

    fn order(self, node: &Node, mode: Mode) -> Result<VerificationOrder, RunError> {
        let (level, gpu, gpus) = match self {
            Self::Sold { level, gpu, gpus } => (level, gpu, gpus),
            Self::Order(order) => {
                return Ok(VerificationOrder {
                    simulation: mode == Mode::Simulation,
                    ..*order
                });
            }
        };
        let claims = node.inventory().gpus;
        let shown = || claims.first().and_then(named_gpu);
        let gpu = gpu.or_else(shown).ok_or(RunError::UnknownGpu)?;
        let gpus = gpus.unwrap_or(claims.len() as u32);
        Ok(order_for(expected_node(gpu, gpus), 0, level, mode))
    }
}

/// A conversation with a broker in this process, as far as it came.
pub(super) struct Alone {
    /// What the node was to do.
    pub(super) order: VerificationOrder,
    /// The broker, who has its result.
    pub(super) broker: LocalBroker,
    /// How it ended for the agent.
    pub(super) outcome: Result<AgentOutcome, AgentError>,
}

/// Checks a node on its own: the same conversation with a broker in this process.
///
/// The result is not countersigned and proves nothing to others.
/// Errors: [`RunError::UnknownGpu`], [`RunError::Agent`].
pub fn run_alone(node: &mut Node, against: Expectation) -> Result<Attestation, RunError> {
    let Alone {
        broker, outcome, ..
    } = talk_alone(node, against)?;
    outcome?;
    Ok(broker.into_attestation())
}

/// Has a node talk to a broker in this process, to the end or as far as it comes.
///
/// Errors: [`RunError::UnknownGpu`].
pub(super) fn talk_alone(node: &mut Node, against: Expectation) -> Result<Alone, RunError> {
    let mode = if node.simulated {
        Mode::Simulation
    } else {
        Mode::Real
    };
    let order = against.order(node, mode)?;
    let verification_id = VerificationId::from_uuid(Uuid::now_v7());
    // No lease stands behind a check on its own.
    let lease_id = LeaseId::from_uuid(Uuid::nil());
    let opening = Opening {
        verification_id,
        lease_id,
        mode,
        order: order.clone(),
    };
    let attestation_id = AttestationId::from_uuid(Uuid::now_v7());
    let mut broker = LocalBroker::new(opening, attestation_id);
    let signer = Signer::from_seed(&rand::random());
    let outcome = converse(node, verification_id, &signer, &mut broker);
    Ok(Alone {
        order,
        broker,
        outcome,
    })
}

/// Checks this machine on its own and prints the result. Gives whether it passed.
///
/// Errors: [`RunError`].
pub(super) fn check_alone(args: &RunArgs, open: OpenGpus) -> Result<bool, RunError> {
    let against = sold_or_ordered(args)?;
    let mut node = node(args, open)?;
    let attestation = run_alone(&mut node, against)?;
    if args.json {
        println!(
            "{}",
            serde_json::to_string(&attestation).map_err(RunError::Output)?
        );
    } else {
        table::print_table(&attestation);
    }
    Ok(attestation.verdict.is_pass())
}

/// What the arguments say that was sold.
///
/// Errors: [`RunError`] where its order cannot be read, or is of another level.
pub(super) fn sold_or_ordered(args: &RunArgs) -> Result<Expectation, RunError> {
    let Some(path) = args.order.as_deref() else {
        return Ok(Expectation::Sold {
            level: args.level.unwrap_or(Level::Standard),
            gpu: args.gpu,
            gpus: args.gpus,
        });
    };
    let order = read_order(path)?;
    match args.level {
        Some(asked) if asked != order.level => Err(RunError::OtherLevel {
            of_order: order.level,
            asked,
        }),
        _ => Ok(Expectation::Order(Box::new(order))),
    }
}
