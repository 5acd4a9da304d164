//! A reader that checks each line of a plan of GPUs against the offer and the demand. A line that it cannot
//! read is as wrong as one that is not true.

use market::fabric::Internode;
use market::gpu::GpuIdentity;
use market::offer::AvailabilityLevel;
use market::provider_facts::ProviderFacts;
use proptest::prelude::*;

use super::super::scan::sureness;
use super::super::*;
use super::market::{any_market, any_shared, facts_of, mostly};

/// The inputs of a reader.
pub(super) struct Reader<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) held: &'a Held,
    pub(super) demand: Value,
}

impl Reader<'_> {
    fn number(&self, field: &str) -> u64 {
        self.demand[field].as_u64().expect("a number")
    }

    pub(super) fn offer(&self, id: &OfferId) -> Offer {
        self.snapshot.offer(id).expect("on sale").to_offer()
    }

    pub(super) fn held(&self, offer: &Offer) -> u32 {
        self.held.get(&offer.offer_id).copied().unwrap_or(0)
    }

    fn limit(&self, offer: &Offer) -> Option<u64> {
        self.snapshot
            .provider(&offer.provider)?
            .freshness_limit_seconds
    }

    fn listed(&self, group: &str, field: &str) -> Vec<String> {
        let words = self.demand[group][field].as_array().cloned();
        let words = words.unwrap_or_default().into_iter();
        words
            .map(|word| word.as_str().expect("a word").to_lowercase())
            .collect()
    }

    /// Whether a line that any kind of demand may contain is true of so many nodes of an offer, and of their
    /// cost per hour where it is given.
    pub(super) fn is_true(
        &self,
        line: &str,
        (offer, nodes): (&Offer, u32),
        cost_per_hour: Option<Money>,
    ) -> bool {
        let words: Vec<&str> = line
            .split([' ', ',', ':'])
            .filter(|word| !word.is_empty())
            .collect();
        let has = |wanted: &str| words.contains(&wanted);
        if line.contains("USD per GPU-hour") {
            let each = i64::from(offer.gpus.as_whole().expect("whole"));
            let gpus = i64::from(nodes) * each;
            let said = words.iter().rev().find(|word| word.contains('.'));
            let rate = line.split(" at ").nth(1).expect("a rate");
            let rate = crate::samples::usd(rate.split(' ').next().expect("a word")).units();
            let of_price = (rate * each - offer.price_per_node_hour.units()).abs();
            return words[0] == nodes.to_string()
                && has(&gpus.to_string())
                && line.contains(&offer.gpu.to_string())
                && of_price <= each
                && cost_per_hour.is_none_or(|cost| {
                    said == Some(&cost.to_string().as_str()) && cost.units() == rate * gpus
                });
        }
        if line.contains("connects its nodes") {
            let word = format!("`{}`, with RDMA", offer.internode);
            let left_open = self.demand["fabric"].is_null()
                && self.demand["policy"]["allow_ethernet"].is_null();
            return nodes > 1
                && match offer.internode {
                    Internode::Ethernet => line.contains("Plain Ethernet"),
                    Internode::None => line.contains("No fabric"),
                    _ => line.contains(&word),
                }
                && line.starts_with("Warning: ") == (left_open && !line.contains(&word));
        }
        if line.starts_with("The provider reports") {
            let free = offer.availability.nodes.map(|free| free.to_string());
            return free.is_some_and(|free| has(&free))
                && has(&self.held(offer).to_string())
                && line.contains("at least") == offer.availability.at_least;
        }
        if line.starts_with("The provider states no count") {
            return offer.availability.nodes.is_none();
        }
        if let Some(age) = line.strip_prefix("Read ") {
            let (age, limit) = age
                .split_once(" ago; the limit is ")
                .expect("an age and a limit");
            let seconds = |text: &str| {
                let (count, unit) = text.split_once(' ').expect("a span");
                let unit = match unit {
                    "days" => 86_400,
                    "s" => 1,
                    "min" => 60,
                    "h" => 3_600,
                    other => panic!("{other}"),
                };
                (count.parse::<u64>().expect("a count") * unit, unit)
            };
            let within = |(said, unit): (u64, u64), is: u64| said <= is && is < said + unit;
            let is = (now() - offer.observed_at).num_seconds() as u64;
            return within(seconds(age), is)
                && within(seconds(limit), self.limit(offer).expect("one"));
        }
        if line.contains(" does not say which H100 it is: ") {
            return matches!(offer.gpu, GpuIdentity::FamilyOnly(_))
                && line.ends_with("planned as H100-PCIe, the least of them");
        }
        if line.starts_with("It cannot be ordered here") {
            return !offer.orderable;
        }
        if let Some(listed) = line.strip_prefix("Listed on ") {
            let date = offer.observed_at.format("%Y-%m-%d").to_string();
            return self.limit(offer).is_none() && listed.starts_with(&date);
        }
        if let Some((company, law)) = line.split_once(" operates it, under the law of ") {
            let operator = self.facts(offer).operator.as_ref();
            return operator.is_some_and(|one| one.company == company)
                && !self.lacks_operator(offer)
                && operator.is_some_and(|one| one.country.to_string() == law);
        }
        if let Some(told) = line.strip_prefix("It has ") {
            let (name, told) = told.split_once(" with evidence (").expect("a name");
            let (evidence, until) = told.split_once(") valid until ").expect("evidence");
            let until = until.parse().expect("a day");
            let mut known = self.facts(offer).certifications.iter();
            return !self.lacks_certification(offer)
                && known.any(|one| {
                    (one.name.as_str(), one.evidence.as_str()) == (name, evidence)
                        && one.valid_until == until
                });
        }
        panic!("nobody can check: {line}");
    }

    /// The facts on record of the operator of an offer.
    fn facts(&self, offer: &Offer) -> &ProviderFacts {
        facts_of(self.snapshot, offer).expect("an operator of whom something is known")
    }

    fn lacks_operator(&self, offer: &Offer) -> bool {
        let laws = self.listed("policy", "operator_countries");
        let facts = facts_of(self.snapshot, offer);
        let operator = facts.and_then(|facts| facts.operator.as_ref());
        let law = operator.map(|one| one.country.to_string().to_lowercase());
        !laws.is_empty() && law.is_none_or(|law| !laws.contains(&law))
    }

    fn lacks_certification(&self, offer: &Offer) -> bool {
        let facts = facts_of(self.snapshot, offer);
        let known = facts.map_or(&[][..], |facts| &facts.certifications);
        let hours = self.demand["window"]["duration_hours"].as_u64();
        let wanted = chrono::TimeDelta::hours(hours.map_or(0, |hours| hours as i64 + 24));
        let good = |name: &String| {
            let mut days = known.iter().filter(|one| one.name.as_str() == name);
            days.any(|one| one.valid_until >= (now() + wanted).date_naive())
        };
        !self.listed("policy", "certifications").iter().all(good)
    }

    /// Whether a reason for a refusal is true of the offer, regardless of other reasons.
    fn keeps_out(&self, code: ReasonCode, offer: &Offer) -> bool {
        use ReasonCode as R;
        let wanted = self.demand["gpu"].as_str().expect("a GPU");
        let rdma = matches!(
            offer.internode,
            Internode::InfinibandNdr400 | Internode::Roce400
        );
        let whole = offer.gpus.as_whole();
        let nodes = self.number("nodes") as u32;
        match code {
            R::Gpu => {
                wanted != "any" && offer.gpu.to_string() != wanted && offer.gpu.family() != wanted
            }
            R::GpusPerNode => whole.is_some_and(|gpus| u64::from(gpus) != self.number("count")),
            R::Fabric => nodes > 1 && self.demand["fabric"] == "rdma" && !rdma,
            R::Terms => {
                (offer.terms == Terms::Spot) != (self.demand["spot"] == true)
                    || offer.terms == Terms::Floor
            }
            R::NotEnoughNodes | R::Held => self.is_short(code, offer, nodes),
            R::Ceiling => {
                let node = offer.price_per_node_hour.units();
                let gpus = i64::from(whole.expect("whole"));
                (self.ceiling("usd_per_gpu_hour")).is_some_and(|most| node > most * gpus)
                    || (self.ceiling("usd_per_hour"))
                        .is_some_and(|most| node * i64::from(nodes) > most)
            }
            other => (self.rule_keeps_out(other, offer))
                .unwrap_or_else(|| panic!("{other} is no reason of GPUs")),
        }
    }

    /// A limit of the demand. Units: 1e-8 US dollars per hour.
    pub(super) fn ceiling(&self, field: &str) -> Option<i64> {
        let text = self.demand["ceiling"][field].as_str()?;
        Some(crate::samples::usd(text).units())
    }

    /// Whether so many nodes are not available, for this reason.
    pub(super) fn is_short(&self, code: ReasonCode, offer: &Offer, nodes: u32) -> bool {
        let stock = &offer.availability;
        let held = self.held(offer);
        let fewer = |than: u32| !stock.at_least && stock.nodes.is_some_and(|free| free < than);
        if code == ReasonCode::NotEnoughNodes {
            return fewer(nodes);
        }
        held > 0 && (stock.nodes.is_none() || fewer(nodes + held))
    }

    /// Whether a reason that any kind of demand may give is true of the offer; `None` of others.
    pub(super) fn rule_keeps_out(&self, code: ReasonCode, offer: &Offer) -> Option<bool> {
        use ReasonCode as R;
        let seller = offer.provider.to_string();
        Some(match code {
            R::NoPrice => offer.price_per_node_hour.units() <= 0,
            // Of an H100 each form is known, and only a demand for one of them asks which it is.
            R::GpuFormUnknown => {
                let exact = self.demand["gpu"]
                    .as_str()
                    .is_some_and(|gpu| gpu.contains('-'));
                // Of H100 the largest has more than is asked for, and the others less.
                let sized = self.demand["gpu_memory_gib"] == 90;
                (exact || sized) && matches!(offer.gpu, GpuIdentity::FamilyOnly(_))
            }
            R::GpuMemory => {
                let least = self.demand["gpu_memory_gib"].as_f64();
                let known = offer.gpu.known().map(|gpu| gpu.spec().memory_gb);
                known.zip(least).is_some_and(|(has, least)| has < least)
            }
            R::Host => {
                let less = |field: &str, has: Option<u32>| {
                    let least = self.demand[field].as_u64();
                    least.is_some_and(|least| has.is_none_or(|has| u64::from(has) < least))
                };
                less("vcpus", offer.vcpus) || less("host_memory_gib", offer.memory_gib)
            }
            R::Slice => offer.gpus.as_whole().is_none(),
            R::ProviderPolicy => {
                let allowed = self.listed("policy", "allow_providers");
                let denied = self.listed("policy", "deny_providers");
                denied.contains(&seller)
                    || denied.contains(&offer.particulars.operator.to_string())
                    || (!allowed.is_empty() && !allowed.contains(&seller))
            }
            R::Operator => self.lacks_operator(offer),
            R::Certification => self.lacks_certification(offer),
            R::Quarantined => {
                let view = self.snapshot.provider(&offer.provider);
                let quarantine = view.and_then(|view| view.quarantine.as_ref());
                quarantine.is_some_and(|one| now() < one.until)
            }
            R::Place => {
                let place = |text: Option<String>| text.unwrap_or_default().to_lowercase();
                let country = place(offer.place.country.map(|country| country.to_string()));
                let region = place(offer.place.region.clone());
                let elsewhere =
                    |named: Vec<String>, is: &String| !named.is_empty() && !named.contains(is);
                elsewhere(self.listed("places", "countries"), &country)
                    || elsewhere(self.listed("places", "regions"), &region)
            }
            R::PlaceUnknown => offer.place.country.is_none() || offer.place.region.is_none(),
            R::Tenancy => {
                let allowed = self.demand["tenancy"].as_array().expect("a list");
                !allowed.contains(&json!(offer.tenancy.as_str()))
            }
            R::Stale => {
                let age = (now() - offer.observed_at).num_seconds() as u64;
                self.snapshot.provider(&offer.provider).is_none()
                    || self
                        .limit(offer)
                        .map_or(offer.orderable, |limit| age > limit)
            }
            R::SoldOut => offer.availability.level == AvailabilityLevel::None,
            // These markets have no cool-downs: those are in `rests`.
            R::CoolingDown => false,
            _ => return None,
        })
    }

    /// Whether the words of a refusal name the figure of this very offer.
    pub(super) fn names_its_figure(&self, refused: &Refused, offer: &Offer) -> bool {
        use ReasonCode as R;
        let figure = match refused.reason {
            R::NoPrice => offer.price_per_node_hour.to_string(),
            R::Gpu | R::GpusPerNode => format!("{} x {}", offer.gpus, offer.gpu),
            R::GpuFormUnknown => offer.gpu.family().to_owned(),
            R::GpuMemory => offer.gpu.to_string(),
            R::Slice => offer.gpus.to_string(),
            R::Terms => offer.terms.to_string(),
            R::ProviderPolicy | R::Operator | R::Certification | R::Quarantined => {
                offer.provider.to_string()
            }
            R::Tenancy => offer.tenancy.to_string(),
            R::Stale if self.limit(offer).is_some() => {
                format!("{} s ago", (now() - offer.observed_at).num_seconds())
            }
            R::Ceiling => offer.rate().expect("a rate").to_string(),
            _ => return true,
        };
        refused.why.contains(&figure)
    }
}

/// For candidates without classes of machine.
pub(super) fn one_class(_: &Candidate) -> (u8, String) {
    (0, String::new())
}

/// Whether the first candidate explains its rank before a cheaper one. This checks the explanation, and that
/// it is present exactly where it must be. Runs use one class of machine or another.
#[track_caller]
pub(super) fn tells_its_tie(
    plan: &Plan,
    rank: impl Fn(&Candidate) -> Money,
    class: impl Fn(&Candidate) -> (u8, String),
) -> bool {
    let Some(first) = plan.candidates.first() else {
        return false;
    };
    let sure = |one: &Candidate| one.lines.iter().map(|line| sureness(&line.offer)).max();
    let least = plan.candidates.iter().map(&rank).min().expect("one");
    // Of several that cost the least, the others follow the surest.
    let is_cheapest = rank(first) == least;
    let Some(told) = first.reasons[0].strip_prefix("It costs ") else {
        assert!(is_cheapest, "{first:?}");
        return false;
    };
    let (more, told) = told
        .split_once(" % more than the cheapest, ")
        .expect("a share");
    let (name, told) = told.split_once(": up to 10 % is a tie").expect("a name");
    let units = |money: Money| money.units() as f64;
    let is = (units(rank(first)) / units(least).max(1.0) - 1.0) * 100.0;
    assert!(
        (more.parse::<f64>().expect("a share") - is).abs() < 0.051,
        "{told}: {is}"
    );
    assert!(is < 10.000_1);
    let named = |one: &&Candidate| {
        let of = |line: &crate::plan::CandidateLine| {
            format!("{} {}", line.offer.provider, line.offer.sku)
        };
        let mut names: Vec<_> = one.lines.iter().map(of).collect();
        let mut said: Vec<_> = name.split(" with ").map(str::to_owned).collect();
        names.sort();
        said.sort();
        rank(one) == least && names == said
    };
    let surer = |one: &Candidate| {
        let (own, other) = (sure(first).expect("a line"), sure(one).expect("a line"));
        let ages = [
            "within the hour",
            "within a day",
            "within a week",
            "within 30 days",
        ];
        let age = |past: usize| ages.get(past).copied().unwrap_or("more than 30 days ago");
        let (stands, beside) = (class(first), class(one));
        let words = if own.0 != other.0 {
            "this one can be ordered, that one cannot".to_owned()
        } else if stands.0 != beside.0 {
            format!("this one runs on {}, that one on {}", stands.1, beside.1)
        } else {
            format!(
                "this one was read {}, that one {}",
                age(own.1),
                age(other.1)
            )
        };
        (own.0, stands.0, own.1) < (other.0, beside.0, other.1) && told.ends_with(&words)
    };
    let mut cheapest = plan.candidates.iter().filter(named);
    assert!(cheapest.any(surer), "{told}: {plan:?}");
    true
}

proptest! {
    // S16
    #[test]
    fn every_reason_that_a_plan_gives_is_true_of_its_offer(
        (snapshot, held) in any_market(),
        shared in any_shared(),
        wanted in prop::sample::select(vec!["H100-SXM", "H100", "any"]),
        count in mostly(vec![8_u32], vec![1, 2]),
        nodes in 1_u32..4,
        fabric in mostly(vec![Value::Null], vec![json!("rdma")]),
        spot in prop::bool::weighted(0.1),
    ) {
        let fields = super::with(json!({"gpu": wanted, "count": count, "nodes": nodes, "fabric": fabric, "spot": spot}), shared);
        let options = SearchOptions { limit: 100, ..SearchOptions::default() };
        let plan = search(&snapshot, &demand("gpus", fields.clone()), &held, now(), &options).expect("a plan");
        let reader = Reader { snapshot: &snapshot, held: &held, demand: fields };
        let told = tells_its_tie(&plan, |one| one.cost_per_hour, one_class);
        for candidate in &plan.candidates {
            prop_assert!(candidate.reasons.len() >= 3);
            let told = told && candidate.rank == 1;
            for line in candidate.reasons.iter().skip(usize::from(told)) {
                let of = (&candidate.lines[0].offer, nodes);
                let cost = Some(candidate.cost_per_hour);
                prop_assert!(reader.is_true(line, of, cost), "{line}: {candidate:?}");
            }
            for code in ReasonCode::ALL {
                let other = matches!(
                    code,
                    ReasonCode::NotOrderable | ReasonCode::PlaceUnknown | ReasonCode::Tenancy
                );
                let of_models = (ReasonCode::Precision..=ReasonCode::Spread).contains(&code)
                    && code != ReasonCode::Fabric
                    || code == ReasonCode::CeilingUnproved;
                let of_gpus = !(other || of_models);
                let offer = &candidate.lines[0].offer;
                prop_assert!(!of_gpus || !reader.keeps_out(code, offer), "{code}: {offer:?}");
            }
        }
        for refused in &plan.refused {
            let offer = reader.offer(&refused.offer_id);
            prop_assert!(reader.keeps_out(refused.reason, &offer), "{refused:?}: {offer:?}");
            prop_assert!(reader.names_its_figure(refused, &offer), "{refused:?}: {offer:?}");
        }
    }
}
