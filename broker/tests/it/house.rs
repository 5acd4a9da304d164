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
        &["adapters", "market", "matcher", "pricing", "simulator", "store", "verifier"],
    ),
    (
        "xtask",
        &["adapters", "broker", "market", "matcher", "pricing", "simulator", "store", "verifier"],
    ),
];

fn metadata() -> Value {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline", "--locked"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata is JSON")
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
        let may = allowed.get(name).unwrap_or_else(|| panic!("{name} is not on the map"));
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
    let metadata = metadata();
    let nodes = metadata["resolve"]["nodes"].as_array().expect("a resolved tree");
    let depends_on: BTreeMap<&str, Vec<&str>> = nodes
        .iter()
        .map(|node| {
            let ids = node["dependencies"].as_array().expect("dependencies");
            (node["id"].as_str().expect("id"), ids.iter().filter_map(Value::as_str).collect())
        })
        .collect();
    let named = |id: &str| {
        let package =
            metadata["packages"].as_array().expect("packages").iter().find(|p| p["id"] == id);
        package.and_then(|p| p["name"].as_str()).expect("a package").to_owned()
    };
    let broker = depends_on.keys().copied().find(|id| named(id) == "broker").expect("the broker");
    let (mut seen, mut next) = (vec![broker], vec![broker]);
    while let Some(id) = next.pop() {
        for dependency in &depends_on[id] {
            if !seen.contains(dependency) {
                seen.push(dependency);
                next.push(dependency);
            }
        }
    }
    for id in seen {
        let name = named(id);
        for unwanted in ["cudarc", "aws-lc-sys", "openssl-sys", "native-tls"] {
            assert_ne!(name, unwanted, "the broker's tree holds {unwanted}");
        }
    }
}
