//! Why offers cannot serve for runs and fleets. It checks the words of each example against its offer, and
//! their nodes against the plan that would exist without that reason.

use market::fabric::Internode;
use market::offer::{Availability, Tenancy};

use super::*;
use crate::snapshot::OfferRef;

/// Parameters of the model that runs and fleets are of here.
const PARAMETERS: f64 = 70.6e9;

/// The rounding error of the largest of these figures, which are shown without decimal places.
const SHOWN: f64 = 0.5;

impl Reader<'_> {
    /// Whether an example of a refusal for a run or a fleet is true in its reason and its words.
    pub(super) fn is_true_of_refused(&self, kind: &str, refused: &Refused) -> bool {
        use ReasonCode as R;
        let offer = self.offer(&refused.offer_id);
        let (why, code) = (refused.why.as_str(), refused.reason);
        if (&offer.provider, &offer.sku) != (&refused.provider, &refused.sku) {
            return false;
        }
        if code == R::Certification && kind == "train" && self.outlasts_evidence(why, &offer) {
            return true;
        }
        if let Some(true_of_it) = self.rule_keeps_out(code, &offer) {
            return true_of_it && self.names_its_figure(refused, &offer);
        }
        match code {
            R::Terms => {
                offer.terms != Terms::OnDemand
                    && why
                        == format!(
                            "It is sold as {}; the demand asks for on_demand",
                            offer.terms
                        )
            }
            R::GpusDoNotDivide => {
                let wanted = self.demand["gpus"].as_u64().expect("a number") as u32;
                number(why, "", " GPU") == f64::from(wanted)
                    && number(&format!("{why};"), "nodes of ", ";") == f64::from(gpus(&offer))
                    && !wanted.is_multiple_of(gpus(&offer))
            }
            R::GangTenancy => {
                !matches!(offer.tenancy, Tenancy::BareMetal | Tenancy::Vm)
                    && why.contains(offer.tenancy.as_str())
                    && self.needs_several(&offer)
            }
            R::GangNode => {
                let form = &spec(&offer).node_form;
                let board = form.contains("HGX") || form.contains("OAM");
                (gpus(&offer) < 4 || !board)
                    && why.contains(&format!("{} x {}", offer.gpus, offer.gpu))
            }
            R::Fabric => {
                let allowed = self.demand["policy"]["allow_ethernet"] == true
                    && offer.internode == Internode::Ethernet;
                !offer.internode.is_rdma()
                    && !allowed
                    && why.contains(&format!("`{}`", offer.internode))
                    && self.needs_several(&offer)
            }
            R::Memory if kind == "train" => self.lacks_memory_to_train(why, &offer),
            R::Memory => {
                let fills = number(&format!("{why};"), "may fill ", " GB;");
                let needs = number(why, "needs ", " GB");
                number(why, "GB; ", " x ") == f64::from(gpus(&offer))
                    && number(why, " x ", " GB") == spec(&offer).memory_gb
                    && needs > fills - 0.1
                    && needs >= 2.0 * PARAMETERS / 1e9
                    && fills < spec(&offer).memory_gb * f64::from(gpus(&offer)) * 1.08
            }
            R::Deadline => {
                let left = number(why, "hours; ", " hours are left");
                let wanted = self.demand["window"]["duration_hours"].as_f64();
                let nodes = number(why, "On ", " node");
                let settled = self.demand["gpus"].as_u64();
                left == wanted.expect("a window")
                    && number(why, "takes about ", " hours") > left - SHOWN
                    && settled.is_none_or(|all| all as f64 == nodes * f64::from(gpus(&offer)))
                    && settled.is_none() == why.ends_with("no number of nodes is fast enough")
            }
            R::Latency => self.is_slow(why, &offer),
            R::Spread => {
                why.contains(&format!("Without {}, ", offer.provider)) && !self.could_survive()
            }
            R::NotEnoughNodes | R::Held => self.is_short_by(code, why, kind, &offer),
            R::Ceiling => self.is_above(why, kind, &offer),
            other => panic!("nobody can check {other}: {why}"),
        }
    }

    /// Whether the words describe a run that ends after the certificates of its provider, and it does.
    fn outlasts_evidence(&self, why: &str, offer: &Offer) -> bool {
        let Some((lasts, told)) = why.split_once(", and it is wanted until ") else {
            return false;
        };
        let Some((end, nodes)) = told.split_once(", when the run is predicted to be done on ")
        else {
            return false;
        };
        let (_, lasts) = lasts.rsplit_once(" valid until ").expect("a day");
        let day = |text: &str| -> chrono::NaiveDate { text[..10].parse().expect("a day") };
        let mut fields = self.demand.clone();
        fields["policy"] = json!({"allow_ethernet": fields["policy"]["allow_ethernet"] == true});
        let whoever = Reader {
            snapshot: self.snapshot,
            held: self.held,
            demand: fields,
        };
        let nodes: u32 = figure(nodes, "", " node").parse().expect("a number");
        let run = whoever.alone_with("train", offer, Availability::exactly(nodes));
        let hours = run.and_then(|run| run.facts.run_hours).expect("a run");
        let done = now() + chrono::TimeDelta::seconds((hours * 3_600.0).ceil() as i64);
        self.demand["window"].is_null()
            && self.demand["deadline"].is_null()
            && why.contains(offer.provider.as_str())
            && day(end) > day(lasts)
            && done.date_naive() == day(end)
    }

    /// The offer as the best candidate for the same demand without holds, with plenty of nodes, without a
    /// ceiling and without a loss to survive.
    fn alone(&self, kind: &str, offer: &Offer) -> Option<Candidate> {
        self.alone_with(kind, offer, Availability::PRESENT)
    }

    /// The fewest nodes of it with which it would be one.
    fn fewest(&self, kind: &str, offer: &Offer) -> Option<u32> {
        let most = self.alone(kind, offer)?.nodes();
        (1..=most).find(|nodes| {
            let alone = self.alone_with(kind, offer, Availability::exactly(*nodes));
            alone.is_some()
        })
    }

    fn alone_with(
        &self,
        kind: &str,
        offer: &Offer,
        availability: Availability,
    ) -> Option<Candidate> {
        let mut fields = self.demand.clone();
        let object = fields.as_object_mut().expect("an object");
        object.remove("ceiling");
        object.remove("survive");
        let offer = Offer {
            availability,
            ..offer.clone()
        };
        self.snapshot.provider(&offer.provider)?;
        let known =
            |id: &market::ids::ProviderId| Some((id.clone(), self.snapshot.provider(id)?.clone()));
        let sellers = ["a", "b", "c", "d"].map(crate::samples::provider);
        let views = sellers.iter().filter_map(known).collect();
        let market = (Snapshot::new(1, now(), [offer], views), Held::new());
        told(&fields, kind, &market).candidates.pop()
    }

    /// Whether a run uses several nodes of an offer, here one that may be used in a gang. True where no run
    /// is in time, since then the number is unknown.
    fn needs_several(&self, offer: &Offer) -> bool {
        if let Some(all) = self.demand["gpus"].as_u64() {
            return all > u64::from(gpus(offer));
        }
        let gang = Offer {
            tenancy: Tenancy::BareMetal,
            internode: Internode::InfinibandNdr400,
            ..offer.clone()
        };
        let taken = self.alone("train", &gang);
        taken.is_none_or(|one| one.nodes() > 1)
    }

    fn lacks_memory_to_train(&self, why: &str, offer: &Offer) -> bool {
        let (state, each) = (
            number(why, "needs ", " GB of state"),
            number(why, "state and ", " GB on each GPU"),
        );
        let (count, fills) = (
            number(why, "each GPU; ", " x "),
            number(&format!("{why};"), "may fill ", " GB;"),
        );
        let settled = self.demand["gpus"].as_u64().map(|all| all as f64);
        let memory = spec(offer).memory_gb;
        // A GPU that is full of activations holds no state, however many GPUs there are.
        let full = each > fills / count - 0.1;
        number(why, " x ", " GB may") == memory
            && count == settled.unwrap_or(f64::from(gpus(offer)))
            && fills < memory * count
            && state >= 12.0 * PARAMETERS / 1e9
            && (full || (settled.is_some() && state + each * count > fills - 2.0 * SHOWN))
    }

    fn is_slow(&self, why: &str, offer: &Offer) -> bool {
        let latency = &self.demand["latency"];
        let (first, other) = (
            latency["first_token_ms"].as_f64().expect("a limit"),
            latency["per_token_ms"].as_f64().expect("a limit"),
        );
        let (waits, allowed) = why.split_once("; the objective allows ").expect("limits");
        let network = if waits.contains("for the network") {
            number(waits, "first token, ", " ms for the network")
        } else {
            0.0
        };
        let waits_first = number(waits, "request waits ", " ms") + network;
        let waits_other = number(waits, " and ", " ms for each later token");
        let mean = number(
            allowed,
            "included and ",
            " ms for each later token on average",
        );
        let widest = number(why, "On ", " x ");
        widest <= f64::from(gpus(offer))
            && widest * 2.0 > f64::from(gpus(offer))
            && why.contains(&format!(" x {} even", offer.gpu))
            && number(allowed, "", " ms for the first token") == first
            && mean > 0.5 * other
            && mean <= other
            && (waits_first > first - 2.0 * SHOWN || waits_other > mean - 0.1)
    }

    fn is_short_by(&self, code: ReasonCode, why: &str, kind: &str, offer: &Offer) -> bool {
        let Some(needed) = self.fewest(kind, offer) else {
            // More nodes than any candidate has.
            return why == code.meaning();
        };
        let held = self.held(offer);
        let stock = match offer.availability.nodes {
            Some(free) => format!("the provider has {free}, of which {held} are held"),
            None => format!("{held} are held, and the provider publishes no count"),
        };
        number(why, "", " node") == f64::from(needed)
            && why.ends_with(&stock)
            && self.is_short(code, offer, needed)
    }

    /// Whether a refused offer has the cost in the words, and that is above the ceiling.
    fn is_above(&self, why: &str, kind: &str, offer: &Offer) -> bool {
        let amount = |before, after| crate::samples::usd(figure(why, before, after)).units();
        let rate = offer.rate().expect("a rate").money_per_gpu_hour().units();
        if why.starts_with("It costs ") {
            let ceiling = self.ceiling("usd_per_gpu_hour");
            let told = amount("; the ceiling is ", " USD per GPU-hour");
            return amount("It costs ", " USD per GPU-hour") == rate
                && Some(told) == ceiling
                && rate > told;
        }
        let ceiling = self.ceiling("usd_per_hour");
        let told = amount("; the ceiling is ", " USD per hour");
        let survives = self.demand.get("survive").is_some();
        if why.starts_with("The cheapest fleet found costs ") {
            let cost = amount("found costs ", " USD per hour");
            let least = if why.contains("and none less: proved") {
                cost
            } else {
                amount("and none less than ", ": proved")
            };
            return survives
                && Some(told) == ceiling
                && told < least
                && least <= cost
                && self.survivor_costs() == Some(cost);
        }
        let nodes = number(why, "", " node") as i64;
        let cost = amount(" USD per GPU-hour cost", " USD per hour");
        let wanted = match survives {
            true => Some(1),
            false => self.fewest(kind, offer).map(i64::from),
        };
        Some(nodes) == wanted
            && amount(" at ", " USD per GPU-hour") == rate
            && cost == nodes * i64::from(gpus(offer)) * rate
            && Some(told) == ceiling
            && cost > told
    }

    /// The cost of the cheapest fleet that survives, without a ceiling.
    fn survivor_costs(&self) -> Option<i64> {
        let mut fields = self.demand.clone();
        fields.as_object_mut().expect("an object").remove("ceiling");
        let market = self.snapshot.offers().map(OfferRef::to_offer);
        // An offer is no part if one node of it costs more than the ceiling.
        let most = self.ceiling("usd_per_hour").expect("a limit");
        let market = market.filter(|one| one.price_per_node_hour.units() <= most);
        let views = ["a", "b", "c", "d"].map(crate::samples::provider);
        let views = views.map(|word| {
            let view = self.snapshot.provider(&word).expect("known").clone();
            (word, view)
        });
        let market = Snapshot::new(1, now(), market, views.into());
        let plan = told(&fields, "serve_realtime", &(market, self.held.clone()));
        let costs = plan.candidates.iter().map(|one| one.cost_per_hour.units());
        costs.min()
    }

    /// Whether the whole market carries the load without any one provider.
    fn could_survive(&self) -> bool {
        let mut rooms: BTreeMap<String, f64> = BTreeMap::new();
        let mut need = f64::INFINITY;
        for offer in self.snapshot.offers().map(OfferRef::to_offer) {
            let Some(one) = self.alone("serve_realtime", &offer) else {
                continue;
            };
            let node = i64::from(gpus(&offer)) * one.rate.money_per_gpu_hour().units();
            let dear = |field, sum: i64| self.ceiling(field).is_some_and(|most| sum > most);
            let rate = one.rate.money_per_gpu_hour().units();
            if dear("usd_per_gpu_hour", rate) || dear("usd_per_hour", node) {
                continue;
            }
            let (facts, held) = (&one.facts, self.held(&offer));
            let free = match offer.availability.nodes {
                _ if offer.availability.level == market::offer::AvailabilityLevel::None => 0,
                None if held > 0 => 0,
                Some(free) if !offer.availability.at_least => free.saturating_sub(held),
                _ => 10_000,
            };
            let copies = f64::from(facts.replicas.expect("copies") / one.nodes());
            let (each, wanted) = match self.demand["concurrency"].as_f64() {
                Some(count) => (facts.sequences_per_replica.expect("a batch").floor(), count),
                None => {
                    let all = facts.tokens_per_second.expect("a rate") * 0.8;
                    let of = |field: &str| self.demand[field].as_f64().expect("a number");
                    let asked = of("requests_per_second") * of("output_tokens");
                    (all / f64::from(facts.replicas.expect("copies")), asked)
                }
            };
            need = wanted * self.demand["growth"].as_f64().unwrap_or(1.0);
            *rooms.entry(offer.provider.to_string()).or_default() +=
                each * copies * f64::from(free);
        }
        let all: f64 = rooms.values().sum();
        let most = rooms.values().copied().fold(0.0, f64::max);
        all - most >= need * 1.000_001
    }
}
