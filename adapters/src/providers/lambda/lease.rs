//! Orders at Lambda Cloud and the resulting machines.

use market::money::Money;
use market::order::{LeaseOrder, ProviderLease, ProviderLeaseId, ProviderLeaseState as State};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Data, InstanceType, Region, code_of, convert_count, refusal_of};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::gate;
use crate::http::{Answer, Http, Purpose, is_id, segment};
use crate::providers::{address, ssh};

/// The tag for the client token. It is kept beside the name, which an owner can change.
const TOKEN_TAG: &str = "gpu-broker-lease";

/// The largest user data. Units: bytes.
const MAX_USER_DATA_BYTES: usize = 1_000_000;

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| Err(AdapterError::CannotOrder(why.to_owned()));
    if order.nodes != 1 {
        return cannot("one launch makes exactly one machine");
    }
    let Some(region) = &order.offer.place.region else {
        return cannot("the offer names no region to launch in");
    };
    ssh::check(&order.ssh_public_keys)?;
    let Some((first_key, other_keys)) = order.ssh_public_keys.split_first() else {
        return cannot("a launch needs one SSH key and the order holds none");
    };
    let user_data = user_data(&order.startup_script, other_keys);
    if user_data.len() > MAX_USER_DATA_BYTES {
        return cannot("the start-up script is larger than user data may be");
    }
    let key_name = registered_key(http, first_key).await?;
    let launch = Launch {
        region_name: region,
        instance_type_name: &order.offer.sku,
        ssh_key_names: [&key_name],
        name: order.client_token.as_str(),
        user_data: &user_data,
        tags: [Tag {
            key: TOKEN_TAG.to_owned(),
            value: order.client_token.as_str().to_owned(),
        }],
    };
    let answer = http
        .post(Purpose::Order, "/instance-operations/launch", &launch)
        .await?;
    if !answer.is_success() && comes_from_within(&answer) {
        return Err(answer.unreadable(format!("a refusal with the code {}", code_of(&answer))));
    }
    let launched: Data<Launched> = answer.read(refusal_of)?;
    let made = launched.data.instance_ids;
    let Some(id) = made.first().filter(|id| is_id(id)) else {
        return Err(answer.unreadable("a success that names no instance".to_owned()));
    };
    Ok(ProviderLease {
        id: ProviderLeaseId(id.clone()),
        name: Some(order.client_token.as_str().to_owned()),
        state: State::Pending,
        raw_status: "launched".to_owned(),
        sku: None,
        region: None,
        node_count: u32::try_from(made.len()).ok(),
        gpus_per_node: None,
        nodes: Vec::new(),
        created_at: None,
        price_per_node_hour: None,
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let answer = http.get("/instances").await?;
    let instances: Data<Vec<Instance>> = answer.read(refusal_of)?;
    if !instances.data.iter().all(|instance| is_id(&instance.id)) {
        return Err(answer.unreadable("an instance has no id".to_owned()));
    }
    Ok(instances.data.into_iter().map(convert_instance).collect())
}

pub(super) async fn read(
    http: &Http,
    id: &ProviderLeaseId,
) -> Result<Option<ProviderLease>, AdapterError> {
    let answer = http.get(&format!("/instances/{}", segment(&id.0)?)).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let instance: Data<Instance> = answer.read(refusal_of)?;
    Ok(Some(convert_instance(instance.data)))
}

pub(super) async fn release(http: &Http, id: &ProviderLeaseId) -> Result<Release, AdapterError> {
    let body = json!({ "instance_ids": [id.0] });
    let answer = http
        .post(Purpose::Release, "/instance-operations/terminate", &body)
        .await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

/// Whether a refusal comes from behind the interface, where a machine may have been created all the same:
/// codes of upstream providers, and of internal errors.
fn comes_from_within(answer: &Answer) -> bool {
    let code = code_of(answer);
    code.starts_with("provider/") || code == "global/internal-error"
}

/// The account's name for this public key, which is registered if need be.
///
/// A new key is named by its own hash, so that two simultaneous orders register the same.
async fn registered_key(http: &Http, public_key: &str) -> Result<String, AdapterError> {
    let known: Data<Vec<SshKey>> = http.get("/ssh-keys").await?.read(refusal_of)?;
    let same = |key: &SshKey| ssh::material(&key.public_key) == ssh::material(public_key);
    if let Some(key) = known.data.into_iter().find(same) {
        return Ok(key.name);
    }
    let digest = blake3::hash(ssh::material(public_key).as_bytes()).to_hex();
    let name = format!("gpb-key-{}", &digest[..16]);
    let answer = http
        .post(
            Purpose::Prepare,
            "/ssh-keys",
            &json!({ "name": name, "public_key": public_key }),
        )
        .await?;
    if code_of(&answer) != "global/duplicate" {
        answer.accepted(refusal_of)?;
    }
    Ok(name)
}

/// The script as it is; with further keys a multi-part document of cloud-init, because a launch
/// takes one key only.
fn user_data(script: &str, other_keys: &[String]) -> String {
    if other_keys.is_empty() {
        return script.to_owned();
    }
    let keys: String = other_keys
        .iter()
        .map(|key| format!("  - {}\n", json!(key)))
        .collect();
    // A line of a script cannot begin with the hash of that script.
    let boundary = format!("=={}", blake3::hash(script.as_bytes()).to_hex());
    format!(
        "Content-Type: multipart/mixed; boundary=\"{boundary}\"\nMIME-Version: 1.0\n\n\
         --{boundary}\nContent-Type: text/cloud-config\n\n#cloud-config\nssh_authorized_keys:\n{keys}\n\
         --{boundary}\nContent-Type: text/x-shellscript\n\n{script}\n\
         --{boundary}--\n"
    )
}

fn convert_instance(instance: Instance) -> ProviderLease {
    let tagged = instance
        .tags
        .into_iter()
        .flatten()
        .find(|tag| tag.key == TOKEN_TAG)
        .map(|tag| tag.value);
    let node = address::node(instance.ip, instance.private_ip, instance.ssh_port);
    let price_per_node_hour = instance.instance_type.as_ref().and_then(convert_price);
    ProviderLease {
        id: ProviderLeaseId(instance.id),
        name: tagged.or(instance.name),
        state: convert_status(&instance.status),
        raw_status: instance.status,
        sku: instance
            .instance_type
            .as_ref()
            .map(|kind| kind.name.clone()),
        region: instance.region.map(|region| region.name),
        node_count: Some(1),
        gpus_per_node: instance
            .instance_type
            .and_then(|kind| u32::try_from(kind.specs.gpus?).ok()),
        nodes: node.into_iter().collect(),
        created_at: None,
        price_per_node_hour,
    }
}

/// The reported price of a machine of this type for an hour; `None` where it is implausible.
fn convert_price(kind: &InstanceType) -> Option<Money> {
    let gpus = convert_count(&kind.name, kind.specs.gpus).ok()?;
    gate::node_price(Decimal::new(kind.price_cents_per_hour?, 2), gpus).ok()
}

fn convert_status(status: &str) -> State {
    match status {
        "active" => State::Running,
        // Up but failing its checks, and billed.
        "unhealthy" => State::Failed,
        "terminating" => State::Ending,
        "terminated" | "preempted" => State::Gone,
        // `booting`, and every unknown word.
        _ => State::Pending,
    }
}

// It holds the one-time token, so it has no debug form.
#[derive(Serialize)]
struct Launch<'a> {
    region_name: &'a str,
    instance_type_name: &'a str,
    ssh_key_names: [&'a str; 1],
    name: &'a str,
    user_data: &'a str,
    tags: [Tag; 1],
}

#[derive(Debug, Serialize, Deserialize)]
struct Tag {
    key: String,
    value: String,
}

#[derive(Debug, Deserialize)]
struct Launched {
    instance_ids: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct SshKey {
    name: String,
    public_key: String,
}

#[derive(Debug, Deserialize)]
struct Instance {
    id: String,
    name: Option<String>,
    ip: Option<String>,
    private_ip: Option<String>,
    /// Sent by the simulator alone, whose machines cannot use port 22.
    ssh_port: Option<u16>,
    status: String,
    region: Option<Region>,
    instance_type: Option<InstanceType>,
    tags: Option<Vec<Tag>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_leaves_the_script_alone_and_more_wrap_it() {
        let script = "#!/bin/sh\necho up\n";
        assert_eq!(user_data(script, &[]), script);
        let wrapped = user_data(script, &["ssh-ed25519 AAAA second".into()]);
        assert!(wrapped.contains("  - \"ssh-ed25519 AAAA second\"\n") && wrapped.contains(script));
        let boundary = wrapped.split('"').nth(1).expect("a boundary");
        assert_eq!(wrapped.matches(&format!("\n--{boundary}\n")).count(), 2);
        assert!(wrapped.ends_with(&format!("--{boundary}--\n")));
    }

    #[test]
    fn every_published_status_has_its_state_and_an_unknown_word_means_pending() {
        let states = [
            "booting",
            "active",
            "unhealthy",
            "terminating",
            "terminated",
            "preempted",
            "hibernating",
            "",
        ]
        .map(convert_status);
        let expected = [
            State::Pending,
            State::Running,
            State::Failed,
            State::Ending,
            State::Gone,
            State::Gone,
            State::Pending,
            State::Pending,
        ];
        assert_eq!(states, expected);
    }
}
