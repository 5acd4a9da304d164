//! Level `deep` by the unmodified agent: all patterns repeatedly, all of NCCL's operations, the vendor's
//! longer diagnostic. The order gives little time to each; their work is the same as in an hour.

use std::os::unix::fs::PermissionsExt;

use fake_driver::script::{Card, Fault};
use market::attestation::{Attestation, FindingCode as Code, Outcome};
use market::verification::{Level, VerificationOrder};

use crate::machine::*;
use crate::stage::note_of;

/// A diagnostic that succeeds when called as `deep` calls it.
const DIAGNOSTIC: &str = r#"#!/bin/sh
[ "$*" = "diag -r 3 -j" ] || exit 3
echo '{"DCGM Diagnostic":{"test_categories":[{"tests":[{"name":"targeted stress","results":['
echo '{"entity_group":"GPU","entity_id":1,"status":"Pass"}]}]}]}}'
"#;

fn short(gpus: u32) -> VerificationOrder {
    let mut order = order(gpus, Level::Deep);
    order.memory.repeated_ms = 300;
    order.deadlines.report_ms = 60_000;
    order
}

/// The result of four GPUs, of which the third has a fault.
fn found(fault: Fault) -> Attestation {
    found_at(2, fault)
}

/// The same, for another GPU.
fn found_at(gpu: usize, fault: Fault) -> Attestation {
    let mut script = broken(|_| {});
    script.gpus = (0..4).map(Card::h100).collect();
    script.gpus[gpu].fault = fault;
    let machine = Machine::new(&script);
    machine.install("libnccl.so.2");
    machine.verify(&short(4))
}

#[test]
fn a_good_node_passes_with_all_that_is_looked_at_for_long() {
    let machine = Machine::new(&broken(|_| {}));
    machine.install("libnccl.so.2");
    let tool = machine.path("dcgmi");
    std::fs::write(&tool, DIAGNOSTIC).expect("written");
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).expect("set");
    let mut command = agent(Some(machine.folder.path()));
    let path = format!("{}:/usr/bin:/bin", machine.folder.path().display());
    let output = machine.run_as(command.env("PATH", path), &short(2), &["--json"]);
    let attestation = attestation(&output);
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
    for code in [
        Code::HealthDiagnostic,
        Code::MemoryDwell,
        Code::MemoryPattern,
        Code::BurnSustained,
    ] {
        let mut findings = attestation.findings.iter();
        let finding = findings.find(|found| found.code == code).expect("judged");
        assert_eq!(finding.outcome, Outcome::Met, "{finding:#?}");
    }
}

#[test]
fn f04_whatever_nccl_does_wrongly_fails_by_its_name() {
    for (call, name) in [
        ("ncclAllReduce", "sum"),
        ("ncclReduceScatter", "scattered sum"),
        ("ncclAllGather", "gathering"),
        ("ncclBroadcast", "broadcast"),
    ] {
        let attestation = found(Fault::ErrsIn(call.to_owned()));
        let note = note_of(&attestation, Code::AllReduce);
        assert_eq!(note, format!("Elements of NCCL's {name} are wrong: 1."));
    }
    // Data left on GPUs other than the first is undefined.
    let errs = Fault::ErrsIn("ncclReduce".to_owned());
    let attestation = found(errs.clone());
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
    let first = found_at(0, errs);
    let note = note_of(&first, Code::AllReduce);
    assert_eq!(note, "Elements of NCCL's sum for one GPU are wrong: 1.");
}

#[test]
fn an_operation_of_nccl_that_never_ends_is_named_and_those_before_it_are_kept() {
    let attestation = found(Fault::HangsIn("ncclBroadcast".to_owned()));
    let mut findings = attestation.findings.iter();
    let sum = findings.find(|found| found.code == Code::AllReduce);
    let sum = sum.expect("judged");
    assert_eq!(sum.outcome, Outcome::NotRun, "{sum:#?}");
    assert!(
        sum.note.starts_with("NCCL did not do its broadcast. "),
        "{sum:#?}"
    );
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
}
