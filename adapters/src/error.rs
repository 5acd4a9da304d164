//! What can go wrong between us and a provider, and what the caller should do next.
//!
//! The line that matters most runs between *refused* (certainly nothing was made) and *outcome
//! unknown* (something may run and be billed): after the first the next candidate may be asked,
//! after the second nothing may be asked before the mark was looked up.

use std::time::Duration;

/// Why a provider said no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It has none left just now.
    Capacity,
    /// Our account may not have more.
    Quota,
    /// The credential is wrong, or the account is not in order.
    Credential,
    /// It did not like what we asked: our mistake, or the SKU is no longer sold.
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

    /// What a bare HTTP status says, where an adapter knows no better from the body.
    #[must_use]
    pub const fn from_status(status: u16) -> Self {
        match status {
            401..=403 => Self::Credential,
            _ => Self::Request,
        }
    }
}

/// What the caller should do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// The same call again, not before `after`. When the outcome is unknown: look up first.
    Retry {
        /// How long to wait.
        after: Duration,
    },
    /// This offer is not to be had: ask for the next candidate.
    TryNextCandidate,
    /// Nothing more from this provider until a person has changed something there or in its
    /// configuration.
    GiveUp,
    /// Our mistake or a changed interface: a person should look; this offer is not to be had.
    Fault,
}

/// Why a call to a provider gave no result.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// The provider refused: certainly nothing was made.
    #[error("the provider refused ({}, status {status}): {message}", refusal.as_str())]
    Refused {
        /// Why.
        refusal: Refusal,
        /// The HTTP status.
        status: u16,
        /// The provider's own code and words, cut short and without secrets.
        message: String,
    },
    /// Too many calls; nothing was made.
    #[error("the provider takes no more calls for {} s", after.as_secs())]
    RateLimited {
        /// When the next call may go out.
        after: Duration,
    },
    /// The answer to an order is not known: something may have been made.
    #[error(
        "the outcome of the order is unknown ({how}); look it up by its mark before asking again"
    )]
    OutcomeUnknown {
        /// What became of the answer.
        how: String,
        /// The transport's own error, where there is one.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The provider could not be reached or is broken, in a call that makes nothing.
    #[error("{method} {path} got no answer ({how})")]
    Unreachable {
        /// The method.
        method: &'static str,
        /// The path below the base URL.
        path: String,
        /// What became of the answer.
        how: String,
        /// The transport's own error, where there is one.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// An answer that is not what the interface promises, in a call that makes nothing.
    #[error("{method} {path} answered what cannot be read: {how}")]
    Unreadable {
        /// The method.
        method: &'static str,
        /// The path below the base URL.
        path: String,
        /// What is wrong with it.
        how: String,
    },
    /// The adapter cannot put this order on the wire; nothing was sent.
    #[error("this provider cannot take the order: {0}")]
    CannotOrder(String),
    /// What the provider calls a thing by cannot be its id; nothing was sent.
    #[error("`{0}` cannot be the id of one thing at the provider")]
    BadId(String),
    /// The configuration of the connection is refused; nothing was sent.
    #[error("the connection to the provider is not usable: {0}")]
    BadConnection(String),
    /// A recording that cannot be read, or does not hold the call.
    #[error("the recording does not serve: {0}")]
    BadRecording(String),
}

/// How long to wait where nothing better is known.
const DEFAULT_WAIT: Duration = Duration::from_secs(5);

impl AdapterError {
    /// What the caller should do next.
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

    /// Whether something may have been made although no good answer came.
    #[must_use]
    pub const fn is_outcome_unknown(&self) -> bool {
        matches!(self, Self::OutcomeUnknown { .. })
    }

    /// Whether the provider itself said no, so that certainly nothing was made.
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
