//! The arrows between the crates, and the dependencies that must not be in the broker's tree.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::eventually::output_of;

/// Which of our crates each crate may use.
const ARROWS: [(&str, &[&str]); 12] = [
    ("market", &[]),
    ("migrations", &[]),
    ("pricing", &["market"]),
    ("adapters", &["market"]),
    ("proof", &["market"]),
    ("verifier", &["market", "proof"]),
    // For the verifier's tests only; nothing that ships may use it.
    ("fake-driver", &["market", "verifier"]),
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
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments).args(["--offline", "--locked"]);
    let output = output_of(command.current_dir(root));
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
            // A crate's own tests may use any crate; shipped code may not.
            let ships = dependency["kind"].is_null();
            if ships && ours.iter().any(|our| our == uses) {
                assert!(may.contains(&uses), "{name} must not use {uses}");
            }
        }
    }
}

#[test]
fn no_cuda_no_second_tls_stack_and_no_telemetry_is_in_the_tree_of_the_broker() {
    let arguments = [
        "tree", "-p", "broker", "-e", "normal", "--prefix", "none", "--format", "{p}",
    ];
    let tree = cargo(&arguments);
    let names: Vec<_> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(names.contains(&"actix-web"), "the tree was not read");
    for unwanted in [
        "cudarc",
        "aws-lc-sys",
        "openssl-sys",
        "native-tls",
        "opentelemetry",
        "prost",
    ] {
        assert!(
            !names.contains(&unwanted),
            "the broker's tree holds {unwanted}"
        );
    }
}

/// The crates that may have an unsafe part: the C interface of GPU drivers, called and simulated.
const DRIVERS: [&str; 2] = ["verifier/src/lib.rs", "verifier/fake-driver/src/lib.rs"];

/// The files that are unsafe, each of them and no other: those that call the driver's C interface,
/// and those of the driver that pretends to be one, which no agent that ships holds.
const UNSAFE: [&str; 14] = [
    "verifier/src/cuda.rs",
    "verifier/src/cuda/buffer.rs",
    "verifier/src/cuda/gpu.rs",
    "verifier/src/cuda/collective.rs",
    "verifier/src/cuda/library.rs",
    "verifier/src/cuda/links.rs",
    "verifier/src/cuda/measure.rs",
    "verifier/src/cuda/nvml.rs",
    "verifier/src/cuda/streams.rs",
    "verifier/fake-driver/src/collective.rs",
    "verifier/fake-driver/src/compute.rs",
    "verifier/fake-driver/src/kernels.rs",
    "verifier/fake-driver/src/libraries.rs",
    "verifier/fake-driver/src/manage.rs",
];

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
        if DRIVERS.iter().any(|driver| root.ends_with(driver)) {
            continue;
        }
        let text = std::fs::read_to_string(root).expect("the root of a crate");
        assert!(
            text.lines().any(|line| line == "#![forbid(unsafe_code)]"),
            "{root} must say #![forbid(unsafe_code)]"
        );
    }
}

/// Every file of Rust below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn only_the_files_that_are_listed_are_unsafe_and_only_one_names_cudarc() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    sources(&root.join("verifier/src"), &mut files);
    sources(&root.join("verifier/fake-driver/src"), &mut files);
    assert!(files.len() > 30, "the sources were not found");
    for path in files {
        let name = path.strip_prefix(&root).expect("below the root");
        let name = name.to_str().expect("a plain name");
        let text = std::fs::read_to_string(&path).expect("readable");
        let code = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or(line));
        let code: Vec<&str> = code.collect();
        let is_unsafe = code.iter().any(|line| line.contains("unsafe "));
        assert_eq!(is_unsafe, UNSAFE.contains(&name), "{name}: unsafe");
        let names_cudarc = code.iter().any(|line| line.contains("cudarc"));
        assert_eq!(names_cudarc, name == "verifier/src/cuda.rs", "{name}");
    }
}
