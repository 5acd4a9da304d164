//! The answers of `digitalocean`, by the OpenAPI document of its API of 2026-08-07. The AMD Developer Cloud
//! speaks the same at another host.
//!
//! Our choices where that leaves something open: a machine that was destroyed is gone at once (204, then 404), as
//! is one that was taken back; a launch that was accepted and fails is `off`; 422 for everything that is wrong
//! with a launch; `ssh_port` is ours.

use rust_decimal::prelude::ToPrimitive;
use serde_json::{Value, json};

use crate::kit::*;

static DIGITALOCEAN: Twin = Twin {
    id: "digitalocean",
    base_path: "/v2",
    timing: Timing::boot(90),
    ssh_user: "root",
    ids: Ids::Number,
    paging: Some(Paging::new(By::Number("page"), "per_page", 20, 200)),
    words: StatusWords {
        booting: "new",
        running: "active",
        failed: "off",
        ending: "archive",
        gone: "archive",
        ..Twin::BASE.words
    },
    route,
    machine,
    thing: |tag| json!({ "name": tag.name, "resources": { "count": 0 } }),
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `digitalocean`: virtual machines, one to a launch.
    pub const DIGITALOCEAN: Self = Self::of(&DIGITALOCEAN);
}

/// A tag is made with the first machine that has it, and outlives it.
const TAG: &str = "tag";

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["sizes"]) => Route::catalog(sizes, |it| page("sizes", it)),
        ("GET", ["regions"]) => Route::places(region, |it| page("regions", it)),
        ("GET", ["droplets"]) if request.query("type") == Some("gpus") => {
            Route::list(|it| page("droplets", it))
        }
        // Without the filter a machine with a GPU is not listed.
        ("GET", ["droplets"]) => Route::to(Operation::List, |_, _| {
            Ok(page("droplets", Page::whole(Vec::new())))
        }),
        ("POST", ["droplets"]) => Route::launch(order, |made| {
            Reply::new(202, json!({ "droplet": machine(made) }))
        }),
        ("GET", ["droplets", _]) => Route::read(|it| Reply::ok(json!({ "droplet": it }))),
        ("DELETE", ["droplets", _]) => Route::release(|| Reply::empty(204)),
        ("GET", ["tags"]) => Route::things(TAG, |it| page("tags", it)),
        ("DELETE", ["tags", _]) => Route::remove_thing(TAG, || Reply::empty(204)),
        _ => return None,
    })
}

fn page(of: &str, page: Page) -> Reply {
    let next = page.next.map(|number| format!("/v2/{of}?page={number}"));
    Reply::ok(without_nulls(json!({
        of: page.items, "links": { "pages": { "next": next } }, "meta": { "total": page.total },
    })))
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let (status, id, message) = match refusal {
        Refusal::Unauthorized => (401, "Unauthorized", "Unable to authenticate you"),
        Refusal::NoSuchPath | Refusal::NoSuchMachine | Refusal::NoSuchThing => {
            (404, "not_found", "The resource could not be found.")
        }
        Refusal::TooManyRequests => (429, "too_many_requests", "API rate limit exceeded."),
        Refusal::Internal => (500, "server_error", "Unexpected server-side error"),
        Refusal::SoldOut => (422, UNPROCESSABLE, "Size is not available in this region."),
        Refusal::UnknownSku => (422, UNPROCESSABLE, "You specified an invalid size."),
        Refusal::NotYet => (422, UNPROCESSABLE, "Droplet already has a pending event."),
        other => (422, UNPROCESSABLE, other.words()),
    };
    Reply::new(status, json!({ "id": id, "message": message }))
}

const UNPROCESSABLE: &str = "unprocessable_entity";

/// Every size with the regions where it is free.
fn sizes(call: &Call<'_>) -> Vec<Value> {
    call.records(
        |row| row.sku.clone(),
        |rows| {
            let free = rows.iter().filter(|row| row.free_nodes > 0);
            size(rows[0], free.map(|row| row.place.clone()).collect())
        },
    )
}

fn size(row: &Row, regions: Vec<String>) -> Value {
    let of_sku = |part: &str| part.strip_suffix("gb")?.parse::<u32>().ok();
    let price = row.price_usd_hour.to_f64();
    json!({
        "slug": row.sku, "memory": u64::from(row.memory_gib) * 1024, "vcpus": row.vcpus,
        "disk": row.storage_gib, "transfer": 15.0, "price_hourly": price,
        "price_monthly": price.map(|price| price * 744.0), "regions": regions, "available": true,
        "description": row.gpu_label, "disk_info": [],
        // The memory of all GPUs, as the slug has it.
        "gpu_info": { "count": row.gpus, "model": row.gpu_label,
            "vram": { "amount": row.sku.split('-').find_map(of_sku), "unit": "gib" } },
    })
}

fn region(row: &Row) -> Value {
    json!({ "slug": row.place, "name": row.place_label, "available": true, "features": ["metadata"], "sizes": [] })
}

/// Fields that change nothing here (keys, backups, networks) are ignored.
fn order(_: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let name = body.short("name", 255)?;
    let image = body.value("image");
    let user_data = body.optional("user_data", 65_536)?;
    let tags = body.texts("tags", 0..=99)?;
    require(
        image.is_string() || image.is_u64(),
        "image: a slug or an id is required",
    )?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || ".-".contains(c);
    require(
        name.chars().all(is_name),
        "Only valid hostname characters are allowed.",
    )?;
    Ok(Order {
        name,
        user_data,
        echo: json!({ "tags": tags, "image": image }),
        beside: tags.into_iter().map(|tag| (TAG, tag)).collect(),
        ..Order::of(body.text("size")?, body.text("region")?)
    })
}

fn machine(shown: &Shown<'_>) -> Value {
    let networks = shown.host().map_or_else(Vec::new, |host| {
        vec![
            json!({ "ip_address": host.private_ip, "type": "private" }),
            json!({ "ip_address": host.public_ip, "type": "public", "ssh_port": shown.ssh_port }),
        ]
    });
    json!({
        "id": shown.id.parse::<u64>().ok(), "name": shown.order.name, "status": shown.status(),
        "created_at": shown.created_at.to_rfc3339(), "locked": shown.phase == Phase::Booting,
        "networks": { "v4": networks, "v6": [] }, "tags": shown.order.echo["tags"],
        "image": { "slug": shown.order.echo["image"] }, "region": region(&shown.row),
        "size": size(&shown.row, vec![shown.row.place.clone()]), "size_slug": shown.row.sku,
    })
}
