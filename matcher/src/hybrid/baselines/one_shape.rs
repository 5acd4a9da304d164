//! The cheapest way to train and to serve on nodes of one offer.

use std::collections::HashMap;

use super::{RestrictedSearch, Way, may_beat, take};
use crate::filter::Among;
use crate::search::{Eligible, Fit, Query, Tally};
use crate::walk::{Allowed, HeldRows, OpenGroup, walk};

/// An offer that both trains and serves, before it becomes a baseline.
struct Shape {
    train: (Allowed, Fit),
    serve: (Allowed, Fit),
    /// The cost of run and fleet without the transfer of weights. Units: 1e-8 US dollars.
    least_units: i128,
}

impl RestrictedSearch<'_> {
    /// The cheapest run whose own offer also carries the fleet.
    ///
    /// The offers of a group differ in age, stock and price alone, so of those that train with so many
    /// nodes the cheapest that does both is the best.
    pub(super) fn one_shape(&self) -> Option<Way> {
        if matches!(&*self.serve.query, Query::Serve(serve) if serve.survive.is_some()) {
            // A fleet that must survive a loss cannot use one offer alone.
            return None;
        }
        let train = self.filter(&self.train, Among::All, &self.options);
        let serve = self.filter(&self.serve, Among::All, &self.options);
        let held = HeldRows::of(&train);
        let first = |group: &OpenGroup<'_>| group.row_id(group.group.rows().start);
        let mut training: HashMap<_, Vec<_>> = HashMap::new();
        let mut tally = Tally::new(&train);
        walk(&self.train.query, &train, &held, &mut tally, |group, _| {
            training
                .entry(first(group))
                .or_default()
                .push(group.clone());
        });
        let mut shapes = Vec::new();
        walk(&self.serve.query, &serve, &held, &mut tally, |group, _| {
            for trains in training.get(&first(group)).into_iter().flatten() {
                let both = |row: u32| {
                    let trained = trains.taken(&train, row)?;
                    Some((row, trained, group.taken(&serve, row)?))
                };
                let Some((row, to_train, to_serve)) = group.group.rows().find_map(both) else {
                    continue;
                };
                let trained = trains.key(&self.train.query, row).cost;
                let served = group.key(&self.serve.query, row).cost;
                shapes.push(Shape {
                    train: (to_train, trains.fit),
                    serve: (to_serve, group.fit),
                    least_units: trained + self.reckoning.serve_cost_units(served),
                });
            }
        });
        shapes.sort_by_key(|shape| (shape.least_units, shape.train.0));
        let mut best = None;
        for shape in shapes {
            let candidate = |filter, query, (at, fit)| {
                Eligible::at(filter, at, fit)?.into_candidate(0, query, filter)
            };
            let run = candidate(&train, &self.train.query, shape.train);
            let fleet = candidate(&serve, &self.serve.query, shape.serve);
            let Some((run, fleet)) = run.zip(fleet) else {
                continue;
            };
            if !may_beat(best.as_ref(), self.reckoning.floor(&run, &fleet)) {
                break;
            }
            take(&mut best, self.way(&run, &fleet));
        }
        best
    }
}
