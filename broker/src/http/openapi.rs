//! The OpenAPI document: collected from the table of routes, then finished.
//!
//! What every route has in common is put in here once: problem documents, the ways to log in, and
//! bounds for numbers. Its text is the same on every run.

use actix_web::App;
use serde_json::{Map, Value, json};
use utoipa::OpenApi as _;
use utoipa_actix_web::AppExt as _;

use super::error::{PROBLEM_JSON, Problem};
use super::routes::routes;

/// The largest integer that every JSON reader keeps exact.
const EXACT: u64 = (1 << 53) - 1;

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "GPU broker",
        description = "Finds GPU capacity at many providers, reserves it, proves it and accounts for it. \
            Amounts are decimal strings in US dollars, times RFC 3339 in UTC. Errors are problem \
            documents (RFC 9457) with a stable `code`.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(Problem)),
    tags(
        (name = "gpus", description = "The catalogue of GPUs and what they cost today"),
        (name = "offers", description = "What is sold right now, and what was sold before"),
        (name = "providers", description = "Whose supply is read, and how fresh it is"),
        (name = "plans", description = "Candidates for a demand, with reasons"),
        (name = "quotes", description = "Prices frozen until they lapse"),
        (name = "reservations", description = "Claims on capacity, from hold to closed"),
        (name = "verifications", description = "Machines that prove themselves"),
        (name = "reports", description = "What was charged, for what"),
        (name = "ssh-keys", description = "Public keys that machines get"),
        (name = "identity", description = "API keys and tokens"),
        (name = "plumbing", description = "For machines that run or read the service"),
    )
)]
struct Base;

/// The finished document.
#[derive(Debug)]
pub struct Document {
    value: Value,
    text: String,
}

impl Document {
    /// Collects the document from the routes.
    #[must_use]
    pub fn of_routes() -> Self {
        let (_, collected) =
            App::new().into_utoipa_app().openapi(Base::openapi()).configure(routes).split_for_parts();
        // The document is a tree of plain values with text keys, which always serialises.
        let mut value = serde_json::to_value(collected).unwrap_or_default();
        log_in(&mut value);
        for operation in operations(&mut value) {
            refuse_with_problems(operation);
        }
        bound_numbers(&mut value);
        let value = sorted(value);
        let text = format!("{value:#}\n");
        Self { value, text }
    }

    /// The document as JSON text, indented, its names in order.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The document.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Every path with its methods.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.value["paths"].as_object().into_iter().flatten().map(|(path, item)| {
            let methods = item.as_object().into_iter().flatten().map(|(method, _)| method.to_uppercase());
            (path.as_str(), methods.collect())
        })
    }
}

fn log_in(document: &mut Value) {
    document["components"]["securitySchemes"] = json!({
        "bearer": {
            "type": "http", "scheme": "bearer",
            "description": "An API key (`gpb_…`), or a token traded for one at `POST /v1/tokens`",
        },
        "verification_token": {
            "type": "http", "scheme": "bearer",
            "description": "The one-time token that a node's start-up script carries",
        },
    });
    document["security"] = json!([{ "bearer": [] }]);
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    document["paths"]
        .as_object_mut()
        .into_iter()
        .flat_map(|paths| paths.values_mut())
        .filter_map(Value::as_object_mut)
        .flat_map(|item| item.values_mut())
}

/// Every route can refuse, always in the same form.
fn refuse_with_problems(operation: &mut Value) {
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    operation["responses"]["default"] = json!({
        "description": "A problem document: what is wrong, and what to do",
        "content": { PROBLEM_JSON: { "schema": schema } },
    });
}

/// Gives every number the bounds of its type where it has no narrower ones.
fn bound_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(bound_numbers),
        Value::Object(object) => {
            if is_a(object, "integer") {
                bound_integer(object);
            } else if is_a(object, "number") {
                object.entry("minimum").or_insert_with(|| json!(-1e15));
                object.entry("maximum").or_insert_with(|| json!(1e15));
            }
            object.values_mut().for_each(bound_numbers);
        }
        _ => {}
    }
}

fn is_a(schema: &Map<String, Value>, wanted: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(word)) => word == wanted,
        Some(Value::Array(words)) => words.iter().any(|word| word == wanted),
        _ => false,
    }
}

/// The formats that are published for unsigned types are those of signed ones, so they go: the
/// bounds say more.
fn bound_integer(schema: &mut Map<String, Value>) {
    let unsigned = schema.get("minimum").and_then(Value::as_f64).is_some_and(|least| least >= 0.0);
    let format = schema.remove("format");
    let most = match format.as_ref().and_then(Value::as_str) {
        Some("int32") if unsigned => u64::from(u32::MAX),
        Some("int32") => i32::MAX as u64,
        _ => EXACT,
    };
    schema.entry("maximum").or_insert_with(|| json!(most));
    schema.entry("minimum").or_insert_with(|| json!(-(most as i64)));
}

/// The same value with the names of all objects in order, whatever map is behind them.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(object) => {
            let mut fields: Vec<_> = object.into_iter().collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(fields.into_iter().map(|(name, value)| (name, sorted(value))).collect())
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Calls `look` with every object of the document and the way to it.
    fn walk(value: &Value, at: &str, look: &mut impl FnMut(&str, &Map<String, Value>)) {
        match value {
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{index}"), look);
                }
            }
            Value::Object(object) => {
                look(at, object);
                for (name, item) in object {
                    walk(item, &format!("{at}/{name}"), look);
                }
            }
            _ => {}
        }
    }

    fn operations(document: &Document) -> Vec<(String, &Value)> {
        let paths = document.value()["paths"].as_object().expect("paths");
        let each = paths.iter().flat_map(|(path, item)| {
            item.as_object().expect("an item").iter().map(move |(method, operation)| {
                (format!("{} {path}", method.to_uppercase()), operation)
            })
        });
        each.collect()
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = Document::of_routes();
        walk(document.value(), "", &mut |at, object| {
            if let Some(Value::String(reference)) = object.get("$ref") {
                let pointer = reference.trim_start_matches('#');
                assert!(document.value().pointer(pointer).is_some(), "{at}: {reference}");
            }
        });
    }

    #[test]
    fn every_number_has_bounds() {
        let document = Document::of_routes();
        walk(document.value(), "", &mut |at, object| {
            if is_a(object, "integer") || is_a(object, "number") {
                assert!(object.contains_key("minimum") && object.contains_key("maximum"), "{at}");
            }
        });
    }

    #[test]
    fn every_route_says_what_it_does_and_every_answer_is_described() {
        let document = Document::of_routes();
        let mut ids = BTreeSet::new();
        for (route, operation) in operations(&document) {
            assert!(ids.insert(operation["operationId"].to_string()), "{route}: the id is used twice");
            assert!(operation["summary"].as_str().is_some_and(|words| !words.is_empty()), "{route}");
            assert!(operation["tags"].as_array().is_some_and(|tags| tags.len() == 1), "{route}");
            for (status, response) in operation["responses"].as_object().expect("responses") {
                assert!(response["description"].as_str().is_some_and(|words| !words.is_empty()), "{route} {status}");
            }
        }
    }

    #[test]
    fn only_these_routes_are_readable_without_login() {
        let document = Document::of_routes();
        let public: Vec<String> = operations(&document)
            .into_iter()
            .filter(|(_, operation)| operation["security"] == json!([{}]))
            .map(|(route, _)| route)
            .collect();
        assert_eq!(
            public,
            [
                "GET /.well-known/jwks.json",
                "GET /healthz",
                "GET /openapi.json",
                "GET /readyz",
                "GET /v1/agents/{sha256}",
                "GET /v1/gpus",
                "GET /v1/gpus/{gpu}/index",
                "GET /v1/offers",
                "GET /v1/offers/{id}",
                "GET /v1/offers/{id}/history",
            ]
        );
    }

    #[test]
    fn what_is_written_refuses_unknown_fields() {
        let document = Document::of_routes();
        for (route, operation) in operations(&document) {
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let Some(reference) = schema["$ref"].as_str() else { continue };
            let body = document.value().pointer(reference.trim_start_matches('#')).expect("a schema");
            let closed = body["additionalProperties"] == json!(false) || body.get("oneOf").is_some();
            assert!(closed, "{route}");
        }
    }

    #[test]
    fn the_document_is_the_same_on_every_run() {
        assert_eq!(Document::of_routes().text(), Document::of_routes().text());
    }
}
