//! A thousand good and a thousand broken nodes, drawn from seeds, before the rules.
//!
//! `UPDATE_DOCS=1 cargo test -p verifier --test it seeded` rewrites the table by class of failure in
//! `docs/verification-checks.md`; without it the table is compared with the rules' judgement of the nodes.

mod broken;
mod classes;
mod fraud;
mod node;
mod played;
mod together;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use market::attestation::{Finding, Outcome, Verdict, Weight};
use market::gpu::Gpu;
use market::verification::{Digest, Level};
use verifier::floors::{Floors, Metric};
use verifier::{pretend, rules};

use classes::CLASSES;
use node::Seeded;

const NODES: u32 = 1_000;

/// The findings on a node alone and then, where it passes, together with the others of its gang.
fn judged(node: &Seeded, level: Level) -> (Vec<Finding>, Verdict) {
    let mut findings = rules::findings(&node.evidence, &node.order_at(level), false);
    let alone = rules::verdict(&findings);
    let Some(together) = node.together.as_ref().filter(|_| alone.is_pass()) else {
        return (findings, alone);
    };
    findings.extend(together.findings(node));
    let verdict = rules::verdict(&findings);
    (findings, verdict)
}

/// The results for the nodes of one class.
#[derive(Default)]
struct Tally {
    nodes: u32,
    failed: u32,
    inconclusive: u32,
    by_own_check: u32,
    missed: Vec<Missed>,
}

/// A broken node that passed.
#[derive(Debug)]
struct Missed {
    what: String,
    /// Why no measurement of an agent shows it, where none does.
    unseen: Option<&'static str>,
}

/// Whether a check of this class counted against the node.
fn is_by_check_of(class: &str, findings: &[Finding]) -> bool {
    findings.iter().any(|found| {
        let counts = match found.outcome {
            Outcome::Failed => found.weight != Weight::Shadow,
            Outcome::NotRun => found.weight == Weight::Must,
            Outcome::Warned => true,
            Outcome::Met | Outcome::Noted => false,
        };
        counts && rules::levels::class(found.code) == Some(class)
    })
}

fn broken_tallies() -> Vec<Tally> {
    let mut tallies: Vec<Tally> = CLASSES.iter().map(|_| Tally::default()).collect();
    for number in 0..NODES {
        let at = number as usize % CLASSES.len();
        let class = &CLASSES[at];
        let node = Seeded::broken(number, class);
        let (findings, verdict) = judged(&node, Level::Standard);
        let tally = &mut tallies[at];
        tally.nodes += 1;
        tally.by_own_check += u32::from(is_by_check_of(class.name, &findings));
        match verdict {
            Verdict::Fail => tally.failed += 1,
            Verdict::Inconclusive => tally.inconclusive += 1,
            Verdict::Pass | Verdict::PassWithWarnings => {
                tally.missed.push(Missed {
                    what: format!("seed {number}: {}", node.what),
                    unseen: node.unseen,
                });
            }
        }
    }
    tallies
}

/// The kernels of simulated calibrations.
const KERNELS: Digest = Digest([7; 32]);

/// Floors as they would be if every card were calibrated: 0.93 of the memory rates in the model of good
/// cards, 0.92 of those of products.
fn calibrated() -> Floors {
    let mut table = String::from(
        "version,gpu,metric,kernel,expected,floor_permille,floor_of,calibration,source\n",
    );
    for gpu in Gpu::all() {
        for (metric, word, permille) in [
            (Metric::HbmCopy, "hbm_copy", 930),
            (Metric::HbmRead, "hbm_read", 930),
            (Metric::Gemm16Bit, "gemm_16bit", 920),
            (Metric::GemmFp8, "gemm_fp8", 920),
        ] {
            if let Some(usual) = pretend::usual(gpu, metric) {
                let usual = usual as u64;
                let _ = writeln!(
                    table,
                    "1,{gpu},{word},{KERNELS},{usual},{permille},expected,calibrated,the model"
                );
            }
        }
    }
    Floors::read(&table).expect("a table of floors")
}

/// How many of this many nodes, all of whose GPUs are slower by a factor, do not pass by these floors.
fn slow_caught(percent: u32, nodes: u32, floors: &Floors) -> u32 {
    let caught = |number: &u32| {
        let mut node = Seeded::good(*number);
        broken::slow_down_all(&mut node, f64::from(percent) / 100.0);
        node.facts().kernels = Some(KERNELS);
        let order = node.order_at(Level::Standard);
        let findings = rules::findings_by(&node.evidence, &order, false, floors);
        !rules::verdict(&findings).is_pass()
    };
    (0..nodes).filter(caught).count() as u32
}

/// The faults that only the floors find, where no sibling, counter or limit shows them.
fn slow_table() -> String {
    const SLOW_NODES: u32 = 200;
    let mut text = String::from(
        "| all GPUs at this share of their rate | caught by the committed floors | caught by calibrated floors |\n\
         |---|---|---|\n",
    );
    let tight = calibrated();
    for percent in [100, 95, 90, 80, 70, 60, 50, 40] {
        let loose = slow_caught(percent, SLOW_NODES, Floors::current());
        let tight = slow_caught(percent, SLOW_NODES, &tight);
        let _ = writeln!(
            text,
            "| {percent} % | {loose} of {SLOW_NODES} | {tight} of {SLOW_NODES} |"
        );
    }
    text
}

/// How many of this many gangs do not pass, where one port of one node carries this share of its rate.
fn slow_ports_caught(percent: u32, gangs: usize) -> usize {
    let of_gangs = (0..)
        .map(Seeded::good)
        .filter(|node| node.together.is_some());
    let caught = |node: &mut Seeded| {
        let together = node.together.as_mut().expect("a gang");
        together.slow_down(3, f64::from(percent) / 100.0);
        !judged(node, Level::Standard).1.is_pass()
    };
    of_gangs
        .take(gangs)
        .map(|mut node| caught(&mut node))
        .filter(|caught| *caught)
        .count()
}

/// A port's faults that the nodes of a gang show and its node alone does not.
fn port_table() -> String {
    const GANGS: usize = 100;
    let mut text =
        String::from("| one port of a gang at this share of its rate | caught |\n|---|---|\n");
    for percent in [100, 80, 60, 50, 40, 30, 20, 10] {
        let caught = slow_ports_caught(percent, GANGS);
        let _ = writeln!(text, "| {percent} % | {caught} of {GANGS} |");
    }
    text
}

#[test]
fn calibrated_floors_find_what_loose_ones_let_through() {
    let tight = calibrated();
    assert_eq!(slow_caught(100, 200, &tight), 0, "good nodes stay good");
    assert_eq!(slow_caught(80, 50, Floors::current()), 0);
    assert_eq!(slow_caught(80, 50, &tight), 50);
}

fn table() -> String {
    let mut text = String::from(
        "| class | what is wrong | nodes | failed | inconclusive | missed | seen by a check of its own class |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let tallies = broken_tallies();
    let mut sum = Tally::default();
    for (class, tally) in CLASSES.iter().zip(&tallies) {
        let missed = tally.missed.len();
        let Tally {
            nodes,
            failed,
            inconclusive,
            by_own_check,
            ..
        } = tally;
        let _ = writeln!(
            text,
            "| {} | {} | {nodes} | {failed} | {inconclusive} | {missed} | {by_own_check} |",
            class.name, class.what
        );
        sum.nodes += nodes;
        sum.failed += failed;
        sum.inconclusive += inconclusive;
        sum.by_own_check += by_own_check;
        sum.missed.extend(tally.missed.iter().map(|missed| Missed {
            what: format!("{}, {}", class.name, missed.what),
            ..*missed
        }));
    }
    let missed = sum.missed.len();
    let Tally {
        nodes,
        failed,
        inconclusive,
        by_own_check,
        ..
    } = &sum;
    let _ = writeln!(
        text,
        "| all | | {nodes} | {failed} | {inconclusive} | {missed} | {by_own_check} |\n"
    );
    let good = good_verdicts();
    let count = |verdict| good.iter().filter(|(one, _)| *one == verdict).count();
    let _ = writeln!(
        text,
        "| good nodes | pass | pass with warnings | rejected |\n|---|---|---|---|"
    );
    let rejected = count(Verdict::Fail) + count(Verdict::Inconclusive);
    let _ = writeln!(
        text,
        "| {} | {} | {} | {rejected} |\n",
        good.len(),
        count(Verdict::Pass),
        count(Verdict::PassWithWarnings)
    );
    let _ = writeln!(text, "Missed of the broken ones:\n");
    let mut unseen: BTreeMap<&str, u32> = BTreeMap::new();
    for missed in &sum.missed {
        match missed.unseen {
            Some(why) => *unseen.entry(why).or_default() += 1,
            None => {
                let _ = writeln!(text, "- {}", missed.what);
            }
        }
    }
    for (why, nodes) in unseen {
        let _ = writeln!(text, "- {nodes}: {why}");
    }
    if sum.missed.is_empty() {
        let _ = writeln!(text, "- none");
    }
    let _ = write!(text, "\n{}\n{}", port_table(), slow_table());
    text
}

/// The verdicts on good nodes, with the findings that counted against them.
fn good_verdicts() -> Vec<(Verdict, Vec<Finding>)> {
    let of = |number| {
        let node = Seeded::good(number);
        let (findings, verdict) = judged(&node, Level::Standard);
        let unmet = |found: &Finding| matches!(found.outcome, Outcome::Failed | Outcome::NotRun);
        (verdict, findings.into_iter().filter(unmet).collect())
    };
    (0..NODES).map(of).collect()
}

#[test]
fn of_a_thousand_good_nodes_at_most_five_are_rejected() {
    let rejected: Vec<_> = good_verdicts()
        .into_iter()
        .filter(|(verdict, _)| !verdict.is_pass())
        .collect();
    assert!(
        rejected.len() <= 5,
        "{} rejected: {rejected:#?}",
        rejected.len()
    );
}

/// The reasons for missed nodes are in `docs/verification-checks.md`.
#[test]
fn of_a_thousand_broken_nodes_at_least_990_are_caught() {
    let missed: Vec<Missed> = broken_tallies()
        .into_iter()
        .flat_map(|tally| tally.missed)
        .collect();
    assert!(missed.len() <= 10, "{} missed: {missed:#?}", missed.len());
    let told: Vec<_> = missed.iter().filter(|m| m.unseen.is_none()).collect();
    assert!(told.is_empty(), "{told:#?}");
}

/// As far as any measurement shows it: a class that only checks of other classes detect would have no check
/// of its own.
#[test]
fn every_class_is_seen_by_its_own_checks() {
    for (class, tally) in CLASSES.iter().zip(broken_tallies()) {
        let unseen = tally.missed.iter().filter(|m| m.unseen.is_some()).count() as u32;
        let (own, nodes) = (tally.by_own_check, tally.nodes - unseen);
        assert!(own * 10 >= nodes * 9, "{}: {own} of {nodes}", class.name);
    }
}

#[test]
fn the_table_in_the_documentation_is_what_the_rules_make_of_the_nodes() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/verification-checks.md");
    let text = std::fs::read_to_string(&page).expect("the page");
    let (open, close) = ("<!-- seeded nodes -->\n", "<!-- end of seeded nodes -->");
    let (before, rest) = text.split_once(open).expect("a place for the table");
    let (_, behind) = rest.split_once(close).expect("an end of the table");
    let written = format!("{before}{open}\n{}\n{close}{behind}", table().trim_end());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&page, &written).expect("written");
        print!("{}", table());
    }
    let now = std::fs::read_to_string(&page).expect("the page");
    assert!(
        now == written,
        "run `cargo xtask verification-table` and review the change"
    );
}
