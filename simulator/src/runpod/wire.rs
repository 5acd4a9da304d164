//! The bodies of REST v2 of `runpod`, as its specification has them.

use std::collections::BTreeMap;

use actix_web::http::StatusCode;
use chrono::{DateTime, Utc};
use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::exchange::Reply;
use crate::machine::{Order, Phase, Record};
use crate::market::COMMUNITY;

/// The owner of the machines that a pod runs on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Cloud {
    #[default]
    Secure,
    Community,
}

/// The body of a new pod. Unknown fields are refused, as the specification requires.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodBody {
    name: String,
    #[serde(default)]
    cloud: Cloud,
    gpu: Gpu,
    image: String,
    #[serde(default)]
    args: String,
    disk: Option<u32>,
    #[serde(default)]
    ports: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    data_center_ids: Vec<String>,
    #[serde(rename = "startSsh")]
    _start_ssh: Option<bool>,
    #[serde(rename = "mounts")]
    _mounts: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Gpu {
    id: String,
    #[serde(default = "one")]
    count: u32,
    #[serde(rename = "minCudaVersion")]
    _min_cuda_version: Option<String>,
    #[serde(rename = "allowedCudaVersions")]
    _allowed_cuda_versions: Option<Vec<String>>,
}

const fn one() -> u32 {
    1
}

impl PodBody {
    /// Reads the body, or returns its fault in the service's own form.
    pub(super) fn parse(body: &[u8]) -> Result<Self, Reply> {
        let body: Self =
            serde_json::from_slice(body).map_err(|error| unprocessable(&error.to_string()))?;
        if body.name.is_empty() {
            return Err(unprocessable("$.name: must not be empty"));
        }
        if body.gpu.count == 0 || body.disk == Some(0) {
            return Err(unprocessable("$: a count or a disk of at least 1"));
        }
        if body.env.keys().any(|name| !is_variable(name)) {
            return Err(unprocessable("$.env: a name that no shell knows"));
        }
        Ok(body)
    }

    pub(super) fn sku(&self) -> String {
        format!("{}x {}", self.gpu.count, self.gpu.id)
    }

    /// The places where the pod may be, and the rest of its order.
    pub(super) fn into_order(self) -> (Vec<String>, Order) {
        let places = match self.cloud {
            Cloud::Secure => self.data_center_ids.clone(),
            Cloud::Community => vec![COMMUNITY.to_owned()],
        };
        let order = Order {
            sku: self.sku(),
            nodes: 1,
            user_data: Some(start_script(&self.args, &self.env)),
            authorized_keys: authorized_keys(&self.env),
            tags: Some(json!({
                "image": self.image,
                "args": self.args,
                "disk": self.disk,
                "ports": self.ports,
                "env": self.env,
            })),
            name: self.name,
            ..Order::default()
        };
        (places, order)
    }
}

fn unprocessable(why: &str) -> Reply {
    Reply::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        json!({ "title": "Unprocessable Entity", "status": 422, "detail": "invalid body", "errors": [why] }),
    )
}

pub(super) fn is_variable(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().all(plain)
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// The public keys that the image accepts.
pub(super) fn authorized_keys(env: &BTreeMap<String, String>) -> Vec<String> {
    let keys = env.get("PUBLIC_KEY").map(String::as_str);
    keys.unwrap_or_default()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// The start of a container: its command, with its environment.
///
/// The image's own start, which would run for ever, ends at once, so that a pretend node ends when its
/// command does.
pub(super) fn start_script(args: &str, env: &BTreeMap<String, String>) -> String {
    let quoted = |value: &str| format!("'{}'", value.replace('\'', r"'\''"));
    let exports: String = env
        .iter()
        .map(|(name, value)| format!("export {name}={}\n", quoted(value)))
        .collect();
    let command = args.replace("/start.sh", "true");
    format!("#!/bin/sh\n{exports}{command}\n")
}

/// A pod as it is listed.
pub(super) fn pod(record: &Record, now: DateTime<Utc>) -> Value {
    let phase = record.phase(now);
    let assigned = now >= record.created_at + record.boot / 2;
    let status = match phase {
        Phase::Booting if assigned => "STARTING",
        Phase::Booting => "PROVISIONING",
        Phase::Running => "RUNNING",
        Phase::Failed => "ERROR",
        Phase::Ending | Phase::Gone => "TERMINATED",
    };
    let up = phase == Phase::Running;
    let ordered = record.order.tags.clone().unwrap_or_default();
    let community = record.row.is_community();
    let open = |port: &str| {
        let ports = ordered["ports"].as_array();
        ports.is_some_and(|ports| ports.iter().any(|open| open == port))
    };
    let host = record.hosts.first().filter(|_| up && open("22/tcp"));
    // Every pod publishes its port 22 under another number, on an address of its own.
    let public_port = record.ssh_port;
    let direct = host.map(|host| {
        json!({
            "host": host.public_ip,
            "port": public_port,
            "username": "root",
            "command": format!("ssh root@{} -p {public_port}", host.public_ip),
        })
    });
    let published = host.map(
        |host| json!({ "private": 22, "public": public_port, "type": "tcp", "ip": host.public_ip }),
    );
    let started_at = record.created_at + record.boot;
    json!({
        "id": record.id,
        "name": record.order.name,
        "image": ordered["image"],
        "args": ordered["args"],
        "disk": ordered["disk"],
        "ports": ordered["ports"],
        "env": ordered["env"],
        "registry": null,
        "status": status,
        "actions": ["stop", "restart", "terminate"],
        "mounts": {},
        "gpu": { "id": record.row.sku, "count": record.row.gpus },
        "cloud": if community { "COMMUNITY" } else { "SECURE" },
        "dataCenterId": (assigned && !community).then_some(&record.order.place),
        "cudaVersion": "12.8",
        "ssh": { "proxy": null, "direct": direct },
        "template": null,
        "cost": record.price_usd_hour().to_f64(),
        "locked": false,
        "globalNetworking": { "enabled": false },
        "runtime": up.then(|| json!({
            "uptime": (now - started_at).num_seconds(),
            "ports": published.into_iter().collect::<Vec<_>>(),
        })),
        "createdAt": record.created_at.to_rfc3339(),
        "startedAt": up.then(|| started_at.to_rfc3339()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_command_runs_with_its_environment_and_does_not_stay() {
        let env = BTreeMap::from([("GREETING".to_owned(), "it's\nme".to_owned())]);
        let script = start_script("sh -c 'echo \"$GREETING\"; exec /start.sh'", &env);
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &script])
            .output()
            .unwrap();
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it's\nme\n");
    }

    #[test]
    fn only_names_that_a_shell_knows_are_variables() {
        assert!(is_variable("PUBLIC_KEY") && is_variable("_x1"));
        for bad in ["", "1X", "A-B", "A=B", "A B", "A;id"] {
            assert!(!is_variable(bad), "{bad}");
        }
    }
}
