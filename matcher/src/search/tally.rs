//! The tally of a search: the number of refused offers by reason, with one example of each, and the offers
//! that the caller names.

use std::collections::BTreeMap;

use super::Query;
use crate::explain;
use crate::filter::Filter;
use crate::fleet_search::NoFleet;
use crate::plan::{Refused, Rejections};
use crate::reason::ReasonCode;
use crate::snapshot::RowId;

/// Counts rejections, keeps the first offer of each reason in the order of the snapshot, and the reason
/// of each offer that is asked of.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: [usize; ReasonCode::ALL.len()],
    first: [Option<RowId>; ReasonCode::ALL.len()],
    /// The rows of the offers that the caller names, and why they are refused.
    asked: Vec<(RowId, Option<ReasonCode>)>,
}

impl Tally {
    pub(crate) fn new(filter: &Filter<'_>) -> Self {
        let asked = filter.options.asked.iter();
        let mut asked: Vec<_> = asked
            .filter_map(|id| Some((filter.snapshot.find(id)?, None)))
            .collect();
        asked.sort_unstable_by_key(|(at, _)| *at);
        asked.dedup_by_key(|(at, _)| *at);
        Self {
            counts: [0; ReasonCode::ALL.len()],
            first: [None; ReasonCode::ALL.len()],
            asked,
        }
    }

    pub(crate) fn count(&mut self, code: ReasonCode, at: RowId) {
        self.count_all(code, at, 1);
    }

    /// Counts adjacent offers that are refused for one reason, given the first of them.
    pub(crate) fn count_all(&mut self, code: ReasonCode, first: RowId, offers: u32) {
        if offers == 0 {
            return;
        }
        self.counts[code as usize] += offers as usize;
        let known = &mut self.first[code as usize];
        *known = Some(known.map_or(first, |known| known.min(first)));
        for (at, reason) in &mut self.asked {
            let rows = first.row..first.row + offers;
            if at.partition == first.partition && rows.contains(&at.row) {
                *reason = Some(code);
            }
        }
    }

    pub(crate) fn rejections(&self) -> Rejections {
        let by_reason: BTreeMap<_, _> = ReasonCode::ALL
            .into_iter()
            .zip(self.counts)
            .filter(|(_, count)| *count > 0)
            .collect();
        Rejections {
            total: self.counts.iter().sum(),
            by_reason,
        }
    }

    /// An example of each reason, and the refused offers that the caller names. `none` holds why there is no
    /// fleet, where there is none.
    pub(crate) fn refused(
        &self,
        query: &Query<'_>,
        filter: &Filter<'_>,
        none: Option<&NoFleet>,
    ) -> Vec<Refused> {
        let examples = ReasonCode::ALL.into_iter().zip(self.first);
        let examples = examples.filter_map(|(reason, at)| Some((reason, at?)));
        let asked = self.asked.iter();
        let asked = asked.filter_map(|(at, reason)| Some(((*reason)?, *at)));
        let told = asked.filter(|(reason, at)| self.first[*reason as usize] != Some(*at));
        examples
            .chain(told)
            .map(|(reason, at)| {
                let row = filter.snapshot.row(at);
                Refused {
                    half: None,
                    reason,
                    why: explain::why_not(reason, query, filter, &row, none),
                    offer_id: row.offer.offer_id,
                    provider: row.offer.provider,
                    sku: row.offer.sku,
                }
            })
            .collect()
    }
}
