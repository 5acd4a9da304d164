//! The answers of `voltagepark` on its bare-metal API. No specification of it is public: the shapes are those
//! that open clients and a public price collector read (August 2026).
//!
//! Our choices where they leave something open: prices need no token; a rental that was ended is gone at once
//! (204, then 404); too few free GPUs is a 400; a list without a slash at its end redirects to the one with
//! it. The answer to a rental has its id twice, as `id` and as `rental_id`, because clients disagree. The port
//! of SSH is not part of the service's format, whose nodes answer at 22.

use serde_json::{Value, json};

use crate::kit::Network::{Ethernet, Infiniband};
use crate::kit::*;

static VOLTAGEPARK: Twin = Twin {
    id: "voltagepark",
    base_path: "/api/v1",
    timing: Timing::boot(900),
    public_catalog: true,
    knows_methods: true,
    several_nodes: true,
    paging: Some(Paging::new(By::Offset("offset"), "limit", 15, 100)),
    rows: RowRules {
        per: PriceBasis::Gpu,
        networks: true,
        counts: &[8],
        price_group: |row| format!("{} {}", row.key(), row.place),
        ..RowRules::BASE
    },
    words: StatusWords {
        booting: "Pending",
        running: "Running",
        failed: "Failed",
        ending: "Terminated",
        gone: "Terminated",
        ..Twin::BASE.words
    },
    route,
    machine,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `voltagepark`: bare metal, n nodes to a rental.
    pub const VOLTAGEPARK: Self = Self::of(&VOLTAGEPARK);
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["bare-metal", "locations"] | ["bare-metal", "locations", ""]) => Route::catalog(
            |call| call.records(|row| (row.place.clone(), row.sku.clone()), location),
            page,
        ),
        // As the real service does: a client that follows it with another method loses its body.
        (_, ["bare-metal"]) => Route::fixed(|request| {
            let target = format!("/api/v1/bare-metal/{}", request.query_string());
            Reply::empty(307).with("location", target)
        }),
        ("GET", ["bare-metal", ""]) => Route::list(page),
        ("POST", ["bare-metal", ""]) => Route::launch(order, |made| {
            Reply::ok(json!({ "id": made.id, "rental_id": made.id, "warning": null }))
        }),
        ("GET", ["bare-metal", _]) => Route::read(Reply::ok),
        ("DELETE", ["bare-metal", _]) => Route::release(|| Reply::empty(204)),
        _ => return None,
    })
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let detail = match refusal {
        Refusal::SoldOut | Refusal::UnknownSku => json!("Not enough GPUs available here"),
        Refusal::NotYet => json!("A pending rental cannot be terminated"),
        Refusal::NoSuchMachine => json!("Rental not found"),
        Refusal::UnknownPlace => json!("Location not found"),
        Refusal::Invalid(why) => json!([{ "loc": ["body"], "msg": why, "type": "value_error" }]),
        other => json!(other.words()),
    };
    let status = match refusal {
        Refusal::Invalid(_) => 422,
        Refusal::UnknownSku => 400,
        other => other.status(),
    };
    Reply::new(status, json!({ "detail": detail }))
}

fn page(page: Page) -> Reply {
    Reply::ok(json!({
        "has_next": page.next.is_some(), "has_previous": page.start > 0,
        "total_result_count": page.total, "results": page.items,
    }))
}

/// One entry a location, with both networks in it.
fn location(rows: &[&Row]) -> Value {
    let of = |network| rows.iter().find(|row| row.network == Some(network));
    let price = |network| of(network).map(|row| row.price_usd_hour.to_string());
    let free_gpus = |network| of(network).map_or(0, |row| row.free_nodes * row.gpus);
    json!({
        "id": rows[0].place, "specs_per_node": specs(rows[0]),
        "gpu_price_ethernet": price(Ethernet), "gpu_price_infiniband": price(Infiniband),
        "gpu_count_ethernet": free_gpus(Ethernet), "gpu_count_infiniband": free_gpus(Infiniband),
        "reserved_gpu_count_infiniband_cluster_one": null,
        "reserved_gpu_count_infiniband_cluster_two": null,
    })
}

fn specs(row: &Row) -> Value {
    json!({
        "gpu_model": row.sku, "gpu_count": row.gpus, "cpu_model": row.cpu_model,
        "cpu_count": row.vcpus, "ram_gb": row.memory_gib, "storage_gb": row.storage_gib,
    })
}

/// A rental as it is listed.
fn machine(shown: &Shown<'_>) -> Value {
    let port = shown.ssh_port;
    let address = |host: &Host| json!({ "public_ip": host.public_ip, "private_ip": host.private_ip, "ssh_port": port });
    let up = shown.hosts.iter().filter(|_| shown.is_up());
    json!({
        "id": shown.id, "name": shown.order.name, "status": shown.status(),
        "creation_timestamp": shown.created_at.to_rfc3339(),
        "power_status": if shown.is_up() { "Running" } else { "Stopped" },
        "node_count": shown.nodes(), "node_networking": up.map(address).collect::<Vec<_>>(),
        "specs_per_node": specs(&shown.row), "network_type": shown.row.network.map(Network::as_str),
        "rate_hourly": shown.price_usd_hour().to_string(), "location_id": shown.place(),
        "username": "ubuntu", "sub_order": null, "storage_id": null, "tags": shown.order.echo,
    })
}

/// The default network of the service is Ethernet. Only keys sent with a rental get access.
fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let gpus = body.count("gpu_count", 1..=u32::MAX)?.unwrap_or_default();
    let keys = body.texts("ssh_keys", 0..=99)?;
    let place = body.text("location_id")?;
    let mode = &body.value("organization_ssh_keys")["mode"];
    let is_mode = mode.is_null() || ["none", "all", "selective"].iter().any(|one| mode == one);
    let is_key = |key: &String| !key.trim().is_empty();
    require(
        gpus > 0 && gpus % 8 == 0,
        "gpu_count: has to be a multiple of 8",
    )?;
    require(keys.iter().all(is_key), "ssh_keys: a key is empty")?;
    require(is_mode, "organization_ssh_keys: no such mode")?;
    let network = body.of("network_type")?.unwrap_or(Ethernet);
    // A script, or the commands that cloud-init would run: clients send one or the other.
    let script = body.value("cloudinit_script");
    let commands: Option<Vec<String>> = serde_json::from_value(script["runcmd"].clone()).ok();
    let commands = commands.map(|lines| format!("#!/bin/sh\n{}\n", lines.join("\n")));
    let is_sold = |row: &&Row| row.place == place && row.network == Some(network);
    let sku = call.rows().find(is_sold).map(Row::key);
    Ok(Order {
        nodes: gpus / 8,
        name: body.text("name")?,
        authorized_keys: keys,
        echo: json!(body.texts("tags", 0..=99)?),
        user_data: script.as_str().map(str::to_owned).or(commands),
        ..Order::of(sku.unwrap_or_default(), place)
    })
}
