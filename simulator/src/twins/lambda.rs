//! The answers of `lambda`, by the published specification of its API, version 1.10.0.
//!
//! Our choices where that leaves something open: a launch that was accepted and fails becomes `unhealthy`; a
//! machine that was terminated is listed as `terminating` for a while, then only found by its id as
//! `terminated`; 429 and "not yet" have codes of their own; a key needs its `public_key`; `ssh_port` is ours.

use serde_json::{Value, json};

use crate::kit::*;

static LAMBDA: Twin = Twin {
    id: "lambda",
    base_path: "/api/v1",
    timing: Timing::boot(300).ending(15),
    keeps_gone: true,
    ids: Ids::Hex(32),
    rows: RowRules::BASE.in_cents(),
    words: StatusWords {
        running: "active",
        failed: "unhealthy",
        ending: "terminating",
        gone: "terminated",
        preempted: Some("preempted"),
        ..Twin::BASE.words
    },
    route,
    machine,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `lambda`: virtual machines, one to a launch.
    pub const LAMBDA: Self = Self::of(&LAMBDA);
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["instance-types"]) => Route::catalog(types, |page| {
            data(by_name(page.items, "/instance_type/name"))
        }),
        ("GET", ["regions"]) => Route::places(region, list),
        ("GET", ["instances"]) => Route::list(list),
        ("GET", ["instances", id]) if !id.is_empty() => Route::read(data),
        ("POST", ["instance-operations", "launch"]) => {
            Route::launch(order, |made| data(json!({ "instance_ids": [made.id] })))
        }
        ("POST", ["instance-operations", "terminate"]) => Route::to(Operation::Release, terminate),
        ("GET", ["ssh-keys"]) => Route::things(SSH_KEY, list),
        ("POST", ["ssh-keys"]) => Route::add_thing(SSH_KEY, new_ssh_key, data),
        ("DELETE", ["ssh-keys", _]) => Route::remove_thing(SSH_KEY, || data(json!({}))),
        _ => return None,
    })
}

fn list(page: Page) -> Reply {
    data(Value::Array(page.items))
}

fn data(body: Value) -> Reply {
    Reply::ok(json!({ "data": body }))
}

/// The API asks callers to branch on `code` alone; the words are the simulator's.
fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let code = match refusal {
        Refusal::Unauthorized => "global/invalid-api-key",
        Refusal::NoSuchPath | Refusal::NoSuchThing => "global/not-found",
        Refusal::NameTaken => "global/duplicate",
        Refusal::SoldOut => "instance-operations/launch/insufficient-capacity",
        Refusal::NotYet => "instance-operations/terminate/has-not-launched",
        Refusal::TooManyRequests => "global/too-many-requests",
        Refusal::Internal => "global/internal-error",
        Refusal::Invalid(_) => "global/invalid-parameters",
        _ => "global/object-does-not-exist",
    };
    let error = json!({ "code": code, "message": refusal.words() });
    Reply::new(refusal.status(), json!({ "error": error }))
}

/// Every instance type; a sold-out one has no regions.
fn types(call: &Call<'_>) -> Vec<Value> {
    let of_type = |rows: &[&Row]| {
        let free = rows.iter().filter(|row| row.free_nodes > 0);
        let regions: Vec<Value> = free.map(|row| region(row)).collect();
        json!({ "instance_type": instance_type(rows[0]), "regions_with_capacity_available": regions })
    };
    call.records(|row| row.sku.clone(), of_type)
}

fn instance_type(row: &Row) -> Value {
    json!({
        "name": row.sku, "description": format!("{}x {}", row.gpus, row.gpu_label),
        "gpu_description": row.gpu_label, "price_cents_per_hour": row.price_cents(),
        "specs": { "gpus": row.gpus, "vcpus": row.vcpus, "memory_gib": row.memory_gib,
            "storage_gib": row.storage_gib },
    })
}

fn region(row: &Row) -> Value {
    json!({ "name": row.place, "description": row.place_label })
}

/// Fields that change nothing here (image, file systems, firewall) are ignored.
fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let hostname = body.label("hostname", 63)?;
    let tags = body.list("tags", is_tag)?;
    let keys = body.texts("ssh_key_names", 1..=1)?;
    body.count("quantity", 1..=1)?;
    Ok(Order {
        name: body.optional("name", 64)?.unwrap_or_default(),
        authorized_keys: call.public_keys(&keys)?,
        user_data: body.optional("user_data", 1_000_000)?,
        echo: json!({ "keys": keys, "tags": tags, "hostname": hostname }),
        ..Order::of(body.text("instance_type_name")?, body.text("region_name")?)
    })
}

fn is_tag(tag: &Value) -> bool {
    let text = |name: &str| tag[name].as_str().unwrap_or_default();
    let (key, value) = (text("key").replace(':', "-"), text("value"));
    let is_key = key.len() > 1 && key.starts_with(|c: char| c.is_ascii_lowercase());
    is_key && is_label(&key, 55) && value.chars().count() <= 128
}

fn terminate(call: &mut Call<'_>, request: &Request) -> Answer {
    let ids = request.fields()?.texts("instance_ids", 1..=100)?;
    let ended = call.release_all(&ids)?;
    Ok(data(json!({ "terminated_instances": ended })))
}

/// An instance as it is listed. Fields that it does not have yet are absent.
fn machine(shown: &Shown<'_>) -> Value {
    let is_over = matches!(shown.phase, Phase::Ending | Phase::Gone);
    let blocked = match shown.phase {
        Phase::Booting => Some("vm-has-not-launched"),
        _ => is_over.then_some("vm-is-terminating"),
    };
    let action = |why: Option<&str>| json!({ "available": why.is_none(), "reason_code": why });
    let has_host = !matches!(shown.phase, Phase::Booting | Phase::Gone);
    let host = shown.hosts.first().filter(|_| has_host);
    let (name, echo) = (&shown.order.name, &shown.order.echo);
    let named = echo["hostname"].as_str();
    let token = host.map(|_| shown.id.chars().rev().collect::<String>());
    without_nulls(json!({
        "id": shown.id, "name": (!name.is_empty()).then_some(name), "status": shown.status(),
        "ip": host.map(|host| &host.public_ip), "private_ip": host.map(|host| &host.private_ip),
        "ssh_port": host.map(|_| shown.ssh_port), "is_reserved": false, "jupyter_token": token,
        "hostname": host.map(|it| named.map_or(it.public_ip.replace('.', "-"), str::to_owned)),
        "ssh_key_names": echo["keys"], "file_system_names": [], "tags": echo["tags"],
        "region": region(&shown.row), "instance_type": instance_type(&shown.row),
        "jupyter_url": token.as_ref().map(|it| format!("https://jupyter.invalid/?token={it}")),
        "actions": {
            "migrate": action(blocked), "rebuild": action(blocked), "restart": action(blocked),
            "cold_reboot": action(blocked), "terminate": action(blocked.filter(|_| is_over)),
        },
    }))
}
