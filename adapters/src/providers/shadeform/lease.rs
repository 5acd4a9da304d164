//! Orders at Shadeform, and the resulting machines and clusters.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use market::machine::ImageChoice;
use market::money::Money;
use market::offer::Terms;
use market::order::{
    Attachment, ClientToken, EndReason, LeaseOrder, LeaseRef, ProviderLease,
    ProviderLeaseState as State, ProviderNode,
};
use market::quantity::GpuCount;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{List, PROFILE, Sku, dollars, refusal_of};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::gate;
use crate::http::{Http, Purpose, is_id, segment};
use crate::images;
use crate::providers::{address, ssh};

/// What a cluster's id begins with in our words: it has a path of its own.
const CLUSTER: &str = "cluster/";

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| AdapterError::CannotOrder(why.to_owned());
    let no_region = || cannot("the offer names no region to order in");
    let region = order.offer.place.region.as_deref().ok_or_else(no_region)?;
    let sku = Sku::read(&order.offer.sku);
    if order.nodes != sku.cluster_of.unwrap_or(1) {
        return Err(cannot("it has exactly the nodes that it is sold with"));
    }
    if sku.cluster_of.is_some() && !order.startup_script.is_empty() {
        return Err(cannot("the nodes of a cluster run no start-up script"));
    }
    if order.machine.disk_gib.is_some() || !order.machine.ports.is_empty() {
        return Err(cannot("disk and open ports cannot be chosen here"));
    }
    ssh::check(&order.ssh_public_keys)?;
    let (key, key_name) = key_of(order).ok_or_else(|| cannot("the order holds no SSH key"))?;
    let os = image(order)?;
    let key_id = registered_key(http, key, &key_name).await?;
    let name = order.client_token.as_str();
    let mut body =
        json!({ "name": name, "cloud": sku.cloud, "region": region, "ssh_key_id": key_id });
    if let Some(os) = os {
        body["os"] = json!(os);
    }
    let (path, prefix) = if let Some(size) = sku.cluster_of {
        body["cluster_type"] = json!(sku.kind);
        body["num_instances"] = json!(size);
        ("/clusters/create", CLUSTER)
    } else {
        let script = STANDARD.encode(script(order, key));
        let script = json!({ "base64_script": script });
        body["shade_instance_type"] = json!(sku.kind);
        // In Shadeform's own account at that cloud.
        body["shade_cloud"] = json!(true);
        body["launch_configuration"] = json!({ "type": "script", "script_configuration": script });
        body["tags"] = json!([name]);
        if order.offer.terms == Terms::Spot {
            body["rental_type"] = json!("spot");
        }
        ("/instances/create", "")
    };
    let answer = http.post(Purpose::Order, path, &body).await?;
    let made: Made = answer.read(refusal_of)?;
    if !is_id(&made.id) {
        return Err(answer.unreadable("a success without an id".to_owned()));
    }
    Ok(ProviderLease {
        name: Some(name.to_owned()),
        ..ProviderLease::new(format!("{prefix}{}", made.id), State::Pending, "creating")
    })
}

/// The key to register, and its name: one key is taken. Where one was made for this order, it is that one,
/// under its mark: its holder can let the others in.
fn key_of(order: &LeaseOrder) -> Option<(&str, String)> {
    let mark = order.client_token.as_str();
    let mut keys = order.ssh_public_keys.iter();
    match keys.clone().find(|key| key.ends_with(mark)) {
        Some(key) => Some((key, mark.to_owned())),
        None => keys.next().map(|key| (key.as_str(), ssh::name_of(key))),
    }
}

/// The account's id of this public key, which is registered under this name if need be.
async fn registered_key(http: &Http, public_key: &str, name: &str) -> Result<String, AdapterError> {
    if let Some(id) = known_key(http, public_key).await? {
        return Ok(id);
    }
    let key = json!({ "name": name, "public_key": public_key });
    let answer = http.post(Purpose::Prepare, "/sshkeys/add", &key).await?;
    if !answer.is_success() {
        // Names are unique: an order at the same time may have registered it.
        if let Some(id) = known_key(http, public_key).await? {
            return Ok(id);
        }
    }
    let added: Made = answer.read(refusal_of)?;
    Ok(added.id)
}

async fn known_key(http: &Http, public_key: &str) -> Result<Option<String>, AdapterError> {
    let keys: List<SshKey> = http.get("/sshkeys").await?.read(refusal_of)?;
    let material = ssh::material(public_key);
    let same = |key: &SshKey| ssh::material(&key.public_key) == material;
    Ok(keys.records.into_iter().find(same).map(|key| key.id))
}

/// The keys that were registered for one order alone.
pub(super) async fn list_keys(http: &Http) -> Result<Vec<Attachment>, AdapterError> {
    let keys: List<SshKey> = http.get("/sshkeys").await?.read(refusal_of)?;
    let marked = |key: SshKey| {
        Some(Attachment {
            kind: "sshkeys".to_owned(),
            client_token: key.name.parse().ok()?,
            id: key.id,
            region: None,
        })
    };
    Ok(keys.records.into_iter().filter_map(marked).collect())
}

/// A key in use is refused.
pub(super) async fn remove_key(http: &Http, attachment: &Attachment) -> Result<(), AdapterError> {
    let path = format!("/sshkeys/{}/delete", segment(&attachment.id)?);
    let answer = http.post(Purpose::Release, &path, &json!({})).await?;
    match answer.is_not_shown() {
        true => Ok(()),
        false => answer.accepted(refusal_of),
    }
}

/// The image that the order asks for; `None` for the usual one.
///
/// A word of the catalogue stands for the image with the same system and the same CUDA before the dot.
fn image(order: &LeaseOrder) -> Result<Option<&str>, AdapterError> {
    let choice = order.machine.image.as_ref();
    let wanted = images::chosen(&PROFILE, choice, "")?;
    let listed = order.offer.particulars.order_ref.as_deref();
    let mut offered = listed.unwrap_or_default().split(' ');
    if wanted.is_empty() {
        return Ok(None);
    }
    if listed.is_none() || offered.clone().any(|image| image == wanted) {
        return Ok(Some(wanted));
    }
    let is_word = matches!(choice, Some(ImageChoice::Catalogue(_)));
    let at = wanted.find("_cuda12.").filter(|_| is_word);
    let begin = at.map(|at| &wanted[..at + "_cuda12.".len()]);
    let alike = begin.and_then(|begin| offered.rfind(|image| image.starts_with(begin)));
    alike.map(Some).ok_or_else(|| {
        let why = format!("this machine has no image `{}`", gate::shown(wanted));
        AdapterError::CannotOrder(why)
    })
}

/// The script of the order. Before anything else it lets the other keys in where the registered one stands.
fn script(order: &LeaseOrder, registered: &str) -> String {
    let keys = order.ssh_public_keys.iter().map(String::as_str);
    let others: Vec<&str> = keys.filter(|key| *key != registered).collect();
    if others.is_empty() {
        return order.startup_script.clone();
    }
    let material = ssh::material(registered).replace('\'', r"'\''");
    let (shell, rest) = match order.startup_script.split_once('\n') {
        Some((shell, rest)) if shell.starts_with("#!") => (shell, rest),
        _ => ("#!/bin/sh", order.startup_script.as_str()),
    };
    // No key begins like the line that ends them.
    format!(
        "{shell}\nfor keys in /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys; do\n\
         grep -qF '{material}' \"$keys\" 2>/dev/null && cat >> \"$keys\" <<'END_OF_KEYS'\n\n\
         {}\nEND_OF_KEYS\ndone\n{rest}",
        others.join("\n")
    )
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let clusters: List<Cluster> = http.get("/clusters").await?.read(refusal_of)?;
    let answer = http.get("/instances").await?;
    let machines: List<Instance> = answer.read(refusal_of)?;
    let in_clusters = clusters.records.iter().flat_map(|one| &one.instances);
    let in_clusters: BTreeSet<String> = in_clusters.map(|one| one.id.clone()).collect();
    let mut alone = machines.records;
    alone.retain(|one| !in_clusters.contains(&one.id));
    let mut leases: Vec<_> = alone.into_iter().map(convert_instance).collect();
    leases.extend(clusters.records.into_iter().map(convert_cluster));
    match leases.iter().all(|lease| path_of(&lease.id.0).is_ok()) {
        true => Ok(leases),
        false => Err(answer.unreadable("a machine or a cluster has no id".to_owned())),
    }
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let answer = http.get(&format!("{}/info", path_of(&lease.id.0)?)).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    Ok(Some(match lease.id.0.starts_with(CLUSTER) {
        true => convert_cluster(answer.read(refusal_of)?),
        false => convert_instance(answer.read(refusal_of)?),
    }))
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let path = format!("{}/delete", path_of(&lease.id.0)?);
    let answer = http.post(Purpose::Release, &path, &json!({})).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    let said = answer.json().unwrap_or_default().to_string().to_lowercase();
    let is_early = said.contains("creating") || said.contains("pending");
    if matches!(answer.status(), 400 | 409) && is_early {
        return Ok(Release::NotYet);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

fn path_of(id: &str) -> Result<String, AdapterError> {
    Ok(match id.strip_prefix(CLUSTER) {
        Some(cluster) => format!("/clusters/{}", segment(cluster)?),
        None => format!("/instances/{}", segment(id)?),
    })
}

fn convert_instance(instance: Instance) -> ProviderLease {
    let mut tags = instance.tags.iter().flatten();
    let marked = tags.find(|tag| tag.parse::<ClientToken>().is_ok());
    let state = convert_status(&instance.status);
    ProviderLease {
        name: marked.cloned().or_else(|| instance.name.clone()),
        end_reason: end_reason(&instance.status, instance.status_details.as_deref()),
        sku: instance.sku(None),
        region: instance.region.clone(),
        node_count: Some(1),
        gpus_per_node: instance.gpus(),
        nodes: instance.node().into_iter().collect(),
        created_at: convert_time(instance.created_at.as_deref()),
        price_per_node_hour: instance.price(),
        ..ProviderLease::new(instance.id, state, instance.status)
    }
}

/// It runs when all its machines do. Their addresses are read only then: before, some may be missing.
fn convert_cluster(cluster: Cluster) -> ProviderLease {
    let machines = &cluster.instances;
    let nodes: Vec<_> = machines.iter().filter_map(Instance::node).collect();
    let has_failed = |one: &Instance| convert_status(&one.status) == State::Failed;
    let state = match convert_status(&cluster.status) {
        State::Running if machines.iter().any(has_failed) => State::Failed,
        State::Running if nodes.is_empty() || nodes.len() < machines.len() => State::Pending,
        state => state,
    };
    let size = u32::try_from(machines.len()).ok();
    let first = machines.first().filter(|_| state == State::Running);
    ProviderLease {
        end_reason: end_reason(&cluster.status, cluster.status_details.as_deref()),
        sku: first.and_then(|one| one.sku(size)),
        region: cluster.region_info["region"].as_str().map(str::to_owned),
        node_count: size.filter(|_| first.is_some()),
        gpus_per_node: first.and_then(Instance::gpus),
        price_per_node_hour: first.and_then(Instance::price),
        nodes,
        name: cluster.name,
        created_at: convert_time(cluster.created_at.as_deref()),
        ..ProviderLease::new(format!("{CLUSTER}{}", cluster.id), state, cluster.status)
    }
}

fn convert_status(status: &str) -> State {
    match status {
        "active" => State::Running,
        "error" => State::Failed,
        "deleting" => State::Ending,
        "deleted" => State::Gone,
        // `creating`, `pending_provider`, `pending`, and every unknown word.
        _ => State::Pending,
    }
}

/// Why it ended, by the details of its status. The words for no capacity are not published.
fn end_reason(status: &str, details: Option<&str>) -> Option<EndReason> {
    let details = details.unwrap_or_default().to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| details.contains(word));
    match convert_status(status) {
        State::Ending | State::Gone if details == "preempted" => Some(EndReason::Preempted),
        State::Failed if says(&["capacity", "out of stock", "sold out"]) => {
            Some(EndReason::NoCapacity)
        }
        _ => None,
    }
}

/// A time of RFC 3339, perhaps with a space between date and time.
fn convert_time(text: Option<&str>) -> Option<DateTime<Utc>> {
    let at = DateTime::parse_from_rfc3339(&text?.replacen(' ', "T", 1)).ok()?;
    // The beginning of all time stands for none.
    Some(at.with_timezone(&Utc)).filter(|at| at.timestamp() > 0)
}

/// Whether a text can be the name of a user: it reaches the tenant's SSH command line.
fn is_user(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=32).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with(['-', '.'])
}

#[derive(Debug, Deserialize)]
struct Made {
    id: String,
}

#[derive(Debug, Deserialize)]
struct Instance {
    id: String,
    cloud: Option<String>,
    shade_instance_type: Option<String>,
    region: Option<String>,
    name: Option<String>,
    tags: Option<Vec<String>>,
    status: String,
    status_details: Option<String>,
    ip: Option<String>,
    ssh_user: Option<String>,
    ssh_port: Option<u16>,
    #[serde(default)]
    configuration: Value,
    /// A number of cents: the price on demand.
    #[serde(default)]
    hourly_price: Value,
    /// Its own `hourly_price` is what is paid: a text of dollars.
    #[serde(default)]
    rental_terms: Value,
    created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Cluster {
    id: String,
    name: Option<String>,
    #[serde(default)]
    region_info: Value,
    status: String,
    status_details: Option<String>,
    #[serde(default)]
    instances: Vec<Instance>,
    created_at: Option<String>,
}

#[derive(Debug, Deserialize)]
struct SshKey {
    id: String,
    name: String,
    public_key: String,
}

impl Instance {
    fn sku(&self, cluster_of: Option<u32>) -> Option<String> {
        let kind = self.shade_instance_type.as_deref()?;
        Some(Sku::new(self.cloud.as_deref()?, kind, cluster_of).write())
    }

    fn gpus(&self) -> Option<u32> {
        u32::try_from(self.configuration["num_gpus"].as_u64()?).ok()
    }

    fn node(&self) -> Option<ProviderNode> {
        let user = self.ssh_user.as_deref().filter(|name| is_user(name));
        let ip = self.ip.clone();
        address::node(user.unwrap_or("shadeform"), ip, None, self.ssh_port)
    }

    /// The price of an hour; `None` where none is credible.
    fn price(&self) -> Option<Money> {
        let gpus = GpuCount::whole(self.gpus()?).ok()?;
        let paid = dollars(&self.rental_terms["hourly_price"], false);
        let price = paid.or_else(|_| dollars(&self.hourly_price, true));
        gate::node_price(price.ok()?, gpus).ok()
    }
}
