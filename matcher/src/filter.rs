//! The tests that every kind of demand applies to an offer: provider, place, freshness, stock, price.

use chrono::{DateTime, Utc};
use market::acceptance::Reliability;
use market::demand::{Ceiling, DemandKind, Shared};
use market::ids::ProviderId;
use market::money::Money;
use market::offer::{Availability, MachineOperator, Tenancy, Terms};
use market::place::Country;
use market::provider_facts::{FactsLack, ProviderFacts};

use crate::fleet::Budget;
use crate::reason::ReasonCode;
use crate::search::{Held, MAX_NODES, SearchOptions};
use crate::snapshot::{GroupRef, PartitionKey, ProviderView, Snapshot, is_past_limit};

/// Which offers of a snapshot are searched.
#[derive(Clone, Copy)]
pub(crate) enum Among<'a> {
    /// All of them.
    All,
    /// Only the on-demand offers of one provider, in these regions where some are named. Such a search gives
    /// useful candidates, but no useful counts.
    OnDemandOf(&'a ProviderId, Option<&'a [Option<&'a str>]>),
}

/// The shared fields of a demand, and the data that offers are tested against.
pub(crate) struct Filter<'a> {
    pub(crate) shared: Shared<'a>,
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) among: Among<'a>,
    pub(crate) held: &'a Held,
    pub(crate) now: DateTime<Utc>,
    /// The latest end of the capacity, where the demand states one.
    pub(crate) ends_by: Option<DateTime<Utc>>,
    pub(crate) options: &'a SearchOptions,
    pub(crate) kind: DemandKind,
    /// The work that may still be spent on the plan.
    pub(crate) budget: &'a Budget,
}

/// A provider, as a demand sees it.
#[derive(Clone, Copy)]
pub(crate) struct Seller<'a> {
    view: Option<&'a ProviderView>,
    /// Why the search refuses all its offers.
    refused: Option<ReasonCode>,
    /// How long its evidence lasts, where that limits how long work may take.
    evidence_hours: Option<f64>,
}

impl Seller<'_> {
    /// As in [`Filter::evidence_hours`].
    pub(crate) const fn evidence_hours(&self) -> Option<f64> {
        self.evidence_hours
    }

    /// The recent outcomes of orders there, of an operator's machines.
    pub(crate) fn reliability(&self, operator: &MachineOperator) -> Reliability {
        self.view
            .map_or_else(Reliability::default, |view| view.reliability(operator))
    }
}

/// How old the offers of a group are, by their provider's limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ages {
    /// None is too old.
    Fresh,
    /// All are.
    Stale,
    /// Some are.
    Mixed,
}

impl Among<'_> {
    /// Whether offers on these terms are searched.
    pub(crate) fn has_terms(self, terms: Terms) -> bool {
        matches!(self, Self::All) || terms == Terms::OnDemand
    }

    /// Whether the search covers offers of this group, on any terms.
    pub(crate) fn has_group(self, group: GroupRef<'_>) -> bool {
        match self {
            Self::All => true,
            Self::OnDemandOf(provider, regions) => {
                group.provider() == provider
                    && regions.is_none_or(|regions| regions.contains(&group.region()))
            }
        }
    }
}

impl<'a> Filter<'a> {
    /// The same filter with other search options.
    pub(crate) fn with<'b>(&self, options: &'b SearchOptions) -> Filter<'b>
    where
        'a: 'b,
    {
        Filter {
            shared: self.shared,
            snapshot: self.snapshot,
            among: self.among,
            held: self.held,
            now: self.now,
            ends_by: self.ends_by,
            options,
            kind: self.kind,
            budget: self.budget,
        }
    }

    pub(crate) fn seller(&self, id: &ProviderId, operator: &MachineOperator) -> Seller<'a> {
        let view = self.snapshot.provider(id);
        let facts = self.snapshot.facts(id, operator);
        let refused = if !self.allows_provider(id, operator) {
            Some(ReasonCode::ProviderPolicy)
        } else if let Err(lack) = self.check_facts(facts) {
            Some(match lack {
                FactsLack::OperatorUnknown | FactsLack::OperatorElsewhere(_) => {
                    ReasonCode::Operator
                }
                FactsLack::NoEvidence(_) | FactsLack::EvidenceEnds { .. } => {
                    ReasonCode::Certification
                }
            })
        } else {
            let quarantine = view.and_then(|view| view.quarantine.as_ref());
            let holds = quarantine.is_some_and(|quarantine| self.now < quarantine.until);
            holds.then_some(ReasonCode::Quarantined)
        };
        Seller {
            view,
            refused,
            evidence_hours: self.evidence_hours(facts),
        }
    }

    /// Whether any demand may take offers of a group, if they are not too old. This does not test whether
    /// they are sold out: that test comes after the one on age.
    pub(crate) fn check_group(
        &self,
        group: GroupRef<'_>,
        seller: &Seller<'_>,
        countries: &CountrySet,
    ) -> Result<(), ReasonCode> {
        if self.options.orderable_only && !group.orderable() {
            return Err(ReasonCode::NotOrderable);
        }
        if let Some(code) = seller.refused {
            return Err(code);
        }
        self.check_place(group, countries)?;
        if !self.allows_tenancy(group.tenancy()) {
            return Err(ReasonCode::Tenancy);
        }
        if !self.is_host_enough(group.vcpus(), group.memory_gib()) {
            return Err(ReasonCode::Host);
        }
        Ok(())
    }

    /// A figure that the provider does not state counts as too small.
    fn is_host_enough(&self, vcpus: Option<u32>, memory_gib: Option<u32>) -> bool {
        let enough = |has: Option<u32>, least: Option<u32>| least.is_none() || has >= least;
        enough(vcpus, self.shared.vcpus) && enough(memory_gib, self.shared.host_memory_gib)
    }

    /// Whether the policy takes offers of this provider, of machines that this operator runs. A denied
    /// provider's machines are denied under any seller.
    fn allows_provider(&self, id: &ProviderId, operator: &MachineOperator) -> bool {
        self.shared.policy.is_none_or(|policy| {
            let allowed = &policy.allow_providers;
            let runs_it = |denied: &ProviderId| match operator {
                MachineOperator::Cloud(id) => denied == id,
                MachineOperator::Seller | MachineOperator::Peer(_) => false,
            };
            !policy
                .deny_providers
                .iter()
                .any(|denied| denied == id || runs_it(denied))
                && (allowed.is_empty() || allowed.contains(id))
        })
    }

    /// The latest start of the capacity.
    pub(crate) fn starts_by(&self) -> DateTime<Utc> {
        let window = self.shared.window;
        window.map_or(self.now, |window| window.handed_off_by(self.now))
    }

    /// Whether the facts on record about an operator satisfy the policy for as long as the capacity may be used.
    /// Where the demand does not say how long that is, work that ends by itself must also finish within
    /// [`Self::evidence_hours`].
    pub(crate) fn check_facts<'f>(
        &'f self,
        facts: Option<&'f ProviderFacts>,
    ) -> Result<(), FactsLack<'f>> {
        let end = self.ends_by.unwrap_or_else(|| self.starts_by());
        let until = self.options.evidence_until.map_or(end, |at| at.max(end));
        self.check_facts_until(facts, until)
    }

    /// The same for capacity that is used until a given time.
    pub(crate) fn check_facts_until<'f>(
        &'f self,
        facts: Option<&'f ProviderFacts>,
        until: DateTime<Utc>,
    ) -> Result<(), FactsLack<'f>> {
        match self.shared.policy {
            Some(policy) => policy.check_facts(facts, until),
            None => Ok(()),
        }
    }

    /// How long work may run, from its latest start, with an operator whose evidence ends, where the demand does
    /// not say when the capacity ends. Units: hours; `None` for no limit.
    pub(crate) fn evidence_hours(&self, facts: Option<&ProviderFacts>) -> Option<f64> {
        if self.ends_by.is_some() {
            // The evidence is valid until that end, and no work is planned beyond it.
            return None;
        }
        let policy = self.shared.policy?;
        let last = policy.evidence_lasts(facts)?;
        Some((last - self.starts_by()).num_seconds() as f64 / 3_600.0)
    }

    fn allows_tenancy(&self, tenancy: Tenancy) -> bool {
        let allowed = self.shared.tenancy;
        allowed.is_none_or(|allowed| allowed.contains(&tenancy))
    }

    fn check_place(&self, group: GroupRef<'_>, countries: &CountrySet) -> Result<(), ReasonCode> {
        let Some(places) = self.shared.places else {
            return Ok(());
        };
        if !places.countries.is_empty() {
            let country = group.country().ok_or(ReasonCode::PlaceUnknown)?;
            if !countries.contains(country) {
                return Err(ReasonCode::Place);
            }
        }
        if !places.regions.is_empty() {
            let region = group.region().ok_or(ReasonCode::PlaceUnknown)?;
            let mut allowed = places.regions.iter();
            if !allowed.any(|allowed| allowed.eq_ignore_ascii_case(region)) {
                return Err(ReasonCode::Place);
            }
        }
        Ok(())
    }

    pub(crate) fn ages(&self, group: GroupRef<'_>, seller: &Seller<'_>) -> Ages {
        let is_stale = |observed_at| self.is_stale(group, seller, observed_at);
        let (oldest, newest) = group.read_between();
        if !is_stale(oldest) {
            Ages::Fresh
        } else if is_stale(newest) {
            Ages::Stale
        } else {
            Ages::Mixed
        }
    }

    /// Whether an offer of a group that was read then is too old.
    pub(crate) fn is_stale(
        &self,
        group: GroupRef<'_>,
        seller: &Seller<'_>,
        observed_at: DateTime<Utc>,
    ) -> bool {
        is_past_limit(seller.view, group.orderable(), observed_at, self.now)
    }

    /// The tenant's cost per hour for so many nodes at this price, if it is under the ceiling. A cost above
    /// the ceiling at one price is above it at every higher price.
    ///
    /// It is the frozen rate times the GPUs, as it will be charged.
    pub(crate) fn check_cost(
        &self,
        key: &PartitionKey,
        price: Money,
        nodes: u32,
    ) -> Result<Money, ReasonCode> {
        let rate = key.rate(price).ok_or(ReasonCode::NoPrice)?;
        let each = key.node_price_units(price).ok_or(ReasonCode::NoPrice)?;
        // A cost that overflows is above any ceiling.
        let units = each
            .checked_mul(i64::from(nodes))
            .ok_or(ReasonCode::Ceiling)?;
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

/// Whether a provider has so many nodes beside those that are held or leased already.
///
/// Where the provider publishes no count, one holder at a time may take nodes.
pub(crate) fn check_stock(stock: &Availability, held: u32, nodes: u32) -> Result<(), ReasonCode> {
    if !stock.may_hold(nodes) {
        return Err(ReasonCode::NotEnoughNodes);
    }
    if held > 0 && (stock.nodes.is_none() || !stock.may_hold(nodes.saturating_add(held))) {
        return Err(ReasonCode::Held);
    }
    Ok(())
}

/// The nodes that may be taken beside those that are held or leased already.
///
/// Where the provider publishes no count, one holder at a time may take nodes.
pub(crate) fn free_nodes(stock: &Availability, held: u32) -> u32 {
    match stock.nodes {
        _ if stock.is_sold_out() => 0,
        None if held > 0 => 0,
        Some(free) if !stock.at_least => free.saturating_sub(held).min(MAX_NODES),
        _ => MAX_NODES,
    }
}

/// Countries, each looked up in one step: a bit for each pair of letters.
#[derive(Debug)]
pub(crate) struct CountrySet([u64; 11]);

impl CountrySet {
    pub(crate) fn of(countries: &[Country]) -> Self {
        let mut set = Self([0; 11]);
        for country in countries {
            let at = Self::place(*country);
            set.0[at / 64] |= 1 << (at % 64);
        }
        set
    }

    fn contains(&self, country: Country) -> bool {
        let at = Self::place(country);
        self.0[at / 64] & (1 << (at % 64)) != 0
    }

    /// 0..676: codes are two upper-case letters.
    fn place(country: Country) -> usize {
        let letters = country.code().bytes();
        letters.fold(0, |at, letter| at * 26 + usize::from(letter - b'A'))
    }
}
