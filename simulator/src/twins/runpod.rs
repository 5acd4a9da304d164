//! The answers of `runpod`, by the specification of its REST v2 (2.0.0, 2026-08) and its pages of 2026-10.
//!
//! Our choices where those leave something open: the stock words; a data centre lists what it has sold out; a pod
//! that was deleted is gone at once; no capacity is a 400 with words; a pod that was taken back is `EXITED`. A pod
//! runs its command with the environment of its order, up to the image's own start, which would run for ever.

use std::collections::{BTreeMap, BTreeSet};

use rust_decimal::prelude::ToPrimitive;
use serde_json::{Value, json};

use crate::kit::*;

/// The place of everything on the community cloud.
const COMMUNITY: &str = "community";

static RUNPOD: Twin = Twin {
    id: "runpod",
    timing: Timing::boot(120),
    is_container: true,
    ssh_user: "root",
    paging: Some(Paging::new(By::Cursor("cursor"), "limit", 1_000, 1_000)),
    rows: RowRules {
        per: PriceBasis::Gpu,
        key: |row| format!("{}x {}", row.gpus, row.sku),
        // One price a GPU of a type on each cloud, whatever the count.
        price_group: |row| format!("{} {}", cloud(row), row.sku),
        ..RowRules::BASE
    },
    words: StatusWords {
        booting: "STARTING",
        running: "RUNNING",
        failed: "ERROR",
        ending: "TERMINATED",
        gone: "TERMINATED",
        preempted: Some("EXITED"),
        ..Twin::BASE.words
    },
    route,
    machine: pod,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `runpod`: containers, one to a pod.
    pub const RUNPOD: Self = Self::of(&RUNPOD);
}

fn cloud(row: &Row) -> &'static str {
    ["SECURE", "COMMUNITY"][usize::from(row.place == COMMUNITY)]
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["v2", "catalog", "gpus"]) => Route::to(Operation::Catalog, gpus),
        ("GET", ["v2", "catalog", "datacenters"]) => Route::to(Operation::Places, data_centers),
        ("GET", ["v2", "pods"]) => Route::list(|page| {
            let more = json!({ "hasNextPage": page.next.is_some(), "nextCursor": page.next });
            Reply::ok(json!({ "pods": page.items, "pagination": more }))
        }),
        ("POST", ["v2", "pods"]) => Route::launch(order, |made| Reply::new(201, pod(made))),
        ("GET", ["v2", "pods", _]) => Route::read(Reply::ok),
        ("DELETE", ["v2", "pods", _]) => Route::release(|| Reply::empty(204)),
        _ => return None,
    })
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let (status, detail) = match refusal {
        Refusal::SoldOut => (400, "There are no longer any instances available"),
        Refusal::UnknownSku | Refusal::UnknownPlace => (400, "this cannot be deployed"),
        Refusal::Invalid(why) => (422, why.as_str()),
        other => (other.status(), other.words()),
    };
    let body = json!({ "title": "Refused", "status": status, "detail": detail });
    Reply::new(status, body)
}

fn listed(id: &str, free: u32) -> Value {
    let level = ["NONE", "LOW", "MEDIUM", "HIGH"][free.min(3) as usize];
    json!({ "id": id, "name": id, "availability": level })
}

/// Every type, with the stock of one cloud and count.
fn gpus(call: &mut Call<'_>, request: &Request) -> Answer {
    let asked = |name| request.query(name).unwrap_or_default();
    let ids: BTreeSet<&str> = call.rows().map(|row| row.sku.as_str()).collect();
    let types = ids.into_iter().map(|id| {
        let rows: Vec<&Row> = call.rows().filter(|row| row.sku == id).collect();
        let on = |name| rows.iter().filter(move |row| cloud(row) == name);
        let most = |name| on(name).map(|row| row.gpus).max().unwrap_or(0);
        let price = |name| on(name).find_map(|row| row.price_usd_hour.to_f64());
        let of_size = on(asked("cloud")).filter(|row| row.gpus.to_string() == asked("count"));
        let free = of_size.filter(|row| row.free_nodes > 0);
        let most_free = free.clone().map(|row| row.free_nodes).max();
        let centres = free.filter(|row| row.place != COMMUNITY);
        let centres: Vec<Value> = centres.map(|it| listed(&it.place, it.free_nodes)).collect();
        without_nulls(json!({
            "id": id, "name": rows[0].gpu_label, "memory": (rows[0].gpu_memory_mib + 512) / 1_024,
            "secure": most("SECURE") > 0, "community": most("COMMUNITY") > 0,
            "price": { "secure": price("SECURE").unwrap_or(0.0), "community": price("COMMUNITY").unwrap_or(0.0) },
            "maxCount": { "secure": most("SECURE"), "community": most("COMMUNITY") },
            "availability": listed(id, most_free.unwrap_or(0))["availability"],
            "dataCenters": (!centres.is_empty()).then_some(centres),
        }))
    });
    let types = call.catalog(types.collect());
    Ok(Reply::ok(json!({ "gpus": types })))
}

/// Every data centre, with the types that it has in whatever count.
fn data_centers(call: &mut Call<'_>, _: &Request) -> Answer {
    let center = |rows: &[&Row]| {
        let types = rows.iter().map(|row| listed(&row.sku, row.free_nodes));
        json!({ "id": rows[0].place, "gpuAvailability": types.collect::<Vec<_>>() })
    };
    let mut centers = call.records(|row| row.place.clone(), center);
    centers.retain(|center| center["id"] != COMMUNITY);
    Ok(Reply::ok(json!({ "dataCenters": centers })))
}

/// The order of a pod. Its script is the command with its variables, up to the image's own start.
fn order(_: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let (body, echo) = (request.fields()?, request.json::<Value>()?);
    let place = body.texts("dataCenterIds", 0..=1)?.pop();
    let env: BTreeMap<String, String> = body.of("env")?.unwrap_or_default();
    let keys = env.get("PUBLIC_KEY").cloned().unwrap_or_default();
    let variables = env.iter().map(|(name, value)| format!("{name}={value}"));
    let command = [body.texts("entrypoint", 0..=9)?, body.texts("cmd", 0..=9)?].concat();
    let words = variables.chain(command).map(|word| {
        let word = word.split("\n[ -x /start.sh ]").next().unwrap_or_default();
        format!(" '{}'", word.replace('\'', r"'\''"))
    });
    let script = format!("#!/bin/sh\nexec env{}\n", words.collect::<String>());
    let id = echo["gpu"]["id"].as_str().unwrap_or_default();
    let sku = format!("{}x {id}", echo["gpu"]["count"]);
    Ok(Order {
        name: body.text("name")?,
        authorized_keys: keys.lines().map(str::to_owned).collect(),
        user_data: Some(script),
        echo,
        ..Order::of(sku, place.as_deref().unwrap_or(COMMUNITY))
    })
}

/// A pod as it is listed: its order, and what became of it.
fn pod(shown: &Shown<'_>) -> Value {
    let mut pod = shown.order.echo.clone();
    let place = Some(shown.place()).filter(|it| *it != COMMUNITY && shown.phase != Phase::Booting);
    let direct = |host: &Host| json!({ "host": host.public_ip, "port": shown.ssh_port });
    pod["id"] = json!(shown.id);
    pod["status"] = json!(shown.status());
    pod["dataCenterId"] = json!(place);
    pod["ssh"] = json!({ "proxy": null, "direct": shown.host().map(direct) });
    pod["cost"] = json!(shown.price_usd_hour().to_f64());
    pod["createdAt"] = json!(shown.created_at.to_rfc3339());
    pod
}
