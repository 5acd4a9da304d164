//! Orders at RunPod and the resulting pods.
//!
//! A pod has no cloud-init. The start-up script and the keys of the order are variables of the container's
//! environment, and its command runs the script before anything else. The keys of the account are never
//! touched: the interface can only replace all of them.

use market::order::{LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State};
use market::quantity::GpuCount;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::{Value, json};

use super::{COMMUNITY, Cloud, PROFILE, refusal_of, sku};
use crate::adapter::Release;
use crate::error::{AdapterError, Refusal};
use crate::http::{Answer, Http, Next, Paging, Purpose, is_id, segment};
use crate::providers::{address, ssh};
use crate::reading::parse;
use crate::{gate, images};

const PODS: &str = "/v2/pods";

/// A page may hold fewer pods than it could.
const PAGING: Paging = Paging {
    records: "/pods",
    total: "",
    size: ("limit", 1_000),
    next: Next::Cursor {
        parameter: "cursor",
        at: "/pagination/nextCursor",
    },
};

/// The usual image: an official one, which starts an SSH server for the keys in `PUBLIC_KEY`.
const IMAGE: &str = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404";

/// The CUDA version of the usual image, below which a host cannot run it.
const MIN_CUDA: &str = "12.8";

/// The usual disk, enough for the agent and a model of usual size. Units: GB.
const DISK_GB: u32 = 50;

/// The port of the SSH server, which every pod publishes under a number of its own.
const SSH_PORT: u16 = 22;

/// The largest order that the interface takes. Units: bytes.
const MOST_BODY_BYTES: usize = 102_400;

/// What the container runs. The script's variable is gone before anything else sees it. An official image then
/// starts as it always does; another one gets its SSH server started, where it has one.
const COMMAND: &str = r#"sh -c "$GPU_BROKER_START_SCRIPT"; unset GPU_BROKER_START_SCRIPT
[ -x /start.sh ] && exec /start.sh
mkdir -p ~/.ssh /run/sshd && echo "$PUBLIC_KEY" >> ~/.ssh/authorized_keys
chmod 700 ~/.ssh && chmod 600 ~/.ssh/authorized_keys
server=$(command -v sshd) && ssh-keygen -A && "$server"
exec sleep infinity"#;

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let body = convert_order(order)?;
    let answer = http.post(Purpose::Order, PODS, &body).await?;
    let made = convert_pod(answer.read(refusal_of_order)?);
    Ok(ProviderLease {
        name: made.name.or_else(|| Some(order.client_token.to_string())),
        ..made
    })
}

/// The body of an order. It holds a one-time token.
fn convert_order(order: &LeaseOrder) -> Result<Value, AdapterError> {
    let cannot = |why: &str| AdapterError::CannotOrder(why.to_owned());
    let (offer, wanted) = (&order.offer, &order.machine);
    if order.nodes != 1 {
        return Err(cannot(
            "a pod is one container and cannot be part of a gang",
        ));
    }
    let region = offer.place.region.as_deref();
    let region = region.ok_or_else(|| cannot("the offer names no data centre"))?;
    let gpus = offer.gpus.as_whole();
    let gpus = gpus.ok_or_else(|| cannot("only whole GPUs are ordered here"))?;
    ssh::check(&order.ssh_public_keys)?;
    let cloud = Cloud::of_region(region);
    let others = wanted.ports.iter().filter(|port| **port != SSH_PORT);
    let ports = [&SSH_PORT].into_iter().chain(others);
    let mut body = json!({
        "name": order.client_token,
        "cloud": cloud.word(),
        "gpu": {
            "id": offer.sku.strip_prefix(&sku(gpus, "")).unwrap_or(&offer.sku),
            "count": gpus,
            "minCudaVersion": MIN_CUDA,
        },
        "image": images::chosen(&PROFILE, wanted.image.as_ref(), IMAGE)?,
        "entrypoint": ["sh", "-c"],
        "cmd": [COMMAND],
        "disk": wanted.disk_gib.unwrap_or(DISK_GB),
        "ports": ports.map(|port| format!("{port}/tcp")).collect::<Vec<_>>(),
        "env": {
            "PUBLIC_KEY": order.ssh_public_keys.join("\n"),
            "GPU_BROKER_START_SCRIPT": order.startup_script,
        },
    });
    if cloud == Cloud::Secure {
        body["dataCenterIds"] = json!([region]);
    }
    if body.to_string().len() > MOST_BODY_BYTES {
        return Err(cannot(
            "the order is larger than the 102400 bytes that RunPod takes",
        ));
    }
    Ok(body)
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    // By default the pods of clusters are left out.
    let path = format!("{PODS}?includeClusterPods=true");
    let records = http.pages(&path, &PAGING, refusal_of).await?.whole()?;
    let pods = records.iter().map(|record| parse(record).map(convert_pod));
    pods.collect::<Result<_, _>>()
        .map_err(|why| why.of_listing("GET", PODS))
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let path = format!("{PODS}/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    answer.read(refusal_of).map(convert_pod).map(Some)
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let path = format!("{PODS}/{}", segment(&lease.id.0)?);
    let answer = http.delete(&path).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

/// The meaning of a refusal of an order. Lack of capacity has no code of its own. The documentation says that
/// any 400 may be one, and that the client should try the next candidate.
fn refusal_of_order(answer: &Answer) -> Refusal {
    let refusal = answer.refusal_by_words(&[
        ("balance", Refusal::Credential),
        ("credit", Refusal::Credential),
        ("quota", Refusal::Quota),
        ("limit", Refusal::Quota),
    ]);
    match (answer.status(), refusal) {
        (400, Refusal::Request) => Refusal::Capacity,
        // The account has no access to this pool, but may have access to others.
        (403, _) => Refusal::Quota,
        _ => refusal,
    }
}

/// The pod in our words.
fn convert_pod(pod: Pod) -> ProviderLease {
    // A pod that does not say how many it has may have any number.
    let gpu = pod.gpu.and_then(|gpu| Some((gpu.count?, gpu.id)));
    let direct = &pod.ssh["direct"];
    let host = direct["host"].as_str().map(str::to_owned);
    let port = direct["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok());
    // The proxy beside the direct address carries no files.
    let node = port.and_then(|port| address::node("root", host, None, Some(port)));
    let raw_status = pod.status.unwrap_or_default();
    let state = match raw_status.as_str() {
        // The container runs before its port is published.
        "RUNNING" if node.is_some() => State::Running,
        // A stopped pod has lost its GPUs, perhaps for ever, while its disk is billed.
        "EXITED" | "ERROR" => State::Failed,
        "TERMINATED" => State::Gone,
        // `PROVISIONING`, `STARTING`, and every unknown word.
        _ => State::Pending,
    };
    let count = gpu.as_ref().map(|gpu| gpu.0);
    let gpus = count.and_then(|count| GpuCount::whole(count).ok());
    let cost = gate::price(&pod.cost).ok().flatten();
    ProviderLease {
        name: pod.name,
        sku: gpu.map(|(count, id)| sku(count, &id)),
        region: match pod.cloud.as_deref() {
            Some("COMMUNITY") => Some(COMMUNITY.to_owned()),
            _ => pod.data_center_id,
        },
        node_count: Some(1),
        gpus_per_node: count,
        nodes: node.into_iter().collect(),
        created_at: pod.created_at.and_then(|time| time.parse().ok()),
        // A stopped pod states a cost of zero, which is no price.
        price_per_node_hour: cost
            .zip(gpus)
            .and_then(|(cost, gpus)| gate::node_price(cost, gpus).ok()),
        ..ProviderLease::new(pod.id, state, raw_status)
    }
}

/// A pod. Its environment holds the script of its order and is not read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    #[serde(deserialize_with = "pod_id")]
    id: String,
    name: Option<String>,
    status: Option<String>,
    gpu: Option<Gpu>,
    cloud: Option<String>,
    data_center_id: Option<String>,
    #[serde(default)]
    ssh: Value,
    /// US dollars an hour for the whole pod.
    #[serde(default)]
    cost: Value,
    created_at: Option<String>,
}

#[derive(Deserialize)]
struct Gpu {
    id: String,
    count: Option<u32>,
}

fn pod_id<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let id = String::deserialize(from)?;
    is_id(&id)
        .then_some(id)
        .ok_or_else(|| D::Error::custom("a pod has no id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_runs_the_script_and_takes_it_out_of_the_environment() {
        let line = COMMAND.replace("[ -x /start.sh ]", "echo started; env; false");
        let line = line.replace("exec sleep infinity", "cat ~/.ssh/authorized_keys");
        let line = line
            .replace("/run/sshd", "~/run")
            .replace("sshd", "no-such-server");
        let home = tempfile::tempdir().expect("a directory");
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &line])
            .env(
                "GPU_BROKER_START_SCRIPT",
                "set -eu\necho \"it's mine: $PUBLIC_KEY\"\nexit 3\n",
            )
            .env("PUBLIC_KEY", "ssh-ed25519 AAAA me")
            .env("HOME", home.path())
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(
            said.starts_with("it's mine: ssh-ed25519 AAAA me\nstarted\n"),
            "{said}"
        );
        assert!(said.ends_with("\nssh-ed25519 AAAA me\n"), "{said}");
        assert!(!said.contains("GPU_BROKER_START_SCRIPT"), "{said}");
    }
}
