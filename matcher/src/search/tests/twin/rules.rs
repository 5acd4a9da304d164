//! The rules of each kind of demand, written down once more: loops in place of closed forms. Here are those
//! of all kinds and of GPUs by name.

mod serve;
mod train;

use market::fabric::Internode;
use market::gpu::Gpu;
use market::offer::{Availability, AvailabilityLevel};
use market::place::Place;

use super::super::scan::sureness;
use super::super::*;
use super::market::facts_of;
use crate::samples::usd;
use crate::snapshot::OfferRef;

pub use self::serve::serve_rules;
pub use self::train::train_rules;

/// The rules that do not depend on the kind of demand, read from the demand's JSON.
pub struct Twin<'a> {
    pub shared: Value,
    pub snapshot: &'a Snapshot,
    pub held: &'a Held,
    pub orderable_only: bool,
}

impl Twin<'_> {
    pub fn words(&self, group: &str, field: &str) -> Vec<String> {
        let list = self.shared[group][field]
            .as_array()
            .cloned()
            .unwrap_or_default();
        list.iter()
            .map(|word| word.as_str().expect("a word").to_owned())
            .collect()
    }

    /// Whether the operator is under none of the named laws, and whether a certification is missing on the
    /// last day on which it may be needed.
    fn lacks(&self, offer: &Offer) -> (bool, bool) {
        let facts = facts_of(self.snapshot, offer);
        let laws = self.words("policy", "operator_countries");
        let operator = facts.and_then(|facts| facts.operator.as_ref());
        let law = operator.map(|operator| operator.country.to_string());
        let wanted = self.shared["window"]["duration_hours"].as_i64();
        // The hand-off is waited for a day.
        let wanted = wanted.map_or(0, |hours| hours + 24);
        let day = (now() + chrono::TimeDelta::hours(wanted)).date_naive();
        let has = |name: &String| {
            let mut known = facts.into_iter().flat_map(|facts| &facts.certifications);
            known.any(|one| one.name.as_str() == name && day <= one.valid_until)
        };
        (
            !laws.is_empty() && !law.is_some_and(|law| laws.contains(&law)),
            !self.words("policy", "certifications").iter().all(has),
        )
    }

    /// The hours from now to the midnight at which the first of the required certificates has ended.
    fn evidence_hours(&self, offer: &Offer) -> Option<f64> {
        let facts = facts_of(self.snapshot, offer)?;
        let ends = self
            .words("policy", "certifications")
            .into_iter()
            .map(|name| {
                let known = facts.certifications.iter();
                let last = known.filter(|one| one.name.as_str() == name);
                last.map(|one| one.valid_until).max().expect("it has all")
            });
        let midnight = ends
            .min()?
            .succ_opt()?
            .and_time(chrono::NaiveTime::MIN)
            .and_utc();
        // Work that ends with the last second before has ended in time.
        Some(((midnight - now()).num_seconds() - 1) as f64 / 3_600.0)
    }

    /// Whether each GPU that it may be has the memory that is asked for.
    pub fn gpu_memory_reason(&self, offer: &Offer) -> Option<ReasonCode> {
        let least = self.shared["gpu_memory_gib"].as_f64()?;
        let forms = Gpu::all().filter(|gpu| match offer.gpu.known() {
            Some(known) => *gpu == known,
            None => gpu.family() == offer.gpu.family(),
        });
        let enough: Vec<bool> = forms.map(|gpu| gpu.spec().memory_gb >= least).collect();
        match (enough.contains(&true), enough.contains(&false)) {
            (true, false) => None,
            (true, true) => Some(ReasonCode::GpuFormUnknown),
            (false, _) => Some(ReasonCode::GpuMemory),
        }
    }

    pub fn shared_reason(&self, offer: &Offer) -> Option<ReasonCode> {
        let (deny, allow) = (
            self.words("policy", "deny_providers"),
            self.words("policy", "allow_providers"),
        );
        let (countries, regions) = (
            self.words("places", "countries"),
            self.words("places", "regions"),
        );
        let seller = offer.provider.to_string();
        let (lacks_operator, lacks_certification) = self.lacks(offer);
        let country = offer.place.country.map(|country| country.to_string());
        let region = offer
            .place
            .region
            .as_ref()
            .map(|region| region.to_lowercase());
        let within = |named: &[String], place: &Option<String>| {
            place.as_ref().is_some_and(|place| {
                named
                    .iter()
                    .any(|name| name.to_lowercase() == place.to_lowercase())
            })
        };
        let tenancies = self.shared["tenancy"].as_array().cloned();
        let less = |field: &str, has: Option<u32>| {
            let least = self.shared[field].as_u64();
            least.is_some_and(|least| has.is_none_or(|has| u64::from(has) < least))
        };
        let limit = self
            .snapshot
            .provider(&offer.provider)
            .and_then(|view| Some(view.freshness_limit_seconds? as i64));
        let age = (now() - offer.observed_at).num_seconds();
        let view = self.snapshot.provider(&offer.provider);
        let quarantine = view.and_then(|view| view.quarantine.as_ref());
        let quarantined = quarantine.is_some_and(|quarantine| quarantine.until > now());
        let rules = [
            (
                self.orderable_only && !offer.orderable,
                ReasonCode::NotOrderable,
            ),
            (
                deny.contains(&seller)
                    || deny.contains(&offer.particulars.operator.to_string())
                    || !(allow.is_empty() || allow.contains(&seller)),
                ReasonCode::ProviderPolicy,
            ),
            (lacks_operator, ReasonCode::Operator),
            (lacks_certification, ReasonCode::Certification),
            (quarantined, ReasonCode::Quarantined),
            (
                !countries.is_empty() && country.is_none(),
                ReasonCode::PlaceUnknown,
            ),
            (
                !countries.is_empty() && !within(&countries, &country),
                ReasonCode::Place,
            ),
            (
                !regions.is_empty() && region.is_none(),
                ReasonCode::PlaceUnknown,
            ),
            (
                !regions.is_empty() && !within(&regions, &region),
                ReasonCode::Place,
            ),
            (
                tenancies.is_some_and(|all| !all.contains(&json!(offer.tenancy))),
                ReasonCode::Tenancy,
            ),
            (
                less("vcpus", offer.vcpus) || less("host_memory_gib", offer.memory_gib),
                ReasonCode::Host,
            ),
            (
                view.is_none() || limit.map_or(offer.orderable, |limit| limit < age),
                ReasonCode::Stale,
            ),
            (
                offer.availability.level == AvailabilityLevel::None,
                ReasonCode::SoldOut,
            ),
        ];
        rules
            .into_iter()
            .find(|(applies, _)| *applies)
            .map(|(_, code)| code)
    }

    pub fn stock_and_cost_reason(&self, offer: &Offer, nodes: u32) -> Option<ReasonCode> {
        let held = self.held[&offer.offer_id];
        let stock = &offer.availability;
        let rate = offer.rate().expect("it fits");
        let gpus = i64::from(offer.gpus.as_whole()? * nodes);
        let dear = |field: &str, sum: i64| {
            self.shared["ceiling"][field]
                .as_str()
                .is_some_and(|limit| sum > usd(limit).units())
        };
        let per_gpu = rate.money_per_gpu_hour().units();
        let short = |wanted: u32| !stock.at_least && stock.nodes.is_some_and(|free| free < wanted);
        let rules = [
            (short(nodes), ReasonCode::NotEnoughNodes),
            (
                held > 0 && (stock.nodes.is_none() || short(nodes + held)),
                ReasonCode::Held,
            ),
            (
                dear("usd_per_gpu_hour", per_gpu) || dear("usd_per_hour", per_gpu * gpus),
                ReasonCode::Ceiling,
            ),
        ];
        rules
            .into_iter()
            .find(|(applies, _)| *applies)
            .map(|(_, code)| code)
    }

    /// Compares a plan with the result of the rules for each offer: a rank key and nodes, or a reason.
    pub fn check<K: Costs>(
        &self,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<(K, u32), ReasonCode>,
    ) {
        self.check_beside(None, plan, of);
    }

    /// The same for a plan with a fleet of several offers as its cheapest candidate.
    fn check_beside<K: Costs>(
        &self,
        of_several: Option<&Candidate>,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<(K, u32), ReasonCode>,
    ) {
        let mut good = Vec::new();
        let mut counts: BTreeMap<ReasonCode, usize> = BTreeMap::new();
        for offer in self.snapshot.offers().map(OfferRef::to_offer) {
            match of(&offer) {
                Ok((key, nodes)) => {
                    let place = offer.place.clone();
                    let names = (
                        offer.provider.to_string(),
                        offer.sku.clone(),
                        place,
                        offer.offer_id,
                    );
                    let (listed, past) = sureness(&offer);
                    let first = (listed, key.class(), past);
                    good.push(((key.rank(), names), nodes, first));
                }
                Err(code) => *counts.entry(code).or_default() += 1,
            }
        }
        good.sort();
        assert_eq!(plan.eligible, good.len());
        assert_eq!(plan.rejected.by_reason, counts);
        assert_eq!(plan.eligible + plan.rejected.total, self.snapshot.len());
        let of_several = of_several.map(|fleet| {
            let sure = fleet.lines.iter().map(|line| sureness(&line.offer)).max();
            let cost = i128::from(fleet.cost_per_hour.units());
            let (listed, past) = sure.expect("a line");
            (cost, (listed, 0, past), taken(fleet))
        });
        // An offer that cannot be ordered is listed once for all its places.
        let mut seen = Vec::new();
        good.retain(|((rank, names), nodes, first)| {
            let at = self.snapshot.find(&names.3).expect("an offer");
            let offer = self.snapshot.row(at).offer;
            let mut thing = offer.clone();
            thing.offer_id = OfferId::of_identity(&[]);
            thing.place = Place::unknown();
            thing.availability = Availability::UNKNOWN;
            thing.observed_at = now();
            let like = (*rank, thing, *nodes, *first);
            let is_new = offer.orderable || !seen.contains(&like);
            seen.push(like);
            is_new
        });
        let of_one = good.into_iter().map(|(((cost, _), names), nodes, first)| {
            let taken = vec![(names.3, nodes)];
            (cost, first, taken)
        });
        let mut all: Vec<_> = of_several.into_iter().chain(of_one).collect();
        // Candidates within a tenth of the cheapest are ordered by whether they can be ordered, their class
        // of machine, and the age of their price.
        if let Some(least) = all.first().map(|(cost, ..)| *cost) {
            let ties = |cost: i128| cost * 10 <= least * 11;
            all.sort_by_key(|(cost, first, _)| (!ties(*cost), ties(*cost).then_some(*first)));
        }
        let best: Vec<_> = all.into_iter().take(10).map(|(.., taken)| taken).collect();
        let found: Vec<_> = plan.candidates.iter().map(taken).collect();
        assert_eq!(found, best);
    }

    /// As [`Twin::check`], with a fleet of several offers beside those of one where it is cheaper.
    pub fn check_fleets(
        &self,
        plan: &Plan,
        of: impl Fn(&Offer) -> Result<((i128, u64), u32), ReasonCode>,
    ) {
        let mut of_several = plan.candidates.iter().filter(|one| one.lines.len() > 1);
        let Some(mix) = of_several.next() else {
            return self.check(plan, of);
        };
        assert!(of_several.next().is_none(), "one is the cheapest");
        let of_one = self
            .snapshot
            .offers()
            .filter_map(|offer| of(&offer.to_offer()).ok());
        let cheapest = of_one.map(|((cost, _), _)| cost).min();
        assert!(cheapest.is_none_or(|cost| i128::from(mix.cost_per_hour.units()) < cost));
        let mut rest = plan.clone();
        // An offer that carries only a part keeps its own reason for the refusal.
        for line in &mix.lines {
            if let Err(code) = of(&line.offer) {
                rest.eligible -= 1;
                rest.rejected.total += 1;
                *rest.rejected.by_reason.entry(code).or_default() += 1;
            }
            let free = line.offer.availability;
            let held = self.held[&line.offer.offer_id];
            assert!(free.may_hold(line.nodes + held) && (held == 0 || free.nodes.is_some()));
            assert_eq!(self.shared_reason(&line.offer), None);
        }
        self.check_beside(Some(mix), &rest, of);
    }
}

/// The nodes that a candidate takes, by offer.
fn taken(candidate: &Candidate) -> Vec<(OfferId, u32)> {
    let lines = candidate.lines.iter();
    lines
        .map(|line| (line.offer.offer_id, line.nodes))
        .collect()
}

/// The parts of an offer's rank.
pub trait Costs {
    /// Its cost (1e-8 US dollars), and the order among equals.
    fn rank(&self) -> (i128, u64);

    /// The class of machine, which decides within a tie.
    fn class(&self) -> u8 {
        0
    }
}

impl Costs for i64 {
    fn rank(&self) -> (i128, u64) {
        (i128::from(*self), 0)
    }
}

/// The cost of a run, and its class of machine.
impl Costs for (i128, u8) {
    fn rank(&self) -> (i128, u64) {
        (self.0, 0)
    }

    fn class(&self) -> u8 {
        self.1
    }
}

impl Costs for (i128, u64) {
    fn rank(&self) -> (i128, u64) {
        *self
    }
}

/// The fields of `gpus` demands beside the shared ones, as in the JSON.
pub fn gpus_rules(
    twin: &Twin<'_>,
    fields: &Value,
    offer: &Offer,
) -> Result<(i64, u32), ReasonCode> {
    let name = offer.gpu.to_string();
    let nodes = fields["nodes"].as_u64().expect("nodes") as u32;
    let wanted: Vec<&str> = match &fields["gpu"] {
        Value::Array(names) => names
            .iter()
            .map(|name| name.as_str().expect("a name"))
            .collect(),
        one => vec![one.as_str().expect("a name")],
    };
    // The possible GPUs: each of three for an H100 with an open form.
    let may_be = match name.as_str() {
        "H100" => vec!["H100-SXM", "H100-PCIe", "H100-NVL"],
        known => vec![known],
    };
    let memory = |gpu: &str| Gpu::parse(gpu).expect("a GPU").spec().memory_gb;
    let takes = |gpu: &&str| {
        wanted.iter().any(|wanted| match *wanted {
            "any" => true,
            "H100" => gpu.starts_with("H100"),
            "H100-80GB" => ["H100-SXM", "H100-PCIe"].contains(gpu),
            "90GB+" => memory(gpu) >= 90.0,
            exact => exact == *gpu,
        })
    };
    let will_do = may_be.iter().filter(|gpu| takes(gpu)).count();
    if !offer.price_per_node_hour.is_positive() {
        return Err(ReasonCode::NoPrice);
    }
    if will_do < may_be.len() {
        return Err(match will_do {
            0 => ReasonCode::Gpu,
            _ => ReasonCode::GpuFormUnknown,
        });
    }
    if let Some(code) = twin.gpu_memory_reason(offer) {
        return Err(code);
    }
    let Some(gpus) = offer.gpus.as_whole() else {
        return Err(ReasonCode::Slice);
    };
    let count = &fields["count"];
    let bound = |field: &str| count.as_u64().or(count[field].as_u64()).expect("a count") as u32;
    if !(bound("min")..=bound("max")).contains(&gpus) {
        return Err(ReasonCode::GpusPerNode);
    }
    if (offer.terms == Terms::Spot) != (fields["spot"] == true) || offer.terms == Terms::Floor {
        return Err(ReasonCode::Terms);
    }
    let infiniband = offer.internode == Internode::InfinibandNdr400;
    let rdma = infiniband || offer.internode == Internode::Roce400;
    let is_joined = nodes == 1
        || match fields["fabric"].as_str() {
            Some("infiniband") => infiniband,
            Some("rdma") => rdma,
            _ => true,
        };
    let reason = twin
        .shared_reason(offer)
        .or_else(|| (!is_joined).then_some(ReasonCode::Fabric))
        .or_else(|| twin.stock_and_cost_reason(offer, nodes));
    reason.map_or(Ok((offer.price_per_node_hour.units(), nodes)), Err)
}
