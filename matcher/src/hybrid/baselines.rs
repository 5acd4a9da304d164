//! The baselines of a hybrid plan: the cheapest way to do both halves under a restriction that tenants accept
//! where no broker matches the halves separately.

mod one_provider;
mod one_shape;

use std::sync::Arc;

use market::demand::{Demand, ServeHalf, TrainDemand};
use market::money::Money;

use super::bill::Reckoning;
use super::{BaselineKind, BaselineWay, HybridBaseline, HybridBill, HybridSearch};
use crate::filter::{Among, Filter};
use crate::plan::Candidate;
use crate::search::{Query, SearchOptions, Wanted};

/// The cheapest way under one restriction.
pub(super) struct Found {
    kind: BaselineKind,
    pub(super) way: Option<Way>,
}

/// The lines that train and the lines that serve.
pub(super) struct Way {
    pub(super) train: Candidate,
    pub(super) serve: Candidate,
    bill: HybridBill,
}

impl Way {
    pub(super) const fn total_usd(&self) -> Money {
        self.bill.total_usd
    }
}

impl Found {
    /// The baseline as the plan shows it, beside the cost of the best pair.
    pub(super) fn told(self, best: Option<Money>) -> HybridBaseline {
        let views = |candidate: &Candidate| {
            let placed = candidate.placement();
            placed
                .map(|(offer, nodes)| offer.view(nodes).ok())
                .collect::<Option<Vec<_>>>()
        };
        let way = self.way.and_then(|way| {
            Some(BaselineWay {
                train: views(&way.train)?,
                serve: views(&way.serve)?,
                bill: way.bill,
            })
        });
        let saves_usd = best.zip(way.as_ref()).map(|(best, way)| {
            let total = way.bill.total_usd;
            Money::from_units(total.units() - best.units(), total.currency())
        });
        HybridBaseline {
            kind: self.kind,
            way,
            saves_usd,
        }
    }
}

/// The baselines of a plan.
pub(super) fn baselines(
    search: &HybridSearch<'_>,
    reckoning: &Reckoning<'_>,
    train: &TrainDemand,
    serve: &ServeHalf,
    plain: Option<Money>,
) -> Vec<Found> {
    let (train, serve) = (Demand::Train(train.clone()), serve.clone().into());
    let within = RestrictedSearch::new(search, reckoning, (&train, &serve), plain);
    vec![
        Found {
            kind: BaselineKind::OneShape,
            way: within.as_ref().and_then(RestrictedSearch::one_shape),
        },
        Found {
            kind: BaselineKind::OneProvider,
            way: within.as_ref().and_then(RestrictedSearch::one_provider),
        },
    ]
}

/// Both halves, prepared for searches under restrictions.
struct RestrictedSearch<'a> {
    search: &'a HybridSearch<'a>,
    reckoning: &'a Reckoning<'a>,
    train: Searched<'a>,
    serve: Searched<'a>,
    options: SearchOptions,
    /// The cost of the cheapest fleet without RDMA.
    plain: Option<Money>,
}

/// A half.
struct Searched<'a> {
    demand: &'a Demand,
    query: Box<Query<'a>>,
}

impl<'a> RestrictedSearch<'a> {
    /// `None` for halves that cannot be matched, which never get here.
    fn new(
        search: &'a HybridSearch<'a>,
        reckoning: &'a Reckoning<'a>,
        (train, serve): (&'a Demand, &'a Demand),
        plain: Option<Money>,
    ) -> Option<Self> {
        let searched = |demand| {
            let query = Wanted::new(demand, search.now).ok()?.into_query()?;
            Some(Searched { demand, query })
        };
        Some(Self {
            search,
            reckoning,
            train: searched(train)?,
            serve: searched(serve)?,
            options: SearchOptions {
                orderable_only: search.options.orderable_only,
                ties: search.options.ties,
                cooling: Arc::clone(&search.options.cooling),
                ..SearchOptions::default()
            },
            plain,
        })
    }

    fn filter<'f>(
        &'f self,
        half: &'f Searched<'_>,
        among: Among<'f>,
        options: &'f SearchOptions,
    ) -> Filter<'f> {
        let HybridSearch {
            snapshot,
            held,
            now,
            budget,
            ..
        } = *self.search;
        Filter {
            shared: half.demand.shared(),
            snapshot,
            among,
            held,
            now,
            ends_by: half.demand.ends_by(now),
            options,
            kind: half.demand.kind(),
            budget,
        }
    }

    fn way(&self, run: &Candidate, fleet: &Candidate) -> Option<Way> {
        let bill = self.reckoning.bill(run, fleet, self.plain)?;
        Some(Way {
            train: run.clone(),
            serve: fleet.clone(),
            bill,
        })
    }
}

/// Whether a pair that costs at least so much may be better than the best so far.
fn may_beat(best: Option<&Way>, floor: Option<Money>) -> bool {
    floor.is_some_and(|floor| best.is_none_or(|best| floor < best.total_usd()))
}

/// Takes a way where it is better than the best so far.
fn take(best: &mut Option<Way>, way: Option<Way>) {
    if let Some(way) = way
        && may_beat(best.as_ref(), Some(way.total_usd()))
    {
        *best = Some(way);
    }
}
