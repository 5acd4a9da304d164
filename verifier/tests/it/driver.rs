//! The unmodified agent on a driver whose GPUs do not exist.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use fake_driver::script::{Fault, Script};
use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{GemmWork, Level, Step};
use verifier::order::{Mode, order_for};

use crate::eventually::output_of;
use crate::machine::*;
use crate::stage::*;

#[test]
fn eight_good_gpus_pass_the_standard_level_and_every_step_shows_its_time() {
    let machine = Machine::new(&Script::default());
    let order = order(8, Level::Standard);
    let attestation = machine.verify(&order);
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
    assert!(
        !attestation.simulated,
        "the agent does not know that it is a fake"
    );
    let inventory = attestation.inventory.as_ref().expect("an inventory");
    assert_eq!(inventory.gpus.len(), 8);
    assert_eq!(
        outcome_of(&attestation, FindingCode::StepTimedOut),
        Outcome::Met
    );
    let output = machine.run(&order, &["--level", "standard"]);
    let table = String::from_utf8(output.stdout).expect("text");
    assert_eq!(output.status.code(), Some(0), "{table}");
    let mut times = table
        .lines()
        .filter_map(|line| line.strip_prefix("steps: "));
    let times = times.next().unwrap_or_else(|| panic!("no times: {table}"));
    let read = |time: &str| {
        let (step, ms) = time.strip_suffix(" ms")?.rsplit_once(' ')?;
        ms.parse::<u64>().ok().map(|_| step.to_owned())
    };
    let steps: Option<Vec<String>> = times.split(", ").map(read).collect();
    let all = Step::ALL[1..].iter().map(Step::to_string).collect();
    assert_eq!(steps, Some(all), "{times}");
    assert!(table.contains("8 x H100-SXM: pass"), "{table}");
}

#[test]
fn eight_good_gpus_end_the_standard_level_within_its_budget_by_their_own_clocks() {
    let order = order(8, Level::Standard);
    let real = order_for(order.expected.clone(), 0, Level::Standard, Mode::Real).gemm;
    let mut script = Script::default();
    for card in &mut script.gpus {
        // The time of all products of a real order.
        let products = |gemm: &GemmWork| f64::from(gemm.links + gemm.iterations);
        card.product_ms = PRODUCT_MS * products(&real) / products(&order.gemm);
        // The time of all memory of an H100.
        let stands_for = (80_u64 << 30) / order.memory.pattern_bytes;
        card.stands_for = u32::try_from(stands_for).expect("so many");
    }
    let machine = Machine::new(&script);
    assert!(machine.verify(&order).verdict.is_pass());
    let clocks = machine.clocks_ms();
    assert_eq!(clocks.len(), 8);
    let whole_ms = order.deadlines.whole_ms;
    assert_eq!(whole_ms, 90_000);
    for (gpu, ms) in clocks {
        // The load of at least 20 seconds, products of five, and memory that is filled slowly and compared
        // once.
        assert!(ms > 30_000.0, "GPU {gpu}: {ms} ms are too few to be true");
        assert!(ms < whole_ms as f64 / 2.0, "GPU {gpu}: {ms} ms");
    }
}

#[test]
fn the_agent_says_clearly_that_a_machine_has_no_driver() {
    let began = Instant::now();
    let output = output_of(&mut agent(None));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // It waits for a driver for up to a minute, where a broker waits.
    assert!(began.elapsed() < Duration::from_secs(40), "{said}");
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.matches("no libcuda.so.1").count(), 1, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn the_agent_says_clearly_that_the_management_library_is_missing() {
    let machine = Machine::new(&Script::default());
    std::fs::remove_file(machine.path("libnvidia-ml.so.1")).expect("removed");
    let output = machine.run(&order(8, Level::Quick), &[]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("no libnvidia-ml.so.1"), "{said}");
}

/// A system library that is not the driver's and has none of its symbols.
fn library_of_the_system() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the maps");
    let mut paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let path = paths.find(|path| path.contains("/libc.so") || path.contains("/libc-"));
    path.expect("tests use the C library").into()
}

#[test]
fn a_driver_without_a_symbol_is_named_and_not_taken_for_a_missing_one() {
    let machine = Machine::new(&Script::default());
    let library = machine.path("libcuda.so.1");
    std::fs::remove_file(&library).expect("removed");
    std::os::unix::fs::symlink(library_of_the_system(), &library).expect("a link");
    let output = machine.run(&order(8, Level::Quick), &["--json"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let attestation = attestation(&output);
    let failed = failures(&attestation);
    assert!(failed.contains(&FindingCode::AgentTrouble), "{failed:?}");
    // No finding claims that a GPU stayed.
    let lost = outcome_of(&attestation, FindingCode::GpuLost);
    assert_eq!(lost, Outcome::NotRun);
    let mut findings = attestation.findings.iter();
    let trouble = findings.find(|found| found.code == FindingCode::AgentTrouble);
    let note = &trouble.expect("the finding").note;
    assert!(
        note.contains("crashed") && note.contains("cuInit"),
        "{note}"
    );
}

#[test]
fn a_gpu_that_hangs_ends_as_timed_out_within_the_budget_of_its_step() {
    let machine = Machine::new(&broken(|card| {
        card.fault = Fault::HangsIn("memory_fill".to_owned());
    }));
    let mut order = order(2, Level::Quick);
    order.deadlines.fill_ms = 2_000;
    let began = Instant::now();
    let attestation = machine.verify(&order);
    // A hanging process is not waited for: the budget is that of all steps.
    let budget = Duration::from_millis(order.deadlines.whole_ms);
    assert!(began.elapsed() < budget, "{:?}", began.elapsed());
    assert_eq!(attestation.verdict, Verdict::Fail, "{attestation:#?}");
    let timed_out = attestation
        .findings
        .iter()
        .find(|finding| finding.code == FindingCode::StepTimedOut)
        .expect("the finding");
    assert_eq!(timed_out.outcome, Outcome::Failed, "{timed_out:#?}");
    assert!(timed_out.note.contains("GPU 1"), "{timed_out:#?}");
    assert_eq!(failures(&attestation), [FindingCode::StepTimedOut]);
}
