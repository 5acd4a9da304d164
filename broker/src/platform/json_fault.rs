//! Which field of a JSON value its reader refuses, and why.
//!
//! The readers of serde name the fault and not its place, since a demand is read in two steps. So the field
//! is searched for. Readers take fields in their order and stop at the first fault. The last field that
//! changes their message when it is malformed is the one that they stopped at.

use serde::de::DeserializeOwned;
use serde_json::Value;

/// The largest value in which a field is searched for, in fields and items of all depths: each try reads all
/// of it once more.
const LARGEST: usize = 500;

/// Reads a value into `T`.
///
/// Errors: the fault, in words that begin with the field: `window.end: …`.
pub(crate) fn read<T: DeserializeOwned>(mut value: Value) -> Result<T, String> {
    let Err(error) = T::deserialize(&value) else {
        return serde_json::from_value(value).map_err(|error| error.to_string());
    };
    let why = error.to_string();
    // These name a field, which is missing or too much, and nothing that is put out of shape.
    if why.starts_with("missing field") || why.starts_with("unknown field") {
        return Err(why);
    }
    if size(&value) > LARGEST {
        return Err(why);
    }
    let path = path_of::<T>(&mut value, &why);
    if path.is_empty() {
        return Err(why);
    }
    let said = value.pointer(&pointer(&path)).and_then(shown);
    let field = name(&path);
    Err(match said {
        Some(said) if !why.contains(&said) => format!("{field} is `{said}`: {why}"),
        _ => format!("{field}: {why}"),
    })
}

/// A step into a value.
#[derive(Clone)]
enum Step {
    Field(String),
    Item(usize),
}

/// The path to the refused part; the value is unchanged afterwards.
fn path_of<T: DeserializeOwned>(value: &mut Value, why: &str) -> Vec<Step> {
    let mut path = Vec::new();
    while let Some(step) = next_step::<T>(value, &path, why) {
        path.push(step);
    }
    path
}

fn next_step<T: DeserializeOwned>(value: &mut Value, path: &[Step], why: &str) -> Option<Step> {
    let here = pointer(path);
    let steps: Vec<_> = match value.pointer(&here)? {
        Value::Object(fields) => fields.keys().cloned().map(Step::Field).collect(),
        Value::Array(items) => (0..items.len()).map(Step::Item).collect(),
        _ => return None,
    };
    let mut decides = |step: &Step| {
        let at = format!("{here}{}", pointer(std::slice::from_ref(step)));
        let Some(place) = value.pointer_mut(&at) else {
            return false;
        };
        // No field of ours is a list of lists of lists.
        let was = std::mem::replace(place, serde_json::json!([[[]]]));
        let now = T::deserialize(&*value).err().map(|error| error.to_string());
        if let Some(place) = value.pointer_mut(&at) {
            *place = was;
        }
        now.as_deref() != Some(why)
    };
    // The tag of a demand's kind is read before all other fields.
    let is_tag = |step: &&Step| matches!(step, Step::Field(name) if name == "kind");
    let (tags, others): (Vec<_>, Vec<_>) = steps.iter().rev().partition(is_tag);
    let first = others.into_iter().chain(tags).find(|step| decides(step));
    first.cloned()
}

/// Fields and items of all depths.
fn size(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len() + fields.values().map(size).sum::<usize>(),
        Value::Array(items) => items.len() + items.iter().map(size).sum::<usize>(),
        _ => 0,
    }
}

/// The way as a JSON pointer.
fn pointer(path: &[Step]) -> String {
    let steps = path.iter().map(|step| match step {
        Step::Field(name) => format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        Step::Item(at) => format!("/{at}"),
    });
    steps.collect()
}

/// The way as people write it: `users[2].country`.
fn name(path: &[Step]) -> String {
    let mut name = String::new();
    for step in path {
        match step {
            Step::Field(field) if name.is_empty() => name.push_str(field),
            Step::Field(field) => name.extend([".", field]),
            Step::Item(at) => name.push_str(&format!("[{at}]")),
        }
    }
    name
}

/// The value there, where it is one word or number.
fn shown(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return None,
    };
    let is_short = text.len() <= 80 && !text.is_empty() && !text.contains(char::is_control);
    is_short.then_some(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use market::demand::Demand;
    use market::ids::ProviderId;
    use market::provider_facts::ProviderFacts;
    use serde_json::json;

    use super::*;

    fn fault(demand: Value) -> String {
        read::<Demand>(demand).expect_err("a fault")
    }

    fn chat(fields: Value) -> Value {
        let mut demand = json!({
            "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
            "input_tokens": 512, "output_tokens": 256,
        });
        let all = demand.as_object_mut().expect("fields");
        all.extend(fields.as_object().expect("fields").clone());
        demand
    }

    #[test]
    fn what_fits_is_read() {
        let demand = read::<Demand>(chat(json!({}))).expect("a demand");
        assert!(matches!(demand, Demand::ServeRealtime(_)));
    }

    #[test]
    fn a_value_of_another_kind_is_told_with_its_field_and_what_it_is() {
        for (fields, field, word) in [
            (json!({ "input_tokens": "many" }), "input_tokens", "many"),
            (json!({ "output_tokens": -1 }), "output_tokens", "-1"),
            (json!({ "weights": "fp9" }), "weights", "fp9"),
            (
                json!({ "window": { "duration_hours": "a day" } }),
                "window.duration_hours",
                "a day",
            ),
            (
                json!({ "window": { "end": "2026-13-01T00:00:00Z" } }),
                "window.end",
                "2026-13-01T00:00:00Z",
            ),
            (
                json!({ "users": [{ "country": "DE", "share": 0.5 }, { "country": "Mars", "share": 0.5 }] }),
                "users[1].country",
                "Mars",
            ),
            (json!({ "kind": "serve" }), "kind", "serve"),
        ] {
            let told = fault(chat(fields));
            assert!(told.starts_with(field), "{field}: {told}");
            assert!(told.contains(word), "{word}: {told}");
        }
        let told = fault(chat(json!({ "places": { "countries": "DE" } })));
        assert!(told.starts_with("places.countries"), "{told}");
    }

    #[test]
    fn of_two_faults_in_the_same_words_the_first_is_told() {
        let told = fault(chat(
            json!({ "input_tokens": "many", "output_tokens": "many" }),
        ));
        assert!(told.starts_with("input_tokens"), "{told}");
    }

    #[test]
    fn the_fields_of_a_half_are_told_with_the_half() {
        let told = fault(json!({
            "kind": "hybrid",
            "train": { "model": "Llama 3 8B", "tokens": "all" },
            "serve": chat(json!({})),
        }));
        assert!(told.starts_with("train.tokens"), "{told}");
    }

    #[test]
    fn in_a_very_large_value_no_field_is_looked_for() {
        let users = |count: usize| {
            let mut users = vec![json!({ "country": "DE", "share": 0.01 }); count];
            users.push(json!({ "country": "DE", "share": "all" }));
            fault(chat(json!({ "users": users })))
        };
        assert!(users(100).starts_with("users[100].share: "));
        assert!(users(1_000).starts_with("invalid type"));
    }

    #[test]
    fn what_is_missing_or_too_much_is_named_by_its_reader() {
        let told = fault(chat(json!({ "tokens_in": 3 })));
        assert!(told.starts_with("unknown field `tokens_in`"), "{told}");
        let told = fault(json!({ "kind": "gpus", "count": 8 }));
        assert_eq!(told, "missing field `gpu`");
        let told = fault(json!("gpus"));
        assert!(told.starts_with("invalid type: string"), "{told}");
    }

    #[test]
    fn a_date_that_there_is_not_is_told_with_the_provider_and_the_certificate() {
        let facts = json!({
            "nebius": { "certifications": [
                { "name": "iso27001", "evidence": "seen", "valid_until": "2027-02-28" },
                { "name": "c5", "evidence": "seen", "valid_until": "2027-02-30" },
            ] },
        });
        let told = read::<BTreeMap<ProviderId, ProviderFacts>>(facts).expect_err("a fault");
        assert!(
            told.starts_with("nebius.certifications[1].valid_until is `2027-02-30`: "),
            "{told}"
        );
    }
}
