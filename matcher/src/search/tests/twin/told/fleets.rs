//! Checks the reasons of a plan of fleets.

use proptest::prelude::*;

use super::super::market::{any_market, any_shared};
use super::super::with;
use super::*;
use crate::plan::Facts;

impl Reader<'_> {
    /// Whether a line of a fleet is true of it.
    fn is_true_of_fleet(&self, line: &str, candidate: &Candidate) -> bool {
        let (facts, lines) = (&candidate.facts, &candidate.lines);
        if line.starts_with("If any one provider is lost") {
            return self.demand["survive"] == "provider" && self.survives(candidate);
        }
        if line.contains(" carries ") || line.contains(" carry ") {
            let copies = facts.replicas.expect("copies");
            let nodes: u32 = lines.iter().map(|one| one.nodes).sum();
            let full = facts.tokens_per_second.expect("a rate");
            let price = number(line, ": ", " USD per 1e6 output tokens at their full");
            let cost = dollars(Some(candidate.cost_per_hour)).expect("a cost");
            return line.starts_with(&format!("{copies} replica"))
                && number(line, " on ", " node") == f64::from(nodes)
                && shows(line, "at their full ", " tokens/s", Some(full))
                && (price * full * 3_600.0 / 1e6 - cost).abs() <= 0.0001 * full * 3_600.0 / 1e6
                && self.carries(line, facts);
        }
        if let Some(wait) = line.strip_prefix("Simulated, ") {
            return self.waits(wait, facts);
        }
        if line.starts_with("It is planned at ") {
            return self.is_planned_wider(line, candidate);
        }
        if line.starts_with("It meets the objective in the simulation: ") {
            return is_beside_dearer(line, candidate);
        }
        if line.starts_with("It meets the objective in the simulation, and so ranks before ") {
            return facts.meets_objective == Some(true);
        }
        if line.starts_with("Planned at less, ") {
            return facts.meets_objective == Some(false);
        }
        if line.starts_with("No warm buffer is planned") {
            return facts.planned_share == Some(1.0) && self.demand.get("concurrency").is_some();
        }
        if lines.len() > 1 && self.kept_free(line, facts).is_some() {
            return self.could_be_left_out(line, candidate);
        }
        if line.starts_with("No fleet of the ") || line.starts_with("The best found of the ") {
            let offers = number(line, " the ", " offer");
            return lines.len() as f64 <= offers && offers <= self.snapshot.len() as f64;
        }
        if lines.len() > 1 || self.demand.get("survive").is_some() {
            let of = lines.iter().find_map(|one| {
                let name = format!("{} {}: ", one.offer.provider, one.offer.sku);
                Some((one, line.strip_prefix(&name)?))
            });
            let Some((_, line)) = of else {
                panic!("nobody can check: {line}")
            };
            // Several offers may have one name; one of them is meant.
            return lines
                .iter()
                .any(|one| self.is_true_of_part(line, (&one.offer, one.nodes), None));
        }
        let (offer, nodes) = (&lines[0].offer, lines[0].nodes);
        let copies = f64::from(facts.replicas.expect("copies"));
        if line.starts_with("A replica of ") {
            let each = facts.tokens_per_second.expect("a rate") / copies;
            let batch = facts.sequences_per_replica.expect("a batch");
            let wait = facts.per_token_ms.expect("a time");
            let first = facts
                .first_token_ms
                .zip(Some(facts.network_ms.unwrap_or(0.0)));
            return shows(line, "about ", " tokens/s", Some(each))
                && shows(line, "batches of ", " on ", Some(batch.floor().max(1.0)))
                && shows(line, ": ", " ms per token", Some(wait))
                && shows(
                    line,
                    "token, ",
                    " ms to",
                    first.map(|(ms, network)| ms - network),
                )
                && is_interval(line, each, facts.within_factor)
                && near(each, batch * 1e3 / wait, 1e-6)
                && self.demand["latency"]["per_token_ms"]
                    .as_f64()
                    .is_none_or(|most| wait <= most)
                && width(line) == facts.gpus_per_replica.expect("a width")
                && copies == f64::from(nodes * (gpus(offer) / width(line)))
                && self.is_true_of_part(line, (offer, nodes), None);
        }
        if line.starts_with("With one sequence a replica needs ") {
            let (needs, fills) = (facts.memory_needed_gb, facts.memory_available_gb);
            let width = f64::from(facts.gpus_per_replica.expect("a width"));
            let fewest = number(line, "there; ", " would hold it");
            let of_one = fills.expect("bytes") / width;
            let needed = needs.expect("bytes");
            return shows(line, "needs ", " GB of", needs)
                && shows(line, "of the ", " GB that", fills)
                && of_one < spec(offer).memory_gb * 1.08
                && needed <= of_one * width
                && fewest <= width
                && needed <= of_one * fewest
                && (fewest == 1.0 || needed > of_one * fewest / 2.0);
        }
        if self.kept_free(line, facts).is_some() {
            let kept = number(line, " is ", " node");
            let rate = candidate.rate.money_per_gpu_hour().units();
            let each = rate * i64::from(gpus(offer));
            let price = Money::usd_units(each * kept as i64);
            return kept < f64::from(nodes) && line.contains(&format!(", {price} USD per hour"));
        }
        if line.starts_with("The network takes ") {
            return shows(line, "takes ", " ms", facts.network_ms);
        }
        self.is_true_of_part(line, (offer, nodes), Some(candidate.cost_per_hour))
    }

    /// Whether a line of one offer of a fleet is true of it.
    fn is_true_of_part(
        &self,
        line: &str,
        (offer, nodes): (&Offer, u32),
        cost_per_hour: Option<Money>,
    ) -> bool {
        if line.starts_with("A replica of ") {
            let engine = figure(line, " on ", ":").rsplit(' ').next();
            let amd = offer.gpu.to_string().starts_with("MI");
            return gpus(offer).is_multiple_of(width(line))
                && engine == Some(if amd { "vLLM" } else { "TensorRT-LLM" });
        }
        if line.starts_with("The network takes ") {
            return self.demand.get("users").is_some();
        }
        if line.starts_with("Its price pays for ") {
            let paid = figure(line, "pays for ", " between");
            return offer.internode.is_rdma() && paid == offer.internode.to_string();
        }
        if line.starts_with("No serving on ") {
            return line.contains(&offer.gpu.to_string()) && offer.gpu.to_string() != "H100-SXM";
        }
        self.is_true(line, (offer, nodes), cost_per_hour)
    }

    fn growth(&self) -> f64 {
        self.demand["growth"].as_f64().unwrap_or(1.0)
    }

    /// Whether the line contains the load of the demand, and a rate is within the planned share of the
    /// written tokens.
    fn carries(&self, line: &str, facts: &Facts) -> bool {
        let (growth, share) = (self.growth(), facts.planned_share.expect("a share"));
        let grown = format!(", x {growth} for growth");
        let percent = format!("planned at {:.0} % of", share * 100.0);
        let told = line.contains(&grown) == (growth != 1.0)
            && line.contains(&percent) == line.contains("planned at ");
        if let Some(count) = self.demand["concurrency"].as_u64() {
            return told && line.contains(&format!(" {count} requests in flight"));
        }
        let rate = self.demand["requests_per_second"].as_f64().expect("a load");
        let tokens = rate * growth * self.demand["output_tokens"].as_f64().expect("tokens");
        told && line.contains(&format!(" {rate} requests/s of "))
            && line.contains(&percent)
            && tokens <= facts.tokens_per_second.expect("a rate") * share * 1.000_001
    }

    /// Whether the latencies of slow requests equal the facts, and the verdict fits the demand.
    fn waits(&self, line: &str, facts: &Facts) -> bool {
        let tails = [
            (
                facts.percentile.expect("a percentile"),
                facts.first_token_tail_ms,
                facts.per_token_tail_ms,
            ),
            (95.0, facts.first_token_p95_ms, facts.per_token_p95_ms),
            (99.0, facts.first_token_p99_ms, facts.per_token_p99_ms),
        ];
        let [asked, p95, p99] = tails;
        let limit = |field: &str| self.demand["latency"][field].as_f64();
        let (first, further) = (limit("first_token_ms"), limit("per_token_ms"));
        let within =
            |tail: Option<f64>, limit: Option<f64>| limit.is_none_or(|most| tail <= Some(most));
        let meets = within(asked.1, first) && within(asked.2, further);
        let verdict = (first.is_some() || further.is_some()).then_some(meets);
        let words = match verdict {
            None => "",
            Some(true) => "; that meets the objective",
            Some(false) => "; that misses the objective",
        };
        let parts: Vec<_> = line.split("; ").collect();
        let of = |percentile: f64, (first, further): (Option<f64>, Option<f64>)| {
            let before = format!("{percentile} % at most ");
            let part = parts.iter().find_map(|part| part.strip_prefix(&before));
            part.is_some_and(|part| {
                let part = format!(" {part}.");
                shows(&part, " ", " ms and", first) && shows(&part, "and ", " ms.", further)
            })
        };
        let quick = if self.demand.get("users").is_some() {
            "network and queueing"
        } else {
            "queueing"
        };
        asked.0 == limit("percentile").unwrap_or(95.0)
            && line.starts_with(&format!("{} % of requests wait at most ", asked.0))
            && line.contains(&format!("first token, {quick} included, and "))
            && shows(line, "at most ", " ms for their first token", asked.1)
            && shows(line, "included, and ", " ms for each later token", asked.2)
            && facts.meets_objective == verdict
            && line.contains("the objective") == verdict.is_some()
            && line.contains(words)
            && p95.1 <= p99.1
            && p95.2 <= p99.2
            && [p95, p99].iter().all(|tail| {
                let same = tail.0 == asked.0;
                if same {
                    *tail == asked
                } else {
                    of(tail.0, (tail.1, tail.2))
                }
            })
    }

    /// Whether a fleet that is planned at a smaller share than others names the share, and meets the
    /// objective.
    fn is_planned_wider(&self, line: &str, candidate: &Candidate) -> bool {
        let facts = &candidate.facts;
        let first = match self.demand.get("concurrency") {
            Some(_) => 1.0,
            None => 0.8,
        };
        let percent = |share: Option<f64>| share.map(|share| share * 100.0);
        is_beside_dearer(line, candidate)
            && facts.planned_share < Some(first)
            && shows(
                line,
                "planned at ",
                " % of its",
                percent(facts.planned_share),
            )
            && shows(line, ": at ", " % ", percent(Some(first)))
    }

    /// The part of the load that a fleet would have to carry without the spare capacity of a line; `None` for
    /// other lines.
    fn kept_free(&self, line: &str, facts: &Facts) -> Option<f64> {
        let share = facts.planned_share?;
        let free = format!("The warm buffer of {:.0} % is ", (1.0 - share) * 100.0);
        if line.starts_with(&free) {
            return Some(share);
        }
        let room = format!("The room to grow x {} is ", self.growth());
        line.starts_with(&room).then(|| 1.0 / self.growth())
    }

    /// Whether a fleet at full capacity could do without so many nodes at this price, and without no more
    /// expensive ones.
    fn could_be_left_out(&self, line: &str, candidate: &Candidate) -> bool {
        let told: Vec<_> = (candidate.reasons.iter())
            .filter(|line| line.contains(": A replica of "))
            .collect();
        let facts = &candidate.facts;
        let share = facts.planned_share.expect("a share");
        let without = self.kept_free(line, facts).expect("what is kept free");
        let of = |field: &str| self.demand[field].as_f64();
        let in_flight = of("concurrency");
        let load = in_flight.unwrap_or_else(|| {
            let rate = of("requests_per_second").zip(of("output_tokens"));
            rate.map(|(rate, tokens)| rate * tokens).expect("a load")
        });
        // A share of the written tokens, or of the slots in batches.
        let asked = load * self.growth() * without / share;
        let survives = self.demand.get("survive").is_some();
        let parts: Vec<_> = (candidate.lines.iter().zip(told))
            .map(|(one, line)| {
                let copies = f64::from(gpus(&one.offer) / width(line));
                let each = match in_flight {
                    Some(_) => number(line, "batches of ", " on "),
                    None => number(line, "writes about ", " tokens/s"),
                };
                let rate = one.offer.rate().expect("a rate").money_per_gpu_hour();
                let price = rate.units() * i64::from(gpus(&one.offer));
                (one, (each, copies), price)
            })
            .collect();
        // Rates are shown in whole tokens; slots are whole.
        let rounded = if in_flight.is_some() { 0.0 } else { 0.5 };
        let carries = |left: &[u32], slack: f64, off: f64| {
            let written = |lost: Option<&str>| -> f64 {
                let standing = parts.iter().zip(left);
                standing
                    .filter(|((one, ..), _)| Some(one.offer.provider.as_str()) != lost)
                    .map(|((_, (each, copies), _), nodes)| {
                        (each + off) * copies * f64::from(*nodes)
                    })
                    .sum()
            };
            let mut lost = parts
                .iter()
                .map(|(one, ..)| Some(one.offer.provider.as_str()));
            written(None) >= asked * slack
                && (!survives || lost.all(|lost| written(lost) >= asked * slack))
        };
        let (nodes, price) = (
            number(line, " is ", " node") as u32,
            crate::samples::usd(figure(line, "of them, ", " USD per hour")).units(),
        );
        let (mut possible, mut dearest) = (false, 0);
        let mut left: Vec<u32> = vec![0; parts.len()];
        loop {
            let out = parts.iter().zip(&left).map(|((one, _, each), left)| {
                let out = one.nodes - left;
                (out, each * i64::from(out))
            });
            let (out, saved) = out.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
            possible |= out == nodes && saved == price && carries(&left, 0.999, rounded);
            if saved > dearest && carries(&left, 1.001, -rounded) {
                dearest = saved;
            }
            let Some(at) = (0..left.len()).find(|at| left[*at] < parts[*at].0.nodes) else {
                break;
            };
            left[at] += 1;
            left[..at].fill(0);
        }
        possible && dearest <= price
    }

    /// Whether the listed replicas have room for the load without any one provider.
    fn survives(&self, candidate: &Candidate) -> bool {
        let told = (candidate.reasons.iter()).filter(|line| line.contains(": A replica of "));
        let rooms: Vec<_> = (candidate.lines.iter().zip(told))
            .map(|(one, line)| {
                let copies = one.nodes * (gpus(&one.offer) / width(line));
                let each = match self.demand["concurrency"].as_u64() {
                    Some(_) => number(line, "batches of ", " on "),
                    None => number(line, "writes about ", " tokens/s"),
                };
                let share = candidate.facts.planned_share.expect("a share");
                (&one.offer.provider, each * share * f64::from(copies))
            })
            .collect();
        let need = self.demand["concurrency"].as_f64().unwrap_or_else(|| {
            let of = |field: &str| self.demand[field].as_f64().expect("a number");
            of("requests_per_second") * of("output_tokens")
        });
        let need = need * self.growth();
        // Rates are shown in whole tokens.
        rooms.len() == candidate.lines.len()
            && rooms.iter().all(|(lost, _)| {
                let left = rooms.iter().filter(|(provider, _)| provider != lost);
                left.map(|(_, room)| room).sum::<f64>() >= need * 0.999
            })
    }
}

/// GPUs of the replica in a line.
fn width(line: &str) -> u32 {
    let layout = line.split(" writes about ").next().expect("a layout");
    let layout = layout.split(" on ").nth(1).expect("a layout");
    let gpus = layout.split(' ').next().expect("a number");
    let gpus = gpus.parse().expect("a number");
    let degrees = layout.split_once("(TP ").map_or(1, |(_, degrees)| {
        let degrees = degrees.trim_end_matches(')').split(" x PP ");
        degrees
            .map(|degree| degree.parse::<u32>().expect("a number"))
            .product()
    });
    assert_eq!(degrees, gpus, "{line}");
    gpus
}

/// Whether a fleet meets the objective, and those that were simulated first and meet it cost more.
fn is_beside_dearer(line: &str, candidate: &Candidate) -> bool {
    let dearer = !line.contains("meets the objective costs ")
        || crate::samples::usd(figure(line, "objective costs ", " USD")) > candidate.cost_per_hour;
    dearer
        && candidate.facts.meets_objective == Some(true)
        && line.ends_with(&format!("this one costs {}", candidate.cost_per_hour))
}

proptest! {
    // S16
    #[test]
    fn every_reason_of_a_fleet_is_true_of_it(
        market in any_market(),
        shared in any_shared(),
        load in prop_oneof![
            (1_u32..600).prop_map(|count| json!({"concurrency": count})),
            (1_u32..60).prop_map(|rate| json!({"requests_per_second": rate})),
        ],
        survive in prop::bool::weighted(0.3),
        limit in prop::option::of(prop::sample::select(vec![60.0, 300.0, 1_500.0])),
        percentile in prop::option::of(prop::sample::select(vec![90.0, 95.0, 99.0])),
        growth in prop::option::weighted(0.3, prop::sample::select(vec![1.3, 2.0])),
        near in any::<bool>(),
        simulated in prop::sample::select(vec![0_usize, 3]),
    ) {
        let mut fields = json!({"model": "Llama 3 70B", "input_tokens": 512, "output_tokens": 256});
        if survive {
            fields["survive"] = json!("provider");
        }
        if let Some(limit) = limit {
            fields["latency"] = json!({"per_token_ms": 40.0, "first_token_ms": limit});
        }
        if let Some(percentile) = percentile {
            fields["latency"]["percentile"] = json!(percentile);
        }
        if let Some(growth) = growth {
            fields["growth"] = json!(growth);
        }
        if near {
            fields["users"] = json!([{"country": "DE", "share": 1.0}]);
        }
        let fields = with(with(fields, load), shared);
        let plan = told_simulated(&fields, "serve_realtime", &market, simulated);
        let reader = Reader { snapshot: &market.0, held: &market.1, demand: fields };
        let mut plan = plan;
        // A fleet with more spare capacity is beside the others, and ties with none.
        let wider = |one: &Candidate| one.reasons[0].starts_with("It is planned at ");
        let at = plan.candidates.iter().position(wider);
        let more = at.map(|at| plan.candidates.remove(at));
        // Fleets that meet the objective come before ties.
        let moved = plan.candidates.iter().any(|one| one.reasons[0].starts_with("It meets the objective"));
        let told = !moved && tells_its_tie(&plan, |one| one.cost_per_hour, one_class);
        for candidate in more.iter().chain(&plan.candidates) {
            prop_assert!(candidate.reasons.len() >= 5, "{candidate:?}");
            let has = |words: &str| candidate.reasons.iter().filter(|line| line.contains(words)).count();
            prop_assert_eq!(has("warm buffer"), 1, "{:?}", candidate);
            prop_assert_eq!(has("room to grow"), usize::from(growth.is_some()), "{:?}", candidate);
            prop_assert_eq!(has("Simulated"), usize::from(candidate.facts.percentile.is_some()));
            for line in &candidate.reasons {
                let ties = (told || moved) && line.starts_with("It costs ");
                prop_assert!(ties || reader.is_true_of_fleet(line, candidate), "{line}: {candidate:?}");
            }
        }
        for refused in &plan.refused {
            prop_assert!(reader.is_true_of_refused("serve_realtime", refused), "{refused:?}");
        }
    }
}
