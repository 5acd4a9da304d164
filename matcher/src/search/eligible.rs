//! An eligible offer on its way to a candidate.

use market::money::{Money, Rate};

use super::{Figures, Fit, Query, node_price_units};
use crate::explain;
use crate::filter::Filter;
use crate::fleet_search::FleetLine;
use crate::launch::launches;
use crate::own::{self, Cover, Taken};
use crate::plan::{Candidate, CandidateLine};
use crate::walk::{Allowed, AllowedRow};

/// An eligible offer in full.
pub(crate) struct Eligible {
    row: AllowedRow,
    fit: Fit,
    rate: Rate,
    cost_per_hour: Money,
}

impl Eligible {
    /// An allowed offer; `None` at a price that cannot be charged, which no allowed offer has.
    pub(crate) fn at(filter: &Filter<'_>, at: Allowed, fit: Fit) -> Option<Self> {
        let row = at.row(filter.snapshot);
        let units = node_price_units(&row)?.checked_mul(i64::from(fit.nodes))?;
        Some(Self {
            rate: row.rate?,
            cost_per_hour: Money::from_units(units, row.offer.price_per_node_hour.currency()),
            fit,
            row,
        })
    }

    /// The fleet of this offer alone; `None` for other kinds of demand.
    pub(crate) fn fleet_line(&self) -> Option<FleetLine<'_>> {
        let Figures::Serve(node) = self.fit.figures else {
            return None;
        };
        Some(FleetLine {
            row: &self.row,
            nodes: self.fit.nodes,
            node,
            covered: None,
        })
    }

    /// `None` where the cost overflows, which it never does.
    pub(crate) fn into_candidate(
        mut self,
        rank: usize,
        query: &Query<'_>,
        filter: &Filter<'_>,
    ) -> Option<Candidate> {
        let (own_rate, nodes) = (self.rate, self.fit.nodes);
        let cover = self.cover(query, filter);
        if let Some(cover) = &cover {
            // All figures that depend on a price use its mean over the requested time.
            self.row = self.row.at_rate(cover.mean);
        }
        let facts = explain::facts(query, &self.row, &self.fit);
        let (row, fit) = (&self.row, &self.fit);
        let mut reasons = explain::reasons(query, filter, row, fit, own_rate, self.cost_per_hour);
        if let Some(cover) = &cover {
            let told = cover.reasons(filter, nodes, own_rate);
            reasons.splice(0..0, told);
        }
        let launch = match (query, self.fleet_line()) {
            (Query::Serve(serve), Some(line)) => launches(serve, &[line]),
            _ => Vec::new(),
        };
        let lines = match &cover {
            Some(cover) => cover.lines(&self.row, nodes),
            None => vec![CandidateLine::new(self.row, nodes, None)],
        };
        let first = lines.first()?;
        Some(Candidate {
            rank,
            half: None,
            rate: first.starting_rate(own_rate),
            cost_per_hour: first_hour(&lines)?,
            lines,
            facts,
            reasons,
            launch,
            also_at: Vec::new(),
        })
    }

    /// The commitments that pay for it.
    fn cover(&self, query: &Query<'_>, filter: &Filter<'_>) -> Option<Cover> {
        let seconds = own::wanted_seconds(query, &self.fit, filter);
        let wanted = (self.fit.nodes, seconds);
        own::cover(filter, &self.row.offer, self.rate, wanted, &Taken::new())
    }
}

/// The cost of the first hour of all lines; `None` where it overflows.
pub(crate) fn first_hour(lines: &[CandidateLine]) -> Option<Money> {
    let mut units = 0_i64;
    for line in lines {
        let rate = line.starting_rate(line.offer.rate().ok()?);
        let gpus = i64::from(line.offer.gpus.as_whole()?) * i64::from(line.nodes);
        let each = rate.money_per_gpu_hour().units();
        units = units.checked_add(each.checked_mul(gpus)?)?;
    }
    Some(Money::usd_units(units))
}
