//! The rule on the driver: how its libraries are compared with the published ones.

use std::collections::HashSet;

use market::verification::LibraryFacts;
use proptest::prelude::*;

use super::super::drivers::{Published, Row, published, rows};
use super::super::software::driver_problem;
use super::*;

const FOLDER: &str = "/usr/lib/x86_64-linux-gnu";

/// The finding on a node with this driver that loaded this file.
fn of_library(driver: &str, name: &str, sha256: Option<Digest>) -> Finding {
    let (findings, _) = judged(|e| {
        super::changes::driver(e, driver);
        facts(e).driver.libraries = vec![LibraryFacts {
            path: format!("{FOLDER}/{name}"),
            sha256,
        }];
    });
    let of_software = |found: &Finding| found.code == FindingCode::InventorySoftware;
    findings.into_iter().find(of_software).expect("judged")
}

fn file(version: &str, library: &str) -> Digest {
    let of_file = |row: &&Row| row.version == version && row.library == library;
    rows().iter().find(of_file).expect("a row").sha256
}

#[test]
fn the_table_has_both_libraries_of_each_version_once_and_no_file_twice() {
    let versions: HashSet<&str> = rows().iter().map(|row| row.version.as_str()).collect();
    assert!(versions.len() >= 7, "{versions:?}");
    for version in versions {
        let mut of_version: Vec<&str> = rows()
            .iter()
            .filter(|row| row.version == version)
            .map(|row| row.library.as_str())
            .collect();
        of_version.sort_unstable();
        assert_eq!(of_version, ["libcuda", "libnvidia-ml"], "{version}");
        assert_eq!(driver_problem(version), None, "{version}");
    }
    let files: HashSet<Digest> = rows().iter().map(|row| row.sha256).collect();
    assert_eq!(files.len(), rows().len());
}

#[test]
fn a_library_that_was_published_is_said_to_be_so() {
    for library in ["libcuda", "libnvidia-ml"] {
        let sha256 = Some(file("550.163.01", library));
        let found = of_library("550.163.01", &format!("{library}.so.550.163.01"), sha256);
        assert_eq!(found.outcome, Outcome::Met);
        assert!(found.note.contains("were published"), "{}", found.note);
    }
}

#[test]
fn another_file_than_was_published_of_its_version_warns_and_fails_nobody() {
    let other = Some(Digest([7; 32]));
    for name in ["libcuda.so.550.163.01", "libcuda.so.1", "libcuda.so"] {
        let found = of_library("550.163.01", name, other);
        assert_eq!(found.outcome, Outcome::Warned, "{name}");
        assert!(found.note.contains(name), "{}", found.note);
    }
    // One library in the place of the other.
    let sha256 = Some(file("550.163.01", "libcuda"));
    let found = of_library("550.163.01", "libnvidia-ml.so.1", sha256);
    assert_eq!(found.outcome, Outcome::Warned);
}

#[test]
fn a_version_that_nobody_wrote_down_and_a_file_that_cannot_be_read_are_told_and_do_not_warn() {
    let other = Some(Digest([7; 32]));
    for (driver, name, sha256) in [
        ("580.65.06", "libcuda.so.580.65.06", other),
        ("550.163.01", "libcuda.so.550.163.01", None),
    ] {
        let found = of_library(driver, name, sha256);
        assert_eq!(found.outcome, Outcome::Met, "{name}");
        assert!(found.note.contains("not compared with"), "{}", found.note);
    }
}

#[test]
fn a_newer_library_of_a_container_is_held_against_its_own_version() {
    let name = "libcuda.so.555.58.02";
    let found = of_library("550.163.01", name, Some(file("555.58.02", "libcuda")));
    assert_eq!(found.outcome, Outcome::Met);
    let found = of_library("550.163.01", name, Some(file("550.163.01", "libcuda")));
    assert_eq!(found.outcome, Outcome::Warned);
}

proptest! {
    #[test]
    fn whatever_a_node_calls_its_libraries_is_answered(path in ".{0,64}", driver in ".{0,16}") {
        let loaded = LibraryFacts { path, sha256: Some(Digest([7; 32])) };
        prop_assert_ne!(published(&loaded, &driver), Published::Same);
    }
}
