//! The document as a whole: valid, closed, bounded, and honest about the rights of readers.

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
        item.as_object()
            .expect("an item")
            .iter()
            .map(move |(method, operation)| {
                (format!("{} {path}", method.to_uppercase()), operation)
            })
    });
    each.collect()
}

#[test]
fn every_reference_leads_somewhere() {
    let document = crate::http::document();
    walk(document.value(), "", &mut |at, object| {
        if let Some(Value::String(reference)) = object.get("$ref") {
            let pointer = reference.trim_start_matches('#');
            assert!(
                document.value().pointer(pointer).is_some(),
                "{at}: {reference}"
            );
        }
    });
}

#[test]
fn every_number_has_bounds() {
    let document = crate::http::document();
    walk(document.value(), "", &mut |at, object| {
        if is_a(object, "integer") || is_a(object, "number") {
            assert!(
                object.contains_key("minimum") && object.contains_key("maximum"),
                "{at}"
            );
        }
    });
}

#[test]
fn every_route_says_what_it_does_and_every_answer_is_described() {
    let document = crate::http::document();
    let mut ids = BTreeSet::new();
    for (route, operation) in operations(&document) {
        assert!(
            ids.insert(operation["operationId"].to_string()),
            "{route}: the id is used twice"
        );
        assert!(
            operation["summary"]
                .as_str()
                .is_some_and(|words| !words.is_empty()),
            "{route}"
        );
        assert!(
            operation["tags"]
                .as_array()
                .is_some_and(|tags| tags.len() == 1),
            "{route}"
        );
        for (status, response) in operation["responses"].as_object().expect("responses") {
            assert!(
                response["description"]
                    .as_str()
                    .is_some_and(|words| !words.is_empty()),
                "{route} {status}"
            );
        }
    }
}

#[test]
fn only_these_routes_are_readable_without_login() {
    let document = crate::http::document();
    let public: Vec<String> = operations(&document)
        .into_iter()
        .filter(|(_, operation)| operation["security"] == json!([{}]))
        .map(|(route, _)| route)
        .collect();
    assert_eq!(
        public,
        [
            "GET /.well-known/jwks.json",
            "GET /docs",
            "GET /healthz",
            "GET /openapi.json",
            "GET /readyz",
            "GET /v1/agents",
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
fn every_route_of_a_tenant_takes_the_tenant_that_an_administrator_means() {
    let document = crate::http::document();
    let shared = json!({ "$ref": "#/components/parameters/WhoseTenant" });
    for (route, operation) in operations(&document) {
        let parameters = operation["parameters"].as_array();
        let mut parameters = parameters.into_iter().flatten();
        let path = route.split(' ').next_back().expect("a path");
        let is_tenants = operation.get("security").is_none()
            && !["/metrics", "/v1/audit", "/v1/tokens"].contains(&path)
            && !path.starts_with("/v1/providers")
            // It cannot be left out there.
            && route != "POST /v1/credits";
        assert_eq!(parameters.any(|one| *one == shared), is_tenants, "{route}");
    }
}

#[test]
fn every_list_says_how_it_is_paged() {
    let document = crate::http::document();
    let mut lists = 0;
    for (route, operation) in operations(&document) {
        let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
        if !schema["$ref"]
            .as_str()
            .is_some_and(|way| way.contains("/Page_"))
        {
            continue;
        }
        lists += 1;
        let parameters = operation["parameters"].as_array().expect("parameters");
        for name in ["cursor", "limit"] {
            let is_said = parameters.iter().any(|one| one["name"] == name);
            assert!(is_said, "{route}: {name}");
        }
    }
    assert!(lists > 10, "{lists}");
}

#[test]
fn what_is_written_refuses_unknown_fields() {
    let document = crate::http::document();
    for (route, operation) in operations(&document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let Some(reference) = schema["$ref"].as_str() else {
            continue;
        };
        let body = document
            .value()
            .pointer(reference.trim_start_matches('#'))
            .expect("a schema");
        let closed = body["additionalProperties"] == json!(false) || body.get("oneOf").is_some();
        assert!(closed, "{route}");
    }
}

#[test]
fn no_union_holds_a_variant_that_nothing_fits() {
    let document = crate::http::document();
    walk(document.value(), "", &mut |at, object| {
        for part in object
            .get("allOf")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let reference = part["$ref"]
                .as_str()
                .unwrap_or_default()
                .trim_start_matches('#');
            let closed = document
                .value()
                .pointer(reference)
                .map(|schema| &schema["additionalProperties"]);
            assert_ne!(closed, Some(&json!(false)), "{at}");
        }
    });
}

#[test]
fn every_kind_of_demand_is_a_schema_with_a_name() {
    let document = crate::http::document();
    let schemas = &document.value()["components"]["schemas"];
    let variants = schemas["Demand"]["oneOf"].as_array().expect("kinds");
    let kinds: Vec<&str> = variants
        .iter()
        .map(|variant| {
            let name = variant["$ref"].as_str().expect("a reference");
            let name = name.rsplit('/').next().expect("a name");
            let kind = &schemas[name]["properties"]["kind"]["enum"][0];
            let mapped = &schemas["Demand"]["discriminator"]["mapping"];
            let kind = kind.as_str().expect("a kind");
            assert_eq!(mapped[kind], variant["$ref"], "{name}");
            kind
        })
        .collect();
    assert_eq!(
        kinds,
        ["gpus", "train", "serve_realtime", "serve_batch", "hybrid"]
    );
}

#[test]
fn no_schema_is_named_for_a_container_that_many_types_share() {
    let document = crate::http::document();
    for name in document.value()["components"]["schemas"]
        .as_object()
        .expect("schemas")
        .keys()
    {
        assert!(
            !["BTreeMap", "HashMap", "Vec", "Option"].contains(&name.as_str()),
            "{name}"
        );
    }
}

#[test]
fn the_document_is_the_same_on_every_run() {
    assert_eq!(
        crate::http::document().text(),
        crate::http::document().text()
    );
}
