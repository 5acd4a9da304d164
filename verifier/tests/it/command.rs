//! The command line: its output and its exit status.

use std::path::Path;
use std::process::{Command, Output};

use market::attestation::{Attestation, Verdict};
use market::gpu::Gpu;
use market::verification::{Level, VerificationOrder};
use verifier::order::{Mode, expected_node, order_for};

use crate::eventually::output_of;
use crate::stage::*;

fn verifier(arguments: &[&str], node: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_verifier"));
    command.env_clear().arg("run").args(arguments);
    if let Some(path) = node {
        command.env("SIMULATED_NODE", path);
    }
    output_of(&mut command)
}

fn with_node(
    change: impl FnOnce(&mut verifier::reference::NodeDescription),
    arguments: &[&str],
) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.json");
    let mut described = description(2);
    change(&mut described);
    std::fs::write(&path, serde_json::to_string(&described).expect("json")).expect("written");
    verifier(arguments, Some(&path))
}

/// The order for simulated nodes, which a CPU finishes soon.
fn simulated_order(level: Level) -> VerificationOrder {
    let node = expected_node(Gpu::parse("H100-SXM").expect("a GPU"), 2);
    order_for(node, 0, level, Mode::Simulation)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("utf-8")
}

/// An error's message and its causes mention each fact once.
#[track_caller]
fn assert_nothing_is_said_twice(said: &str) {
    let mut clauses: Vec<&str> = said.trim().split(": ").collect();
    clauses.sort_unstable();
    let before = clauses.len();
    clauses.dedup();
    assert_eq!(clauses.len(), before, "{said}");
}

#[test]
fn a_good_machine_passes_on_its_own() {
    let output = with_node(|_| {}, &["--level", "quick", "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let attestation: Attestation = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(attestation.verdict, Verdict::Pass);
    assert!(attestation.simulated);
}

#[test]
fn a_printed_order_is_what_its_level_does_and_is_taken_with_other_sizes() {
    let print = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_verifier"));
        let command = command.env_clear().arg("order").args(arguments);
        output_of(command)
    };
    let printed = print(&["--gpu", "H100-SXM", "--gpus", "2", "--level", "quick"]);
    assert_eq!(printed.status.code(), Some(0), "{}", text(&printed.stderr));
    let mut order: VerificationOrder = serde_json::from_slice(&printed.stdout).expect("an order");
    let node = expected_node(Gpu::parse("H100-SXM").expect("a GPU"), 2);
    assert_eq!(order, order_for(node, 0, Level::Quick, Mode::Real));
    order.gemm = simulated_order(Level::Quick).gemm;
    order.memory = simulated_order(Level::Quick).memory;
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("order.json");
    std::fs::write(&path, serde_json::to_string(&order).expect("json")).expect("written");
    let output = with_node(|_| {}, &["--order", &path.display().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));

    let undriven = print(&["--gpu", "MI300X", "--gpus", "8"]);
    assert_eq!(undriven.status.code(), Some(2));
    assert!(undriven.stdout.is_empty());
    let unknown = print(&["--gpu", "H100", "--gpus", "8"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        text(&unknown.stderr).contains("H100"),
        "{}",
        text(&unknown.stderr)
    );
}

#[test]
fn a_slow_machine_fails_and_the_table_says_why() {
    let output = with_node(|node| node.memory_speed = 0.4, &["--level", "quick"]);
    assert_eq!(output.status.code(), Some(1));
    let table = text(&output.stdout);
    assert!(
        table.contains("hbm.bw") && table.contains("slower"),
        "{table}"
    );
    let verdict = table.lines().find(|line| line.starts_with("2 x "));
    let verdict = verdict.unwrap_or_default();
    let said = verdict.contains(": fail by hbm.bw") && verdict.ends_with("(simulated)");
    assert!(said, "{table}");
    assert!(table.contains("Nobody countersigned this"), "{table}");
}

#[test]
fn an_order_of_ones_own_is_carried_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("order.json");
    let order = opening(
        3,
        market::verification::Level::Quick,
        verifier::order::Mode::Simulation,
    )
    .order;
    std::fs::write(&path, serde_json::to_string(&order).expect("json")).expect("written");
    let output = with_node(
        |_| {},
        &["--order", path.to_str().expect("utf-8"), "--json"],
    );
    assert_eq!(
        output.status.code(),
        Some(1),
        "3 GPUs were ordered, 2 are there"
    );
    let attestation: Attestation = serde_json::from_slice(&output.stdout).expect("json");
    use market::attestation::FindingCode;
    let expected = [FindingCode::InventoryCount, FindingCode::InventorySources];
    assert_eq!(failures(&attestation), expected);
}

#[test]
fn a_machine_is_held_against_what_was_sold() {
    let failed = |arguments: &[&str]| {
        let arguments = [&["--level", "quick", "--json"], arguments].concat();
        let output = with_node(|_| {}, &arguments);
        let attestation: Attestation = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", text(&output.stderr)));
        assert_eq!(
            output.status.code(),
            Some(u8::from(!attestation.verdict.is_pass()).into())
        );
        failures(&attestation)
    };
    use market::attestation::FindingCode;
    let fewer = [FindingCode::InventoryCount, FindingCode::InventorySources];
    assert_eq!(failed(&["--gpus", "3"]), fewer);
    assert_eq!(failed(&["--gpus", "2", "--gpu", "h100-sxm"]), []);
    let another = failed(&["--gpu", "H200-SXM"]);
    assert!(
        another.contains(&FindingCode::InventoryIdentity),
        "{another:?}"
    );
}

#[test]
fn wrong_input_is_told_from_a_failed_machine() {
    let url = "http://127.0.0.1:9";
    let id = verification_id().to_string();
    let broker = ["--broker", url, "--verification", &id];
    let orders = tempfile::tempdir().expect("a folder");
    let written = |name: &str, text: &str| {
        let path = orders.path().join(name);
        std::fs::write(&path, text).expect("written");
        path.to_str().expect("utf-8").to_owned()
    };
    let mut order = opening(
        2,
        market::verification::Level::Quick,
        verifier::order::Mode::Simulation,
    )
    .order;
    let whole = serde_json::to_string(&order).expect("json");
    let whole = written("whole.json", &whole);
    order.gemm.links = 0;
    let impossible = serde_json::to_string(&order).expect("json");
    let cut = written("cut.json", &impossible[..100]);
    let impossible = written("impossible.json", &impossible);
    let cases: [(&[&str], &str); 15] = [
        (&["--level", "huge"], "quick, standard or deep"),
        (&["--broker", url], "--verification"),
        (
            &["--broker", "http://broker.example", "--verification", &id],
            "https://",
        ),
        (
            &["--broker", url, "--verification", "rsv_1"],
            "not a verification id",
        ),
        (&broker, "VERIFIER_TOKEN"),
        (
            &[&broker[..], &["--repeat", "2", "--json"]].concat(),
            "--repeat",
        ),
        (&["--repeat", "2"], "--json"),
        (&["--repeat", "0", "--json"], "--repeat"),
        (&["--gpu", "H100"], "H100"),
        (&["--gpus", "0"], "--gpus"),
        (&["--gpus", "2", "--order", "order.json"], "--order"),
        (
            &["--level", "standard", "--order", &whole],
            "the order is of level `quick`, and --level says `standard`",
        ),
        (&["--order", "/nowhere/order.json"], "/nowhere/order.json"),
        (&["--order", &cut], "no verification order"),
        (
            &["--order", &impossible],
            "a chain has 1 to 100000 products",
        ),
    ];
    for (arguments, word) in cases {
        let output = with_node(|_| {}, arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(word), "{arguments:?}: {said}");
        assert_nothing_is_said_twice(&said);
    }
    let output = verifier(&[], None);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("SIMULATED_NODE"),
        "{}",
        text(&output.stderr)
    );
    let output = with_node(|node| node.schema = "simulated-node-2".to_owned(), &[]);
    assert_eq!(output.status.code(), Some(2));
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("node.json");
    std::fs::write(&path, "no description").expect("written");
    let output = verifier(&[], Some(&path));
    assert_eq!(output.status.code(), Some(2));
    assert_nothing_is_said_twice(&text(&output.stderr));
}
