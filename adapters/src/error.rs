//! Errors between us and a provider, and what the caller should do next.
//!
//! The most important difference is between *refused* (certainly nothing was created) and *outcome unknown*
//! (something may be running and billed). After a refusal the caller may try the next candidate; after an
//! unknown outcome it must look up the mark before anything else.

use std::time::Duration;

/// Why a provider refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has none left just now.
    Capacity,
    /// Our account may not have more.
    Quota,
    /// The credential is wrong, or the account is not in order.
    Credential,
    /// It rejected the request: our mistake, or the SKU is no longer sold.
    Request,
}

impl Refusal {
    /// The refusal in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "no capacity",
            Self::Quota => "over the account's quota",
            Self::Credential => "credential or account not accepted",
            Self::Request => "request not accepted",
        }
    }

    /// The meaning of a bare HTTP status, where the adapter learns no more from the body.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            401..=403 => Self::Credential,
            _ => Self::Request,
        }
    }
}

/// The caller's next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The same call again, not before `after`. When the outcome is unknown: look up first.
    Retry {
        /// How long to wait.
        after: Duration,
    },
    /// This offer is not available: try the next candidate.
    TryNextCandidate,
    /// Nothing more from this provider until a person has changed something there or in its
    /// configuration.
    GiveUp,
    /// Our mistake or a changed interface: a person should look; this offer is not available.
    Fault,
}

/// Why a call to a provider gave no result.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The provider refused: certainly nothing was created.
    #[error("the provider refused ({}, status {status}): {message}", refusal.as_str())]
    Refused {
        /// Why.
        refusal: Refusal,
        /// The HTTP status.
        status: u16,
        /// The provider's own code and words, cut short and without secrets.
        message: String,
    },
    /// Too many calls; nothing was created.
    #[error("the provider takes no more calls for {} s", after.as_secs())]
    RateLimited {
        /// When the next call may be sent.
        after: Duration,
    },
    /// The answer to an order is not known: something may have been created.
    #[error(
        "the outcome of the order is unknown ({how}); look it up by its mark before asking again"
    )]
    OutcomeUnknown {
        /// What happened to the answer.
        how: String,
        /// The transport's own error, where there is one.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The provider could not be reached or is broken, in a call that creates nothing.
    #[error("{method} {path} got no answer ({how})")]
    Unreachable {
        /// The method.
        method: &'static str,
        /// The path below the base URL.
        path: String,
        /// What happened to the answer.
        how: String,
        /// The transport's own error, where there is one.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// An answer that does not match the interface, in a call that creates nothing.
    #[error("{method} {path} sent an unreadable answer: {how}")]
    Unreadable {
        /// The method.
        method: &'static str,
        /// The path below the base URL.
        path: String,
        /// The fault.
        how: String,
    },
    /// The adapter cannot express this order on the wire; nothing was sent.
    #[error("this provider cannot take the order: {0}")]
    CannotOrder(String),
    /// The provider's id of a thing is not a valid id; nothing was sent.
    #[error("`{0}` cannot be the id of one thing at the provider")]
    BadId(String),
    /// The configuration of the connection is refused; nothing was sent.
    #[error("the connection to the provider is not usable: {0}")]
    BadConnection(String),
    /// A recording that cannot be read, or does not have the call.
    #[error("the recording cannot be used: {0}")]
    BadRecording(String),
}

/// How long to wait by default.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

impl AdapterError {
    /// The caller's next step.
    #[must_use]
    pub fn disposition(&self) -> Disposition {
        match self {
            Self::Refused {
                refusal: Refusal::Capacity | Refusal::Quota,
                ..
            }
            | Self::CannotOrder(_) => Disposition::TryNextCandidate,
            Self::Refused {
                refusal: Refusal::Credential,
                ..
            }
            | Self::BadConnection(_)
            | Self::BadRecording(_) => Disposition::GiveUp,
            Self::Refused {
                refusal: Refusal::Request,
                ..
            }
            | Self::BadId(_)
            | Self::Unreadable { .. } => Disposition::Fault,
            Self::RateLimited { after } => Disposition::Retry { after: *after },
            Self::OutcomeUnknown { .. } | Self::Unreachable { .. } => Disposition::Retry {
                after: DEFAULT_WAIT,
            },
        }
    }

    /// Whether something may have been created although no good answer came.
    #[must_use]
    pub const fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether the provider itself refused, so that certainly nothing was created.
    #[must_use]
    pub const fn is_refusal(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_open_order_asks_to_be_looked_up() {
        let open = AdapterError::OutcomeUnknown {
            how: "timed out".into(),
            source: None,
        };
        assert!(open.is_outcome_unknown());
        assert!(open.to_string().contains("look it up"), "{open}");
        for refusal in [
            Refusal::Capacity,
            Refusal::Quota,
            Refusal::Credential,
            Refusal::Request,
        ] {
            let refused = AdapterError::Refused {
                refusal,
                status: 400,
                message: String::new(),
            };
            assert!(!refused.is_outcome_unknown() && refused.is_refusal());
        }
    }

    #[test]
    fn a_sold_out_offer_sends_the_caller_on_and_a_bad_credential_stops_it() {
        let refused = |refusal| AdapterError::Refused {
            refusal,
            status: 400,
            message: String::new(),
        };
        assert_eq!(
            refused(Refusal::Capacity).disposition(),
            Disposition::TryNextCandidate
        );
        assert_eq!(
            refused(Refusal::Quota).disposition(),
            Disposition::TryNextCandidate
        );
        assert_eq!(
            refused(Refusal::Credential).disposition(),
            Disposition::GiveUp
        );
        assert_eq!(refused(Refusal::Request).disposition(), Disposition::Fault);
        let after = Duration::from_secs(12);
        assert_eq!(
            AdapterError::RateLimited { after }.disposition(),
            Disposition::Retry { after }
        );
    }
}
