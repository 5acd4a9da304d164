//! The OpenAPI document: collected from the table of routes, then finished.
//!
//! The parts common to all routes are put in here once: problem documents, the ways to log in, and bounds for
//! numbers. Its text is the same on every run.

use actix_web::App;
use serde_json::{Map, Value, json};
use utoipa::{IntoParams as _, OpenApi as _};
use utoipa_actix_web::AppExt as _;

use super::auth::WhoseTenant;
use super::document::Document;
use super::error::{PROBLEM_JSON, Problem};
use super::limits;
use super::routes::routes;

#[cfg(test)]
mod tests;

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
        (name = "gpus", description = "The catalogue of GPUs and their prices today"),
        (name = "offers", description = "The offers on sale now, and earlier ones"),
        (name = "providers", description = "The providers whose supply is read, and its freshness"),
        (name = "plans", description = "Candidates for a demand, with reasons"),
        (name = "quotes", description = "Prices frozen until they lapse"),
        (name = "reservations", description = "Claims on capacity, from hold to closed"),
        (name = "events", description = "Events, as a list, as a stream and by webhook"),
        (name = "verifications", description = "Machines that prove themselves"),
        (name = "reports", description = "Charges, and their reasons"),
        (name = "spending", description = "Limits, budgets, and a tenant's balance"),
        (name = "capacity", description = "Capacity that is paid for, and agreed prices"),
        (name = "ssh-keys", description = "Public keys that machines get"),
        (name = "identity", description = "API keys, tokens and projects"),
        (name = "audit", description = "Who did what"),
        (name = "plumbing", description = "For machines that run or read the service"),
    )
)]
struct Base;

/// Collects the document from the routes.
#[must_use]
pub fn document() -> Document {
    let (_, collected) = App::new()
        .into_utoipa_app()
        .openapi(Base::openapi())
        .configure(routes)
        .split_for_parts();
    // The document is a tree of plain values with text keys, which always serialises.
    let mut value = serde_json::to_value(collected).unwrap_or_default();
    log_in(&mut value);
    for operation in operations(&mut value) {
        refuse_with_problems(operation);
    }
    name_tenants(&mut value);
    limit_calls(&mut value);
    let named = value["components"]["schemas"].clone();
    close_variants(&mut value, &named);
    name_variants(&mut value["components"]["schemas"]);
    bound_numbers(&mut value);
    Document::new(sorted(value))
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
        "description": "A problem document: the fault, and the remedy",
        "content": { PROBLEM_JSON: { "schema": schema } },
    });
}

/// Paths, with all below them, of resources that no tenant owns, or where a tenant is a filter.
const OF_NO_TENANT: [&str; 4] = ["/metrics", "/v1/audit", "/v1/providers", "/v1/tokens"];

/// Every route of a tenant's takes the one that an administrator means.
fn name_tenants(document: &mut Value) {
    let whose = WhoseTenant::into_params(|| None);
    document["components"]["parameters"]["WhoseTenant"] = json!(whose.first());
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let owned = paths.filter(|(path, _)| {
        let mut others = OF_NO_TENANT.into_iter();
        others.all(|other| *path != other && !path.starts_with(&format!("{other}/")))
    });
    let operations = owned.filter_map(|(_, item)| item.as_object_mut());
    for operation in operations.flat_map(|item| item.values_mut()) {
        let given = operation["parameters"].as_array().cloned();
        let mut parameters = given.unwrap_or_default();
        let is_named = parameters.iter().any(|one| one["name"] == "tenant");
        // A route that states its own security is called without login, or with another one.
        if operation["security"].is_null() && !is_named {
            parameters.push(json!({ "$ref": "#/components/parameters/WhoseTenant" }));
            operation["parameters"] = Value::Array(parameters);
        }
    }
}

/// Every counted route may refuse a call that comes too soon, and shows the caller's remaining quota in each
/// answer.
fn limit_calls(document: &mut Value) {
    let mut said = Map::new();
    for (name, what) in limits::FIELDS {
        let schema = json!({ "type": "integer", "minimum": 0 });
        document["components"]["headers"][name] = json!({ "description": what, "schema": schema });
        let reference = format!("#/components/headers/{name}");
        said.insert(name.to_owned(), json!({ "$ref": reference }));
    }
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    let counted = paths.filter(|(path, _)| limits::counts(path));
    let operations = counted.filter_map(|(_, item)| item.as_object_mut());
    for operation in operations.flat_map(|item| item.values_mut()) {
        let responses = &mut operation["responses"];
        responses["429"] = json!({
            "description": "Too many calls: a problem document, and when to call again",
            "content": responses["default"]["content"],
            "headers": { "retry-after": {
                "description": "After how many seconds a call is allowed again",
                "schema": { "type": "integer", "minimum": 1 },
            } },
        });
        let each = responses.as_object_mut().into_iter().flatten();
        for headers in each.filter_map(|(_, response)| response.as_object_mut()) {
            let headers = headers.entry("headers").or_insert_with(|| json!({}));
            headers
                .as_object_mut()
                .into_iter()
                .for_each(|all| all.extend(said.clone()));
        }
    }
}

/// Joins each variant of a union with its tag field.
///
/// Both are collected as `allOf`. A variant that refuses unknown fields would then refuse that
/// very field, and nothing would fit.
fn close_variants(value: &mut Value, named: &Value) {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| close_variants(item, named)),
        Value::Object(object) => {
            if let Some(joined) = joined_variant(object, named) {
                *object = joined;
            }
            object
                .values_mut()
                .for_each(|item| close_variants(item, named));
        }
        _ => {}
    }
}

fn joined_variant(schema: &Map<String, Value>, named: &Value) -> Option<Map<String, Value>> {
    let [variant, tag] = schema.get("allOf")?.as_array()?.as_slice() else {
        return None;
    };
    let name = variant["$ref"].as_str()?.rsplit('/').next()?;
    let mut joined = named[name].as_object()?.clone();
    if joined.get("additionalProperties") != Some(&json!(false)) {
        return None;
    }
    let fields = joined
        .entry("properties")
        .or_insert_with(|| json!({}))
        .as_object_mut()?;
    fields.extend(tag["properties"].as_object()?.clone());
    let required = joined
        .entry("required")
        .or_insert_with(|| json!([]))
        .as_array_mut()?;
    required.extend(tag["required"].as_array()?.iter().cloned());
    Some(joined)
}

/// Gives each variant of a named union a name of its own, and names the tag field: generators make no
/// classes, or bad ones, of variants without a name.
fn name_variants(schemas: &mut Value) {
    let mut named = Map::new();
    for (union, schema) in schemas.as_object_mut().into_iter().flatten() {
        let mut mapping = Map::new();
        for variant in schema
            .get_mut("oneOf")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            let Some(kind) = variant["properties"]["kind"]["enum"][0].as_str() else {
                continue;
            };
            let name = format!("{union}{}", camel(kind));
            let reference = format!("#/components/schemas/{name}");
            mapping.insert(kind.to_owned(), json!(reference));
            named.insert(
                name,
                std::mem::replace(variant, json!({ "$ref": reference })),
            );
        }
        if !mapping.is_empty() {
            schema["discriminator"] = json!({ "propertyName": "kind", "mapping": mapping });
        }
    }
    schemas
        .as_object_mut()
        .into_iter()
        .for_each(|all| all.extend(named.clone()));
}

/// `serve_batch` as `ServeBatch`.
fn camel(words: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    words.split('_').map(capital).collect()
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

/// The formats that are published for unsigned types are those of signed ones, so they are removed: the
/// bounds are more precise.
fn bound_integer(schema: &mut Map<String, Value>) {
    let unsigned = schema
        .get("minimum")
        .and_then(Value::as_f64)
        .is_some_and(|least| least >= 0.0);
    let format = schema.remove("format");
    let most = match format.as_ref().and_then(Value::as_str) {
        Some("int32") if unsigned => u64::from(u32::MAX),
        Some("int32") => i32::MAX as u64,
        _ => EXACT,
    };
    schema.entry("maximum").or_insert_with(|| json!(most));
    schema
        .entry("minimum")
        .or_insert_with(|| json!(-(most as i64)));
}

/// The same value with the names of all objects in order, independent of the map type behind them.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(object) => {
            let mut fields: Vec<_> = object.into_iter().collect();
            fields.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(
                fields
                    .into_iter()
                    .map(|(name, value)| (name, sorted(value)))
                    .collect(),
            )
        }
        other => other,
    }
}
