//! Demands of the kind `gpus`: so many GPUs of one kind, cheapest first.

use market::demand::GpusDemand;
use market::gpu::GpuWanted;
use market::money::Money;
use market::offer::Terms;

use crate::hardware::TrainingClass;
use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key};
use crate::snapshot::PartitionKey;

/// What a `gpus` demand asks of each offer.
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

    /// Whether the offer sells the thing that is asked for.
    pub(crate) fn check_shape(&self, key: &PartitionKey) -> Result<(), ReasonCode> {
        let offered = &key.gpu;
        let wanted = &self.demand.gpu;
        if !wanted.accepts(offered) {
            let same_family = || match wanted {
                GpuWanted::Exactly(gpu) => gpu.family() == offered.family(),
                GpuWanted::Any | GpuWanted::Family(_) => false,
            };
            return Err(if offered.known().is_none() && same_family() {
                ReasonCode::GpuFormUnknown
            } else {
                ReasonCode::Gpu
            });
        }
        // What no GPU of the catalogue may be is not anything at all.
        if *wanted == GpuWanted::Any && key.spec().is_none() {
            return Err(ReasonCode::GpuFormUnknown);
        }
        match key.gpus.as_whole() {
            None => Err(ReasonCode::Slice),
            Some(gpus) if gpus != self.demand.count => Err(ReasonCode::GpusPerNode),
            Some(_) => Ok(()),
        }
    }

    /// How an offer at this price would be taken.
    pub(crate) fn fit(&self, price: Money) -> Fit {
        Fit {
            nodes: self.demand.nodes,
            key: Key {
                cost: Self::cost(price),
                then: (0, 0),
            },
            class: TrainingClass::default(),
            figures: Figures::Gpus,
        }
    }

    /// Cheapest node first: all candidates are of one size.
    pub(crate) fn cost(price: Money) -> i128 {
        i128::from(price.units())
    }
}
