//! Demands of the kind `gpus`: so many GPUs of one kind, cheapest first.

use market::demand::GpusDemand;
use market::gpu::GpuWanted;
use market::offer::Terms;

use crate::reason::ReasonCode;
use crate::search::{Figures, Fit, Key};
use crate::snapshot::Row;

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
    pub(crate) fn check_shape(&self, row: &Row) -> Result<(), ReasonCode> {
        let offered = &row.offer.gpu;
        let wanted = &self.demand.gpu;
        if !wanted.accepts(offered) {
            let same_family = match wanted {
                GpuWanted::Exactly(gpu) => gpu.family() == offered.family(),
                GpuWanted::Any | GpuWanted::Family(_) => false,
            };
            let open = same_family && offered.known().is_none();
            return Err(if open {
                ReasonCode::GpuFormUnknown
            } else {
                ReasonCode::Gpu
            });
        }
        // A form left open is matched only where the demand names the family.
        if *wanted == GpuWanted::Any && offered.known().is_none() {
            return Err(ReasonCode::GpuFormUnknown);
        }
        match row.offer.gpus.as_whole() {
            None => Err(ReasonCode::Slice),
            Some(gpus) if gpus != self.demand.count => Err(ReasonCode::GpusPerNode),
            Some(_) => Ok(()),
        }
    }

    /// Cheapest node first: all candidates are of one size.
    pub(crate) fn fit(&self, row: &Row) -> Fit {
        let price = row.offer.price_per_node_hour.units();
        Fit {
            nodes: self.demand.nodes,
            key: Key {
                tier: 0,
                cost: i128::from(price),
                then: (0, 0),
            },
            figures: Figures::Gpus,
        }
    }
}
