//! What carries an agent's messages, and why one may not get its answer.

use market::verification::Step;

/// What carries messages to the broker and its answers back.
pub trait Transport {
    /// Sends one step's JSON and gives the JSON of the answer.
    ///
    /// Errors: [`TransportError`], after whatever retries the carrier does.
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError>;

    /// Whether nobody on the way can read it.
    fn is_private(&self) -> bool;
}

/// Why a message did not get its answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The broker said no.
    #[error("the broker refused step {step} with status {status}: {detail}")]
    Refused {
        /// The step.
        step: Step,
        /// The HTTP status.
        status: u16,
        /// What the broker said.
        detail: String,
    },
    /// The broker lost its clock of this conversation, as one that was restarted has: it can only be
    /// begun anew, under a fresh key.
    #[error("the broker was interrupted before step {step}; the conversation must begin anew")]
    Interrupted {
        /// The step.
        step: Step,
    },
    /// The broker could not be reached, or was not ready, for as long as was allowed.
    #[error("the broker did not take step {step} in time; the last attempt ended with: {last}")]
    GaveUp {
        /// The step.
        step: Step,
        /// How the last attempt ended.
        last: String,
    },
}
