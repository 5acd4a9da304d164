//! Demands of the kind `hybrid`: a training run, and the serving fleet that follows it elsewhere.
//!
//! Both halves are searched as demands of their own ([`crate::search()`]). Every pair of candidates is then
//! priced as a whole: the run, the time that its nodes wait while the weights leave them, the egress, and the
//! fleet over one span that is the same for all pairs. Pairs rank by their total cost. Nodes that a tenant
//! has paid for already go to the half that makes the total cheaper, never to both (`halves`). The amounts
//! are sums of `rate × GPU-seconds`, rounded half to even once for each line, so a reader of the answer can
//! add them up again. `baselines` holds the baselines that it is compared with.

mod baselines;
mod bill;
mod halves;
mod staging;

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use market::demand::{Demand, Half, HybridDemand, ServeHalf};
use market::ids::ProviderId;
use market::money::Money;
use market::offer::OfferView;
use serde::{Deserialize, Serialize};

use crate::MatchError;
use crate::fleet::Budget;
use crate::plan::{Candidate, Plan, Rejections};
use crate::search::{Held, SearchOptions};
use crate::snapshot::Snapshot;

use baselines::baselines;
use bill::Reckoning;
use halves::search_half;

/// How many pairs are shown.
const PAIRS_SHOWN: usize = 10;

/// The number of later ends of fleets for which fleets are searched again.
const MOST_LATER_ENDS: usize = 8;

/// The result for a hybrid demand, beside the candidates of its halves.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridPlan {
    /// How many offers can train.
    #[schema(minimum = 0)]
    pub eligible_train: usize,
    /// How many offers can serve.
    #[schema(minimum = 0)]
    pub eligible_serve: usize,
    /// The weights that go from the run to the fleet, in the precision in which they are served.
    /// Units: bytes.
    #[schema(minimum = 0)]
    pub weights_bytes: u64,
    /// The time for which every pair pays its fleet; each batch takes its own time. Units: seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_span_seconds: Option<i64>,
    /// Whether that span was assumed, since the demand leaves the end open.
    pub serve_span_assumed: bool,
    /// The best pairs, best first.
    pub pairs: Vec<HybridPair>,
    /// The baselines for the best pair.
    pub baselines: Vec<HybridBaseline>,
}

/// A training candidate and a serving candidate, as one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridPair {
    /// The rank of the training candidate in the plan.
    #[schema(minimum = 1)]
    pub train_candidate: usize,
    /// The rank of the serving candidate in the plan.
    #[schema(minimum = 1)]
    pub serve_candidate: usize,
    /// When, and for how much.
    #[serde(flatten)]
    pub bill: HybridBill,
}

/// The dates and amounts of a training run and the fleet that follows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridBill {
    /// The GPU-seconds of the run, including failures.
    #[schema(minimum = 0)]
    pub train_gpu_seconds: i64,
    /// The cost of the run. Units: US dollars.
    pub train_usd: Money,
    /// When the run is predicted to be done.
    pub trained_at: DateTime<Utc>,
    /// How the weights reach the fleet.
    pub staging: Vec<StagingLeg>,
    /// When the weights have left, and the training nodes are released.
    pub released_at: DateTime<Utc>,
    /// The cost of the training nodes while the weights leave them. Units: US dollars.
    pub staging_hold_usd: Money,
    /// Their provider's charge for the egress of the weights. Units: US dollars.
    pub egress_usd: Money,
    /// When the fleet has the weights and its window has begun.
    pub serves_from: DateTime<Utc>,
    /// The time for which it is paid. Units: seconds.
    #[schema(minimum = 0)]
    pub serve_seconds: i64,
    /// Its cost for that time. Units: US dollars.
    pub serve_usd: Money,
    /// The part that pays for RDMA between nodes, which serving does not use: the difference to the cheapest
    /// fleet found without RDMA. Absent where no such fleet was found. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interconnect_premium_usd: Option<Money>,
    /// The total cost: run, staging, egress and fleet. Units: US dollars.
    pub total_usd: Money,
    /// The extra cost at the offers' own prices, without commitments. Absent where no commitment pays for any
    /// of it. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_capacity_saves_usd: Option<Money>,
}

/// The way of the weights to one site of the fleet; each site gets them once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct StagingLeg {
    /// The provider of the site.
    pub provider: ProviderId,
    /// The region of the site, as its provider writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// How long it takes. Units: seconds.
    #[schema(minimum = 0)]
    pub seconds: i64,
    /// The egress price of the training nodes' provider. Units: US dollars per 1e9 bytes.
    pub usd_per_gb: Money,
    /// Whether that price is listed; otherwise it is the highest listed price.
    pub price_listed: bool,
    /// The cost of the leg. Units: US dollars.
    pub usd: Money,
}

/// The kinds of baseline of a hybrid plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BaselineKind {
    /// The fleet uses nodes of the offer that trains.
    OneShape,
    /// Both halves on demand at one provider.
    OneProvider,
}

/// The cheapest way to do both under a restriction, and the saving of the best pair against it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HybridBaseline {
    /// The restriction.
    pub kind: BaselineKind,
    /// The lines of both halves; absent where no offers do both under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way: Option<BaselineWay>,
    /// The saving of the best pair. Units: US dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saves_usd: Option<Money>,
}

/// How both halves are done under a restriction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BaselineWay {
    /// The lines that train.
    pub train: Vec<OfferView>,
    /// The lines that serve.
    pub serve: Vec<OfferView>,
    /// When, and for how much.
    #[serde(flatten)]
    pub bill: HybridBill,
}

impl BaselineKind {
    /// Its meaning, in words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::OneShape => "serving on the kind of node that trains",
            Self::OneProvider => "both on demand at one provider",
        }
    }
}

/// The market in which a hybrid demand is searched, and its state.
#[derive(Debug, Clone, Copy)]
pub struct HybridSearch<'a> {
    /// The offers.
    pub snapshot: &'a Snapshot,
    /// Their nodes that are held or leased.
    pub held: &'a Held,
    /// The time.
    pub now: DateTime<Utc>,
    /// How the halves are searched ([`SearchOptions::of_half`]).
    pub options: &'a SearchOptions,
    /// The work that may still be spent on the plan.
    pub budget: &'a Budget,
}

/// Finds a training run and the fleet that follows it.
///
/// `find` finds the candidates of a half, which is a demand of its own, under these options. The options are
/// those of `search`, except for the tenant's commitments that may be used.
/// Errors: [`MatchError`], for a half that no market can satisfy.
pub fn search_hybrid(
    search: &HybridSearch<'_>,
    demand: &HybridDemand,
    find: impl Fn(&Demand, &SearchOptions) -> Result<Plan, MatchError>,
) -> Result<Plan, MatchError> {
    let train_demand = bill::train_in_time(demand);
    let train = search_half(&Demand::Train(train_demand.clone()), search.options, &find)?;
    let reckoning = Reckoning::new(demand, search.snapshot, search.now, &train.candidates)?;
    let serve_demand = serve_after(demand, search.now, &train.candidates);
    let serve_options = SearchOptions {
        evidence_until: reckoning.fleets_end_after(),
        ..search.options.clone()
    };
    let serve_half: Demand = serve_demand.clone().into();
    let mut serve = search_half(&serve_half, &serve_options, &find)?;
    // Fleets that end too early for the later runs must not crowd out the fleets that those runs need.
    let later = reckoning.fleets_end_later(&train.candidates);
    for end in later.into_iter().take(MOST_LATER_ENDS) {
        let options = SearchOptions {
            evidence_until: Some(end),
            ..search.options.clone()
        };
        serve.take_in(search_half(&serve_half, &options, &find)?.candidates);
    }
    let (mut runs, mut fleets) = (train.candidates, serve.candidates);

    let plain = reckoning.cheapest_plain(&fleets);
    let found = baselines(search, &reckoning, &train_demand, &serve_demand, plain);
    let mut pairs = reckoning.pairs(&runs, &fleets, plain);
    // A restricted way is a valid pair: where it beats all pairs, it becomes one of them.
    for way in found.iter().filter_map(|baseline| baseline.way.as_ref()) {
        if pairs
            .first()
            .is_none_or(|best| way.total_usd() < best.bill.total_usd)
        {
            let rank = |list: &mut Vec<Candidate>, taken: &Candidate| {
                let known = list.iter().position(|known| known.lines == taken.lines);
                known.unwrap_or_else(|| {
                    list.push(taken.clone());
                    list.len() - 1
                })
            };
            rank(&mut runs, &way.train);
            rank(&mut fleets, &way.serve);
            pairs = reckoning.pairs(&runs, &fleets, plain);
        }
    }
    let best = pairs.first().map(|best| best.bill.total_usd);
    let shown = shown_pairs(&pairs, &runs, &fleets);
    let (runs, run_ranks) = kept(runs, train.of_plan, shown.iter().map(|pair| pair.run));
    let (fleets, fleet_ranks) = kept(fleets, serve.of_plan, shown.iter().map(|pair| pair.fleet));
    let (train, serve) = (train.plan, serve.plan);
    let hybrid = HybridPlan {
        eligible_train: train.eligible,
        eligible_serve: serve.eligible,
        weights_bytes: reckoning.weights_bytes(),
        serve_span_seconds: reckoning.span_seconds(),
        serve_span_assumed: reckoning.span_assumed(),
        pairs: shown
            .into_iter()
            .map(|pair| HybridPair {
                train_candidate: run_ranks[&pair.run],
                serve_candidate: runs.len() + fleet_ranks[&pair.fleet],
                bill: pair.bill.clone(),
            })
            .collect(),
        baselines: found
            .into_iter()
            .map(|baseline| baseline.told(best))
            .collect(),
    };
    let candidates = (runs.into_iter().map(|run| (Half::Train, run)))
        .chain(fleets.into_iter().map(|fleet| (Half::Serve, fleet)));
    let refused = [(Half::Train, train.refused), (Half::Serve, serve.refused)];
    Ok(Plan {
        generation: search.snapshot.generation(),
        kind: market::demand::DemandKind::Hybrid,
        eligible: train.eligible + serve.eligible,
        candidates: (1..)
            .zip(candidates)
            .map(|(rank, (half, candidate))| Candidate {
                rank,
                half: Some(half),
                ..candidate
            })
            .collect(),
        rejected: of_both(train.rejected, serve.rejected),
        refused: refused
            .into_iter()
            .flat_map(|(half, refused)| {
                refused.into_iter().map(move |mut refused| {
                    refused.half = Some(half);
                    refused
                })
            })
            .collect(),
        alternatives: serve.alternatives,
        hybrid: Some(hybrid),
    })
}

/// The first candidates, up to a limit, and those that occur in pairs, with the rank of each by its former
/// place.
fn kept(
    candidates: Vec<Candidate>,
    first: usize,
    paired: impl Iterator<Item = usize>,
) -> (Vec<Candidate>, HashMap<usize, usize>) {
    let paired: HashSet<usize> = paired.collect();
    let all = candidates.into_iter().enumerate();
    let kept = all.filter(|(at, _)| *at < first || paired.contains(at));
    let (places, kept): (Vec<_>, Vec<_>) = kept.unzip();
    (kept, places.into_iter().zip(1..).collect())
}

/// The best pairs, and behind them the best that can be ordered as a whole.
fn shown_pairs<'a>(
    pairs: &'a [bill::Priced],
    runs: &[Candidate],
    fleets: &[Candidate],
) -> Vec<&'a bill::Priced> {
    let orderable = |pair: &&bill::Priced| {
        let of = |candidate: &Candidate| candidate.lines.iter().all(|line| line.offer.orderable);
        of(&runs[pair.run]) && of(&fleets[pair.fleet])
    };
    let mut shown: Vec<_> = pairs.iter().take(PAIRS_SHOWN).collect();
    if !shown.iter().any(orderable) {
        shown.extend(pairs.iter().find(orderable));
    }
    shown
}

/// The fleet's half, sized for the time that the first run leaves of a batch's time limit.
fn serve_after(demand: &HybridDemand, now: DateTime<Utc>, runs: &[Candidate]) -> ServeHalf {
    let mut serve = demand.serve_half();
    if let ServeHalf::ServeBatch(pile) = &mut serve
        && let Some(best) = runs.first()
        && let Some(seconds) = bill::run_seconds(best)
    {
        let weights = bill::weights_bytes_of(demand).unwrap_or(0);
        let after = seconds.saturating_add(staging::slowest_seconds(weights));
        let starts_at = bill::run_starts_at(demand, now);
        let ready = bill::later(starts_at, after).unwrap_or(starts_at);
        let window = pile.window.get_or_insert_default();
        window.start_earliest = Some(window.start_earliest.map_or(ready, |own| own.max(ready)));
    }
    serve
}

fn of_both(train: Rejections, serve: Rejections) -> Rejections {
    let mut by_reason = train.by_reason;
    for (reason, count) in serve.by_reason {
        *by_reason.entry(reason).or_default() += count;
    }
    Rejections {
        total: train.total + serve.total,
        by_reason,
    }
}
