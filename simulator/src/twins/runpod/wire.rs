//! The bodies of REST v2 of `runpod`, as its specification has them.

use std::collections::BTreeMap;

use rust_decimal::prelude::ToPrimitive;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{COMMUNITY, is_community, places, sku};
use crate::kit::*;

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

pub(super) fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body: PodBody = request.json()?;
    require(!body.name.is_empty(), "$.name: must not be empty")?;
    require(
        body.gpu.count > 0 && body.disk != Some(0),
        "$: a count or a disk of at least 1",
    )?;
    require(
        body.env.keys().all(|name| is_variable(name)),
        "$.env: a name that no shell knows",
    )?;
    let sku = sku(body.gpu.count, &body.gpu.id);
    let named = match body.cloud {
        Cloud::Secure => body.data_center_ids,
        Cloud::Community => vec![COMMUNITY.to_owned()],
    };
    Ok(Order {
        places: places(call, &sku, named),
        sku,
        nodes: 1,
        user_data: Some(start_script(&body.args, &body.env)),
        authorized_keys: authorized_keys(&body.env),
        echo: json!({
            "image": body.image,
            "args": body.args,
            "disk": body.disk,
            "ports": body.ports,
            "env": body.env,
        }),
        name: body.name,
        ..Order::default()
    })
}

pub(super) fn unprocessable(why: &str) -> Reply {
    Reply::new(
        422,
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
pub(super) fn pod(shown: &Shown<'_>) -> Value {
    let assigned = shown.now >= shown.created_at + shown.boot / 2;
    let status = match shown.status() {
        "PROVISIONING" if assigned => "STARTING",
        other => other,
    };
    let up = shown.is_up();
    let ordered = &shown.order.echo;
    let community = is_community(&shown.row);
    let open = |port: &str| {
        let ports = ordered["ports"].as_array();
        ports.is_some_and(|ports| ports.iter().any(|open| open == port))
    };
    let host = shown.host().filter(|_| open("22/tcp"));
    // Every pod publishes its port 22 under another number, on an address of its own.
    let public_port = shown.ssh_port;
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
    let started_at = shown.up_at();
    json!({
        "id": shown.id,
        "name": shown.order.name,
        "image": ordered["image"],
        "args": ordered["args"],
        "disk": ordered["disk"],
        "ports": ordered["ports"],
        "env": ordered["env"],
        "registry": null,
        "status": status,
        "actions": ["stop", "restart", "terminate"],
        "mounts": {},
        "gpu": { "id": shown.row.sku, "count": shown.row.gpus },
        "cloud": if community { "COMMUNITY" } else { "SECURE" },
        "dataCenterId": (assigned && !community).then_some(shown.place()),
        "cudaVersion": "12.8",
        "ssh": { "proxy": null, "direct": direct },
        "template": null,
        "cost": shown.price_usd_hour().to_f64(),
        "locked": false,
        "globalNetworking": { "enabled": false },
        "runtime": up.then(|| json!({
            "uptime": (shown.now - started_at).num_seconds(),
            "ports": published.into_iter().collect::<Vec<_>>(),
        })),
        "createdAt": shown.created_at.to_rfc3339(),
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
