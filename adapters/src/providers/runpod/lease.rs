//! Orders at RunPod and the resulting pods.
//!
//! REST v2 creates on-demand pods and has no bids; GraphQL creates a spot pod by a bid. From then on both are
//! pods of REST v2.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use market::money::Money;
use market::offer::Terms;
use market::order::{
    LeaseOrder, ProviderLease, ProviderLeaseId, ProviderLeaseState as State, ProviderNode,
};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::container::{DISK_GB, IMAGE, MIN_CUDA, NewPod, SSH_PORTS, START_COMMAND, cannot};
use super::{COMMUNITY, graphql, sku};
use crate::adapter::Release;
use crate::error::{AdapterError, Refusal};
use crate::gate;
use crate::http::{Answer, Http, Purpose, is_id, segment};
use crate::providers::address;

const PODS: &str = "/v2/pods";

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let pod = NewPod::of(order)?;
    match order.offer.terms {
        Terms::Spot => request_spot(http, order, &pod).await,
        _ => request_on_demand(http, &pod).await,
    }
}

async fn request_on_demand(http: &Http, pod: &NewPod<'_>) -> Result<ProviderLease, AdapterError> {
    let body = CreatePod {
        name: pod.name,
        cloud: pod.cloud.word(),
        gpu: CreateGpu {
            id: pod.type_id,
            count: pod.gpus,
            min_cuda_version: MIN_CUDA,
        },
        image: IMAGE,
        args: START_COMMAND,
        disk: DISK_GB,
        ports: [SSH_PORTS],
        env: &pod.env,
        data_center_ids: pod.data_centre,
    };
    let answer = http.post(Purpose::Order, PODS, &body).await?;
    let made: Pod = answer.read(refusal_of_order)?;
    let lease = convert_pod(made)
        .ok_or_else(|| answer.unreadable("a success that names no pod".to_owned()))?;
    Ok(ProviderLease {
        name: lease.name.or_else(|| Some(pod.name.to_owned())),
        ..lease
    })
}

async fn request_spot(
    http: &Http,
    order: &LeaseOrder,
    pod: &NewPod<'_>,
) -> Result<ProviderLease, AdapterError> {
    let per_node = order.offer.price_per_node_hour.to_decimal();
    let bid = (per_node / Decimal::from(pod.gpus))
        .to_f64()
        .ok_or_else(|| cannot("the offer's price is no bid"))?;
    let env = pod
        .env
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": value }));
    let mut input = json!({
        "bidPerGpu": bid,
        "cloudType": pod.cloud.word(),
        "gpuTypeId": pod.type_id,
        "gpuCount": pod.gpus,
        "name": pod.name,
        "imageName": IMAGE,
        "dockerArgs": START_COMMAND,
        "containerDiskInGb": DISK_GB,
        "volumeInGb": 0,
        "ports": SSH_PORTS,
        "supportPublicIp": true,
        "env": env.collect::<Vec<_>>(),
    });
    if let Some([centre]) = pod.data_centre {
        input["dataCenterId"] = json!(centre);
    }
    let (answer, made) = graphql::bid(http, input).await?;
    if !is_id(&made.id) {
        return Err(answer.unreadable("a success that names no pod".to_owned()));
    }
    Ok(ProviderLease {
        id: ProviderLeaseId(made.id),
        name: made.name.or_else(|| Some(pod.name.to_owned())),
        state: State::Pending,
        raw_status: made.desired_status.unwrap_or_default(),
        sku: None,
        region: None,
        node_count: Some(1),
        gpus_per_node: made.gpu_count,
        nodes: Vec::new(),
        created_at: None,
        price_per_node_hour: convert_cost(&made.cost_per_hr, Some(pod.gpus)),
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let answer = http.get(PODS).await?;
    let listed: Pods = answer.read(refusal_of)?;
    let leases: Option<Vec<_>> = listed.pods.into_iter().map(convert_pod).collect();
    leases.ok_or_else(|| answer.unreadable("a pod has no id".to_owned()))
}

pub(super) async fn read(
    http: &Http,
    id: &ProviderLeaseId,
) -> Result<Option<ProviderLease>, AdapterError> {
    let answer = http.get(&format!("{PODS}/{}", segment(&id.0)?)).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let pod: Pod = answer.read(refusal_of)?;
    let lease = convert_pod(pod).ok_or_else(|| answer.unreadable("a pod has no id".to_owned()))?;
    Ok(Some(lease))
}

pub(super) async fn release(http: &Http, id: &ProviderLeaseId) -> Result<Release, AdapterError> {
    let answer = http.delete(&format!("{PODS}/{}", segment(&id.0)?)).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

/// The meaning of a refusal of an order. Lack of capacity has no code of its own, only words. The
/// documentation says that any 400 may be one and that the client should try the next candidate.
fn refusal_of_order(answer: &Answer) -> Refusal {
    let body = answer.json().unwrap_or_default();
    let detail = body["detail"].as_str().unwrap_or_default().to_lowercase();
    if let Some(refusal) = refusal_in_words(&detail) {
        return refusal;
    }
    match answer.status() {
        400 => Refusal::Capacity,
        // The account has no access to this pool, but may have access to others.
        403 => Refusal::Quota,
        status => Refusal::from_status(status),
    }
}

/// The meaning of a refusal's words, in lower case. Words seen, and words of the documentation.
pub(super) fn refusal_in_words(words: &str) -> Option<Refusal> {
    let says = |known: &[&str]| known.iter().any(|word| words.contains(word));
    if says(&["balance", "credit", "funds", "payment"]) {
        Some(Refusal::Credential)
    } else if says(&[
        "quota",
        "spend limit",
        "spending limit",
        "outbid",
        "bid is too low",
    ]) {
        Some(Refusal::Quota)
    } else if says(&[
        "no longer any instances available",
        "not enough free gpus",
        "no available",
        "out of stock",
        "capacity",
    ]) {
        Some(Refusal::Capacity)
    } else {
        None
    }
}

fn refusal_of(answer: &Answer) -> Refusal {
    Refusal::from_status(answer.status())
}

/// The pod in our words; `None` when it has no id.
fn convert_pod(pod: Pod) -> Option<ProviderLease> {
    let id = pod.id.filter(|id| is_id(id))?;
    let raw_status = pod.status.unwrap_or_default();
    let gpus = pod.gpu.as_ref().map(|gpu| gpu.count.unwrap_or(1));
    let region = match pod.cloud.as_deref() {
        Some("COMMUNITY") => Some(COMMUNITY.to_owned()),
        _ => pod.data_center_id,
    };
    let node = pod.ssh.and_then(convert_ssh);
    let state = match convert_status(&raw_status) {
        // The container runs before its port is published.
        State::Running if node.is_none() => State::Pending,
        state => state,
    };
    Some(ProviderLease {
        id: ProviderLeaseId(id),
        name: pod.name,
        state,
        raw_status,
        sku: pod.gpu.map(|gpu| sku(gpu.count.unwrap_or(1), &gpu.id)),
        region,
        node_count: Some(1),
        gpus_per_node: gpus,
        nodes: node.into_iter().collect(),
        created_at: pod
            .created_at
            .and_then(|text| DateTime::parse_from_rfc3339(&text).ok())
            .map(|at| at.with_timezone(&Utc)),
        price_per_node_hour: convert_cost(&pod.cost, gpus),
    })
}

fn convert_status(status: &str) -> State {
    match status {
        "RUNNING" => State::Running,
        // A stopped pod has lost its GPUs, perhaps for ever, while its disk is billed.
        "EXITED" | "ERROR" => State::Failed,
        "TERMINATED" => State::Gone,
        // `PROVISIONING`, `STARTING`, and every unknown word.
        _ => State::Pending,
    }
}

/// The direct address of the pod's own SSH server. The proxy beside it carries no files.
fn convert_ssh(ssh: Ssh) -> Option<ProviderNode> {
    let direct = ssh.direct?;
    let port = direct.port.filter(|port| *port > 0)?;
    Some(ProviderNode {
        user: "root".to_owned(),
        ..address::node(direct.host, None, Some(port))?
    })
}

/// The price of the pod; a price of zero (stopped) or a placeholder is unknown.
fn convert_cost(cost: &Value, gpus: Option<u32>) -> Option<Money> {
    let gpus = GpuCount::whole(gpus?).ok()?;
    gate::node_price(read_cost(cost)?, gpus).ok()
}

/// A cost of one dollar is plausible here, because it is of a running pod.
fn read_cost(cost: &Value) -> Option<Decimal> {
    let text = cost.as_number()?.to_string();
    Decimal::from_str_exact(&text).ok()
}

// It holds the one-time token, so it has no debug form.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreatePod<'a> {
    name: &'a str,
    cloud: &'static str,
    gpu: CreateGpu<'a>,
    image: &'static str,
    args: &'static str,
    disk: u32,
    ports: [&'static str; 1],
    env: &'a BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_center_ids: Option<[&'a str; 1]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CreateGpu<'a> {
    id: &'a str,
    count: u32,
    min_cuda_version: &'static str,
}

#[derive(Debug, Deserialize)]
struct Pods {
    pods: Vec<Pod>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pod {
    id: Option<String>,
    name: Option<String>,
    status: Option<String>,
    gpu: Option<Gpu>,
    cloud: Option<String>,
    data_center_id: Option<String>,
    ssh: Option<Ssh>,
    /// US dollars an hour for the whole pod.
    #[serde(default)]
    cost: Value,
    created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Gpu {
    id: String,
    count: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Ssh {
    direct: Option<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    host: Option<String>,
    port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_status_has_its_state_and_an_unknown_word_means_pending() {
        let states = [
            "PROVISIONING",
            "STARTING",
            "RUNNING",
            "EXITED",
            "ERROR",
            "TERMINATED",
            "HIBERNATING",
            "",
        ]
        .map(convert_status);
        let expected = [
            State::Pending,
            State::Pending,
            State::Running,
            State::Failed,
            State::Failed,
            State::Gone,
            State::Pending,
            State::Pending,
        ];
        assert_eq!(states, expected);
    }

    #[test]
    fn a_stopped_pod_states_no_price_and_a_dollar_an_hour_is_one() {
        let price = |cost: Value| convert_cost(&cost, Some(1)).map(|price| price.to_string());
        assert_eq!(price(json!(0.0)), None);
        assert_eq!(price(json!(null)), None);
        assert_eq!(price(json!("2.99")), None);
        assert_eq!(price(json!(1)), Some("1.00".into()));
        assert_eq!(price(json!(2.99)), Some("2.99".into()));
    }

    #[test]
    fn no_capacity_no_credit_and_an_error_of_ours_are_told_apart() {
        for (words, refusal) in [
            (
                "there are no longer any instances available with the requested specifications",
                Some(Refusal::Capacity),
            ),
            (
                "not enough free gpus on the host machine",
                Some(Refusal::Capacity),
            ),
            ("insufficient balance", Some(Refusal::Credential)),
            ("$.gpu.count: must be at least 1", None),
        ] {
            assert_eq!(refusal_in_words(words), refusal, "{words}");
        }
    }
}
