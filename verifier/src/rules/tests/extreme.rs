//! Whatever numbers a node claims, it is judged.

use std::sync::LazyLock;

use market::verification::NodeFacts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A good node's facts, and where its numbers are with the largest that each may be.
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
