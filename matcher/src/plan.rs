//! A plan: the ranked candidates for a demand, and the count of refused offers.

mod facts;

use std::collections::BTreeMap;
use std::ops::Deref;

use market::capacity::Covered;
use market::demand::{DemandKind, Half, Precision};
use market::ids::{OfferId, ProviderId};
use market::money::{Money, MoneyError, Rate};
use market::offer::{Offer, OfferView};
use market::place::Place;
use serde::{Deserialize, Serialize};

use crate::hybrid::HybridPlan;
use crate::launch::EngineLaunch;
use crate::reason::ReasonCode;
use crate::walk::AllowedRow;

pub use self::facts::{Facts, RunLayout, RunStrategy};

/// The result of a search. The same snapshot, demand and overlay give the same plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The generation of the snapshot it was found in.
    pub generation: u64,
    /// The kind of the demand.
    pub kind: DemandKind,
    /// The number of offers that satisfy the demand, shown or not.
    pub eligible: usize,
    /// The best of them, best first.
    pub candidates: Vec<Candidate>,
    /// How many do not, and why.
    pub rejected: Rejections,
    /// One rejected offer for each reason that occurs, in the order of the codes.
    pub refused: Vec<Refused>,
    /// The savings of a fleet with weights of other precisions, cheapest first.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
    /// The pairs of a hybrid demand; absent for other kinds.
    #[serde(default)]
    pub hybrid: Option<HybridPlan>,
}

/// An offer set that satisfies a demand, with the reasons for its rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Candidate {
    /// Its rank, from 1.
    pub rank: usize,
    /// The half of a hybrid demand that it satisfies; absent for other kinds.
    #[serde(default)]
    pub half: Option<Half>,
    /// Its offers and their nodes.
    pub lines: Vec<CandidateLine>,
    /// The tenant's price per GPU-hour of the first line.
    pub rate: Rate,
    /// The tenant's cost for the first hour of all lines, at their rates.
    pub cost_per_hour: Money,
    /// The figures behind the reasons.
    pub facts: Facts,
    /// Why it satisfies the demand and has its rank, in words.
    pub reasons: Vec<String>,
    /// How the engine of a fleet is started, for each line.
    #[serde(default)]
    pub launch: Vec<EngineLaunch>,
    /// Offers that can only be compared and differ from this one in their place alone; they are
    /// candidates of their own nowhere.
    #[serde(default)]
    pub also_at: Vec<AlsoAt>,
}

/// Another place with the same offer at the same price.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AlsoAt {
    /// The offer there.
    pub offer_id: OfferId,
    /// The place.
    pub place: Place,
}

/// The cost of the best candidate with weights of another precision, where that is less. A plan shows it and
/// never chooses it: the tenant must judge the effect of a narrower precision on the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Alternative {
    /// The precision of the weights.
    pub weights: Precision,
    /// US dollars per hour of the best candidate with it.
    pub price_usd_hour: Money,
    /// The saving in US dollars per hour against the best candidate with the requested weights.
    pub saves_usd_hour: Money,
    /// The predicted cost of 1e6 output tokens with it, at full capacity of the fleet.
    /// Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd_per_million_tokens: Option<Money>,
    /// The same for the best candidate with the requested weights. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked_usd_per_million_tokens: Option<Money>,
}

/// A number of nodes of one offer that the demand's policy allows.
///
/// Only a search can make one, from an offer that passed every rule of the demand. No other code can make
/// one:
///
/// ```compile_fail
/// fn forged(placed: matcher::Placed) -> matcher::CandidateLine {
///     matcher::CandidateLine(placed)
/// }
/// ```
///
/// nor change one:
///
/// ```compile_fail
/// fn changed(line: &mut matcher::CandidateLine, offer: market::offer::Offer) {
///     line.offer = offer;
/// }
/// ```
///
/// The only other way is to read a stored plan, which is trusted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CandidateLine(Placed);

/// The content of a candidate's line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Placed {
    /// The offer as it was found.
    pub offer: Offer,
    /// Nodes of it.
    pub nodes: u32,
    /// The commitment that pays for them, and its end; absent where none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
}

impl Deref for CandidateLine {
    type Target = Placed;

    fn deref(&self) -> &Placed {
        &self.0
    }
}

impl CandidateLine {
    pub(crate) fn new(row: AllowedRow, nodes: u32, covered: Option<Covered>) -> Self {
        Self(Placed {
            offer: row.into(),
            nodes,
            covered,
        })
    }

    /// The rate of its GPU-hour at the start; the offer's own rate without a commitment.
    pub(crate) fn starting_rate(&self, own: Rate) -> Rate {
        match self.covered {
            Some(covered) => covered.rate_usd_gpu_hour,
            None => own,
        }
    }
}

/// A line whose nodes are paid for already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CoveredLine {
    /// The number of the line, from 0.
    pub line: usize,
    /// Its nodes.
    pub nodes: u32,
    /// The commitment, its rate and its end.
    #[serde(flatten)]
    pub covered: Covered,
}

/// The number of offers that do not satisfy the demand, by reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Rejections {
    /// All of them.
    pub total: usize,
    /// By the first reason that applies.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub by_reason: BTreeMap<ReasonCode, usize>,
}

/// One rejected offer, as an example of its reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Refused {
    /// The half of a hybrid demand that it was tested for; absent for other kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
    /// The reason.
    pub reason: ReasonCode,
    /// The offer.
    pub offer_id: OfferId,
    /// Its provider.
    pub provider: ProviderId,
    /// The provider's own name for it.
    pub sku: String,
    /// The reason in words, with the figures of this offer.
    pub why: String,
}

impl Plan {
    /// The plan as it is shown.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn view(&self) -> Result<PlanView, MoneyError> {
        Ok(PlanView {
            generation: self.generation,
            kind: self.kind,
            eligible: self.eligible,
            candidates: self
                .candidates
                .iter()
                .map(Candidate::view)
                .collect::<Result<_, _>>()?,
            rejected: self.rejected.clone(),
            refused: self.refused.clone(),
            alternatives: self.alternatives.clone(),
            hybrid: self.hybrid.clone(),
        })
    }

    /// Whether the demand can be met: by a candidate, and a hybrid one by a pair of them.
    #[must_use]
    pub fn is_met(&self) -> bool {
        match &self.hybrid {
            Some(hybrid) => !hybrid.pairs.is_empty(),
            None => self.eligible > 0,
        }
    }
}

impl Candidate {
    /// Nodes of all lines.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.lines.iter().map(|line| line.nodes).sum()
    }

    /// GPUs of all lines.
    #[must_use]
    pub fn gpus(&self) -> u32 {
        let of = |line: &CandidateLine| line.offer.gpus.as_whole().unwrap_or(0) * line.nodes;
        self.lines.iter().map(of).sum()
    }

    /// The lines whose nodes are paid for already.
    #[must_use]
    pub fn covered(&self) -> Vec<CoveredLine> {
        let lines = self.lines.iter().enumerate();
        let covered = lines.filter_map(|(number, line)| {
            Some(CoveredLine {
                line: number,
                nodes: line.nodes,
                covered: line.covered?,
            })
        });
        covered.collect()
    }

    /// The placement as `pricing::quote::quote_lines` takes it.
    pub fn placement(&self) -> impl Iterator<Item = (&Offer, u32)> {
        self.lines.iter().map(|line| (&line.offer, line.nodes))
    }

    /// The candidate as it is shown in a plan.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn view(&self) -> Result<CandidateView, MoneyError> {
        Ok(CandidateView {
            rank: self.rank,
            half: self.half,
            lines: self
                .placement()
                .map(|(offer, nodes)| offer.view(nodes))
                .collect::<Result<_, _>>()?,
            covered: self.covered(),
            price_usd_gpu_hour: self.rate,
            price_usd_hour: self.cost_per_hour,
            facts: self.facts,
            reasons: self.reasons.clone(),
            launch: self.launch.clone(),
            also_at: self.also_at.clone(),
        })
    }

    /// Each line as the one offer JSON with the candidate's reasons beside its fields.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn offers_with_reasons(&self) -> Result<Vec<OfferWithReasons>, MoneyError> {
        let lines = self.lines.iter();
        lines
            .map(|line| {
                let of_line = |launch: &&EngineLaunch| launch.offer_id == line.offer.offer_id;
                Ok(OfferWithReasons {
                    candidate: self.rank,
                    half: self.half,
                    offer: line.offer.view(line.nodes)?,
                    covered: line.covered,
                    launch: self.launch.iter().find(of_line).cloned(),
                    facts: self.facts,
                    reasons: self.reasons.clone(),
                    also_at: self.also_at.clone(),
                })
            })
            .collect()
    }
}

/// The JSON form of a plan's findings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PlanView {
    /// The generation of the snapshot it was found in.
    pub generation: u64,
    /// The kind of the demand.
    pub kind: DemandKind,
    /// The number of offers that satisfy the demand, shown or not.
    pub eligible: usize,
    /// The best of them, best first.
    pub candidates: Vec<CandidateView>,
    /// How many do not, and why.
    pub rejected: Rejections,
    /// One rejected offer for each reason that occurs.
    pub refused: Vec<Refused>,
    /// The savings of a fleet with weights of other precisions, cheapest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alternatives: Vec<Alternative>,
    /// The pairs of a hybrid demand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<HybridPlan>,
}

/// The JSON form of a candidate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CandidateView {
    /// Its rank, from 1.
    pub rank: usize,
    /// The half of a hybrid demand that it satisfies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
    /// Its offers, each with its nodes.
    pub lines: Vec<OfferView>,
    /// The lines whose nodes are paid for already; they cost the commitment's rate until it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub covered: Vec<CoveredLine>,
    /// US dollars per GPU-hour of the first line.
    pub price_usd_gpu_hour: Rate,
    /// US dollars for the first hour of all lines, as the tenant would pay it.
    pub price_usd_hour: Money,
    /// The figures behind the reasons.
    pub facts: Facts,
    /// Why it satisfies the demand and has its rank.
    pub reasons: Vec<String>,
    /// How the engine of a fleet is started, for each line.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub launch: Vec<EngineLaunch>,
    /// Other places of the same offer at the same price, where it cannot be ordered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_at: Vec<AlsoAt>,
}

/// A line of a candidate: the offer's JSON, with the fields of the candidate beside its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OfferWithReasons {
    /// The rank of the candidate, from 1; lines of one candidate belong together.
    pub candidate: usize,
    /// The half of a hybrid demand that it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub half: Option<Half>,
    /// The offer for all nodes taken, at its own price.
    #[serde(flatten)]
    pub offer: OfferView,
    /// The commitment that pays for the nodes, its rate and its end; absent where no commitment does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub covered: Option<Covered>,
    /// How the engine of a fleet is started on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch: Option<EngineLaunch>,
    /// The figures behind the reasons.
    pub facts: Facts,
    /// Why it satisfies the demand and has its rank.
    pub reasons: Vec<String>,
    /// Other places of the same offer at the same price, where it cannot be ordered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_at: Vec<AlsoAt>,
}
