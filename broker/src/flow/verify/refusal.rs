//! Why a step of the conversation was refused.

use store::{Conflict, StoreError};
use verifier::challenge::StepError;
use verifier::gang::CallRefused;

/// Why a step was refused.
#[derive(Debug, thiserror::Error)]
pub enum StepRefusal {
    /// The token is not the one of this verification, or the verification is over.
    #[error("the token is not valid for this verification, or the verification is over")]
    Token,
    /// There is no step of this number.
    #[error("there are steps 1 to 6")]
    NoSuchStep,
    /// The provider has not yet reported that the nodes of the lease run.
    #[error("the lease is not ready to be verified; ask again in a moment")]
    NotReady,
    /// Not all nodes of the lease have enrolled, and none gets its order before.
    #[error(
        "the node has enrolled, and other nodes of its lease have not; all begin at once: ask again \
         in a moment"
    )]
    SiblingsNotReady,
    /// The address is not one of the lease's nodes, or its node has enrolled already.
    #[error("`{0}` is not the address of a node of this lease that has still to enrol")]
    UnknownHost(String),
    /// Some node has committed to this key before, here or in another verification.
    #[error("a node has committed to this key before; begin with a fresh one")]
    KeyCommitted,
    /// The token is that of another node in use.
    #[error(
        "the token is that of node {0} of the reservation, and another node speaks; run it there"
    )]
    OtherNode(u32),
    /// The node in use was checked recently.
    #[error("the node was checked recently; check again in {0} seconds")]
    Lately(u64),
    /// No node of this verification has committed to this key.
    #[error("no node has committed to this key; begin with step 1")]
    UnknownAgent,
    /// The service was interrupted in the middle, so it cannot tell how long the node took.
    #[error(
        "the conversation was interrupted on our side; begin again with step 1 and a fresh key"
    )]
    Interrupted,
    /// The node was interrupted so often that it gets no other challenge.
    #[error(
        "the conversation was interrupted too often; this token allows no other one, and \
         unless one of the node's is still open its lease is replaced at the deadline"
    )]
    InterruptedTooOften,
    /// The lease sells hardware that cannot be verified.
    #[error("the hardware of this lease cannot be verified: {0}")]
    Unverifiable(&'static str),
    /// The body does not fit this step.
    #[error("the body is not what step {step} sends: {why}")]
    Body {
        /// The step.
        step: u8,
        /// The error.
        why: String,
    },
    /// The step does not fit the conversation.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The nodes of the lease are not measured together.
    #[error("the nodes of this lease are not measured together")]
    NoGang,
    /// The call of a node does not fit the round.
    #[error(transparent)]
    Gang(#[from] CallRefused),
    /// Other nodes were faster again and again.
    #[error("too many nodes of the gang are calling; call again in a moment")]
    Crowded,
    /// Another message for the same step was faster.
    #[error("another message for this step was faster; send it again")]
    Raced,
    /// The result could not be signed.
    #[error("the result could not be signed")]
    Signing(#[from] verifier::jws::JwsError),
    /// The database did not answer.
    #[error("the step could not be kept")]
    Store(#[source] StoreError),
}

impl From<StoreError> for StepRefusal {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Stale | StoreError::Conflict(Conflict::Exists { .. }) => Self::Raced,
            StoreError::Conflict(Conflict::VerificationClosed) => Self::Token,
            StoreError::Conflict(Conflict::AgentKeyCommitted) => Self::KeyCommitted,
            StoreError::Conflict(Conflict::RecheckedLately { again_in_seconds }) => {
                Self::Lately(again_in_seconds)
            }
            StoreError::Conflict(Conflict::InterruptedTooOften { .. }) => Self::InterruptedTooOften,
            other => Self::Store(other),
        }
    }
}
