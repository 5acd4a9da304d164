//! The answers of `shadeform`, by the published document of its API 1.0.0 (autumn of 2026).
//!
//! Our choices where that leaves something open: refusals are `{"error": …}`; a machine or a cluster that is
//! gone is 404; the machines of a cluster are not listed by themselves; a key in use can be deleted. The market
//! file has no spot, so every entry is on demand.

use serde_json::{Value, json};

use crate::kit::*;

static SHADEFORM: Twin = Twin {
    id: "shadeform",
    base_path: "/v1",
    timing: Timing::boot(480).ending(30),
    auth: Auth::Header {
        name: "X-API-KEY",
        prefix: "",
    },
    several_nodes: true,
    ssh_user: "shadeform",
    rows: RowRules::BASE.in_cents(),
    words: StatusWords {
        booting: "pending",
        running: "active",
        failed: "error",
        ending: "deleting",
        gone: "deleted",
        ..Twin::BASE.words
    },
    route,
    machine,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `shadeform`: machines of other clouds one by one, and clusters of a fixed size.
    pub const SHADEFORM: Self = Self::of(&SHADEFORM);
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["instances", "types"]) => Route::catalog(types, |it| list("instance_types", it)),
        ("GET", ["clusters", "types"]) => Route::catalog(clusters, |it| list("cluster_types", it)),
        ("POST", ["instances" | "clusters", "create"]) => {
            Route::launch(order, |made| Reply::ok(json!({ "id": made.id })))
        }
        ("GET", ["instances"]) => Route::list(|page| list("instances", page)),
        ("GET", ["clusters"]) => Route::list(|page| list("clusters", page)),
        ("GET", ["instances" | "clusters", _, "info"]) => Route::to(Operation::Read, read),
        ("POST", ["instances" | "clusters", _, "delete"]) => Route::to(Operation::Release, release),
        ("GET", ["sshkeys"]) => Route::things(SSH_KEY, |page| list("ssh_keys", page)),
        ("POST", ["sshkeys", "add"]) => Route::add_thing(SSH_KEY, new_ssh_key, Reply::ok),
        ("POST", ["sshkeys", _, "delete"]) => Route::to(Operation::Keys, |call, request| {
            call.remove_thing(SSH_KEY, request.segment(1))?;
            Ok(Reply::ok(json!({})))
        }),
        _ => return None,
    })
}

/// The list of this name. Clusters and machines by themselves are one list behind it.
fn list(name: &str, mut page: Page) -> Reply {
    let is_in = |item: &Value| item["instances"].is_array() == (name == "clusters");
    page.items.retain(is_in);
    Reply::ok(json!({ name: page.items }))
}

fn read(call: &mut Call<'_>, request: &Request) -> Answer {
    let found = call.read(request.segment(1))?;
    // A cluster is no machine.
    match found["instances"].is_array() == (request.segment(0) == "clusters") {
        true => Ok(Reply::ok(found)),
        false => Err(Refusal::NoSuchMachine),
    }
}

fn release(call: &mut Call<'_>, request: &Request) -> Answer {
    read(call, request)?;
    let released = call.release(request.segment(1));
    released.map(|()| Reply::ok(json!({})))
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let words = match refusal {
        Refusal::SoldOut => "The instance type is not available in this region",
        Refusal::NotYet => "The instance is still pending",
        other => other.words(),
    };
    Reply::new(refusal.status(), json!({ "error": words }))
}

/// The cloud, the type and the size of a cluster: `denvr/H100_sxm5x8/cluster-2`.
fn parts(row: &Row) -> (&str, &str, Option<u32>) {
    let mut parts = row.sku.split('/');
    let mut next = || parts.next().unwrap_or_default();
    let (cloud, kind, size) = (next(), next(), next().strip_prefix("cluster-"));
    (cloud, kind, size.and_then(|size| size.parse().ok()))
}

fn types(call: &Call<'_>) -> Vec<Value> {
    let of_type = |rows: &[&Row]| {
        let mut kind = kind(rows[0]);
        kind["availability"] = rows.iter().map(|row| place(row)).collect();
        json!([parts(rows[0]).2, kind])
    };
    let mut types = call.records(|row| row.sku.clone(), of_type);
    types.retain(|record| record[0].is_null());
    types.iter_mut().map(|record| record[1].take()).collect()
}

fn clusters(call: &Call<'_>) -> Vec<Value> {
    let cluster = |row: &Row| {
        let (cloud, _, size) = parts(row);
        json!({ "cloud": cloud, "num_instances": size?, "availability": place(row), "cluster_type": kind(row) }).into()
    };
    call.rows().filter_map(cluster).collect()
}

fn place(row: &Row) -> Value {
    json!({ "region": row.place, "display_name": row.place_label, "rental_type": "on_demand",
        "available": row.free_nodes >= parts(row).2.unwrap_or(1) })
}

fn kind(row: &Row) -> Value {
    let socket = match row.gpu.as_str() {
        "B200-SXM" => "sxm6",
        gpu if gpu.ends_with("-SXM") => "sxm5",
        _ => "pcie",
    };
    let (cloud, kind, _) = parts(row);
    json!({ "cloud": cloud, "shade_instance_type": kind, "cloud_instance_type": kind, "hourly_price": row.price_cents(),
        "configuration": { "memory_in_gb": row.memory_gib, "storage_in_gb": row.storage_gib, "vcpus": row.vcpus,
            "num_gpus": row.gpus, "gpu_type": row.gpu_label, "interconnect": socket, "nvlink": socket != "pcie",
            "vram_per_gpu_in_gb": row.gpu_memory_mib.div_ceil(1_024), "gpu_manufacturer": "nvidia",
            "os_options": ["ubuntu22.04_cuda12.2_shade_os"] },
        "deployment_type": "vm", "boot_time": { "min_boot_in_sec": 180, "max_boot_in_sec": 600 } })
}

/// Fields that change nothing here (image, volumes, ends, alerts) are ignored.
fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let keys: Vec<String> = body.optional("ssh_key_id", 64)?.into_iter().collect();
    let script = &body.value("launch_configuration")["script_configuration"]["base64_script"];
    let size = body.count("num_instances", 1..=1_024)?;
    let kind = body.text(size.map_or("shade_instance_type", |_| "cluster_type"))?;
    let cluster = size.map_or(String::new(), |size| format!("/cluster-{size}"));
    let sku = format!("{}/{kind}{cluster}", body.text("cloud")?);
    Ok(Order {
        nodes: size.unwrap_or(1),
        name: body.text("name")?,
        authorized_keys: call.public_keys(&keys)?,
        user_data: script.as_str().map_or(Some(String::new()), decoded),
        echo: json!(body.texts("tags", 0..=50)?),
        ..Order::of(sku, body.text("region")?)
    })
}

/// A machine or a cluster as it is listed.
fn machine(shown: &Shown<'_>) -> Value {
    let (row, at) = (&shown.row, shown.created_at.to_rfc3339());
    let details = match (shown.phase, shown.preempted_at) {
        (Phase::NoCapacity, _) => "no capacity",
        (Phase::Ending, Some(_)) => "preempted",
        _ => "",
    };
    let of_all = json!({ "name": shown.order.name, "status": shown.status(), "status_details": details, "created_at": at });
    let one = |(number, host): (usize, &Host)| {
        let ip = if shown.is_up() { &host.public_ip } else { "" };
        merged(&[
            kind(row),
            of_all.clone(),
            json!({ "id": format!("{}-{number}", shown.id), "region": row.place,
            "cloud_assigned_id": number.to_string(), "shade_cloud": true, "ip": ip, "ssh_user": "shadeform",
            "ssh_port": shown.ssh_port, "cost_estimate": "0.00", "tags": shown.order.echo, "deleted_at": null }),
        ])
    };
    let mut machines: Vec<Value> = shown.hosts.iter().enumerate().map(one).collect();
    let (cloud, _, Some(_)) = parts(row) else {
        return merged(&[machines.remove(0), json!({ "id": shown.id })]);
    };
    merged(&[
        of_all,
        json!({ "id": shown.id, "cloud": cloud, "instances": machines, "updated_at": at,
        "hourly_price": row.price_cents().unwrap_or_default() * u64::from(shown.nodes()),
        "region_info": { "region": row.place, "display_name": row.place_label } }),
    ])
}

/// All fields of these objects; the last one counts.
fn merged(objects: &[Value]) -> Value {
    let fields = objects.iter().filter_map(Value::as_object).flatten();
    fields
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}
