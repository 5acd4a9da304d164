//! Earlier sightings of a node's GPUs in other leases, and their meaning for it now.

use super::*;
use crate::evidence::{Sighting, Standing, with_plain_serials};

type Change = fn(&mut Evidence);

/// A sighting in another lease: this GPU, under this listing of this provider.
pub(super) fn met_before<'a>(
    evidence: &'a mut Evidence,
    gpu: usize,
    (provider, sku): (&str, &str),
    standing: Standing,
) -> &'a mut Sighting {
    let shown = evidence.shown_gpus(order().expected.gpu)[gpu].clone();
    let listing = Listing {
        provider: ProviderId::parse(provider).expect("a provider"),
        offer: OfferId::of_identity(&[provider, sku]),
        of_peers: false,
    };
    let history = evidence.history.as_mut().expect("a history");
    history.seen.push(Sighting {
        gpu: shown,
        listing,
        standing,
    });
    history.seen.last_mut().expect("pushed")
}

/// Whether each listing is a marketplace's: that of a GPU's earlier lease, and the one judged.
fn of_peers(evidence: &mut Evidence, (then, now): (bool, bool)) {
    let history = evidence.history.as_mut().expect("a history");
    history.listing.of_peers = now;
    for before in &mut history.seen {
        before.listing.of_peers = then;
    }
}

fn slow_then() -> Standing {
    Standing::Quarantined(vec![FindingCode::MemoryBandwidth])
}

/// The rule's finding.
fn history_of(findings: Vec<Finding>) -> Finding {
    let code = FindingCode::InventoryHistory;
    let found = findings.into_iter().find(|found| found.code == code);
    found.expect("judged")
}

const CASES: &[(Outcome, Change)] = {
    use Outcome::{Failed, NotRun, Warned};
    &[
        (Failed, |e| {
            met_before(e, 3, ("lambda", "x"), Standing::InUse);
        }),
        (Failed, |e| {
            met_before(e, 3, ("lambda", "gpu_8x"), slow_then());
        }),
        (Failed, |e| {
            gpu(e, 3).serial = Some("1650522001234".to_owned());
            met_before(e, 3, ("lambda", "x"), Standing::InUse).gpu.uuid = "GPU-x".to_owned();
        }),
        // A competitor could otherwise show these ids to fail another's GPUs.
        (Warned, |e| {
            met_before(e, 3, ("runpod", "x"), Standing::InUse);
        }),
        (Warned, |e| {
            met_before(e, 3, ("runpod", "x"), slow_then());
        }),
        (Warned, |e| {
            met_before(e, 3, ("runpod", "x"), Standing::Before);
        }),
        (Warned, |e| {
            met_before(e, 3, ("lambda", "gpu_1x"), Standing::Before);
        }),
        (Warned, |e| {
            met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before)
                .gpu
                .memory_mib = 40_000;
        }),
        (Warned, |e| {
            let before = met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before);
            before.gpu.name = "NVIDIA H20".to_owned();
        }),
        (Warned, |e| {
            gpu(e, 3).serial = Some("1650522001234".to_owned());
            let before = met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before);
            before.gpu.serial = Some("1650522009999".to_owned());
        }),
        (Warned, |e| {
            gpu(e, 3).serial = Some("1650522001234".to_owned());
            let before = met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before);
            before.gpu.uuid = "GPU-x".to_owned();
        }),
        (NotRun, |e| e.history = None),
    ]
};

#[test]
fn what_was_seen_before_fails_a_node_only_where_nothing_else_explains_it() {
    for (at, (outcome, change)) in CASES.iter().enumerate() {
        let (unmet, verdict) = after(change);
        assert_eq!(unmet, [(FindingCode::InventoryHistory, *outcome)], "{at}");
        let expected = match outcome {
            Outcome::Failed => Verdict::Fail,
            Outcome::Warned => Verdict::PassWithWarnings,
            _ => Verdict::Pass,
        };
        assert_eq!(verdict, expected, "{at}");
    }
}

#[test]
fn where_either_machine_is_a_peers_history_warns_with_the_reason_and_fails_nobody() {
    for peers in [(true, false), (false, true), (true, true)] {
        for standing in [Standing::InUse, slow_then()] {
            let told = match standing {
                Standing::InUse => "GPU 3: another lease has it just now, bought as",
                _ => "GPU 3: a node with it failed hbm.bw recently, bought as",
            };
            let (findings, verdict) = judged(|e| {
                met_before(e, 3, ("lambda", "gpu_8x"), standing.clone());
                of_peers(e, peers);
            });
            let note = history_of(findings).note;
            assert_eq!(verdict, Verdict::PassWithWarnings, "{peers:?}: {note}");
            let why = "of lambda, which sells machines of other people too: their claims \
                       fail no node.";
            assert!(note.starts_with(told) && note.ends_with(why), "{note}");
        }
    }
    // A marketplace seller's sighting takes nothing from that of the provider's own machines.
    let (findings, verdict) = judged(|e| {
        met_before(e, 3, ("lambda", "x"), Standing::InUse);
        of_peers(e, (true, false));
        met_before(e, 3, ("lambda", "gpu_8x"), slow_then());
    });
    let note = history_of(findings).note;
    assert_eq!(verdict, Verdict::Fail, "{note}");
    assert_eq!(note, "GPU 3: its node failed hbm.bw recently.");
    // At another provider it condemns nobody anyway, and the reason is another one.
    let (findings, verdict) = judged(|e| {
        met_before(e, 3, ("runpod", "x"), Standing::InUse);
        of_peers(e, (true, true));
    });
    let note = history_of(findings).note;
    assert_eq!(verdict, Verdict::PassWithWarnings, "{note}");
    assert!(note.ends_with("of runpod."), "{note}");
}

#[test]
fn a_gpu_of_a_peer_that_comes_back_as_it_was_is_no_news() {
    let change = |e: &mut Evidence| {
        met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before);
        of_peers(e, (true, true));
    };
    assert_eq!(after(change), (Vec::new(), Verdict::Pass));
}

#[test]
fn a_listing_that_says_nothing_of_peers_is_the_machine_of_its_provider() {
    let mut kept = serde_json::to_value(listing()).expect("JSON");
    let said = kept
        .as_object_mut()
        .and_then(|kept| kept.remove("of_peers"));
    assert_eq!(said, Some(serde_json::json!(false)));
    let read: Listing = serde_json::from_value(kept).expect("a listing");
    assert_eq!(read, listing());
}

#[test]
fn a_gpu_that_comes_back_as_it_was_is_no_news_and_neither_are_others() {
    for change in [
        |e: &mut Evidence| {
            met_before(e, 3, ("lambda", "gpu_8x"), Standing::Before);
        },
        |e: &mut Evidence| {
            let before = met_before(e, 3, ("runpod", "x"), Standing::InUse);
            before.gpu.uuid = "GPU-of-another".to_owned();
        },
        |e: &mut Evidence| {
            // Firmware writes zeros where a board has no number.
            gpu(e, 3).serial = Some("0".to_owned());
            let before = met_before(e, 3, ("runpod", "x"), Standing::InUse);
            (before.gpu.uuid, before.gpu.serial) = ("GPU-x".to_owned(), Some("0".to_owned()));
        },
    ] {
        assert_eq!(after(change), (Vec::new(), Verdict::Pass));
    }
}

#[test]
fn both_listings_stand_in_the_warning_and_the_worst_sighting_counts() {
    let note = |change: fn(&mut Evidence)| history_of(judged(change).0).note;
    let resold = note(|e| {
        met_before(e, 3, ("runpod", "x"), Standing::Before);
    });
    let other = OfferId::of_identity(&["runpod", "x"]);
    for part in [
        "GPU 3",
        &other.to_string(),
        "runpod",
        &listing().offer.to_string(),
        "lambda",
    ] {
        assert!(resold.contains(part), "{part}: {resold}");
    }
    let worst = note(|e| {
        met_before(e, 3, ("runpod", "x"), Standing::Before);
        met_before(e, 3, ("lambda", "gpu_8x"), slow_then());
        for gpu in 0..8 {
            met_before(e, gpu, ("lambda", "x"), Standing::InUse);
        }
    });
    assert!(
        worst.contains("GPU 3: its node failed hbm.bw recently"),
        "{worst}"
    );
    assert!(
        worst.contains("GPU 7: another lease has it just now"),
        "{worst}"
    );
}

#[test]
fn a_serial_number_that_is_no_name_says_nothing() {
    let long = "1".repeat(129);
    for (serial, says) in [
        ("1650522001234", true),
        ("1650522001234\u{200b}", false),
        (&long, false),
    ] {
        let mut evidence = good();
        gpu(&mut evidence, 3).serial = Some(serial.to_owned());
        let told = report(&mut evidence).facts.take().expect("facts");
        let kept = with_plain_serials(told).gpus[3].serial.clone();
        assert_eq!(kept.as_deref(), says.then_some(serial));
    }
}
