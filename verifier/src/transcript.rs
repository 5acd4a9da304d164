//! The running hash over all messages of both sides.
//!
//! Agent and broker keep it independently. The signed report contains it, so that a report fits one
//! conversation only, word for word.

use market::verification::{Digest, Step};
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalError, canonical};

/// The hash so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Transcript(Digest);

impl Default for Transcript {
    fn default() -> Self {
        Self(Digest(
            *blake3::hash(b"verification-transcript-1").as_bytes(),
        ))
    }
}

impl Transcript {
    /// Adds one step, both ways.
    ///
    /// Errors: [`CanonicalError`] when a message has no canonical form.
    #[must_use = "the transcript is returned, not changed"]
    pub fn with<Q: Serialize, R: Serialize>(
        self,
        step: Step,
        request: &Q,
        reply: &R,
    ) -> Result<Self, CanonicalError> {
        self.with_said(step, digest_of(request)?, reply)
    }

    /// As [`Self::with`], for a request whose digest is known.
    ///
    /// Errors: [`CanonicalError`] when the reply has no canonical form.
    pub(crate) fn with_said<R: Serialize>(
        self,
        step: Step,
        request: Digest,
        reply: &R,
    ) -> Result<Self, CanonicalError> {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.0.0);
        hasher.update(&[step.number()]);
        hasher.update(&request.0);
        hasher.update(&digest_of(reply)?.0);
        Ok(Self(Digest(*hasher.finalize().as_bytes())))
    }

    /// The hash.
    #[must_use]
    pub const fn digest(self) -> Digest {
        self.0
    }
}

/// The hash of one message in canonical form.
///
/// Errors: [`CanonicalError`] when it has none.
pub fn digest_of<T: Serialize>(message: &T) -> Result<Digest, CanonicalError> {
    Ok(Digest(
        *blake3::hash(canonical(message)?.as_bytes()).as_bytes(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_request_reply_and_history_each_change_the_hash() {
        let start = Transcript::default();
        let base = start.with(Step::Roots, &"a", &"b").expect("canonical");
        for other in [
            start.with(Step::Fill, &"a", &"b"),
            start.with(Step::Roots, &"x", &"b"),
            start.with(Step::Roots, &"a", &"x"),
            base.with(Step::Roots, &"a", &"b"),
        ] {
            assert_ne!(other.expect("canonical"), base);
        }
        assert_eq!(
            start.with(Step::Roots, &"a", &"b").expect("canonical"),
            base
        );
    }
}
