//! Which checks a level, or a re-check, demands: `data/rules.csv`.
//!
//! A new rule begins as `shadow`: it is judged and reported, and decides nothing, until results of real nodes
//! confirm it. A check that agents cannot always do is `may`: its failure counts, its absence does not. A
//! `must` check that was not done makes the verdict inconclusive.

use std::sync::LazyLock;

use market::attestation::{FindingCode, Weight};
use market::table;
use market::verification::Level;
use serde::Deserialize;

const TABLE: &str = include_str!("../../data/rules.csv");

/// The weight of one check at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Demand {
    /// It is not part of the level.
    No,
    /// It is tried out.
    Shadow,
    /// It counts if it was done.
    May,
    /// It must be done and met.
    Must,
}

impl Demand {
    /// The weight of such a finding; none where the check is not part of the level.
    #[must_use]
    pub const fn weight(self) -> Option<Weight> {
        match self {
            Self::No => None,
            Self::Shadow => Some(Weight::Shadow),
            Self::May => Some(Weight::May),
            Self::Must => Some(Weight::Must),
        }
    }
}

#[derive(Debug, Deserialize)]
struct Row {
    version: u32,
    code: FindingCode,
    quick: Demand,
    standard: Demand,
    deep: Demand,
    recheck: Demand,
    class: String,
}

fn rows() -> &'static [Row] {
    static ROWS: LazyLock<Vec<Row>> = LazyLock::new(|| table::rows(TABLE));
    &ROWS
}

/// The version of the table with its hash, so that every change shows.
#[must_use]
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let newest = rows().iter().map(|row| row.version).max().unwrap_or(0);
        let digest = blake3::hash(TABLE.as_bytes()).to_hex();
        format!("{newest}-{}", &digest[..8])
    });
    &VERSION
}

fn row(code: FindingCode) -> Option<&'static Row> {
    rows().iter().find(|row| row.code == code)
}

/// The weight of a check at a level.
#[must_use]
pub fn demand(code: FindingCode, level: Level) -> Demand {
    row(code).map_or(Demand::No, |row| match level {
        Level::Quick => row.quick,
        Level::Standard => row.standard,
        Level::Deep => row.deep,
    })
}

/// The weight of a check in a re-check of a node in use.
#[must_use]
pub fn demand_of_recheck(code: FindingCode) -> Demand {
    row(code).map_or(Demand::No, |row| row.recheck)
}

/// The class of failure that a check finds, such as `F5`; none where it protects the conversation itself or
/// concerns only the host. The classes are explained in `docs/verification-checks.md`.
#[must_use]
pub fn class(code: FindingCode) -> Option<&'static str> {
    row(code)
        .map(|row| row.class.as_str())
        .filter(|class| !class.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_one_row_and_levels_never_demand_less_as_they_grow() {
        let codes: Vec<FindingCode> = rows().iter().map(|row| row.code).collect();
        assert_eq!(codes, FindingCode::ALL, "in the order of the codes");
        let order = [Demand::No, Demand::Shadow, Demand::May, Demand::Must];
        let rank = |demand| order.iter().position(|known| *known == demand);
        for row in rows() {
            assert!(rank(row.quick) <= rank(row.standard), "{}", row.code);
            assert!(rank(row.standard) <= rank(row.deep), "{}", row.code);
        }
    }

    #[test]
    fn the_levels_differ() {
        let count = |level, demand_| {
            let codes = FindingCode::ALL.iter();
            codes
                .filter(|code| demand(**code, level) == demand_)
                .count()
        };
        assert!(count(Level::Quick, Demand::No) > count(Level::Standard, Demand::No));
        assert!(count(Level::Standard, Demand::Must) < count(Level::Deep, Demand::Must));
    }

    #[test]
    fn the_documentation_names_the_checks_of_each_class() {
        let page = include_str!("../../../docs/verification-checks.md");
        for number in 1..=14 {
            let name = format!("F{number}");
            let start = format!("| {name} | ");
            let line = page.lines().find(|line| line.starts_with(&start));
            let cell = line.and_then(|line| line.split(" | ").nth(2));
            let mut told: Vec<&str> = cell.expect("its row").split('`').collect();
            told.retain(|word| word.contains('.') && !word.contains(' '));
            told.sort_unstable();
            let rows = rows().iter().filter(|row| row.class == name);
            let mut checks: Vec<&str> = rows.map(|row| row.code.as_str()).collect();
            checks.sort_unstable();
            assert_eq!(told, checks, "{name}");
        }
    }

    #[test]
    fn every_class_of_failure_has_a_check() {
        for number in 1..=14 {
            let name = format!("F{number}");
            let known = FindingCode::ALL
                .iter()
                .any(|code| class(*code) == Some(&name));
            assert!(known, "{name}");
        }
    }
}
