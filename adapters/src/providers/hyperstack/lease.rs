//! Orders at Hyperstack, the resulting machines, and the key pairs beside them.

use market::order::{
    Attachment, ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State,
};
use serde_json::{Value, json};

use super::{PROFILE, accepted, body_of, refusal_of, time};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::http::{Answer, Http, Next, Paging, Purpose, is_id, segment};
use crate::images;
use crate::providers::{address, ssh, user_data};

const MACHINES: &str = "/core/virtual-machines";
const ENVIRONMENTS: &str = "/core/environments";
const KEYS: &str = "/core/keypairs";

/// The word for a key pair as an attachment.
const KEY_PAIR: &str = "keypairs";

/// The port of SSH, which is closed unless a rule opens it.
const SSH_PORT: u16 = 22;

/// The image of an order that names none. Its driver is new enough for every GPU that is sold.
const USUAL_IMAGE: &str = "Ubuntu Server 22.04 LTS R570 CUDA 12.8";

/// The largest user data: 65,535 bytes in base64, the limit of the OpenStack underneath. Units: bytes.
const MAX_USER_DATA_BYTES: usize = 49_151;

/// A list whose records are at this place. Its `count` is of all pages.
const fn paging(records: &'static str) -> Paging {
    Paging {
        records,
        total: "/count",
        size: ("pageSize", 100),
        next: Next::Number("page"),
    }
}

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| Err(AdapterError::CannotOrder(why.to_owned()));
    if order.nodes != 1 {
        return cannot("one order is exactly one machine");
    }
    let Some(region) = &order.offer.place.region else {
        return cannot("the offer names no region to launch in");
    };
    ssh::check(&order.ssh_public_keys)?;
    let Some((first_key, other_keys)) = order.ssh_public_keys.split_first() else {
        return cannot("a launch needs one SSH key and the order holds none");
    };
    let included_gib = order.offer.particulars.disk_gib.unwrap_or_default();
    if order.machine.disk_gib.unwrap_or_default() > included_gib {
        return cannot("the disk comes with the flavor, and is smaller than the order asks for");
    }
    let image_name = images::chosen(&PROFILE, order.machine.image.as_ref(), USUAL_IMAGE)?;
    let user_data = user_data::of(order, other_keys, MAX_USER_DATA_BYTES)?;
    let token = order.client_token.as_str();
    let environment_name = environment_in(http, region).await?;
    // Under the mark of the order, which finds it again.
    let key = json!({
        "name": token, "environment_name": environment_name, "public_key": first_key,
    });
    added(&http.post(Purpose::Prepare, KEYS, &key).await?)?;
    // It holds the one-time token of the script and is never shown.
    let launch = json!({
        "name": token,
        "environment_name": environment_name,
        "flavor_name": order.offer.sku,
        "image_name": image_name,
        "key_name": token,
        "count": 1,
        "assign_floating_ip": true,
        // The provider's default is a random port for SSH.
        "enable_port_randomization": false,
        "user_data": user_data,
        "security_rules": convert_ports(&order.machine.ports),
        "labels": [token],
    });
    let answer = http.post(Purpose::Order, MACHINES, &launch).await?;
    convert_launched(&answer, token)
}

/// The machine that a launch made.
fn convert_launched(answer: &Answer, token: &str) -> Result<ProviderLease, AdapterError> {
    let body: Value = body_of(answer)?;
    let made = body["instances"].as_array().map_or(&[][..], Vec::as_slice);
    let lease = made.first().and_then(convert_machine);
    let lease = lease.ok_or_else(|| answer.unreadable("it names no virtual machine".to_owned()))?;
    Ok(ProviderLease {
        name: Some(token.to_owned()),
        node_count: u32::try_from(made.len()).ok(),
        ..lease
    })
}

/// The name of our environment in this region, which is made if need be.
async fn environment_in(http: &Http, region: &str) -> Result<String, AdapterError> {
    let name = format!("{}{region}", ClientToken::PREFIX);
    let listed = list_of(http, ENVIRONMENTS, "/environments").await?;
    let ours = listed.into_iter().find(|it| it["name"] == *name);
    match ours {
        Some(ours) if ours["region"] == *region => return Ok(name),
        Some(_) => {
            let why = format!("the environment `{name}` of the account is in another region");
            return Err(AdapterError::CannotOrder(why));
        }
        None => {}
    }
    let body = json!({ "name": name, "region": region });
    let answer = http.post(Purpose::Prepare, ENVIRONMENTS, &body).await?;
    added(&answer)?;
    Ok(name)
}

/// Accepts a thing that was added, also by somebody a moment before.
fn added(answer: &Answer) -> Result<(), AdapterError> {
    if answer.status() == 409 || says(answer, "already exist") {
        return Ok(());
    }
    accepted(answer)
}

/// Whether the message of an answer has these words, in lower case.
fn says(answer: &Answer, words: &str) -> bool {
    let body = answer.json().unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    message.to_lowercase().contains(words)
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let records = list_of(http, MACHINES, "/instances").await?;
    let leases: Option<Vec<_>> = records.iter().map(convert_machine).collect();
    leases.ok_or_else(|| odd_list(MACHINES))
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let path = format!("{MACHINES}/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let body: Value = body_of(&answer)?;
    let lease = convert_machine(&body["instance"]);
    let lease = lease.ok_or_else(|| answer.unreadable("it shows no virtual machine".to_owned()))?;
    Ok(Some(lease))
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let path = format!("{MACHINES}/{}", segment(&lease.id.0)?);
    let answer = http.delete(&path).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    if !answer.is_success() && says(&answer, "being created") {
        return Ok(Release::NotYet);
    }
    accepted(&answer)?;
    Ok(Release::Accepted)
}

/// The key pairs that carry a mark.
pub(super) async fn list_keys(http: &Http) -> Result<Vec<Attachment>, AdapterError> {
    let mut marked = Vec::new();
    for record in list_of(http, KEYS, "/keypairs").await? {
        let Some(token) = record["name"].as_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let region = record["environment"]["region"].as_str();
        marked.push(Attachment {
            kind: KEY_PAIR.to_owned(),
            id: id_in(&record["id"]).ok_or_else(|| odd_list(KEYS))?,
            region: region.map(str::to_owned),
            client_token: token,
        });
    }
    Ok(marked)
}

pub(super) async fn remove_key(http: &Http, key: &Attachment) -> Result<(), AdapterError> {
    // Unlike its list, one key pair is in the singular.
    let path = format!("/core/keypair/{}", segment(&key.id)?);
    let answer = http.delete(&path).await?;
    if answer.is_not_shown() {
        return Ok(());
    }
    accepted(&answer)
}

/// The records of a whole list.
async fn list_of(
    http: &Http,
    path: &str,
    records: &'static str,
) -> Result<Vec<Value>, AdapterError> {
    let listing = http.pages(path, &paging(records), refusal_of).await?;
    listing.whole()
}

/// The error for a list with a record that cannot be read. It shows nothing of the record.
fn odd_list(path: &str) -> AdapterError {
    AdapterError::Unreadable {
        method: "GET",
        path: path.to_owned(),
        how: "a record is not as published".to_owned(),
    }
}

/// The rules that let these ports in, and that of SSH.
fn convert_ports(ports: &[u16]) -> Vec<Value> {
    let others = ports.iter().copied().filter(|port| *port != SSH_PORT);
    let rule = |port| {
        json!({
            "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
            "remote_ip_prefix": "0.0.0.0/0", "port_range_min": port, "port_range_max": port,
        })
    };
    [SSH_PORT].into_iter().chain(others).map(rule).collect()
}

/// The machine in our words; `None` when it has no id.
fn convert_machine(machine: &Value) -> Option<ProviderLease> {
    let id = id_in(&machine["id"])?;
    let text = |at: &str| machine.pointer(at)?.as_str().map(str::to_owned);
    let number = |at: &str| machine.pointer(at)?.as_u64();
    // An owner can change the name.
    let labels = machine["labels"].as_array().into_iter().flatten();
    let is_mark = |label: &&str| label.parse::<ClientToken>().is_ok();
    let mark = labels.filter_map(Value::as_str).find(is_mark);
    // Sent by the simulator alone, whose machines cannot use port 22.
    let ssh_port = number("/ssh_port").and_then(|port| u16::try_from(port).ok());
    let (public, private) = (text("/floating_ip"), text("/fixed_ip"));
    let node = address::node("ubuntu", public, private, ssh_port);
    let status = text("/status").unwrap_or_default();
    Some(ProviderLease {
        name: mark.map(str::to_owned).or_else(|| text("/name")),
        sku: text("/flavor/name"),
        region: text("/environment/region"),
        node_count: Some(1),
        gpus_per_node: number("/flavor/gpu_count").and_then(|gpus| u32::try_from(gpus).ok()),
        nodes: node.into_iter().collect(),
        created_at: text("/created_at").and_then(|text| time(&text)),
        ..ProviderLease::new(id, convert_status(&status), status)
    })
}

/// An id, which is a number here.
fn id_in(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => number.as_u64().map(|id| id.to_string()),
        Value::String(id) => Some(id.clone()).filter(|id| is_id(id)),
        _ => None,
    }
}

fn convert_status(status: &str) -> State {
    match status.to_ascii_uppercase().as_str() {
        "ACTIVE" => State::Running,
        // Without its GPUs, or off and still billed in full.
        "ERROR" | "SHUTOFF" | "HIBERNATED" => State::Failed,
        "DELETING" => State::Ending,
        "DELETED" => State::Gone,
        // `CREATING`, `BUILD`, the words for what passes, and every unknown word.
        _ => State::Pending,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_status_has_its_state_and_an_unknown_word_means_pending() {
        let states = |words: &[&str]| -> Vec<State> {
            words.iter().map(|word| convert_status(word)).collect()
        };
        let passing = "CREATING BUILD STARTING STOPPING REBOOTING HIBERNATING RESTORING odd";
        for word in passing.split(' ').chain([""]) {
            assert_eq!(convert_status(word), State::Pending, "{word}");
        }
        assert_eq!(states(&["ACTIVE", "active"]), [State::Running; 2]);
        assert_eq!(
            states(&["ERROR", "SHUTOFF", "HIBERNATED"]),
            [State::Failed; 3]
        );
        assert_eq!(
            states(&["DELETING", "DELETED"]),
            [State::Ending, State::Gone]
        );
    }

    #[test]
    fn the_mark_is_in_a_label_or_the_name_and_only_an_id_makes_a_machine() {
        let token = "gpb-00000000000000000000000000000007";
        let name = |machine: Value| convert_machine(&machine)?.name;
        let renamed = json!({"id": 7, "name": "mine", "labels": ["a", 4, token]});
        assert_eq!(name(renamed).as_deref(), Some(token));
        let named = json!({"id": "7", "name": token, "labels": null});
        assert_eq!(name(named).as_deref(), Some(token));
        for id in [json!(null), json!(-7), json!(".."), json!(1.5)] {
            assert_eq!(name(json!({"id": id, "name": token})), None, "{id}");
        }
    }
}
