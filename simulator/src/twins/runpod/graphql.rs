//! The GraphQL of `runpod`, as far as clients of the market need it: one query for prices and stock, one
//! mutation that bids. A query may alias every field, as GraphQL allows.

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use super::wire::{self, Cloud, authorized_keys, is_variable, start_script};
use super::{COMMUNITY, is_community, places, sku};
use crate::FaultKind;
use crate::kit::*;

#[derive(Debug, Deserialize)]
struct Body {
    query: String,
    #[serde(default)]
    variables: Value,
}

/// The bid, or the listing, which answers every other query too.
pub(super) fn route(request: &Request) -> Route {
    let body: Result<Body, Refusal> = request.json();
    if body.is_ok_and(|body| body.query.contains("podRentInterruptable")) {
        return Route::launch(order, |made| accepted(&wire::pod(made)));
    }
    Route::to(Operation::Catalog, |call, request| {
        let body: Body = request.json()?;
        let is_listing = body.query.contains("gpuTypes");
        require(is_listing, "Cannot query this field")?;
        Ok(listing(call, &body.query))
    })
}

/// An answer with nothing but an error. The status is 200 all the same.
pub(super) fn refuse(refusal: &Refusal, message: &str) -> Reply {
    let code = match refusal {
        Refusal::Unauthorized => "UNAUTHENTICATED",
        Refusal::Invalid(_) => "BAD_USER_INPUT",
        _ => "RUNPOD",
    };
    let message = match refusal {
        Refusal::Unauthorized => "Unauthorized",
        _ => message,
    };
    let problem = json!({ "message": message, "extensions": { "code": code } });
    Reply::ok(json!({ "data": null, "errors": [problem] }))
}

/// The answer to a bid that was accepted, from the pod as REST shows it.
fn accepted(pod: &Value) -> Reply {
    let made = json!({
        "id": pod["id"],
        "name": pod["name"],
        "desiredStatus": "RUNNING",
        "gpuCount": pod["gpu"]["count"],
        "costPerHr": pod["cost"],
    });
    Reply::ok(json!({ "data": { "podRentInterruptable": made } }))
}

/// Prices and stock of everything that is sold.
fn listing(call: &Call<'_>, query: &str) -> Reply {
    let rows: Vec<&Row> = call.rows().collect();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.sku.as_str()).collect();
    let mut types: Vec<Value> = ids.iter().map(|id| gpu_type(id, &rows, query)).collect();
    types.push(no_type(query));
    let places: BTreeSet<&str> = rows
        .iter()
        .filter(|row| !is_community(row))
        .map(|row| row.place.as_str())
        .collect();
    let mut centers: Vec<Value> = places
        .iter()
        .map(|place| data_center(place, &rows, query))
        .collect();
    if call.fault == Some(FaultKind::EmptyCatalog) {
        centers.clear();
    }
    let types = call.catalog(types);
    let mut body = json!({ "data": { "gpuTypes": types, "dataCenters": centers } });
    if call.fault == Some(FaultKind::PartialCatalog) {
        body["errors"] = json!([{ "message": "Something went wrong" }]);
    }
    Reply::ok(body)
}

/// A field with an input, as the query has it.
struct Field<'a> {
    /// The alias of its answer.
    name: &'a str,
    count: u32,
    secure: bool,
}

/// Every occurrence of this field in the query.
fn asked_for<'a>(query: &'a str, field: &str) -> Vec<Field<'a>> {
    let mut found = Vec::new();
    for (at, word) in query.match_indices(field) {
        let Some(input) = query[at + word.len()..].strip_prefix("(input:") else {
            continue;
        };
        let input = input.split('}').next().unwrap_or_default();
        let value = |name: &str| {
            let after = input.split_once(name)?.1.trim_start_matches([':', ' ']);
            after.split([',', ' ']).next()
        };
        let before = query[..at].trim_end();
        let alias = before.strip_suffix(':').and_then(|before| {
            let before = before.trim_end();
            before.rsplit([' ', '{', '\n']).next()
        });
        found.push(Field {
            name: alias.unwrap_or(&query[at..at + word.len()]),
            count: value("gpuCount")
                .and_then(|count| count.parse().ok())
                .unwrap_or(1),
            secure: value("secureCloud") != Some("false"),
        });
    }
    found
}

/// Keeps the fields that the query names.
fn selected(mut fields: Map<String, Value>, query: &str) -> Map<String, Value> {
    let between = |letter: char| letter.is_whitespace() || matches!(letter, '{' | '}');
    let named: BTreeSet<&str> = query.split(between).collect();
    fields.retain(|name, _| named.contains(name.as_str()));
    fields
}

fn gpu_type(id: &str, rows: &[&Row], query: &str) -> Value {
    let on = |secure: bool| {
        let of_type = rows.iter().filter(move |row| row.sku == id);
        of_type.filter(move |row| is_community(row) != secure)
    };
    let price = |secure| {
        let price = on(secure).next().map(|row| row.price_usd_hour);
        price.unwrap_or_default().to_f64()
    };
    let most = |secure| on(secure).map(|row| row.gpus).max().unwrap_or(0);
    let memory_gb = |row: &&Row| (f64::from(row.gpu_memory_mib) / 1_024.0).round();
    let any = rows.iter().find(|row| row.sku == id);
    let fields = json!({
        "id": id,
        "displayName": any.map(|row| &row.gpu_label),
        "memoryInGb": any.map(|row| memory_gb(row) as u64),
        "secureCloud": on(true).next().is_some(),
        "communityCloud": on(false).next().is_some(),
        "securePrice": price(true),
        "communityPrice": price(false),
        // As seen: they repeat the prices on demand.
        "secureSpotPrice": price(true),
        "communitySpotPrice": price(false),
        "maxGpuCount": most(true).max(most(false)),
        "maxGpuCountSecureCloud": most(true),
        "maxGpuCountCommunityCloud": most(false),
    });
    let Value::Object(fields) = fields else {
        return Value::Null;
    };
    let mut fields = selected(fields, query);
    for field in asked_for(query, "lowestPrice") {
        let sold: Vec<&&Row> = on(field.secure)
            .filter(|row| row.gpus == field.count)
            .collect();
        let free = sold.iter().map(|row| row.free_nodes).sum();
        let lowest = sold.first().map(|row| {
            json!({
                "minimumBidPrice": floor(row).to_f64(),
                "uninterruptablePrice": row.price_usd_hour.to_f64(),
                "stockStatus": stock_word(free),
            })
        });
        fields.insert(field.name.to_owned(), lowest.unwrap_or_default());
    }
    Value::Object(fields)
}

/// The row of no type at all that the real list has.
fn no_type(query: &str) -> Value {
    let fields = json!({
        "id": "unknown",
        "displayName": "unknown",
        "memoryInGb": 0,
        "secureCloud": false,
        "communityCloud": false,
        "securePrice": 0,
        "communityPrice": 0,
    });
    match fields {
        Value::Object(fields) => Value::Object(selected(fields, query)),
        other => other,
    }
}

fn data_center(place: &str, rows: &[&Row], query: &str) -> Value {
    let here: Vec<&&Row> = rows.iter().filter(|row| row.place == place).collect();
    let types: BTreeSet<&str> = here.iter().map(|row| row.sku.as_str()).collect();
    let mut fields = Map::from_iter([
        ("id".to_owned(), json!(place)),
        ("listed".to_owned(), json!(true)),
    ]);
    for field in asked_for(query, "gpuAvailability") {
        let stock = types.iter().map(|id| {
            let mut sold = here.iter().filter(|row| row.sku == *id);
            let row = sold.find(|row| row.gpus == field.count);
            let free = row.map_or(0, |row| row.free_nodes);
            json!({ "gpuTypeId": id, "stockStatus": stock_word(free), "available": free > 0 })
        });
        fields.insert(field.name.to_owned(), stock.collect());
    }
    Value::Object(fields)
}

const fn stock_word(free: u32) -> Option<&'static str> {
    match free {
        0 => None,
        1 => Some("Low"),
        2..=4 => Some("Medium"),
        _ => Some("High"),
    }
}

/// The lowest accepted bid for one GPU and hour.
fn floor(row: &Row) -> Decimal {
    row.price_usd_hour / Decimal::TWO
}

/// The input of a bid. Fields that change nothing here are ignored.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct BidInput {
    bid_per_gpu: Number,
    cloud_type: Cloud,
    gpu_count: u32,
    gpu_type_id: String,
    name: String,
    image_name: String,
    #[serde(default)]
    docker_args: String,
    container_disk_in_gb: Option<u32>,
    /// Separated by commas.
    #[serde(default)]
    ports: String,
    #[serde(default)]
    env: Vec<Variable>,
    data_center_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    key: String,
    value: String,
}

fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body: Body = request.json()?;
    let bid = BidInput::deserialize(&body.variables["input"]);
    let bid = bid.map_err(|error| Refusal::Invalid(format!("Variable \"$input\": {error}")))?;
    let sku = sku(bid.gpu_count, &bid.gpu_type_id);
    let price = Decimal::from_str_exact(&bid.bid_per_gpu.to_string());
    let price = price.map_err(|_| Refusal::Invalid("bidPerGpu: no price".to_owned()))?;
    let secure = bid.cloud_type == Cloud::Secure;
    let mut rows = call.rows();
    let row = rows.find(|row| row.key() == sku && is_community(row) != secure);
    require(
        row.is_none_or(|row| price >= floor(row)),
        "Your bid is too low",
    )?;
    let is_env = bid.env.iter().all(|variable| is_variable(&variable.key));
    require(is_env, "env: a name that no shell knows")?;
    let named = match bid.cloud_type {
        Cloud::Secure => bid.data_center_id.into_iter().collect(),
        Cloud::Community => vec![COMMUNITY.to_owned()],
    };
    let env = bid
        .env
        .into_iter()
        .map(|variable| (variable.key, variable.value));
    let env: BTreeMap<String, String> = env.collect();
    Ok(Order {
        places: places(call, &sku, named),
        sku,
        nodes: 1,
        name: bid.name,
        user_data: Some(start_script(&bid.docker_args, &env)),
        authorized_keys: authorized_keys(&env),
        bid_usd_hour: Some(price),
        echo: json!({
            "image": bid.image_name,
            "args": bid.docker_args,
            "disk": bid.container_disk_in_gb,
            "ports": bid.ports.split(',').map(str::trim).collect::<Vec<_>>(),
            "env": env,
        }),
        ..Order::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_under_each_name_that_it_is_asked_for_by() {
        let query = "query { gpuTypes { id a8: lowestPrice(input: {gpuCount: 8, secureCloud: true}) { x } \
                     b : lowestPrice(input: {secureCloud: false}) { x } lowestPrice(input: {gpuCount: 2}) { x } } }";
        let found: Vec<_> = asked_for(query, "lowestPrice")
            .into_iter()
            .map(|field| (field.name, field.count, field.secure))
            .collect();
        assert_eq!(
            found,
            [("a8", 8, true), ("b", 1, false), ("lowestPrice", 2, true)]
        );
    }
}
