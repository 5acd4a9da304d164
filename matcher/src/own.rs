//! A tenant's own capacity in a search: agreed prices replace list prices before the search, and nodes that
//! are paid for already enter at their remaining cost.
//!
//! A commitment covers its nodes until it ends; after that they cost the offer's price. Candidates rank by
//! the mean price over the requested time, or by the price at the start where that time is open. Commitments
//! do not change which offers satisfy a demand: a ceiling applies to the offer's own price, which the tenant
//! pays once a commitment has ended.

use std::collections::HashMap;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use market::capacity::{Covered, OfferTraits, OpenCommitment, OwnCapacity};
use market::counted::counted;
use market::ids::{CommitmentId, ProviderId};
use market::money::{Money, Rate};
use market::offer::{Offer, node_rate};

use crate::filter::Filter;
use crate::plan::CandidateLine;
use crate::search::{Figures, Fit, Query};
use crate::snapshot::{OfferRef, Snapshot};
use crate::walk::AllowedRow;

/// The commitments that pay for the nodes of an offer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Cover {
    /// Nodes that are paid for, by commitment.
    pub(crate) parts: Vec<(u32, Covered)>,
    /// The mean rate of a GPU-hour over all nodes and the requested time, rounded up.
    pub(crate) mean: Rate,
}

/// Nodes of commitments that other offers of the same fleet have taken.
pub(crate) type Taken = HashMap<CommitmentId, u32>;

/// The requested duration of the work of a fit. Units: seconds; `None` where it is open.
pub(crate) fn wanted_seconds(query: &Query<'_>, fit: &Fit, filter: &Filter<'_>) -> Option<i64> {
    let hours = match (query, &fit.figures) {
        (_, Figures::Train(train)) => Some(train.run.hours),
        (Query::Serve(serve), Figures::Serve(node)) => serve.pile_hours(node, fit.nodes),
        _ => None,
    };
    let window = || {
        let window = filter.shared.window?;
        let start = window
            .start_earliest
            .map_or(filter.now, |start| start.max(filter.now));
        Some((window.end_from(start)? - filter.now).num_seconds())
    };
    // The cast stops at the largest integer.
    let seconds = hours
        .map(|hours| (hours * 3_600.0).ceil() as i64)
        .or_else(window);
    seconds.filter(|seconds| *seconds > 0)
}

/// The nodes, of so many of an offer, that commitments pay for; `None` where none do. Commitments are used in
/// their order, and never beyond their remaining nodes and hours.
pub(crate) fn cover(
    filter: &Filter<'_>,
    offer: &Offer,
    rate: Rate,
    (nodes, seconds): (u32, Option<i64>),
    taken: &Taken,
) -> Option<Cover> {
    let own = &filter.options.own;
    let traits = OfferTraits::of(offer);
    let mut left = nodes;
    let mut parts = Vec::new();
    for open in own.commitments_of(&offer.provider, &traits) {
        let id = open.commitment.id;
        let gone = taken.get(&id).copied().unwrap_or(0);
        let some = left.min(open.nodes_left.saturating_sub(gone));
        // Hours are shared by all nodes that are taken of a commitment, here and elsewhere.
        let Some(until) = open.covers(some + gone, filter.now).filter(|_| some > 0) else {
            continue;
        };
        let price = open.commitment.price_per_node_hour;
        let Some(paid) = node_rate(price, offer.gpus)
            .ok()
            .filter(|paid| *paid < rate)
        else {
            continue;
        };
        parts.push((
            some,
            Covered {
                commitment_id: id,
                rate_usd_gpu_hour: paid,
                until,
            },
        ));
        left -= some;
    }
    (!parts.is_empty()).then(|| Cover {
        mean: mean(&parts, rate, (nodes, seconds), filter.now),
        parts,
    })
}

/// The mean rate of a GPU-hour over all nodes and the requested time, rounded up.
pub(crate) fn mean(
    parts: &[(u32, Covered)],
    rate: Rate,
    (nodes, seconds): (u32, Option<i64>),
    now: DateTime<Utc>,
) -> Rate {
    let whole = i128::from(seconds.unwrap_or(1));
    let own = i128::from(rate.money_per_gpu_hour().units());
    let mut left = i128::from(nodes);
    let mut units = 0;
    for (some, covered) in parts {
        let paid = i128::from(covered.rate_usd_gpu_hour.money_per_gpu_hour().units());
        let lasts = i128::from((covered.until - now).num_seconds());
        let lasts = seconds.map_or(whole, |_| lasts.clamp(0, whole));
        let some = i128::from(*some);
        units += some * (paid * lasts + own * (whole - lasts));
        left -= some;
    }
    units += left * whole * own;
    let all = i128::from(nodes) * whole;
    // A mean of prices that fit fits.
    let mean = i64::try_from((units + all - 1) / all).unwrap_or(i64::MAX);
    Rate::per_gpu_hour(Money::from_units(
        mean,
        rate.money_per_gpu_hour().currency(),
    ))
}

/// Splits so many nodes of one offer by how long a commitment pays for them, if no other offer uses it. It
/// pays in full for as many nodes as it has node-hours left, and not at all for the others. The total paid
/// time is the same as if they shared the node-hours.
pub(crate) fn lasting(
    filter: &Filter<'_>,
    covered: Covered,
    nodes: u32,
    wanted_seconds: Option<i64>,
) -> Vec<(u32, Covered)> {
    let open = open(filter, covered.commitment_id);
    let hours = open.and_then(|open| open.node_seconds_left.zip(open.covers(1, filter.now)));
    let (Some(wanted), Some((left, until))) = (wanted_seconds, hours) else {
        let alone = open.and_then(|open| open.covers(1, filter.now));
        let until = alone.unwrap_or(covered.until);
        return vec![(nodes, Covered { until, ..covered })];
    };
    let longest = (until - filter.now).num_seconds().clamp(1, wanted);
    let whole = u32::try_from(left / longest).unwrap_or(u32::MAX).min(nodes);
    let rest = TimeDelta::seconds(left % longest);
    let one = 1.min(nodes - whole);
    let parts = [
        (whole, until),
        (one, filter.now + rest),
        (nodes - whole - one, filter.now),
    ];
    let parts = parts.into_iter().filter(|(nodes, _)| *nodes > 0);
    parts
        .map(|(nodes, until)| (nodes, Covered { until, ..covered }))
        .collect()
}

/// A commitment of the tenant.
pub(crate) fn open<'f>(filter: &'f Filter<'_>, id: CommitmentId) -> Option<&'f OpenCommitment> {
    let mut known = filter.options.own.commitments.iter();
    known.find(|open| open.commitment.id == id)
}

impl Cover {
    /// The lines of a candidate with so many nodes of an offer. Nodes that are paid for come first.
    pub(crate) fn lines(&self, row: &AllowedRow, nodes: u32) -> Vec<CandidateLine> {
        let line = |nodes, covered| CandidateLine::new(row.clone(), nodes, covered);
        let parts = self.parts.iter();
        let mut lines: Vec<_> = parts
            .map(|(some, covered)| line(*some, Some(*covered)))
            .collect();
        let paid: u32 = self.parts.iter().map(|(some, _)| some).sum();
        if paid < nodes {
            lines.push(line(nodes - paid, None));
        }
        lines
    }

    /// The commitments in words.
    pub(crate) fn reasons(&self, filter: &Filter<'_>, nodes: u32, rate: Rate) -> Vec<String> {
        let all = |(some, covered): &(u32, Covered)| reason(filter, *some, nodes, covered, rate);
        self.parts.iter().filter_map(all).collect()
    }
}

/// A covered part in words: its commitment, how long it lasts, and the price after it.
pub(crate) fn reason(
    filter: &Filter<'_>,
    some: u32,
    nodes: u32,
    covered: &Covered,
    rate: Rate,
) -> Option<String> {
    let open = open(filter, covered.commitment_id)?;
    let hours = (covered.until - filter.now).num_minutes() as f64 / 60.0;
    Some(format!(
        "{some} of {} paid for already by {} ({}): {} USD per GPU-hour until {}, {hours:.1} h from \
         now, {rate} after that; {}",
        counted(nodes, "node"),
        covered.commitment_id,
        open.commitment.name,
        covered.rate_usd_gpu_hour,
        time(covered.until),
        left(open),
    ))
}

fn left(open: &OpenCommitment) -> String {
    let nodes = counted(open.nodes_left, "node");
    let expires = time(open.commitment.expires_at);
    match open.node_seconds_left {
        Some(seconds) => format!(
            "{nodes} and {:.1} node-hours of it are left, and it expires at {expires}",
            seconds as f64 / 3_600.0
        ),
        None => format!("{nodes} of it are left, and it expires at {expires}"),
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// The reason for an offer at an agreed price.
pub(crate) fn book_reason(filter: &Filter<'_>, offer: &Offer) -> Option<String> {
    let own = &filter.options.own;
    let traits = OfferTraits::of(offer);
    let (account, price) = own.book_price(&offer.provider, &traits, filter.now)?;
    let until = price
        .valid_until
        .map_or(String::new(), |until| format!(" until {}", time(until)));
    Some(format!(
        "The price is the one agreed in {} ({}){until}, in place of the list price",
        account.id, account.name
    ))
}

/// Whether a provider's offers can be covered at all.
pub(crate) fn has_commitment(own: &OwnCapacity, provider: &ProviderId) -> bool {
    let mut all = own.commitments.iter();
    all.any(|open| open.commitment.provider == *provider)
}

/// Whether a commitment covers the offer.
pub(crate) fn is_covered(own: &OwnCapacity, offer: OfferRef<'_>) -> bool {
    let traits = traits(offer);
    own.commitments_of(offer.provider(), &traits)
        .next()
        .is_some()
}

fn traits(offer: OfferRef<'_>) -> OfferTraits<'_> {
    OfferTraits {
        sku: offer.sku(),
        gpu: offer.gpu(),
        gpus: offer.gpus(),
        terms: offer.terms(),
        country: offer.country(),
        region: offer.region(),
    }
}

/// The tenant's price of a node-hour of an offer: the agreed one, else the listed one.
#[must_use]
pub fn price_for(own: &OwnCapacity, offer: OfferRef<'_>, now: DateTime<Utc>) -> Money {
    let listed = offer.price_per_node_hour();
    let agreed = own.book_price(offer.provider(), &traits(offer), now);
    let gpus = offer.gpus().as_whole().map(i64::from);
    agreed
        .zip(gpus)
        .and_then(|((_, price), gpus)| price.rate.money_per_gpu_hour().checked_mul(gpus).ok())
        .unwrap_or(listed)
}

/// The market with the tenant's agreed prices. `None` where no agreed price replaces a list price.
#[must_use]
pub fn at_own_prices(
    snapshot: &Snapshot,
    own: &OwnCapacity,
    now: DateTime<Utc>,
) -> Option<Snapshot> {
    if own.accounts.is_empty() {
        return None;
    }
    let changed = snapshot.offers().filter_map(|offer| {
        let price = price_for(own, offer, now);
        (price != offer.price_per_node_hour()).then(|| Offer {
            price_per_node_hour: price,
            ..offer.to_offer()
        })
    });
    let changed: Vec<_> = changed.collect();
    (!changed.is_empty()).then(|| snapshot.repriced(&changed))
}
