//! The outcome of one offer in a plan: part of a candidate, no candidate although it satisfies the demand, or
//! refused for a reason.

use market::demand::Half;
use market::ids::OfferId;
use serde::{Deserialize, Serialize};

use crate::plan::Plan;
use crate::reason::ReasonCode;

/// The outcome of an offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OfferOutcome {
    /// It is part of a candidate.
    Candidate,
    /// It satisfies the demand, but all candidates that are kept come before it.
    Eligible,
    /// It does not satisfy the demand.
    Refused,
}

/// The outcome of an offer in a plan, or in one half of a hybrid plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferVerdict {
    /// The half of a hybrid demand that this concerns; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
    /// The outcome.
    pub outcome: OfferOutcome,
    /// The rank of the first candidate that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<usize>,
    /// The first reason that refuses it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonCode>,
    /// In words, with the figures of this offer where it is refused.
    pub why: String,
}

impl Plan {
    /// The outcome of an offer that the caller named ([`SearchOptions::asked`](crate::SearchOptions::asked)):
    /// one verdict, or one for each half.
    #[must_use]
    pub fn verdicts(&self, offer: OfferId) -> Vec<OfferVerdict> {
        let halves = match self.hybrid {
            None => vec![None],
            Some(_) => vec![Some(Half::Train), Some(Half::Serve)],
        };
        let verdict = |half| self.verdict(half, offer);
        halves.into_iter().map(verdict).collect()
    }

    fn verdict(&self, half: Option<Half>, offer: OfferId) -> OfferVerdict {
        let mut candidates = self.candidates.iter();
        let first = candidates.find(|candidate| {
            candidate.half == half
                && (candidate.lines.iter()).any(|line| line.offer.offer_id == offer)
        });
        let mut refused = self.refused.iter();
        let refused = refused.find(|refused| refused.half == half && refused.offer_id == offer);
        let (outcome, why) = match (first, refused) {
            (Some(first), _) => (
                OfferOutcome::Candidate,
                format!("It is part of candidate {}", first.rank),
            ),
            (None, Some(refused)) => (OfferOutcome::Refused, refused.why.clone()),
            (None, None) => (
                OfferOutcome::Eligible,
                "It satisfies the demand, but is not among the candidates that are kept".to_owned(),
            ),
        };
        OfferVerdict {
            half,
            outcome,
            candidate: first.map(|first| first.rank),
            reason: (refused.filter(|_| first.is_none())).map(|refused| refused.reason),
            why,
        }
    }
}
