//! Checks the reasons of a plan of training runs.

use proptest::prelude::*;

use super::super::market::{any_market, any_shared};
use super::super::with;
use super::*;
use crate::plan::Facts;

/// Parameters of the model that is trained here.
const PARAMETERS: f64 = 70.6e9;

impl Reader<'_> {
    /// Whether a line of a run is true of it.
    fn is_true_of_run(&self, line: &str, candidate: &Candidate) -> bool {
        let [of] = candidate.lines.as_slice() else {
            panic!("a run of several offers")
        };
        let (offer, nodes, facts) = (&of.offer, of.nodes, &candidate.facts);
        let all = nodes * gpus(offer);
        let machine = [
            "Bare metal",
            "Virtual machines",
            "Containers",
            "A managed cluster",
        ]
        .into_iter()
        .zip(["bare_metal", "vm", "container", "managed"])
        .find(|(words, _)| line.starts_with(&format!("{words}: ")));
        if let Some((_, tenancy)) = machine {
            let joined = format!("its nodes are connected by {}", offer.internode);
            let fabric = match (nodes, offer.internode.is_rdma()) {
                (1, _) => line.ends_with("one node, so no fabric is crossed"),
                (_, true) => line.ends_with(&format!("{joined} (RDMA)")),
                (_, false) => {
                    line.ends_with(&format!("{joined}, which the demand allows"))
                        && self.demand["policy"]["allow_ethernet"] == true
                }
            };
            return tenancy == offer.tenancy.as_str() && fabric;
        }
        if line.starts_with("Full training of ") {
            let share = number(line, " GB (", " %)") / 100.0;
            let (needs, fills) = (
                number(line, " needs ", " GB"),
                number(line, "may fill ", " GB"),
            );
            return number(line, " GB over ", " GPU") == f64::from(all)
                && shows(line, " needs ", " GB", facts.memory_needed_gb)
                && shows(line, "may fill ", " GB", facts.memory_available_gb)
                && near(
                    fills,
                    spec(offer).memory_gb * share * f64::from(all),
                    0.5 / 80.0,
                )
                && needs <= fills
                // Weights, gradients and moments at least.
                && needs * 1e9 >= 12.0 * PARAMETERS;
        }
        if line.ends_with("fixed by the demand") {
            return self.demand["gpus"] == all && line.starts_with(&format!("{all} GPU"));
        }
        if line.starts_with("Of all possible node counts ") {
            let hold = number(line, "costs least; ", " would hold it");
            let in_time = match self.demand.get("window") {
                Some(_) => number(line, "hold it, ", " would finish in time"),
                None => hold,
            };
            let least = 16.0 * PARAMETERS / (spec(offer).memory_gb * 1e9 * f64::from(gpus(offer)));
            return number(line, "node counts ", " costs least") == f64::from(nodes)
                && self.demand.get("gpus").is_none()
                && least <= hold
                && hold <= in_time
                && in_time <= f64::from(nodes);
        }
        if line.starts_with("The run takes about ") {
            return self.is_true_of_duration(line, offer, all, facts);
        }
        if line.starts_with("Best layout: ") {
            let layout = facts.layout.expect("a layout");
            let memory = line.rsplit(": ").next().expect("words");
            let (tensor, stages, copies) = (
                layout.tensor_parallel,
                layout.pipeline_parallel,
                layout.data_parallel,
            );
            return number(line, "TP ", " x ") == f64::from(tensor)
                && number(line, "PP ", " x ") == f64::from(stages)
                && number(line, "DP ", ",") == f64::from(copies)
                && tensor * stages * copies == all
                && tensor <= gpus(offer)
                && number(line, "), ", " micro-batch") == f64::from(layout.micro_batches)
                && number(line, " of ", " sequence") == f64::from(layout.micro_batch)
                && line.contains("recomputation") == layout.recompute
                && number(memory, "", " GB a GPU") <= spec(offer).memory_gb
                && shows(
                    line,
                    "a GPU; ",
                    " % of a step",
                    facts.exposed_communication.map(|share| share * 100.0),
                );
        }
        if line.starts_with("Failures and checkpoints leave ") {
            let goodput = facts.goodput.expect("a share");
            let minutes = facts.checkpoint_interval_minutes;
            let size = number(line, " minutes (", " GB in ");
            let written = facts.checkpoint_seconds;
            return shows(line, "leave ", " % of the time", Some(goodput * 100.0))
                && shows(line, "a checkpoint every ", " minutes", minutes)
                // Weights and moments, without gradients.
                && near(size * 1e9, 14.0 * PARAMETERS, 0.01)
                && shows(line, " GB in ", " s at 10 GB/s", written)
                && near(size / 10.0, written.expect("seconds"), 0.01)
                && goodput > 0.0
                && goodput < 1.0;
        }
        if line.starts_with("One per cent more efficiency ") {
            let cost = dollars(facts.run_cost_usd).expect("a cost");
            let saved = dollars(facts.usd_per_percent_efficiency).expect("a sum");
            return shows(line, "would save ", " USD on this run", Some(saved))
                && near(saved, cost - cost / 1.01, 1e-3);
        }
        if line.contains("worth holding") {
            // Half an hour for each of the failures that Llama 3 405B met with on 16,384 GPUs.
            let waited = f64::from(all) / 51_000.0 * 0.5 * 100.0;
            let spares = facts.spare_nodes.expect("a number");
            let cost = f64::from(spares.max(1)) / f64::from(nodes) * 100.0;
            let (before, after) = match spares {
                0 => ("one costs ", "(assumed) takes "),
                _ => ("holding, for ", "(assumed) takes "),
            };
            return shows(line, before, " % of the run", Some(cost))
                && shows(line, after, " % of the time", Some(waited))
                && line.starts_with("No spare") == (spares == 0)
                && (spares == 0 || line.starts_with(&format!("{spares} spare node")));
        }
        if line.starts_with("No training run on ") {
            return line.contains(&offer.gpu.to_string()) && offer.gpu.to_string() != "H100-SXM";
        }
        self.is_true(line, (offer, nodes), Some(candidate.cost_per_hour))
    }

    fn is_true_of_duration(&self, line: &str, offer: &Offer, all: u32, facts: &Facts) -> bool {
        let tokens = self.demand["tokens"].as_f64().expect("tokens");
        let hours = facts.run_hours.expect("hours");
        let rate = offer.rate().expect("a rate").money_per_gpu_hour();
        let cost = dollars(facts.run_cost_usd).expect("a cost");
        let billion = dollars(facts.usd_per_billion_tokens).expect("a price");
        let speed = facts.tokens_per_second.expect("a rate");
        let peak = spec(offer).bf16_tflops_dense;
        let used = facts.flop_utilisation.expect("a share");
        let within = facts.within_factor;
        let goodput = facts.goodput.expect("a share");
        // Six products for each parameter and token; fewer for lookup tables, more for attention.
        let products = 6.0 * PARAMETERS * speed / f64::from(all) / 1e12;
        shows(line, "about ", " hours", Some(hours))
            && shows(line, " hours and ", " USD", Some(cost))
            && shows(line, " USD and ", " USD per 1e9", Some(billion))
            && shows(line, "1e9 tokens: ", " tokens/s", Some(speed))
            && shows(line, ") at ", " % of", Some(used * 100.0))
            && shows(line, " % of ", " TFLOPS (bf16)", peak)
            && is_interval(line, speed, within)
            && near(
                cost,
                hours * f64::from(all) * rate.units() as f64 / 1e8,
                1e-6,
            )
            && near(billion * tokens / 1e9, cost, 0.01)
            && near(speed * goodput * hours * 3_600.0, tokens, 0.01)
            && (0.95..1.3).contains(&(used * peak.expect("a rate") / products))
    }
}

/// The class of machine of a full run, the best first.
fn stands_on(candidate: &Candidate) -> (u8, String) {
    let line = &candidate.lines[0];
    let offer = &line.offer;
    let over_ethernet = line.nodes > 1 && !offer.internode.is_rdma();
    let (place, machine) = match (over_ethernet, offer.tenancy.as_str()) {
        (false, "bare_metal") => (0, "bare metal"),
        (false, "vm") => (2, "virtual machines"),
        (false, _) => (4, "containers or a managed cluster"),
        (true, "bare_metal") => (6, "bare metal over Ethernet"),
        (true, _) => (8, "other machines over Ethernet"),
    };
    let name = offer.gpu.to_string();
    let board = name.ends_with("-SXM") || name == "MI300X" || name == "A100-SXM-80";
    if board && gpus(offer) == 8 {
        (place, machine.to_owned())
    } else {
        (
            place + 1,
            format!("{machine}, not whole boards of 80 GB and more"),
        )
    }
}

proptest! {
    // S16, S62
    #[test]
    fn every_reason_of_a_run_is_true_of_it(
        market in any_market(),
        shared in any_shared(),
        gpus in prop::option::of(prop::sample::select(vec![16_u32, 24, 32, 64])),
        hours in prop::option::of(40_u32..400),
    ) {
        let mut fields = json!({"model": "Llama 3 70B", "tokens": 10_000_000_000_u64});
        if let Some(gpus) = gpus {
            fields["gpus"] = json!(gpus);
        }
        if let Some(hours) = hours {
            fields["window"] = json!({"duration_hours": hours});
        }
        let fields = with(fields, shared);
        let plan = told(&fields, "train", &market);
        let reader = Reader { snapshot: &market.0, held: &market.1, demand: fields };
        let rank = |one: &Candidate| one.facts.run_cost_usd.expect("a cost");
        let told = tells_its_tie(&plan, rank, stands_on);
        for candidate in &plan.candidates {
            prop_assert!(candidate.reasons.len() >= 9, "{candidate:?}");
            let told = told && candidate.rank == 1;
            for line in candidate.reasons.iter().skip(usize::from(told)) {
                prop_assert!(reader.is_true_of_run(line, candidate), "{line}: {candidate:?}");
            }
        }
        for refused in &plan.refused {
            prop_assert!(reader.is_true_of_refused("train", refused), "{refused:?}");
        }
    }
}
