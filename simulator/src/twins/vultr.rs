//! The answers of `vultr`, by the vendor's own client of 2026-07-20 and public answers of October 2026.
//!
//! Our choices where they leave something open: a machine that was destroyed or taken back is gone at once; a
//! launch that fails is `suspended`; 400 for everything that is wrong with a launch; `ssh_port` is ours.

use rust_decimal::prelude::ToPrimitive;
use serde_json::{Value, json};

use crate::kit::*;

const PAGING: Paging = Paging::new(By::Cursor("cursor"), "per_page", 100, 500);

static VULTR: Twin = Twin {
    id: "vultr",
    base_path: "/v2",
    timing: Timing::boot(120),
    public_catalog: true,
    ssh_user: "root",
    paging: Some(PAGING),
    words: StatusWords {
        booting: "pending",
        running: "active",
        failed: "suspended",
        ..Twin::BASE.words
    },
    route,
    machine,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `vultr`: virtual machines and bare metal, one to a launch.
    pub const VULTR: Self = Self::of(&VULTR);
}

/// Machines and plans are of two kinds, each with lists and paths of its own.
fn is_metal(plan: &str) -> bool {
    plan.starts_with("vbm-")
}

fn wants_metal(request: &Request) -> bool {
    request.segment(0) == "bare-metals"
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["plans"]) => Route::catalog(|call| plans(call, false), |it| page("plans", it)),
        ("GET", ["plans-metal"]) => {
            Route::catalog(|call| plans(call, true), |it| page("plans_metal", it))
        }
        ("GET", ["regions"]) => Route::places(region, |it| page("regions", it)),
        ("GET", ["instances" | "bare-metals"]) => Route::to(Operation::List, list),
        ("POST", ["instances" | "bare-metals"]) => {
            Route::launch(order, |made| Reply::new(202, one(made)))
        }
        ("GET", ["instances" | "bare-metals", _]) => Route::to(Operation::Read, read),
        ("DELETE", ["instances" | "bare-metals", _]) => Route::to(Operation::Release, release),
        _ => return None,
    })
}

fn one(shown: &Shown<'_>) -> Value {
    let name = ["instance", "bare_metal"][usize::from(is_metal(&shown.row.sku))];
    json!({ name: machine(shown) })
}

fn list(call: &mut Call<'_>, request: &Request) -> Answer {
    let of_metal = wants_metal(request);
    let mut machines = call.machines();
    machines.retain(|machine| machine["plan"].as_str().is_some_and(is_metal) == of_metal);
    let name = request.segment(0).replace('-', "_");
    Ok(page(&name, PAGING.cut(request, machines, usize::MAX)))
}

fn read(call: &mut Call<'_>, request: &Request) -> Answer {
    let shown = call.machine(request.last_segment())?;
    if is_metal(&shown.row.sku) != wants_metal(request) {
        return Err(Refusal::NoSuchMachine);
    }
    Ok(Reply::ok(one(&shown)))
}

fn release(call: &mut Call<'_>, request: &Request) -> Answer {
    read(call, request)?;
    call.release(request.last_segment())?;
    Ok(Reply::empty(204))
}

fn page(of: &str, page: Page) -> Reply {
    let links = json!({ "next": page.next.unwrap_or_default(), "prev": "" });
    Reply::ok(json!({ of: page.items, "meta": { "total": page.total, "links": links } }))
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let (status, error) = match refusal {
        Refusal::NoSuchMachine => (404, "Invalid instance-id."),
        Refusal::SoldOut => (400, "Plan is not available in this location."),
        Refusal::UnknownSku | Refusal::UnknownPlace => (400, "Invalid plan or region."),
        Refusal::NotYet => (500, "Unable to remove VM: Server is currently locked"),
        other => (other.status(), other.words()),
    };
    Reply::new(status, json!({ "error": error, "status": status }))
}

/// Every plan of one kind with the regions where it is free.
fn plans(call: &Call<'_>, of_metal: bool) -> Vec<Value> {
    let mut plans = call.records(|row| row.sku.clone(), plan);
    plans.retain(|plan| plan["id"].as_str().is_some_and(is_metal) == of_metal);
    plans
}

/// The GPUs of bare metal are in the id alone.
fn plan(rows: &[&Row]) -> Value {
    let (row, free) = (rows[0], rows.iter().filter(|row| row.free_nodes > 0));
    let regions: Vec<_> = free.map(|row| &row.place).collect();
    let of_sku = |part: &str| part.strip_suffix("vram")?.parse::<u32>().ok();
    let vram = row.sku.split('-').find_map(of_sku);
    let price = row.price_usd_hour.to_f64();
    without_nulls(json!({
        "id": row.sku, "type": vram.map_or("NVMe", |_| "vcg"), "ram": u64::from(row.memory_gib) * 1024,
        "disk": row.storage_gib, "disk_count": 1, "hourly_cost": price, "hourly_cost_preemptible": price,
        "vcpu_count": vram.map(|_| row.vcpus), "cpu_threads": vram.is_none().then_some(row.vcpus),
        "cpu_count": vram.is_none().then_some(row.vcpus / 2), "gpu_type": vram.map(|_| &row.gpu_label),
        "gpu_count": vram.map(|_| row.gpus.to_string()), "gpu_vram_gb": vram, "locations": regions,
        "deploy_ondemand": true, "deploy_preemptible": false, "location_cost": [],
    }))
}

fn region(row: &Row) -> Value {
    let (city, country) = row.place_label.rsplit_once(' ').unwrap_or_default();
    json!({ "id": row.place, "city": city, "country": country, "options": ["ddos_protection"] })
}

/// Fields that change nothing here (backups, mail, a firewall) are ignored.
fn order(_: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let plan = body.text("plan")?;
    let is_one = body.value("os_id").is_u64() != body.value("image_id").is_string();
    require(is_one, "Exactly one of os_id and image_id is required.")?;
    require(is_metal(&plan) == wants_metal(request), "Invalid plan.")?;
    Ok(Order {
        name: body.optional("label", 255)?.unwrap_or_default(),
        user_data: body.base64("user_data")?,
        echo: json!(body.texts("tags", 0..=99)?),
        ..Order::of(plan, body.text("region")?)
    })
}

fn machine(shown: &Shown<'_>) -> Value {
    let host = shown.host();
    let is_vm = !is_metal(&shown.row.sku);
    without_nulls(json!({
        "id": shown.id, "label": shown.order.name, "tags": shown.order.echo, "status": shown.status(),
        "plan": shown.row.sku, "region": shown.row.place, "date_created": shown.created_at.to_rfc3339(),
        "power_status": is_vm.then_some("running"), "server_status": is_vm.then(|| host.map_or("none", |_| "ok")),
        "main_ip": host.map_or("0.0.0.0", |host| &host.public_ip), "ssh_port": host.map(|_| shown.ssh_port),
        "internal_ip": host.map(|host| &host.private_ip),
    }))
}
