//! A node is judged for any numbers it claims.

use std::sync::LazyLock;

use market::verification::NodeFacts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A good node's facts, and the positions of its numbers with the largest value of each.
struct Numbers {
    facts: Value,
    largest: Vec<(String, Value)>,
}

static NUMBERS: LazyLock<Numbers> = LazyLock::new(|| {
    let facts = serde_json::to_value(facts(&mut good())).expect("json");
    let mut places = Vec::new();
    find_numbers(&facts, "", &mut places);
    let largest = places.into_iter().map(|place| {
        let may_be = |number: &Value| {
            let mut changed = facts.clone();
            *changed.pointer_mut(&place).expect("found") = number.clone();
            serde_json::from_value::<NodeFacts>(changed).is_ok()
        };
        let numbers = [
            json!(u64::MAX),
            json!(u32::MAX),
            json!(u16::MAX),
            json!(u8::MAX),
        ];
        let number = numbers.into_iter().find(may_be);
        let number = number.unwrap_or_else(|| panic!("{place} takes no number"));
        (place, number)
    });
    let largest = largest.collect();
    Numbers { facts, largest }
});

fn find_numbers(value: &Value, at: &str, places: &mut Vec<String>) {
    match value {
        Value::Number(_) => places.push(at.to_owned()),
        Value::Array(values) => {
            for (index, value) in values.iter().enumerate() {
                find_numbers(value, &format!("{at}/{index}"), places);
            }
        }
        Value::Object(fields) => {
            for (name, value) in fields {
                find_numbers(value, &format!("{at}/{name}"), places);
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_number_of_a_node_is_too_much_for_the_rules(
        seed in prop::collection::vec(0..4_usize, NUMBERS.largest.len()),
        elsewhere in prop::sample::select(vec![0, 1, u64::MAX]),
    ) {
        let mut evidence = good();
        let mut changed = NUMBERS.facts.clone();
        for ((place, largest), choice) in NUMBERS.largest.iter().zip(seed) {
            let number = [json!(0), json!(1), largest.clone()].into_iter().nth(choice);
            if let (Some(number), Some(at)) = (number, changed.pointer_mut(place)) {
                *at = number;
            }
        }
        *facts(&mut evidence) = serde_json::from_value(changed).expect("facts");
        report(&mut evidence).copy_mb_per_s = vec![vec![elsewhere; 2]; GPUS as usize];
        for claim in claims(&mut evidence) {
            claim.memory_mib = elsewhere.min(u64::from(u32::MAX)) as u32;
        }
        for memory in memory(&mut evidence) {
            memory.bad_words = elsewhere;
            memory.lowest_bad_offset = Some(elsewhere);
        }
        for filled in evidence.filled.as_mut().expect("filled") {
            filled.filled_bytes = elsewhere;
        }
        for level in [Level::Quick, Level::Deep] {
            prop_assert!(!findings(&evidence, &order_at(level), false).is_empty());
        }
    }
}

#[test]
fn a_document_is_short_enough_to_be_read_whatever_a_node_lists() {
    use crate::attest::{attest, countersign, verify_attestation};
    use crate::challenge::{Judging, Opening};
    use crate::jws::{LONGEST_JWS, Signer};
    use crate::order::Mode;
    use market::ids::{AttestationId, LeaseId, VerificationId};
    use market::verification::{PairRate, XidEvent};
    use uuid::Uuid;

    let mut evidence = good();
    let long = vec![u64::MAX; 1_000];
    for gpu in &mut facts(&mut evidence).gpus {
        gpu.rates.read_mb_per_s.clone_from(&long);
        gpu.rates.triad_mb_per_s.clone_from(&long);
        gpu.rates.from_host_mb_per_s.clone_from(&long);
        gpu.rates.to_host_mb_per_s.clone_from(&long);
        gpu.rates.from_host_together_mb_per_s.clone_from(&long);
        gpu.rates.gemm_16bit_gflops.clone_from(&long);
        gpu.rates.gemm_fp8_gflops.clone_from(&long);
        gpu.host_link = None;
    }
    report(&mut evidence).copy_mb_per_s = vec![long; GPUS as usize];
    // More GPUs than any node has, each with a problem.
    let odd = facts(&mut evidence)
        .gpus
        .iter()
        .cycle()
        .take(2_000)
        .cloned();
    let odd = odd.map(|gpu| GpuFacts {
        nvlinks_active: Some(7),
        mig_enabled: Some(true),
        ecc_enabled: Some(false),
        used_memory_mib: Some(40_000),
        ..gpu
    });
    facts(&mut evidence).gpus = odd.collect();
    for claim in claims(&mut evidence) {
        claim.name = "漢".repeat(42);
    }
    let runs = facts(&mut evidence).collectives.clone();
    let many = runs.iter().cycle().take(2_000).cloned();
    facts(&mut evidence).collectives = many.collect();
    let event = |gpu| XidEvent {
        gpu: Some(gpu % GPUS),
        xid: u32::MAX - gpu,
    };
    facts(&mut evidence).xids = Some((0..9_999).map(event).collect());
    let pair = |number: u32| PairRate {
        from: number % GPUS,
        to: number / GPUS % GPUS,
        mb_per_s: u64::MAX - u64::from(number),
    };
    facts(&mut evidence).pairs = Some((0..9_999).map(pair).collect());
    let opening = Opening {
        verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
        lease_id: LeaseId::from_uuid(Uuid::from_u128(2)),
        mode: Mode::Real,
        order: order(),
    };
    let judging = Judging {
        attestation_id: AttestationId::from_uuid(Uuid::from_u128(3)),
        now: DateTime::UNIX_EPOCH,
    };
    let attestation = attest(&opening, None, &evidence, judging);
    let longest = attestation.findings.iter().map(|it| it.samples.len()).max();
    assert_eq!(longest, Some(256));
    let notes = attestation.findings.iter();
    let longest = notes.map(|it| it.note.chars().count()).max();
    assert_eq!(longest, Some(2_049));
    let links = attestation.findings.iter();
    let links = links.filter(|it| it.code == FindingCode::NvlinkActive);
    let links: Vec<&str> = links.map(|it| it.note.as_str()).collect();
    let named = links[0].starts_with("GPU 0: 7 of 18 links are up; GPU 1: ");
    assert!(named && links[0].ends_with("and 1992 more."), "{links:?}");
    let signer = Signer::from_seed(&[7; 32]);
    let document = countersign(&attestation, "key", &signer).expect("signed");
    assert!(document.len() < LONGEST_JWS / 2, "{}", document.len());
    let read = verify_attestation(&document, &signer.public_key());
    assert_eq!(read.expect("read"), attestation);
}
