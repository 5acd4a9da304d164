//! What every kind of demand asks of an offer: who, where, how fresh, how many, how dear.

use chrono::{DateTime, Utc};
use market::demand::{Ceiling, DemandKind, Shared};
use market::money::{Money, Rate};
use market::offer::Offer;
use market::place::Place;

use crate::fleet::Budget;
use crate::reason::ReasonCode;
use crate::search::{Held, MAX_NODES, SearchOptions};
use crate::snapshot::Snapshot;

/// The shared fields of a demand, with what they are tested against.
pub(crate) struct Filter<'a> {
    pub(crate) shared: Shared<'a>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) held: &'a Held,
    pub(crate) now: DateTime<Utc>,
    pub(crate) options: &'a SearchOptions,
    pub(crate) kind: DemandKind,
    /// The work that may still be spent on the plan.
    pub(crate) budget: &'a Budget,
}

impl Filter<'_> {
    /// Whether the offer may be taken at all, whatever it is taken for.
    pub(crate) fn check_offer(&self, offer: &Offer) -> Result<(), ReasonCode> {
        if self.options.orderable_only && !offer.orderable {
            return Err(ReasonCode::NotOrderable);
        }
        if !self.allows_provider(offer) {
            return Err(ReasonCode::ProviderPolicy);
        }
        if self
            .snapshot
            .quarantine(&offer.provider, self.now)
            .is_some()
        {
            return Err(ReasonCode::Quarantined);
        }
        self.check_place(&offer.place)?;
        if self
            .shared
            .tenancy
            .is_some_and(|allowed| !allowed.contains(&offer.tenancy))
        {
            return Err(ReasonCode::Tenancy);
        }
        if self.snapshot.is_stale(offer, self.now) {
            return Err(ReasonCode::Stale);
        }
        if offer.availability.is_sold_out() {
            return Err(ReasonCode::SoldOut);
        }
        Ok(())
    }

    fn allows_provider(&self, offer: &Offer) -> bool {
        self.shared.policy.is_none_or(|policy| {
            let allowed = &policy.allow_providers;
            !policy.deny_providers.contains(&offer.provider)
                && (allowed.is_empty() || allowed.contains(&offer.provider))
        })
    }

    fn check_place(&self, place: &Place) -> Result<(), ReasonCode> {
        let Some(places) = self.shared.places else {
            return Ok(());
        };
        if !places.countries.is_empty() {
            let country = place.country.ok_or(ReasonCode::PlaceUnknown)?;
            if !places.countries.contains(&country) {
                return Err(ReasonCode::Place);
            }
        }
        if !places.regions.is_empty() {
            let region = place.region.as_ref().ok_or(ReasonCode::PlaceUnknown)?;
            if !places
                .regions
                .iter()
                .any(|allowed| allowed.eq_ignore_ascii_case(region))
            {
                return Err(ReasonCode::Place);
            }
        }
        Ok(())
    }

    /// Whether the provider has so many nodes beside those that are held or leased already.
    ///
    /// Where the provider counts nothing, one holder at a time is let in.
    pub(crate) fn check_stock(&self, offer: &Offer, nodes: u32) -> Result<(), ReasonCode> {
        let stock = &offer.availability;
        if !stock.may_hold(nodes) {
            return Err(ReasonCode::NotEnoughNodes);
        }
        let held = self.held.get(&offer.offer_id).copied().unwrap_or(0);
        if held == 0 {
            return Ok(());
        }
        if stock.nodes.is_none() || !stock.may_hold(nodes.saturating_add(held)) {
            return Err(ReasonCode::Held);
        }
        Ok(())
    }

    /// The nodes that may be taken beside those that are held or leased already.
    ///
    /// Where the provider counts nothing, one holder at a time is let in.
    pub(crate) fn free_nodes(&self, offer: &Offer) -> u32 {
        let stock = &offer.availability;
        let held = self.held.get(&offer.offer_id).copied().unwrap_or(0);
        match stock.nodes {
            _ if stock.is_sold_out() => 0,
            None if held > 0 => 0,
            Some(free) if !stock.at_least => free.saturating_sub(held).min(MAX_NODES),
            _ => MAX_NODES,
        }
    }

    /// What the tenant would pay per hour for so many nodes, if it is under the ceiling.
    ///
    /// It is the frozen rate times the GPUs, as it will be charged.
    pub(crate) fn check_cost(
        &self,
        offer: &Offer,
        rate: Rate,
        nodes: u32,
    ) -> Result<Money, ReasonCode> {
        let gpus = offer.gpus.as_whole().ok_or(ReasonCode::Slice)?;
        let price = rate.money_per_gpu_hour();
        let units = i128::from(price.units()) * i128::from(gpus) * i128::from(nodes);
        // More than a sum of money can hold is above any ceiling.
        let units = i64::try_from(units).map_err(|_| ReasonCode::Ceiling)?;
        let cost = Money::from_units(units, price.currency());
        let none = Ceiling::default();
        let ceiling = self.shared.ceiling.unwrap_or(&none);
        let above = ceiling.usd_per_gpu_hour.is_some_and(|limit| rate > limit)
            || ceiling.usd_per_hour.is_some_and(|limit| cost > limit);
        if above {
            Err(ReasonCode::Ceiling)
        } else {
            Ok(cost)
        }
    }
}
