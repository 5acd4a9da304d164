//! The walk over a snapshot's columns for one demand.
//!
//! Tests with the same result for all offers of a partition or a group run once, and a refusal there counts
//! all of them together. The remaining groups are *open*: their offers differ in age, stock and price alone,
//! and come cheapest first.

mod allowed;

use std::collections::HashMap;
use std::ops::Range;

use chrono::{DateTime, Utc};
use market::ids::OfferId;
use market::money::Money;
use market::offer::Availability;

use crate::filter::{Ages, CountrySet, Filter, Seller, check_stock, free_nodes};
use crate::own::{self, Taken};
use crate::reason::ReasonCode;
use crate::search::{Fit, Key, MAX_NODES, Query, Tally};
use crate::snapshot::{GroupRef, RowId, Snapshot};
use crate::ties::Precedence;

pub(crate) use allowed::{Allowed, AllowedRow};

/// A group whose offers may satisfy the demand.
#[derive(Clone)]
pub(crate) struct OpenGroup<'a> {
    pub(crate) group: GroupRef<'a>,
    /// The fit of each of its offers that does not use more nodes; its cost is that of the first offer.
    pub(crate) fit: Fit,
    /// The fits with more nodes, for offers that have so many.
    larger: Option<Larger>,
    /// Whether it was visited before, with fewer nodes.
    again: bool,
    partition: u32,
    seller: Seller<'a>,
    ages: Ages,
    /// Nodes of its offers that are held or leased already.
    held: &'a [(RowId, Kept)],
    /// From this row on all offers are above the ceiling.
    dear_from: u32,
    /// From this row on one node is above the ceiling.
    dear_alone: u32,
    /// The rows that a commitment of the tenant covers.
    own: Vec<u32>,
}

/// More nodes, with which the work costs less.
#[derive(Clone)]
struct Larger {
    nodes: u32,
    /// From this row on the cost of these nodes is above the ceiling.
    dear_from: u32,
}

/// The nodes of offers that are not available, by position.
pub(crate) struct HeldRows(Vec<(RowId, Kept)>);

/// The unavailable nodes of one offer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Kept {
    /// Nodes that are held or leased already.
    nodes: u32,
    /// Whether it is in cool-down, so that the search refuses it.
    cools: bool,
}

impl HeldRows {
    pub(crate) fn of(filter: &Filter<'_>) -> Self {
        let mut kept: HashMap<OfferId, Kept> = HashMap::new();
        for (id, nodes) in filter.held.iter().filter(|(_, nodes)| **nodes > 0) {
            kept.entry(*id).or_default().nodes = *nodes;
        }
        let cooling = filter.options.cooling.iter();
        for (id, _) in cooling.filter(|(_, until)| filter.now < **until) {
            kept.entry(*id).or_default().cools = true;
        }
        let mut rows: Vec<_> = (kept.into_iter())
            .filter_map(|(id, kept)| Some((filter.snapshot.find(&id)?, kept)))
            .collect();
        rows.sort_unstable_by_key(|(at, _)| *at);
        Self(rows)
    }

    fn within(&self, partition: u32, rows: &Range<u32>) -> &[(RowId, Kept)] {
        let place = |row: u32| {
            let at = RowId { partition, row };
            self.0.partition_point(|held| held.0 < at)
        };
        if self.0.is_empty() {
            return &[];
        }
        &self.0[place(rows.start)..place(rows.end)]
    }
}

/// Counts partitions and groups that are refused as a whole, and visits each open group, in the order of the
/// snapshot.
///
/// A visitor counts each offer of its group itself. Where more nodes cost less, the walk visits a group again
/// for those of its offers that have enough nodes.
pub(crate) fn walk<'a>(
    query: &Query<'_>,
    filter: &Filter<'a>,
    held: &'a HeldRows,
    tally: &mut Tally,
    mut visit: impl FnMut(&OpenGroup<'a>, &mut Tally),
) {
    let places = filter.shared.places;
    let countries = CountrySet::of(places.map_or(&[], |places| &places.countries));
    let snapshot: &'a Snapshot = filter.snapshot;
    for (partition, columns) in (0..).zip(snapshot.partitions()) {
        if !filter.among.has_terms(columns.key().terms) {
            continue;
        }
        if let Err(code) = query.check_partition(columns.key(), filter.shared) {
            tally.count_all(code, RowId { partition, row: 0 }, columns.len());
            continue;
        }
        let mut last: Option<(GroupRef<'_>, Seller<'a>)> = None;
        let among = |group: &GroupRef<'_>| filter.among.has_group(*group);
        for group in columns.groups().filter(among) {
            let seller = match last {
                Some((other, seller)) if other.same_seller(group) => seller,
                _ => filter.seller(group.provider(), group.operator()),
            };
            last = Some((group, seller));
            let rows = group.rows();
            let first = RowId {
                partition,
                row: rows.start,
            };
            let mut refuse = |code| tally.count_all(code, first, rows.end - rows.start);
            if let Err(code) = filter.check_group(group, &seller, &countries) {
                refuse(code);
                continue;
            }
            let ages = filter.ages(group, &seller);
            let found = match ages {
                Ages::Stale => Err(ReasonCode::Stale),
                _ if group.is_sold_out() => Err(ReasonCode::SoldOut),
                _ => query.fit_group(snapshot, first, seller.evidence_hours()),
            };
            match found {
                Err(code) if ages == Ages::Mixed => {
                    for row in rows {
                        let observed_at = columns.observed_at(row);
                        let stale = filter.is_stale(group, &seller, observed_at);
                        let code = if stale { ReasonCode::Stale } else { code };
                        tally.count(code, RowId { partition, row });
                    }
                }
                Err(code) => refuse(code),
                Ok(fit) => {
                    let mut open = OpenGroup {
                        group,
                        fit,
                        larger: None,
                        again: false,
                        partition,
                        seller,
                        ages,
                        held: held.within(partition, &rows),
                        dear_from: dear_from(filter, group, fit.nodes),
                        dear_alone: dear_from(filter, group, 1),
                        own: own_rows(filter, group),
                    };
                    loop {
                        let next = query.larger(&open.fit);
                        open.larger = next.map(|fit| Larger {
                            nodes: fit.nodes,
                            dear_from: dear_from(filter, group, fit.nodes),
                        });
                        visit(&open, tally);
                        let (Some(fit), Some(larger)) = (next, open.larger.take()) else {
                            break;
                        };
                        (open.fit, open.dear_from, open.again) = (fit, larger.dear_from, true);
                    }
                }
            }
        }
    }
}

/// The rows of a group that a commitment of the tenant covers.
fn own_rows(filter: &Filter<'_>, group: GroupRef<'_>) -> Vec<u32> {
    let own = &filter.options.own;
    if !own::has_commitment(own, group.provider()) {
        return Vec::new();
    }
    let means = |row: &u32| own::is_covered(own, filter.snapshot.offer_in(group, *row));
    group.rows().filter(means).collect()
}

/// The first row of a group at whose price so many nodes are above the ceiling.
fn dear_from(filter: &Filter<'_>, group: GroupRef<'_>, nodes: u32) -> u32 {
    let (columns, rows) = (group.partition(), group.rows());
    let is_dear = |price: i64| {
        let price = Money::usd_units(price);
        filter.check_cost(columns.key(), price, nodes).is_err()
    };
    let prices = columns.prices(&rows);
    // Mostly none is, and the highest price shows it.
    if prices.last().is_none_or(|dearest| !is_dear(*dearest)) {
        return rows.end;
    }
    rows.start + prices.partition_point(|price| !is_dear(*price)) as u32
}

impl OpenGroup<'_> {
    pub(crate) const fn row_id(&self, row: u32) -> RowId {
        RowId {
            partition: self.partition,
            row,
        }
    }

    pub(crate) fn price(&self, row: u32) -> Money {
        self.group.partition().price(row)
    }

    /// Where an offer of it ranks.
    pub(crate) fn key(&self, query: &Query<'_>, row: u32) -> Key {
        query.key(&self.fit, self.group.partition().key(), self.price(row))
    }

    /// The precedence of a row within a tie.
    pub(crate) fn precedence(&self, filter: &Filter<'_>, row: u32) -> Precedence {
        let observed_at = self.group.partition().observed_at(row);
        self.precedence_at(filter, observed_at)
    }

    /// The common precedence of all its rows; `None` where they differ.
    pub(crate) fn precedence_of_all(&self, filter: &Filter<'_>) -> Option<Precedence> {
        let (oldest, newest) = self.group.read_between();
        let of = |read| self.precedence_at(filter, read);
        Some(of(oldest)).filter(|precedence| *precedence == of(newest))
    }

    fn precedence_at(&self, filter: &Filter<'_>, observed_at: DateTime<Utc>) -> Precedence {
        let (orderable, reliability) = (
            self.group.orderable(),
            self.seller.reliability(self.group.operator()),
        );
        filter.precedence(orderable, self.fit.class, observed_at, reliability)
    }

    /// The rows that a commitment of the tenant covers.
    pub(crate) fn own(&self) -> &[u32] {
        &self.own
    }

    /// The rank of such an offer, with the nodes of it that are paid for.
    pub(crate) fn own_key(&self, query: &Query<'_>, filter: &Filter<'_>, row: u32) -> Key {
        let offer = filter.snapshot.offer_in(self.group, row).to_offer();
        let wanted = (
            self.fit.nodes,
            own::wanted_seconds(query, &self.fit, filter),
        );
        let covered = (offer.rate().ok())
            .and_then(|rate| own::cover(filter, &offer, rate, wanted, &Taken::new()));
        match covered.zip(offer.gpus.as_whole()) {
            Some((cover, gpus)) => query.key_at(&self.fit, cover.mean, gpus),
            None => self.key(query, row),
        }
    }

    /// Whether, with so many nodes, its first offers are all eligible and all further ones above the ceiling.
    fn is_plain(&self, nodes: u32) -> bool {
        let (fewest, _) = self.group.stock();
        let enough = nodes <= fewest.min(MAX_NODES);
        self.ages == Ages::Fresh && self.held.is_empty() && enough
    }

    /// The stock of an offer as its provider reports it, and the nodes of it that are held.
    pub(crate) fn stock(&self, row: u32) -> (Availability, u32) {
        let availability = self.group.partition().availability(row);
        (availability, self.kept(row).nodes)
    }

    fn kept(&self, row: u32) -> Kept {
        let at = self.row_id(row);
        let held = self.held.binary_search_by_key(&at, |held| held.0);
        held.map_or_else(|_| Kept::default(), |at| self.held[at].1)
    }

    /// Whether one of its offers is too old.
    fn is_stale(&self, filter: &Filter<'_>, row: u32) -> bool {
        self.ages == Ages::Mixed && {
            let observed_at = self.group.partition().observed_at(row);
            filter.is_stale(self.group, &self.seller, observed_at)
        }
    }

    /// One of its offers that is eligible, or the first reason why it is not.
    pub(crate) fn test(&self, filter: &Filter<'_>, row: u32) -> Result<Allowed, ReasonCode> {
        if self.is_stale(filter, row) {
            return Err(ReasonCode::Stale);
        }
        self.test_nodes(row, self.fit.nodes, self.dear_from)
    }

    fn test_nodes(&self, row: u32, nodes: u32, dear_from: u32) -> Result<Allowed, ReasonCode> {
        if nodes > MAX_NODES {
            return Err(ReasonCode::NotEnoughNodes);
        }
        let (stock, held) = self.stock(row);
        check_stock(&stock, held, nodes)?;
        if self.kept(row).cools {
            return Err(ReasonCode::CoolingDown);
        }
        if row >= dear_from {
            return Err(ReasonCode::Ceiling);
        }
        Ok(Allowed::new(self.row_id(row)))
    }

    /// One of its offers that may contribute a node to a fleet; `None` where it may not.
    pub(crate) fn part(&self, filter: &Filter<'_>, row: u32) -> Option<Allowed> {
        let (stock, held) = self.stock(row);
        let may_be = free_nodes(&stock, held) > 0 && !self.kept(row).cools && row < self.dear_alone;
        (may_be && !self.is_stale(filter, row)).then(|| Allowed::new(self.row_id(row)))
    }

    /// One of its offers that is eligible, and not taken with more nodes; `None` for another.
    pub(crate) fn taken(&self, filter: &Filter<'_>, row: u32) -> Option<Allowed> {
        let larger = || {
            let larger = self.larger.as_ref();
            larger.is_some_and(|one| self.test_nodes(row, one.nodes, one.dear_from).is_ok())
        };
        let allowed = self.test(filter, row).ok()?;
        (!larger()).then_some(allowed)
    }

    /// The rows that may be eligible, and the first that is.
    pub(crate) fn eligible(&self, filter: &Filter<'_>) -> (Range<u32>, Option<u32>) {
        let rows = self.group.rows().start..self.dear_from;
        let first = rows.clone().find(|row| self.test(filter, *row).is_ok());
        (rows, first)
    }

    /// Counts the refused offers of the group. Returns the rows that fit with these nodes, and the number of
    /// eligible offers, each counted once. For a plain group only the count matters.
    pub(crate) fn count(&self, filter: &Filter<'_>, tally: &mut Tally) -> (Range<u32>, usize) {
        let rows = self.group.rows();
        let larger = self.larger.as_ref().filter(|one| self.is_plain(one.nodes));
        // In a plain group all but the most expensive offers fit with more nodes.
        let taken = larger.map_or(rows.start, |one| one.dear_from)..self.dear_from;
        if self.again {
            return (taken, 0);
        }
        if self.is_plain(self.fit.nodes) {
            let dear = self.row_id(self.dear_from);
            tally.count_all(ReasonCode::Ceiling, dear, rows.end - self.dear_from);
            return (taken, (self.dear_from - rows.start) as usize);
        }
        let mut eligible = 0;
        for row in rows {
            match self.test(filter, row) {
                Ok(_) => eligible += 1,
                Err(code) => tally.count(code, self.row_id(row)),
            }
        }
        (taken, eligible)
    }
}
