//! The arrows between the crates, and what must not be in the broker's tree.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Which of our crates each crate may use.
const ARROWS: [(&str, &[&str]); 10] = [
    ("market", &[]),
    ("migrations", &[]),
    ("pricing", &["market"]),
    ("adapters", &["market"]),
    ("verifier", &["market"]),
    ("simulator", &["market"]),
    ("matcher", &["market", "pricing"]),
    ("store", &["market", "migrations"]),
    (
        "broker",
        &[
            "adapters",
            "market",
            "matcher",
            "pricing",
            "simulator",
            "store",
            "verifier",
        ],
    ),
    (
        "xtask",
        &[
            "adapters",
            "broker",
            "market",
            "matcher",
            "pricing",
            "simulator",
            "store",
            "verifier",
        ],
    ),
];

fn cargo(arguments: &[&str]) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(arguments)
        .args(["--offline", "--locked"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("cargo writes text")
}

fn metadata() -> Value {
    // Without dependencies: those of other platforms are not on this machine.
    let text = cargo(&["metadata", "--format-version", "1", "--no-deps"]);
    serde_json::from_str(&text).expect("cargo metadata is JSON")
}

fn workspace_names(metadata: &Value) -> Vec<String> {
    let members = metadata["workspace_members"].as_array().expect("members");
    let packages = metadata["packages"].as_array().expect("packages");
    packages
        .iter()
        .filter(|package| members.contains(&package["id"]))
        .map(|package| package["name"].as_str().expect("a name").to_owned())
        .collect()
}

#[test]
fn the_arrows_between_the_crates_are_those_of_the_map() {
    let metadata = metadata();
    let ours = workspace_names(&metadata);
    let allowed: BTreeMap<_, _> = ARROWS.into_iter().collect();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name");
        if !ours.iter().any(|our| our == name) {
            continue;
        }
        let may = allowed
            .get(name)
            .unwrap_or_else(|| panic!("{name} is not on the map"));
        for dependency in package["dependencies"].as_array().expect("dependencies") {
            let uses = dependency["name"].as_str().expect("a name");
            // A crate's own tests may look at any crate; what ships may not.
            let ships = dependency["kind"].is_null();
            if ships && ours.iter().any(|our| our == uses) {
                assert!(may.contains(&uses), "{name} must not use {uses}");
            }
        }
    }
}

#[test]
fn no_cuda_and_no_second_tls_stack_is_in_the_tree_of_the_broker() {
    let arguments = [
        "tree", "-p", "broker", "-e", "normal", "--prefix", "none", "--format", "{p}",
    ];
    let tree = cargo(&arguments);
    let names: Vec<_> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&"actix-web"), "the tree was not read");
    for unwanted in ["cudarc", "aws-lc-sys", "openssl-sys", "native-tls"] {
        assert!(
            !names.contains(&unwanted),
            "the broker's tree holds {unwanted}"
        );
    }
}

#[test]
fn no_crate_of_ours_may_be_unsafe() {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let targets = packages.iter().flat_map(|package| {
        let targets = package["targets"].as_array().expect("targets");
        targets.iter().map(|target| &target["src_path"])
    });
    let roots: Vec<_> = targets.filter_map(Value::as_str).collect();
    assert!(roots.len() > ARROWS.len(), "the crates were not found");
    for root in roots {
        let text = std::fs::read_to_string(root).expect("the root of a crate");
        assert!(
            text.lines().any(|line| line == "#![forbid(unsafe_code)]"),
            "{root} must say #![forbid(unsafe_code)]"
        );
    }
}
