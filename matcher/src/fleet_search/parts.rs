//! The nodes that each offer may add to a fleet: nodes at its own price, and nodes that a commitment pays
//! for.
//!
//! Nodes of a commitment go to the first offers in the order of the snapshot. How long each node is paid for
//! depends on the number of nodes that use the commitment. That number is known only once a fleet is chosen
//! (`choice`). The total cost of the nodes of one offer is known before: as many nodes are paid for in full
//! as there are node-hours left, and all further ones cost the offer's price. Each such number is a part of
//! its own. Sharing a commitment with other offers makes a fleet more expensive, never cheaper: no fleet
//! costs less than its parts.

use std::collections::HashMap;

use market::demand::Survive;
use market::ids::CommitmentId;
use market::money::Rate;

use super::{FleetLine, Mix};
use crate::filter::{Filter, free_nodes};
use crate::own::{self, Taken};
use crate::reason::ReasonCode;
use crate::search::{Figures, Query, Tally};
use crate::serve::ServeFit;
use crate::snapshot::{GroupRef, OfferRef, RowId};
use crate::walk::{Allowed, AllowedRow, OpenGroup};

use super::choice::{Choice, ChosenLine};

/// The nodes that all offers may add to a fleet, in the order of the snapshot.
#[derive(Default)]
pub(super) struct Parts<'a> {
    pub(super) groups: Vec<(GroupRef<'a>, ServeFit)>,
    pub(super) all: Vec<Part>,
    /// Offers that could be parts but that no cheapest fleet uses, and the result for a fleet of each alone.
    pub(super) spare: Vec<(RowId, Result<(), ReasonCode>)>,
    /// The requested duration of the fleet. Units: seconds; `None` where it is open.
    pub(super) wanted_seconds: Option<i64>,
    /// Nodes of commitments that are parts already: the first offers in the order of the snapshot
    /// have them.
    taken: Taken,
}

/// The nodes that one offer may add to a fleet at one price.
pub(super) struct Part {
    pub(super) at: Allowed,
    /// The place of its group among those of the parts.
    pub(super) group: usize,
    /// The mean cost of a node-hour over the requested time. Units: 1e-8 US dollars.
    pub(super) price_units: i64,
    /// Its cost without commitments. Units: the same.
    pub(super) own_units: i64,
    pub(super) stock: u32,
    pub(super) paid: Option<Paid>,
    /// Whether a fleet of it alone is one, or why not.
    pub(super) alone: Result<(), ReasonCode>,
}

/// The way the nodes of a part are paid for.
#[derive(Clone, Copy)]
pub(super) struct Paid {
    pub(super) commitment: CommitmentId,
    /// The rate of a GPU-hour while the commitment lasts.
    pub(super) rate: Rate,
    /// The rate after that.
    pub(super) own_rate: Rate,
    pub(super) gpus: u32,
}

impl<'a> Parts<'a> {
    /// Adds the offers of a group that may contribute a node, and counts the others.
    ///
    /// They carry the same and fail together, and come cheapest first: once they carry the need, a fleet has
    /// no use for the rest.
    pub(super) fn take(
        &mut self,
        query: &Query<'_>,
        need: u64,
        filter: &Filter<'_>,
        group: &OpenGroup<'a>,
        tally: &mut Tally,
    ) {
        let Figures::Serve(node) = group.fit.figures else {
            return;
        };
        let key = group.group.partition().key();
        let number = self.groups.len();
        self.groups.push((group.group, node));
        self.wanted_seconds = own::wanted_seconds(query, &group.fit, filter);
        let mut carried = 0_u64;
        for row in group.group.rows() {
            let alone = group.test(filter, row);
            // An offer that is eligible alone is a part.
            let part = alone.ok().or_else(|| group.part(filter, row));
            let alone = alone.map(|_| ());
            let (stock, held) = group.stock(row);
            let stock = free_nodes(&stock, held);
            match (alone, part) {
                (Err(code), None) => tally.count(code, group.row_id(row)),
                (Ok(()), None) => {}
                (_, Some(at)) if carried >= need && !group.own().contains(&row) => {
                    self.spare.push((at.at(), alone));
                }
                (_, Some(at)) => {
                    carried = carried.saturating_add(node.capacity.saturating_mul(stock.into()));
                    // No open group contains a price that cannot be charged.
                    let price = key.node_price_units(group.price(row)).unwrap_or(i64::MAX);
                    let part = Part {
                        at,
                        group: number,
                        price_units: price,
                        own_units: price,
                        stock,
                        paid: None,
                        alone,
                    };
                    let paid = self.take_paid(filter, group, &part);
                    self.all.push(Part {
                        stock: stock - paid,
                        ..part
                    });
                }
            }
        }
    }

    /// Adds the nodes of an offer that are paid for, and returns their number.
    fn take_paid(&mut self, filter: &Filter<'_>, group: &OpenGroup<'a>, part: &Part) -> u32 {
        let row = part.at.at().row;
        if !group.own().contains(&row) {
            return 0;
        }
        let offer = filter.snapshot.offer_in(group.group, row).to_offer();
        let (Some(gpus), Ok(own_rate)) = (offer.gpus.as_whole(), offer.rate()) else {
            return 0;
        };
        let wanted = (part.stock, self.wanted_seconds);
        let cover = own::cover(filter, &offer, own_rate, wanted, &self.taken);
        let mut all_paid = 0;
        for (nodes, covered) in cover.into_iter().flat_map(|cover| cover.parts) {
            all_paid += nodes;
            *self.taken.entry(covered.commitment_id).or_default() += nodes;
            let paid = Paid {
                commitment: covered.commitment_id,
                rate: covered.rate_usd_gpu_hour,
                own_rate,
                gpus,
            };
            for (nodes, covered) in own::lasting(filter, covered, nodes, self.wanted_seconds) {
                let mean = own::mean(
                    &[(nodes, covered)],
                    own_rate,
                    (nodes, self.wanted_seconds),
                    filter.now,
                );
                self.all.push(Part {
                    price_units: paid.node_units(mean),
                    stock: nodes,
                    paid: Some(paid),
                    ..*part
                });
            }
        }
        all_paid
    }

    /// Counts all of them as eligible, or as refused for one reason.
    pub(super) fn settle(&mut self, outcome: Result<(), ReasonCode>) {
        for part in &mut self.all {
            part.alone = outcome;
        }
        for (_, alone) in &mut self.spare {
            *alone = outcome;
        }
    }

    /// Counts these offers as eligible, in any order.
    pub(super) fn take_in(&mut self, offers: &[RowId]) {
        for part in &mut self.all {
            if offers.contains(&part.at.at()) {
                part.alone = Ok(());
            }
        }
        for (at, alone) in &mut self.spare {
            if offers.contains(at) {
                *alone = Ok(());
            }
        }
    }

    pub(super) fn node_of(&self, group: usize) -> &ServeFit {
        &self.groups[group].1
    }

    /// The offers of a fleet.
    pub(super) fn offers<'s>(
        &self,
        filter: &Filter<'s>,
        choice: &Choice,
    ) -> impl Iterator<Item = OfferRef<'s>> {
        let lines = choice.lines.iter();
        lines.map(|line| filter.snapshot.offer_at(line.at.at()))
    }

    /// The offers of a fleet in full, in the order in which they are shown.
    pub(super) fn rows<'c>(
        &self,
        filter: &Filter<'_>,
        choice: &'c Choice,
    ) -> Vec<(&'c ChosenLine, AllowedRow)> {
        let lines = choice.lines.iter();
        let mut rows: Vec<_> = lines
            .map(|line| (line, filter.snapshot.offer_at(line.at.at())))
            .collect();
        rows.sort_by(|(_, a), (_, b)| a.tie_order(*b));
        let full = rows.into_iter();
        full.map(|(line, _)| {
            let row = line.at.row(filter.snapshot);
            // All figures that depend on a price use its mean over the requested time.
            let row = match line.covered {
                Some((_, mean)) => row.at_rate(mean),
                None => row,
            };
            (line, row)
        })
        .collect()
    }

    pub(super) fn mix<'r>(
        &self,
        choice: &'r Choice,
        rows: &'r [(&ChosenLine, AllowedRow)],
    ) -> Mix<'r> {
        let lines = rows.iter().map(|(line, row)| FleetLine {
            row,
            nodes: line.nodes,
            node: *self.node_of(line.group),
            covered: line.covered.map(|(covered, _)| covered),
        });
        Mix {
            lines: lines.collect(),
            cost: choice.cost,
            lower_bound_units: choice.lower_bound_units,
            chosen_from: self.offers_in_all(),
            columns: &choice.columns,
        }
    }

    /// How many offers there are to choose from.
    fn offers_in_all(&self) -> usize {
        self.all.chunk_by(|a, b| a.at == b.at).count() + self.spare.len()
    }
}

impl Paid {
    /// The cost of a node-hour at this rate. Units: 1e-8 US dollars.
    pub(super) fn node_units(&self, rate: Rate) -> i64 {
        let each = rate.money_per_gpu_hour().units();
        each.saturating_mul(i64::from(self.gpus))
    }
}

/// The failure domain of each group: offers fail with their provider, or with their zone.
///
/// A zone is what the provider calls one, within its region. An offer without a zone may be in any zone of
/// its region, so then the region counts as one domain. If an offer of a provider has no region, the provider
/// counts as one. Only groups with a part count.
pub(super) fn domains(parts: &Parts<'_>, survive: Survive) -> Vec<u32> {
    let mut used = vec![false; parts.groups.len()];
    for part in &parts.all {
        used[part.group] = true;
    }
    let groups = || parts.groups.iter().map(|(group, _)| group);
    let mut zoned: HashMap<(&str, Option<&str>), bool> = HashMap::new();
    let mut placed: HashMap<&str, bool> = HashMap::new();
    for (group, _) in groups().zip(&used).filter(|(_, used)| **used) {
        let provider = group.provider().as_str();
        *placed.entry(provider).or_insert(true) &= group.region().is_some();
        *zoned.entry((provider, group.region())).or_insert(true) &= group.zone().is_some();
    }
    let mut numbers: HashMap<(&str, Option<&str>, Option<&str>), u32> = HashMap::new();
    let numbered = groups().map(|group| {
        let provider = group.provider().as_str();
        let holds = |known: Option<&bool>| known.copied().unwrap_or(true);
        let by_region = survive == Survive::Zone && holds(placed.get(provider));
        let by_zone = by_region && holds(zoned.get(&(provider, group.region())));
        let key = (
            provider,
            group.region().filter(|_| by_region),
            group.zone().filter(|_| by_zone),
        );
        let next = numbers.len() as u32;
        *numbers.entry(key).or_insert(next)
    });
    numbered.collect()
}
