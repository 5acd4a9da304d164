//! Demands of the kind `gpus`: a number of GPUs of one kind, cheapest node first.

use std::collections::BTreeSet;
use std::fmt;

use market::demand::GpusDemand;
use market::fabric::Internode;
use market::money::Money;
use market::offer::Terms;

use crate::hardware::TrainingClass;
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key, check_gpu};
use crate::snapshot::{PartitionKey, Snapshot};

/// The requirements of a `gpus` demand on each offer.
pub(crate) struct GpusQuery<'a> {
    demand: &'a GpusDemand,
}

impl<'a> GpusQuery<'a> {
    pub(crate) const fn new(demand: &'a GpusDemand) -> Self {
        Self { demand }
    }

    pub(crate) const fn terms(&self) -> Terms {
        if self.demand.spot {
            Terms::Spot
        } else {
            Terms::OnDemand
        }
    }

    pub(crate) const fn demand(&self) -> &GpusDemand {
        self.demand
    }

    /// Whether a node of the offer has the requested number of GPUs.
    pub(crate) fn check_count(&self, key: &PartitionKey) -> Result<(), ReasonCode> {
        match key.gpus.as_whole() {
            None => Err(ReasonCode::Slice),
            Some(gpus) if !self.demand.count.accepts(gpus) => Err(ReasonCode::GpusPerNode),
            Some(_) => Ok(()),
        }
    }

    /// How the demand would use an offer at this price with this fabric.
    pub(crate) fn fit(&self, price: Money, joined_by: Internode) -> Result<Fit, ReasonCode> {
        if !self.demand.joined_by().accepts(joined_by) {
            return Err(ReasonCode::Fabric);
        }
        Ok(Fit {
            nodes: self.demand.nodes,
            key: Key {
                cost: Self::cost(price),
                then: (0, 0),
            },
            class: TrainingClass::default(),
            figures: Figures::Gpus,
        })
    }

    /// Ranks by the price of a node, of any size.
    pub(crate) fn cost(price: Money) -> i128 {
        i128::from(price.units())
    }
}

/// The node sizes on sale that are nearest to a size that no provider sells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NearestCounts {
    /// The next smaller one.
    pub fewer: Option<u32>,
    /// The next larger one.
    pub more: Option<u32>,
}

impl NearestCounts {
    /// For the GPUs that a demand names, on its terms, from any provider in any place; `None` where a node of
    /// the requested size is sold, or no node at all.
    #[must_use]
    pub fn to(demand: &GpusDemand, snapshot: &Snapshot) -> Option<Self> {
        let query = GpusQuery::new(demand);
        let shared = demand.shared();
        let keys = snapshot.partitions().iter().map(|one| one.key());
        let sold: BTreeSet<u32> = keys
            .filter(|key| key.priced && key.terms == query.terms())
            .filter(|key| check_gpu(key, shared).is_ok())
            .filter_map(|key| key.gpus.as_whole())
            .collect();
        let wanted = demand.count;
        let is_sold = sold.iter().any(|count| wanted.accepts(*count));
        let nearest = Self {
            fewer: sold.range(..wanted.min).next_back().copied(),
            more: sold.range(wanted.max..).next().copied(),
        };
        (!is_sold && !sold.is_empty()).then_some(nearest)
    }
}

/// Such as `2 and 4`.
impl fmt::Display for NearestCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.fewer, self.more) {
            (Some(fewer), Some(more)) => write!(f, "{fewer} and {more}"),
            (Some(one), None) | (None, Some(one)) => one.fmt(f),
            (None, None) => f.write_str("none"),
        }
    }
}
