//! The transport of an agent's messages, and why a message may get no answer.

use market::verification::Step;

/// Carries messages to the broker and its answers back.
pub trait Transport {
    /// Sends one step's JSON and gives the JSON of the answer.
    ///
    /// Errors: [`TransportError`], after the transport's own retries.
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError>;

    /// Whether the connection is encrypted.
    fn is_private(&self) -> bool;
}

/// Why a message got no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The broker refused the step.
    #[error("the broker refused step {step} with status {status}: {detail}")]
    Refused {
        /// The step.
        step: Step,
        /// The HTTP status.
        status: u16,
        /// The broker's explanation.
        detail: String,
    },
    /// The broker lost its clock of this conversation, for example by a restart. The conversation can only
    /// begin again, under a fresh key.
    #[error("the broker was interrupted before step {step}; the conversation must begin again")]
    Interrupted {
        /// The step.
        step: Step,
    },
    /// The broker was unreachable, or not ready, for the whole time allowed.
    #[error("the broker did not take step {step} in time; the last attempt ended with: {last}")]
    GaveUp {
        /// The step.
        step: Step,
        /// How the last attempt ended.
        last: String,
    },
}
