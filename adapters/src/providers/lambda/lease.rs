//! Orders at Lambda Cloud and the resulting machines.

use market::money::Money;
use market::order::{EndReason, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State};
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Data, InstanceType, PROFILE, Region, code_of, convert_count, refusal_of};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::gate;
use crate::http::{Answer, Http, Purpose, is_id, segment};
use crate::images;
use crate::providers::{address, ssh, user_data};

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
    let user_data = user_data::of(order, other_keys, MAX_USER_DATA_BYTES)?;
    if order.machine.disk_gib.is_some() || !order.machine.ports.is_empty() {
        return cannot("disk and open ports cannot be chosen here");
    }
    let image = images::chosen(&PROFILE, order.machine.image.as_ref(), "")?;
    let key_name = registered_key(http, first_key).await?;
    let launch = Launch {
        region_name: region,
        instance_type_name: &order.offer.sku,
        ssh_key_names: [&key_name],
        name: order.client_token.as_str(),
        user_data: &user_data,
        image: (!image.is_empty()).then_some(Image { family: image }),
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
        name: Some(order.client_token.as_str().to_owned()),
        node_count: u32::try_from(made.len()).ok(),
        ..ProviderLease::new(id, State::Pending, "launched")
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
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let path = format!("/instances/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let instance: Data<Instance> = answer.read(refusal_of)?;
    Ok(Some(convert_instance(instance.data)))
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let body = json!({ "instance_ids": [lease.id.0] });
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
    let name = ssh::name_of(public_key);
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

fn convert_instance(instance: Instance) -> ProviderLease {
    let tagged = instance
        .tags
        .into_iter()
        .flatten()
        .find(|tag| tag.key == TOKEN_TAG)
        .map(|tag| tag.value);
    let node = address::node(
        "ubuntu",
        instance.ip,
        instance.private_ip,
        instance.ssh_port,
    );
    let price_per_node_hour = instance.instance_type.as_ref().and_then(convert_price);
    ProviderLease {
        name: tagged.or(instance.name),
        end_reason: (instance.status == "preempted").then_some(EndReason::Preempted),
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
        price_per_node_hour,
        ..ProviderLease::new(
            instance.id,
            convert_status(&instance.status),
            instance.status,
        )
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
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<Image<'a>>,
    tags: [Tag; 1],
}

#[derive(Debug, Serialize)]
struct Image<'a> {
    family: &'a str,
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
