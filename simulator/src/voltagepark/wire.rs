//! The bodies of `voltagepark`.

use actix_web::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exchange::Reply;
use crate::machine::{Phase, Record};
use crate::market::{Network, Row};

/// The page size of clients that name one.
const USUAL_LIMIT: usize = 15;
const MAX_LIMIT: usize = 100;
const GPUS_PER_NODE: u32 = 8;

/// The start of a page and its length.
#[derive(Debug, Deserialize)]
pub(super) struct Paging {
    limit: Option<usize>,
    offset: Option<usize>,
}

impl Paging {
    pub(super) const fn first(limit: usize) -> Self {
        Self {
            limit: Some(limit),
            offset: None,
        }
    }

    pub(super) fn offset(&self) -> usize {
        self.offset.unwrap_or(0)
    }

    pub(super) fn page(&self, all: Vec<Value>) -> Value {
        let (total, offset) = (all.len(), self.offset());
        let limit = self.limit.unwrap_or(USUAL_LIMIT).min(MAX_LIMIT);
        let results: Vec<Value> = all.into_iter().skip(offset).take(limit).collect();
        json!({
            "has_next": offset.saturating_add(results.len()) < total,
            "results": results,
            "total_result_count": total,
            "has_previous": offset > 0,
        })
    }
}

/// One entry a location, with both networks in it, in the order of the market file.
pub(super) fn locations(rows: &[&Row]) -> Vec<Value> {
    let mut places: Vec<(&str, &str)> = Vec::new();
    for row in rows {
        if !places.contains(&(row.place.as_str(), row.sku.as_str())) {
            places.push((&row.place, &row.sku));
        }
    }
    places
        .into_iter()
        .map(|(place, sku)| location(place, sku, rows))
        .collect()
}

fn location(place: &str, sku: &str, rows: &[&Row]) -> Value {
    let of = |network: Network| {
        rows.iter()
            .find(|row| row.place == place && row.sku == sku && row.network == Some(network))
    };
    let price = |network| of(network).map(|row| row.price_usd_hour.to_string());
    let free_gpus = |network| of(network).map_or(0, |row| row.free_nodes * row.gpus);
    let any = rows.iter().find(|row| row.place == place && row.sku == sku);
    json!({
        "id": place,
        "gpu_price_ethernet": price(Network::Ethernet),
        "gpu_price_infiniband": price(Network::Infiniband),
        "gpu_count_ethernet": free_gpus(Network::Ethernet),
        "gpu_count_infiniband": free_gpus(Network::Infiniband),
        "reserved_gpu_count_infiniband_cluster_one": null,
        "reserved_gpu_count_infiniband_cluster_two": null,
        "specs_per_node": any.map(|row| specs(row)),
    })
}

fn specs(row: &Row) -> Value {
    json!({
        "gpu_model": row.sku,
        "gpu_count": row.gpus,
        "cpu_model": row.cpu_model,
        "cpu_count": row.vcpus,
        "ram_gb": row.memory_gib,
        "storage_gb": row.storage_gib,
    })
}

/// A rental as it is listed.
pub(super) fn rental(record: &Record, now: DateTime<Utc>) -> Value {
    let phase = record.phase(now);
    let up = phase == Phase::Running;
    let status = match phase {
        Phase::Booting => "Pending",
        Phase::Running => "Running",
        Phase::Failed => "Failed",
        Phase::Ending | Phase::Gone => "Terminated",
    };
    let networking: Vec<Value> = record
        .hosts
        .iter()
        .filter(|_| up)
        // The port is not part of the service's format, whose nodes answer at 22.
        .map(|host| {
            json!({
                "public_ip": host.public_ip,
                "private_ip": host.private_ip,
                "ssh_port": record.ssh_port,
            })
        })
        .collect();
    json!({
        "id": record.id,
        "name": record.order.name,
        "creation_timestamp": record.created_at.to_rfc3339(),
        "status": status,
        "power_status": if up { "Running" } else { "Stopped" },
        "node_count": record.nodes(),
        "node_networking": networking,
        "specs_per_node": specs(&record.row),
        "network_type": record.row.network.map(Network::as_str),
        "rate_hourly": record.price_usd_hour().to_string(),
        "location_id": record.order.place,
        "username": "ubuntu",
        "sub_order": null,
        "storage_id": null,
        "tags": record.order.tags,
    })
}

/// The body of a rental. The default network of the service is Ethernet. Only keys sent with it get access.
#[derive(Debug, Deserialize)]
pub(super) struct RentalBody {
    pub(super) location_id: String,
    pub(super) gpu_count: u32,
    pub(super) name: String,
    #[serde(default = "ethernet")]
    pub(super) network_type: Network,
    #[serde(rename = "organization_ssh_keys")]
    _organization_ssh_keys: Option<OrganizationKeys>,
    pub(super) ssh_keys: Option<Vec<String>>,
    pub(super) tags: Option<Vec<String>>,
    pub(super) cloudinit_script: Option<StartUp>,
}

const fn ethernet() -> Network {
    Network::Ethernet
}

#[derive(Debug, Deserialize)]
#[serde(tag = "mode", rename_all = "snake_case")]
enum OrganizationKeys {
    None,
    All,
    Selective,
}

/// A script, or the commands that cloud-init would run: clients send one or the other.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum StartUp {
    Script(String),
    Commands { runcmd: Option<Vec<String>> },
}

impl StartUp {
    pub(super) fn into_script(self) -> Option<String> {
        match self {
            Self::Script(script) => Some(script),
            Self::Commands { runcmd } => {
                runcmd.map(|lines| format!("#!/bin/sh\n{}\n", lines.join("\n")))
            }
        }
    }
}

impl RentalBody {
    /// Reads the body, or returns its fault in the service's own words.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Reply> {
        let body: Self =
            serde_json::from_slice(body).map_err(|error| unprocessable("", &error.to_string()))?;
        if body.gpu_count == 0 || !body.gpu_count.is_multiple_of(GPUS_PER_NODE) {
            return Err(unprocessable("gpu_count", "has to be a multiple of 8"));
        }
        if body
            .ssh_keys
            .iter()
            .flatten()
            .any(|key| key.trim().is_empty())
        {
            return Err(unprocessable("ssh_keys", "a key is empty"));
        }
        Ok(body)
    }

    pub(super) const fn nodes(&self) -> u32 {
        self.gpu_count / GPUS_PER_NODE
    }
}

fn unprocessable(field: &str, why: &str) -> Reply {
    let mut location = vec!["body"];
    location.extend(Some(field).filter(|field| !field.is_empty()));
    Reply::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        json!({ "detail": [{ "loc": location, "msg": why, "type": "value_error" }] }),
    )
}
