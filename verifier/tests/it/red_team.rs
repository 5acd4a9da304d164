//! The adversary: drivers, agents and hosts that lie. The fake driver presents them to the unmodified agent,
//! or a proxy changes the agent's messages. The broker on the other side of the socket must refuse each lie,
//! and for the reason that the page names.
//!
//! `UPDATE_DOCS=1 cargo test -p verifier --test it red_team` rewrites the table of lies in
//! `docs/verification-threats.md`.

mod lies;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fake_driver::script::{Card, Fault, Script};
use market::attestation::{FindingCode, Outcome, Verdict};
use market::fabric::Internode;
use market::verification::{Level, Pattern, Step};
use serde_json::Value;
use verifier::agent::Transport;
use verifier::challenge::Opening;
use verifier::deadlines::memory_ms;
use verifier::jws::Signer;
use verifier::local::LocalBroker;
use verifier::order::{Mode, order_for};

use crate::hearing::*;
use crate::machine::*;
use crate::stage::*;
use FindingCode as Code;
use lies::{LIES, Lie, lie};

fn scene(gpus: u32) -> Opening {
    let mut opening = opening(gpus, Level::Quick, Mode::Simulation);
    opening.order.bandwidth.samples = 2;
    opening
}

fn good() -> Script {
    broken(|_| {})
}

/// Compares the result with the table, and checks that the agent got the verdict.
#[track_caller]
fn assert_refused(test: &str, heard: &Heard) {
    let attestation = &heard.attestation;
    assert_eq!(failures(attestation), lie(test).codes, "{attestation:#?}");
    assert_eq!(attestation.verdict, Verdict::Fail);
    assert_eq!(heard.output.status.code(), Some(1), "{:?}", heard.output);
}

#[track_caller]
fn refused(test: &str, script: &Script) {
    let heard = hear(
        &Machine::new(script),
        plainly,
        broker(scene(2), 1),
        unchanged,
    );
    assert_refused(test, &heard);
}

#[test]
fn an_honest_machine_passes_the_same_way() {
    let heard = hear(
        &Machine::new(&good()),
        plainly,
        broker(scene(2), 1),
        unchanged,
    );
    assert_eq!(failures(&heard.attestation), []);
    assert!(
        heard.attestation.verdict.is_pass(),
        "{heard:#?}",
        heard = heard.attestation
    );
    assert_eq!(heard.output.status.code(), Some(0), "{:?}", heard.output);
}

#[test]
fn fewer_gpus_than_sold_are_refused() {
    let script = Script {
        gpus: vec![Card::h100(0)],
        ..Script::default()
    };
    refused("fewer_gpus_than_sold_are_refused", &script);
}

/// A real order's chain of products with its deadline, except for their size.
fn real_chain(gpus: u32, level: Level) -> Opening {
    let mut opening = scene(gpus);
    let real = order_for(opening.order.expected.clone(), 0, level, Mode::Real);
    opening.order.gemm.links = real.gemm.links;
    opening.order.gemm.iterations = real.gemm.iterations;
    opening.order.deadlines.roots_ms = real.deadlines.roots_ms;
    opening
}

/// The result of a node of which each chip poses as this many GPUs, by the clocks of those.
fn taking_turns(opening: &Opening, shown_as: u32) -> Heard {
    let card = |number: u32| Card {
        product_ms: PRODUCT_MS,
        shown_as,
        ..Card::h100(number)
    };
    let machine = Machine::new(&Script {
        gpus: (0..opening.order.expected.gpus).map(card).collect(),
        ..Script::default()
    });
    let broker = by_the_clocks_of(&machine, opening.clone());
    hear(&machine, plainly, broker, unchanged)
}

#[test]
fn one_gpu_that_poses_as_five_is_refused() {
    for level in [Level::Quick, Level::Standard] {
        let opening = real_chain(5, level);
        let honest = taking_turns(&opening, 1).attestation;
        assert_eq!(failures(&honest), [], "five that are five: {honest:#?}");
        let heard = taking_turns(&opening, 5);
        assert_refused("one_gpu_that_poses_as_five_is_refused", &heard);
        let note = note_of(&heard.attestation, Code::StepTimedOut);
        assert!(note.starts_with("Step roots was not answered"), "{note}");
    }
}

#[test]
fn smaller_memory_is_refused() {
    let script = broken(|card| card.real_memory_mib = Some(40_960));
    refused("smaller_memory_is_refused", &script);
}

#[test]
fn memory_that_is_not_there_is_refused() {
    let script = broken(|card| card.fault = Fault::HalvesMemory);
    refused("memory_that_is_not_there_is_refused", &script);
}

/// A broker whose clock is that of the machine's GPUs: in each step that of the slowest one.
fn by_the_clocks_of(machine: &Machine, opening: Opening) -> LocalBroker {
    let folder = machine.folder.path().to_owned();
    let mut before = BTreeMap::new();
    broker_with_clock(opening, 1, move |_| {
        let now = clocks_in(&folder);
        let worked = now
            .iter()
            .map(|(gpu, ms)| ms - before.get(gpu).unwrap_or(&0.0));
        let longest = worked.fold(0.0, f64::max);
        before = now;
        Duration::from_secs_f64(longest / 1e3)
    })
}

#[test]
fn memory_that_is_made_anew_when_asked_for_is_refused() {
    let mut opening = scene(2);
    opening.order.memory.passes = vec![Pattern::Slow];
    let card = 80_u64 << 30;
    // The rates assumed for an H100: reading, and hashing with the tree.
    let (read, proof) = (2_790_000_000_000, 400_000_000_000);
    opening.order.deadlines.memory_ms =
        memory_ms(opening.order.expected.gpu, card, read, Some(proof));
    let stands_for = card / opening.order.memory.pattern_bytes;
    let hear_of = |fault| {
        let mut script = broken(|card| card.fault = fault);
        for card in &mut script.gpus {
            card.stands_for = u32::try_from(stands_for).expect("so many");
        }
        let machine = Machine::new(&script);
        let broker = by_the_clocks_of(&machine, opening.clone());
        hear(&machine, plainly, broker, unchanged)
    };
    assert_eq!(
        failures(&hear_of(Fault::None).attestation),
        [],
        "all of it is there"
    );
    let heard = hear_of(Fault::Regenerates);
    assert_refused("memory_that_is_made_anew_when_asked_for_is_refused", &heard);
    let note = note_of(&heard.attestation, Code::StepTimedOut);
    assert!(note.starts_with("Step memory was not answered"), "{note}");
}

#[test]
fn memory_that_was_filled_before_it_was_known_with_what_is_refused() {
    let mut nonce = Value::Null;
    let heard = hear(
        &Machine::new(&good()),
        plainly,
        broker(scene(2), 1),
        move |step, way, body| match (step, way) {
            (Step::Commit, Way::ToAgent) => nonce = body["nonce"].clone(),
            (Step::Roots, Way::ToAgent) => body["fill_seed"] = nonce.clone(),
            _ => {}
        },
    );
    let test = "memory_that_was_filled_before_it_was_known_with_what_is_refused";
    assert_refused(test, &heard);
}

#[test]
fn a_management_library_that_names_another_gpu_is_refused() {
    let script = broken(|card| {
        card.sm_count = 108;
        card.capability = (8, 0);
    });
    refused(
        "a_management_library_that_names_another_gpu_is_refused",
        &script,
    );
}

#[test]
fn a_management_library_that_counts_more_gpus_is_refused() {
    let script = Script {
        gpus: vec![Card::h100(0)],
        managed: Some((0..2).map(Card::h100).collect()),
        ..Script::default()
    };
    refused(
        "a_management_library_that_counts_more_gpus_is_refused",
        &script,
    );
}

#[test]
fn a_replayed_conversation_is_refused() {
    let earlier = hear(
        &Machine::new(&good()),
        plainly,
        broker(scene(2), 1),
        unchanged,
    );
    assert!(earlier.attestation.verdict.is_pass());
    let mut anew = broker(scene(2), 2);
    for (step, said) in &earlier.said {
        anew.send(*step, said).expect("an answer");
    }
    let attestation = anew.attestation().expect("an attestation");
    let codes = lie("a_replayed_conversation_is_refused").codes;
    assert_eq!(failures(attestation), codes, "{attestation:#?}");
    assert_eq!(attestation.verdict, Verdict::Fail);
}

#[test]
fn a_replayed_report_is_refused() {
    let machine = Machine::new(&good());
    let mut earlier = hear(&machine, plainly, broker(scene(2), 1), unchanged);
    let (step, report) = earlier.said.pop().expect("a report");
    assert_eq!(step, Step::Report);
    let report: Value = serde_json::from_str(&report).expect("json");
    let heard = hear(
        &machine,
        plainly,
        broker(scene(2), 2),
        move |step, way, body| {
            if (step, way) == (Step::Report, Way::ToBroker) {
                body["report"] = report["report"].clone();
            }
        },
    );
    assert_refused("a_replayed_report_is_refused", &heard);
}

/// A broker whose clock exceeds its deadline by this much at a step.
fn late_at(late: Step) -> LocalBroker {
    let opening = scene(2);
    let allowed = opening.order.deadlines.openings_ms;
    broker_with_clock(opening, 1, move |step| match step == late {
        true => Duration::from_millis(allowed + 1_000),
        false => Duration::from_millis(7),
    })
}

#[test]
fn an_answer_that_comes_too_late_is_refused() {
    let heard = hear(
        &Machine::new(&good()),
        plainly,
        late_at(Step::Openings),
        unchanged,
    );
    assert_refused("an_answer_that_comes_too_late_is_refused", &heard);
}

#[test]
fn an_agent_that_skips_the_memory_is_refused() {
    let script = broken(|card| card.fault = Fault::SkipsMemory);
    refused("an_agent_that_skips_the_memory_is_refused", &script);
}

#[test]
fn an_agent_that_skips_the_product_is_refused() {
    let script = broken(|card| card.fault = Fault::SkipsProducts);
    refused("an_agent_that_skips_the_product_is_refused", &script);
}

#[test]
fn a_driver_that_skips_the_chain_is_refused() {
    let script = broken(|card| card.fault = Fault::SkipsChain);
    refused("a_driver_that_skips_the_chain_is_refused", &script);
}

#[test]
fn an_agent_that_shrinks_the_product_is_refused() {
    let script = broken(|card| card.fault = Fault::HalvesProducts);
    refused("an_agent_that_shrinks_the_product_is_refused", &script);
}

#[test]
fn a_driver_that_streams_through_half_of_the_memory_is_refused() {
    let script = broken(|card| {
        card.copy_mb_per_s /= 2.0;
        card.fault = Fault::Halves("stream_".to_owned());
    });
    refused(
        "a_driver_that_streams_through_half_of_the_memory_is_refused",
        &script,
    );
}

#[test]
fn an_agent_that_is_given_a_smaller_order_is_refused() {
    let machine = Machine::new(&good());
    let heard = hear(&machine, plainly, broker(scene(2), 1), |step, way, body| {
        if (step, way) == (Step::Commit, Way::ToAgent) {
            body["order"]["memory"]["pattern_bytes"] = (32 * 1_024).into();
            body["order"]["gemm"]["iterations"] = 1.into();
        }
    });
    assert_refused("an_agent_that_is_given_a_smaller_order_is_refused", &heard);
}

#[test]
fn an_agent_that_relays_work_is_refused_when_the_way_takes_time() {
    let opening = scene(2);
    let far = Duration::from_secs(60);
    let broker = broker_with_clock(opening, 1, move |step| match step {
        // The first answer needs no work.
        Step::Commit => Duration::from_millis(7),
        _ => far + Duration::from_millis(7),
    });
    let heard = hear(&Machine::new(&good()), plainly, broker, unchanged);
    let test = "an_agent_that_relays_work_is_refused_when_the_way_takes_time";
    assert_refused(test, &heard);
}

#[test]
fn an_agent_that_lets_another_speak_is_refused() {
    let key = Signer::from_seed(&[98; 32]).public_key();
    let key = key.to_agent_key().expect("a key").to_string();
    let machine = Machine::new(&good());
    let heard = hear(
        &machine,
        plainly,
        broker(scene(2), 1),
        move |step, way, body| {
            if (step, way) == (Step::Commit, Way::ToBroker) {
                body["agent_key"] = key.clone().into();
            }
        },
    );
    assert!(!heard.attestation.verdict.is_pass());
    assert_eq!(heard.output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&heard.output.stderr);
    assert!(said.contains("not by the agent that began"), "{said}");
    assert!(
        lie("an_agent_that_lets_another_speak_is_refused")
            .codes
            .is_empty()
    );
}

#[test]
fn a_preloaded_shim_is_refused() {
    // Its events tell half of the time.
    let mut halved = good();
    for card in &mut halved.gpus {
        card.copy_mb_per_s *= 2.0;
        card.host_mb_per_s = (2.0 * card.host_mb_per_s.0, 2.0 * card.host_mb_per_s.1);
    }
    let machine = Machine::new(&halved);
    let shim = machine.path("libcuda.so.1");
    for variable in ["LD_PRELOAD", "LD_AUDIT"] {
        let preload = |command: &mut Command| {
            command.env(variable, &shim);
        };
        let heard = hear(&machine, preload, broker(scene(2), 1), unchanged);
        assert_refused("a_preloaded_shim_is_refused", &heard);
        for code in [Code::MemoryBandwidth, Code::MemoryRead, Code::HostLinkIn] {
            let outcome = outcome_of(&heard.attestation, code);
            assert_eq!(outcome, Outcome::NotRun, "{code} is beyond belief");
        }
    }
}

#[test]
fn f09_a_port_that_goes_down_while_the_node_is_checked_is_named() {
    let system = system_with_ports(2);
    let root = system.path().to_owned();
    let arguments = |command: &mut Command| {
        command.arg("--root").arg(&root);
    };
    let mut opening = scene(2);
    opening.order.expected.internode = Some(Internode::InfinibandNdr400);
    let flapping = system.path().to_owned();
    let machine = Machine::new(&good());
    let heard = hear(
        &machine,
        arguments,
        broker(opening, 1),
        move |step, way, _| {
            if (step, way) == (Step::Fill, Way::ToBroker) {
                write_port(&flapping, 0, "counters/link_downed", "2\n");
            }
        },
    );
    let attestation = &heard.attestation;
    assert_eq!(failures(attestation), [Code::NetworkPorts]);
    let mut findings = attestation.findings.iter();
    let ports = findings.find(|found| found.code == Code::NetworkPorts);
    let note = &ports.expect("the finding").note;
    assert!(note.contains("mlx5_0/1 went down"), "{note}");
}

fn table() -> String {
    let row = |lie: &Lie| {
        let codes: Vec<String> = lie.codes.iter().map(|code| format!("`{code}`")).collect();
        let refused_as = match codes.is_empty() {
            true => "the step is not taken (`step_out_of_order`)".to_owned(),
            false => codes.join(", "),
        };
        format!(
            "| {} | {} | {refused_as} | `{}` |\n",
            lie.what, lie.how, lie.test
        )
    };
    let rows: String = LIES.iter().map(row).collect();
    format!("| lie | how | refused as | test |\n|---|---|---|---|\n{rows}")
}

#[test]
fn the_table_of_lies_in_the_documentation_is_that_of_the_tests() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/verification-threats.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (open, close) = ("<!-- lies -->\n", "<!-- end of lies -->");
    let (before, rest) = text.split_once(open).expect("a place for the table");
    let (_, behind) = rest.split_once(close).expect("an end of the table");
    let written = format!("{before}{open}\n{}{close}{behind}", table());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &written).expect("written");
    }
    let now = std::fs::read_to_string(&page).expect("the page");
    assert!(
        now == written,
        "run `UPDATE_DOCS=1 cargo test -p verifier --test it red_team` and review the change"
    );
}
