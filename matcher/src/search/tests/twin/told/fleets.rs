//! What a plan of fleets says.

use proptest::prelude::*;

use super::super::market::{any_market, any_shared};
use super::super::with;
use super::*;

impl Reader<'_> {
    /// Whether a line of a fleet is true of it.
    fn is_true_of_fleet(&self, line: &str, candidate: &Candidate) -> bool {
        let (facts, lines) = (&candidate.facts, &candidate.lines);
        if line.starts_with("Whichever provider is lost") {
            return self.demand["survive"] == "provider" && self.survives(candidate);
        }
        if line.contains(" carries ") || line.contains(" carry ") {
            let copies = facts.replicas.expect("copies");
            let nodes: u32 = lines.iter().map(|one| one.nodes).sum();
            let full = facts.tokens_per_second.expect("a rate");
            let price = number(line, ": ", " USD per 1e6 output tokens at their full");
            let cost = dollars(Some(candidate.cost_per_hour)).expect("a cost");
            return line.starts_with(&format!("{copies} cop"))
                && number(line, " on ", " node") == f64::from(nodes)
                && shows(line, "at their full ", " tokens/s", Some(full))
                && (price * full * 3_600.0 / 1e6 - cost).abs() <= 0.0001 * full * 3_600.0 / 1e6
                && self.carries(line, full);
        }
        if lines.len() > 1 && line.starts_with("The warm buffer of 20 % is ") {
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
        if line.starts_with("A copy of ") {
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
                && shows(line, "a factor of ", " in four", facts.within_factor)
                && near(each, batch * 1e3 / wait, 1e-6)
                && self.demand["latency"]["per_token_ms"]
                    .as_f64()
                    .is_none_or(|most| wait <= most)
                && width(line) == facts.gpus_per_replica.expect("a width")
                && copies == f64::from(nodes * (gpus(offer) / width(line)))
                && self.is_true_of_part(line, (offer, nodes), None);
        }
        if line.starts_with("With one sequence a copy needs ") {
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
        if line.starts_with("The warm buffer of 20 % is ") {
            let kept = number(line, "20 % is ", " node");
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
        if line.starts_with("A copy of ") {
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

    /// Whether the load of the demand is told, and a rate is within four fifths of what is written.
    fn carries(&self, line: &str, tokens_per_second: f64) -> bool {
        if let Some(count) = self.demand["concurrency"].as_u64() {
            return line.contains(&format!(" {count} requests in flight"));
        }
        let rate = self.demand["requests_per_second"].as_f64().expect("a load");
        let tokens = rate * self.demand["output_tokens"].as_f64().expect("tokens");
        line.contains(&format!(" {rate} requests/s of "))
            && line.contains("planned at 80 % of")
            && tokens <= tokens_per_second * 0.8 * 1.000_001
    }

    /// Whether so many nodes at this price could be left out of a fleet that wrote all it can, and no
    /// dearer ones could.
    fn could_be_left_out(&self, line: &str, candidate: &Candidate) -> bool {
        let told: Vec<_> = (candidate.reasons.iter())
            .filter(|line| line.contains(": A copy of "))
            .collect();
        let of = |field: &str| self.demand[field].as_f64().expect("a number");
        let asked = of("requests_per_second") * of("output_tokens");
        let survives = self.demand.get("survive").is_some();
        let parts: Vec<_> = (candidate.lines.iter().zip(told))
            .map(|(one, line)| {
                let copies = f64::from(gpus(&one.offer) / width(line));
                let writes = number(line, "writes about ", " tokens/s") * copies;
                let rate = one.offer.rate().expect("a rate").money_per_gpu_hour();
                (one, writes, rate.units() * i64::from(gpus(&one.offer)))
            })
            .collect();
        let carries = |left: &[u32], slack: f64| {
            let written = |lost: Option<&str>| -> f64 {
                let standing = parts.iter().zip(left);
                standing
                    .filter(|((one, ..), _)| Some(one.offer.provider.as_str()) != lost)
                    .map(|((_, writes, _), nodes)| writes * f64::from(*nodes))
                    .sum()
            };
            let mut lost = parts
                .iter()
                .map(|(one, ..)| Some(one.offer.provider.as_str()));
            written(None) >= asked * slack
                && (!survives || lost.all(|lost| written(lost) >= asked * slack))
        };
        let (nodes, price) = (
            number(line, "20 % is ", " node") as u32,
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
            // Rates are told in whole tokens.
            possible |= out == nodes && saved == price && carries(&left, 0.999);
            if saved > dearest && carries(&left, 1.001) {
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

    /// Whether without any one provider the copies that are told of have room for the load.
    fn survives(&self, candidate: &Candidate) -> bool {
        let told = (candidate.reasons.iter()).filter(|line| line.contains(": A copy of "));
        let rooms: Vec<_> = (candidate.lines.iter().zip(told))
            .map(|(one, line)| {
                let copies = one.nodes * (gpus(&one.offer) / width(line));
                let each = match self.demand["concurrency"].as_u64() {
                    Some(_) => number(line, "batches of ", " on "),
                    None => number(line, "writes about ", " tokens/s") * 0.8,
                };
                (&one.offer.provider, each * f64::from(copies))
            })
            .collect();
        let need = self.demand["concurrency"].as_f64().unwrap_or_else(|| {
            let of = |field: &str| self.demand[field].as_f64().expect("a number");
            of("requests_per_second") * of("output_tokens")
        });
        // Rates are told in whole tokens.
        rooms.len() == candidate.lines.len()
            && rooms.iter().all(|(lost, _)| {
                let left = rooms.iter().filter(|(provider, _)| provider != lost);
                left.map(|(_, room)| room).sum::<f64>() >= need * 0.999
            })
    }
}

/// GPUs of the copy that a line tells of.
fn width(line: &str) -> u32 {
    let layout = line.split(" writes about ").next().expect("a layout");
    let layout = layout.split(" on ").nth(1).expect("a layout");
    let count = |text: &str| text.parse::<u32>().expect("a number");
    let words: Vec<_> = layout.split(' ').collect();
    match words.as_slice() {
        [stages, "stages", "of", tensor, ..] => count(stages) * count(tensor),
        [gpus, ..] => count(gpus),
        [] => panic!("no layout: {line}"),
    }
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
        limited in any::<bool>(),
        near in any::<bool>(),
    ) {
        let mut fields = json!({"model": "Llama 3 70B", "input_tokens": 512, "output_tokens": 256});
        if survive {
            fields["survive"] = json!("provider");
        }
        if limited {
            fields["latency"] = json!({"per_token_ms": 40.0, "first_token_ms": 1_500.0});
        }
        if near {
            fields["users"] = json!([{"country": "DE", "share": 1.0}]);
        }
        let fields = with(with(fields, load), shared);
        let plan = told(&fields, "serve_realtime", &market);
        let reader = Reader { snapshot: &market.0, held: &market.1, demand: fields };
        let told = tells_its_tie(&plan, |one| one.cost_per_hour, one_class);
        for candidate in &plan.candidates {
            prop_assert!(candidate.reasons.len() >= 5, "{candidate:?}");
            let told = told && candidate.rank == 1;
            let buffers = candidate.reasons.iter().filter(|line| line.contains("warm buffer"));
            let asked = reader.demand.get("requests_per_second").is_some();
            prop_assert_eq!(buffers.count(), usize::from(asked), "{:?}", candidate);
            for line in candidate.reasons.iter().skip(usize::from(told)) {
                prop_assert!(reader.is_true_of_fleet(line, candidate), "{line}: {candidate:?}");
            }
        }
        for refused in &plan.refused {
            prop_assert!(reader.is_true_of_refused("serve_realtime", refused), "{refused:?}");
        }
    }
}
