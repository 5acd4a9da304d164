//! A card in an older slot is slower, but nothing is broken.

use market::verification::HostLink;

use super::changes::slots;
use super::*;

const LINK: [FindingCode; 3] = [
    FindingCode::HostLinkShape,
    FindingCode::HostLinkIn,
    FindingCode::HostLinkOut,
];

/// The findings on the host links of eight H100s, which are of generation 5, after a change.
fn found(change: impl FnOnce(&mut Evidence)) -> [Finding; 3] {
    let (findings, _) = judged(change);
    LINK.map(|code| {
        let mut of_code = findings.iter().filter(|found| found.code == code);
        of_code.next().expect("judged").clone()
    })
}

fn outcomes(change: impl FnOnce(&mut Evidence)) -> [Outcome; 3] {
    found(change).map(|found| found.outcome)
}

#[test]
fn slots_of_the_generation_before_warn_and_are_held_against_what_they_carry() {
    use Outcome::{Failed, Met, Warned};
    assert_eq!(outcomes(|e| slots(e, 4, 16, 26_000)), [Warned, Met, Met]);
    let [_, from_host, _] = found(|e| slots(e, 4, 16, 26_000));
    assert_eq!(
        from_host.floor,
        Some(17_328),
        "0.55 of 16 lanes at 1969 MB/s"
    );
    assert!(
        from_host.note.contains("older generation 4"),
        "{from_host:?}"
    );
    assert_eq!(
        outcomes(|e| slots(e, 4, 16, 17_000)),
        [Warned, Failed, Failed]
    );
}

#[test]
fn fewer_lanes_or_a_generation_further_back_fail() {
    use Outcome::Failed;
    assert_eq!(outcomes(|e| slots(e, 5, 8, 26_000)), [Failed; 3]);
    assert_eq!(outcomes(|e| slots(e, 4, 8, 13_000)), [Failed; 3]);
    assert_eq!(outcomes(|e| slots(e, 3, 16, 13_000)), [Failed; 3]);
}

#[test]
fn one_card_that_alone_is_slower_is_held_against_its_own_generation() {
    let outcomes = outcomes(|e| {
        let slow = gpu(e, 3);
        slow.host_link = Some(HostLink {
            generation: 4,
            width: 16,
        });
        slow.rates.from_host_mb_per_s = vec![26_000];
    });
    assert_eq!(outcomes, [Outcome::Warned, Outcome::Failed, Outcome::Met]);
}

#[test]
fn a_generation_that_does_not_exist_is_no_older_slot() {
    for generation in [0, u32::MAX] {
        let [shape, ..] = found(|e| slots(e, generation, 16, 50_000));
        assert!(shape.note.contains("unknown"), "{shape:?}");
    }
}
