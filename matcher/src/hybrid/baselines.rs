//! What a hybrid plan is compared with: the cheapest way to do both halves under a restriction that
//! tenants live with where nobody matches the halves apart.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use market::demand::{Demand, ServeHalf, TrainDemand};
use market::ids::ProviderId;
use market::money::Money;
use market::offer::{Offer, Terms};

use super::bill::{PairKey, Reckoning};
use super::{BaselineKind, BaselineWay, HybridBaseline, HybridBill, HybridSearch};
use crate::filter::{Among, Filter};
use crate::plan::{Candidate, Plan};
use crate::search::{Query, SearchOptions, Wanted, answer, search_within};
use crate::snapshot::Snapshot;

/// The cheapest way under one restriction.
pub(super) struct Found {
    kind: BaselineKind,
    pub(super) way: Option<Way>,
}

/// What trains and what serves.
pub(super) struct Way {
    pub(super) train: Candidate,
    pub(super) serve: Candidate,
    tier: u8,
    bill: HybridBill,
}

impl Way {
    pub(super) fn key(&self) -> PairKey {
        (self.tier, self.bill.total_usd)
    }
}

impl Found {
    /// The baseline as it is shown beside what the best pair costs.
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

/// The baselines of a plan; `runs` are the training candidates that were found.
pub(super) fn baselines(
    search: &HybridSearch<'_>,
    reckoning: &Reckoning,
    train: &TrainDemand,
    serve: &ServeHalf,
    runs: &[Candidate],
    plain: Option<Money>,
) -> Vec<Found> {
    let within = Within {
        search,
        reckoning,
        train: Demand::Train(train.clone()),
        serve: serve.clone().into(),
        plain,
    };
    vec![
        Found {
            kind: BaselineKind::OneShape,
            way: within.one_shape(runs),
        },
        Found {
            kind: BaselineKind::OneProvider,
            way: within.one_provider(),
        },
    ]
}

struct Within<'a> {
    search: &'a HybridSearch<'a>,
    reckoning: &'a Reckoning,
    train: Demand,
    serve: Demand,
    /// What the cheapest fleet without RDMA costs.
    plain: Option<Money>,
}

impl Within<'_> {
    /// The cheapest run whose own offer also carries the fleet.
    fn one_shape(&self, runs: &[Candidate]) -> Option<Way> {
        let lines = runs.iter().flat_map(|run| &run.lines);
        let offers: BTreeMap<_, _> = lines
            .map(|line| (line.offer.offer_id, &line.offer))
            .collect();
        let offers: Vec<Offer> = offers.into_values().cloned().collect();
        let fleets = self.find(&self.serve, offers, usize::MAX)?;
        let mut ways = Vec::new();
        for run in runs {
            let trains = run.lines.first()?.offer.offer_id;
            let own = fleets.candidates.iter().find(
                |fleet| matches!(fleet.lines.as_slice(), [line] if line.offer.offer_id == trains),
            );
            ways.extend(own.and_then(|fleet| self.way(run, fleet)));
        }
        ways.into_iter().min_by_key(Way::key)
    }

    /// The cheapest provider at which both can be had on demand.
    fn one_provider(&self) -> Option<Way> {
        let partitions = self.search.snapshot.partitions().iter();
        let sold = partitions.filter(|partition| partition.key().terms == Terms::OnDemand);
        let providers: BTreeSet<&ProviderId> = sold
            .flat_map(|partition| partition.groups().map(|group| group.provider()))
            .collect();
        let HybridSearch { now, options, .. } = *self.search;
        let (train, serve) = (
            Wanted::new(&self.train, now).ok()?.into_query()?,
            Wanted::new(&self.serve, now).ok()?.into_query()?,
        );
        let options = SearchOptions {
            limit: 1,
            orderable_only: options.orderable_only,
            ties: options.ties,
            ..SearchOptions::default()
        };
        let best = |demand: &Demand, query: &Query<'_>, provider| {
            let HybridSearch {
                snapshot,
                held,
                now,
                budget,
                ..
            } = *self.search;
            let filter = Filter {
                shared: demand.shared(),
                snapshot,
                among: Among::OnDemandOf(provider),
                held,
                now,
                options: &options,
                kind: demand.kind(),
                budget,
            };
            answer(query, &filter).candidates.pop()
        };
        let ways = providers.into_iter().filter_map(|provider| {
            let run = best(&self.train, &train, provider)?;
            let fleet = best(&self.serve, &serve, provider)?;
            self.way(&run, &fleet)
        });
        ways.min_by_key(Way::key)
    }

    /// The best candidates among these offers alone.
    fn find(&self, demand: &Demand, offers: Vec<Offer>, limit: usize) -> Option<Plan> {
        let all = self.search.snapshot;
        let providers = offers.iter().filter_map(|offer| {
            let view = all.provider(&offer.provider)?;
            Some((offer.provider.clone(), view.clone()))
        });
        let providers: HashMap<_, _> = providers.collect();
        let some = Snapshot::new(all.generation(), all.taken_at(), offers, providers);
        let options = SearchOptions {
            limit,
            orderable_only: self.search.options.orderable_only,
            ties: self.search.options.ties,
            ..SearchOptions::default()
        };
        let HybridSearch {
            held, now, budget, ..
        } = *self.search;
        search_within(&some, demand, held, now, &options, budget).ok()
    }

    fn way(&self, run: &Candidate, fleet: &Candidate) -> Option<Way> {
        let (tier, bill) = self.reckoning.bill(run, fleet, self.plain)?;
        Some(Way {
            train: run.clone(),
            serve: fleet.clone(),
            tier,
            bill,
        })
    }
}
