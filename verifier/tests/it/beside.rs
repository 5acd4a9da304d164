//! The unmodified agent's reports beyond the work of GPUs: the vendor's diagnostic, and promised storage.

use std::os::unix::fs::PermissionsExt;

use market::attestation::{Attestation, Finding, FindingCode, Outcome, Weight};
use market::verification::{Level, StoragePromise};

use crate::machine::*;

/// A diagnostic that finds a row of memory pending. It reports that only when called as the agent calls it
/// and without the agent's own environment.
const DIAGNOSTIC: &str = r#"#!/bin/sh
[ "$*" = "diag -r 1 -j" ] || exit 3
[ -z "$LD_LIBRARY_PATH" ] || exit 4
echo '{"DCGM Diagnostic":{"test_categories":[{"tests":[{"name":"software","results":['
echo '{"entity_group":"GPU","entity_id":1,"status":"Fail","warnings":[{"warning":"a row is pending"}]}]}]}]}}'
exit 226
"#;

fn found(attestation: &Attestation, code: FindingCode) -> &Finding {
    let mut findings = attestation.findings.iter();
    findings.find(|found| found.code == code).expect("judged")
}

#[test]
fn the_vendors_diagnostic_and_promised_storage_are_told_and_decide_nothing_yet() {
    let machine = Machine::new(&broken(|_| {}));
    let tool = machine.path("dcgmi");
    std::fs::write(&tool, DIAGNOSTIC).expect("written");
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).expect("set");
    let mut order = order(2, Level::Standard);
    order.deadlines.report_ms = 300_000;
    // Any disk reaches this rate.
    order.expected.storage = Some(StoragePromise {
        read_bytes_per_s: Some(1_000_000),
        write_bytes_per_s: Some(1_000_000),
    });
    let mut command = agent(Some(machine.folder.path()));
    let path = format!("{}:/usr/bin:/bin", machine.folder.path().display());
    let output = machine.run_as(command.env("PATH", path), &order, &["--json"]);
    let attestation = attestation(&output);
    assert!(attestation.verdict.is_pass(), "{attestation:#?}");
    let diagnostic = found(&attestation, FindingCode::HealthDiagnostic);
    let told = (diagnostic.outcome, diagnostic.weight);
    assert_eq!(told, (Outcome::Failed, Weight::Shadow), "{diagnostic:#?}");
    let test = "software on GPU 1 (a row is pending)";
    assert!(diagnostic.note.contains(test), "{diagnostic:#?}");
    for code in [FindingCode::StorageRead, FindingCode::StorageWrite] {
        let storage = found(&attestation, code);
        if storage.outcome == Outcome::NotRun {
            println!("skipped in part: needs a disk with 1 GiB free below the agent or /var/tmp");
            return;
        }
        assert_eq!(storage.outcome, Outcome::Met, "{storage:#?}");
        assert_eq!(storage.weight, Weight::Shadow);
    }
}
