//! The answers of `verda` on its public API, version 1, as its SDKs and other public clients know them (2026),
//! without clusters. Our choices where that leaves something open: the id of a launch is plain text, other ids
//! are JSON texts; a spot price is 35 % of the list price, and as much is free on both terms; a disk has the id
//! of its machine, and stays where a delete does not name it; `ssh_port` is ours, and its own machines have 22.

use rust_decimal::Decimal;
use serde_json::{Value, json};

use crate::kit::*;

const SCRIPT: &str = "script";
const IMAGES: [&str; 2] = ["24.04.cuda12.9.docker", "24.04.cuda13.0.docker"];

static VERDA: Twin = Twin {
    id: "verda",
    base_path: "/v1",
    timing: Timing::boot(240).ending(30),
    auth: Auth::ClientCredentials {
        path: "/oauth2/token",
        lifetime_seconds: 3_600,
    },
    keeps_gone: true,
    has_currency: true,
    ssh_user: "root",
    words: StatusWords {
        booting: "provisioning",
        failed: "error",
        ending: "deleting",
        gone: "discontinued",
        no_capacity: Some("no_capacity"),
        ..Twin::BASE.words
    },
    route,
    machine,
    thing,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `verda`: virtual machines, on demand and spot.
    pub const VERDA: Self = Self::of(&VERDA);
}

fn route(request: &Request) -> Option<Route> {
    let items = |page: Page| Reply::ok(json!(page.items));
    let location = |row: &Row| json!({ "code": row.place, "name": row.place_label });
    let added = |thing: Value| Reply::new(201, thing["id"].clone());
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["instance-types"]) => Route::catalog(types, items),
        ("GET", ["locations"]) => Route::places(location, items),
        ("GET", ["instance-availability"]) => Route::to(Operation::Places, availability),
        ("GET", ["instances"]) => Route::list(items),
        ("GET", ["instances", _]) => Route::read(Reply::ok),
        ("POST", ["instances"]) => Route::launch(order, |made| Reply::text(202, &*made.id)),
        ("PUT", ["instances"]) => Route::to(Operation::Release, delete),
        ("GET", ["ssh-keys"]) => Route::things(SSH_KEY, items),
        ("GET", ["scripts"]) => Route::things(SCRIPT, items),
        ("GET", ["volumes"]) => Route::things("volume", items),
        ("POST", ["ssh-keys"]) => Route::add_thing(SSH_KEY, new_thing, added),
        ("POST", ["scripts"]) => Route::add_thing(SCRIPT, new_thing, added),
        ("DELETE", ["ssh-keys", _]) => Route::remove_thing(SSH_KEY, || Reply::empty(204)),
        ("DELETE", ["scripts", _]) => Route::remove_thing(SCRIPT, || Reply::empty(204)),
        _ => return None,
    })
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let (status, code, message) = match refusal {
        Refusal::Unauthorized => (401, "unauthorized_request", "Access token is invalid"),
        Refusal::SoldOut => (503, "service_unavailable", "No capacity available"),
        Refusal::NotYet => (403, "forbidden_action", refusal.words()),
        other if other.status() == 404 => (404, "not_found", other.words()),
        other => (other.status(), "invalid_request", other.words()),
    };
    Reply::new(status, json!({ "code": code, "message": message }))
}

fn types(call: &Call<'_>) -> Vec<Value> {
    let mut types = call.records(|row| row.sku.clone(), |rows| kind(rows[0]));
    for kind in &mut types {
        kind["currency"] = json!(call.currency().to_lowercase());
    }
    types
}

fn kind(row: &Row) -> Value {
    let gb = row.gpu_memory_mib.div_ceil(1_024) * row.gpus;
    json!({
        "instance_type": row.sku, "name": row.gpu_label, "supported_os": IMAGES, "price_per_hour": row.price_usd_hour.to_string(),
        "gpu": { "description": format!("{}x {}", row.gpus, row.gpu_label), "number_of_gpus": row.gpus },
        "gpu_memory": { "size_in_gigabytes": gb }, "cpu": { "number_of_cores": row.vcpus },
        "memory": { "size_in_gigabytes": row.memory_gib }, "spot_price": spot_price(row).to_string(),
    })
}

fn spot_price(row: &Row) -> Decimal {
    row.price_usd_hour * Decimal::new(35, 2)
}

fn availability(call: &mut Call<'_>, _: &Request) -> Answer {
    let free = |rows: &[&Row]| {
        let free = rows.iter().filter(|row| row.free_nodes > 0);
        json!({ "location_code": rows[0].place, "availabilities": free.map(|row| &row.sku).collect::<Vec<_>>() })
    };
    let free = call.records(|row| row.place.clone(), free);
    Ok(Reply::ok(json!(free)))
}

fn new_thing(_: &Call<'_>, request: &Request) -> Result<NewThing, Refusal> {
    let fields = request.fields()?;
    let name = fields.short("name", 64)?;
    let body = json!(fields.text("key").or_else(|_| fields.text("script"))?);
    Ok(NewThing { name, body })
}

fn thing(thing: &Thing) -> Value {
    let field = thing.kind.trim_start_matches("ssh_");
    json!({ "id": thing.id, "name": thing.name, "status": "detached", field: thing.body })
}

fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let is_spot = body.of("is_spot")?.unwrap_or(false);
    require(IMAGES.contains(&&*body.text("image")?), "Invalid image")?;
    let sku = body.text("instance_type")?;
    let script = body.optional("startup_script_id", 64)?;
    let script = script.map(|id| call.thing(SCRIPT, &id)).transpose()?;
    let row = call.rows().find(|row| row.sku == sku && is_spot);
    Ok(Order {
        name: body.label("hostname", 60)?.unwrap_or_default(),
        authorized_keys: call.public_keys(&body.texts("ssh_key_ids", 1..=99)?)?,
        user_data: script.and_then(|it| it.body.as_str().map(str::to_owned)),
        bid_usd_hour: row.map(spot_price),
        echo: json!({ "description": body.short("description", 100)?, "is_spot": is_spot }),
        ..Order::of(sku, body.text("location_code")?)
    })
}

fn delete(call: &mut Call<'_>, request: &Request) -> Answer {
    let body = request.fields()?;
    let id = body.texts("id", 1..=1)?.remove(0);
    let name = call.alive(&id)?.order.name.clone();
    call.release(&id)?;
    if !body.texts("volume_ids", 0..=9)?.contains(&id) {
        call.add_thing("volume", &name, Value::Null);
    }
    Ok(Reply::empty(204))
}

fn machine(shown: &Shown<'_>) -> Value {
    let (echo, host) = (&shown.order.echo, shown.host());
    without_nulls(json!({
        "id": shown.id, "hostname": shown.order.name, "description": echo["description"], "status": shown.status(),
        "ip": host.map(|host| &host.public_ip), "private_ip": host.map(|host| &host.private_ip), "ssh_port": shown.ssh_port,
        "location": shown.place(), "instance_type": shown.row.sku, "gpu": { "number_of_gpus": shown.row.gpus },
        "is_spot": echo["is_spot"], "created_at": shown.created_at.to_rfc3339(), "os_volume_id": shown.id,
        "price_per_hour": shown.price_usd_hour().to_string(), "volume_ids": [],
    }))
}
