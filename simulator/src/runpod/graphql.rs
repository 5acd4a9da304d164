//! The GraphQL of `runpod`, as far as clients of the market need it: one query for prices and stock, one
//! mutation that bids. A query may alias every field, as GraphQL allows.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::StatusCode;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde_json::{Map, Number, Value, json};

use super::wire::{Cloud, authorized_keys, is_variable, start_script};
use crate::exchange::{Call, Reply};
use crate::machine::Order;
use crate::market::{COMMUNITY, Row};
use crate::world::SimulatedMarket;
use crate::{FaultKind, Provider};

/// The request in a body.
pub(super) enum Asked {
    /// The listing, by the text of the query.
    Listing(String),
    Bid(Box<BidInput>),
    /// A request that is not known here, for this reason.
    Nonsense(String),
}

#[derive(Debug, Deserialize)]
struct Body {
    query: String,
    #[serde(default)]
    variables: Value,
}

impl Asked {
    pub(super) fn parse(body: &[u8]) -> Self {
        let body: Body = match serde_json::from_slice(body) {
            Ok(body) => body,
            Err(error) => return Self::Nonsense(error.to_string()),
        };
        if body.query.contains("podRentInterruptable") {
            return match BidInput::deserialize(&body.variables["input"]) {
                Ok(bid) => Self::Bid(Box::new(bid)),
                Err(error) => Self::Nonsense(format!("Variable \"$input\": {error}")),
            };
        }
        if body.query.contains("gpuTypes") {
            return Self::Listing(body.query);
        }
        Self::Nonsense("Cannot query this field".to_owned())
    }
}

/// An answer with nothing but an error. The status is 200 all the same.
pub(super) fn error(message: &str, code: &str) -> Reply {
    let problem = json!({ "message": message, "extensions": { "code": code } });
    Reply::ok(json!({ "data": null, "errors": [problem] }))
}

/// The answer to a bid that was accepted, from the pod as REST shows it.
pub(super) fn made(pod: &Value) -> Reply {
    let made = json!({
        "id": pod["id"],
        "name": pod["name"],
        "desiredStatus": "RUNNING",
        "gpuCount": pod["gpu"]["count"],
        "costPerHr": pod["cost"],
    });
    Reply::new(
        StatusCode::OK,
        json!({ "data": { "podRentInterruptable": made } }),
    )
}

/// Prices and stock of everything that is sold.
pub(super) fn listing(call: &Call<'_>, query: &str) -> Reply {
    let rows: Vec<&Row> = call.world.rows(Provider::Runpod).collect();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.sku.as_str()).collect();
    let mut types: Vec<Value> = ids.iter().map(|id| gpu_type(id, &rows, query)).collect();
    types.push(no_type(query));
    let places: BTreeSet<&str> = rows
        .iter()
        .filter(|row| !row.is_community())
        .map(|row| row.place.as_str())
        .collect();
    let mut centers: Vec<Value> = places
        .iter()
        .map(|place| data_center(place, &rows, query))
        .collect();
    let mut errors = None;
    if call.fault == Some(FaultKind::EmptyCatalog) {
        types.clear();
        centers.clear();
    }
    if call.fault == Some(FaultKind::PartialCatalog) {
        types.truncate(types.len() / 2);
        errors = Some(json!([{ "message": "Something went wrong" }]));
    }
    let mut body = json!({ "data": { "gpuTypes": types, "dataCenters": centers } });
    if let Some(errors) = errors {
        body["errors"] = errors;
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
        of_type.filter(move |row| row.is_community() != secure)
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
pub(super) struct BidInput {
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

impl BidInput {
    pub(super) fn sku(&self) -> String {
        format!("{}x {}", self.gpu_count, self.gpu_type_id)
    }

    /// The places where the pod may be, and the rest of its order.
    pub(super) fn into_order(
        self,
        world: &SimulatedMarket,
    ) -> Result<(Vec<String>, Order), &'static str> {
        let sku = self.sku();
        let bid = Decimal::from_str_exact(&self.bid_per_gpu.to_string());
        let bid = bid.map_err(|_| "bidPerGpu: no price")?;
        let mut rows = world.rows(Provider::Runpod);
        let secure = self.cloud_type == Cloud::Secure;
        let row = rows.find(|row| row.key() == sku && row.is_community() != secure);
        if row.is_some_and(|row| bid < floor(row)) {
            return Err("Your bid is too low");
        }
        if self.env.iter().any(|variable| !is_variable(&variable.key)) {
            return Err("env: a name that no shell knows");
        }
        let places = match self.cloud_type {
            Cloud::Secure => self.data_center_id.into_iter().collect(),
            Cloud::Community => vec![COMMUNITY.to_owned()],
        };
        let env = self
            .env
            .into_iter()
            .map(|variable| (variable.key, variable.value));
        let env: BTreeMap<String, String> = env.collect();
        let order = Order {
            sku,
            nodes: 1,
            name: self.name,
            user_data: Some(start_script(&self.docker_args, &env)),
            authorized_keys: authorized_keys(&env),
            bid_usd_hour: Some(bid),
            tags: Some(json!({
                "image": self.image_name,
                "args": self.docker_args,
                "disk": self.container_disk_in_gb,
                "ports": self.ports.split(',').map(str::trim).collect::<Vec<_>>(),
                "env": env,
            })),
            ..Order::default()
        };
        Ok((places, order))
    }
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
