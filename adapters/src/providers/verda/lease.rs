//! Orders at Verda and the resulting machines.

use std::collections::BTreeSet;

use market::money::Money;
use market::offer::Terms;
use market::order::{
    ClientToken, EndReason, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Gpu, beside, image, is_usd, refusal_of};
use crate::adapter::Release;
use crate::error::{AdapterError, Refusal};
use crate::gate;
use crate::http::{Answer, Http, Purpose, is_id, segment};
use crate::providers::{address, ssh};

/// The size of a disk where the order asks for none, which is the usual one. Units: GiB.
const USUAL_DISK_GIB: u32 = 50;

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| Err(AdapterError::CannotOrder(why.to_owned()));
    if order.nodes != 1 {
        return cannot("one launch makes exactly one machine");
    }
    let Some(location) = &order.offer.place.region else {
        return cannot("the offer names no location to launch at");
    };
    let (is_spot, contract) = match order.offer.terms {
        Terms::OnDemand => (false, "PAY_AS_YOU_GO"),
        Terms::Spot => (true, "SPOT"),
        _ => return cannot("machines are launched on demand or spot only"),
    };
    ssh::check(&order.ssh_public_keys)?;
    if order.ssh_public_keys.is_empty() {
        return cannot("a launch needs one SSH key and the order holds none");
    }
    let image = image::of(order)?;
    let disk_gib = order.machine.disk_gib.unwrap_or(USUAL_DISK_GIB);
    let made = beside::make(http, order).await?;
    let token = order.client_token.as_str();
    let mut launch = json!({
        "instance_type": order.offer.sku,
        "image": image,
        "hostname": token,
        "description": token,
        "ssh_key_ids": made.keys,
        "location_code": location,
        "contract": contract,
        "pricing": "FIXED_PRICE",
        "is_spot": is_spot,
        "os_volume": { "name": token, "size": disk_gib.max(USUAL_DISK_GIB) },
    });
    if let Some(script) = made.script {
        launch["startup_script_id"] = json!(script);
    }
    if is_spot {
        // Otherwise the disk of a machine that was taken back stays, detached and billed.
        launch["os_volume"]["on_spot_discontinue"] = json!("delete_permanently");
    }
    let answer = http.post(Purpose::Order, "/instances", &launch).await?;
    let lease = match answer.read::<Instance>(refusal_of) {
        Ok(instance) if is_id(&instance.id) => convert_instance(instance),
        _ => ProviderLease {
            node_count: Some(1),
            ..ProviderLease::new(id_of(&answer)?, State::Pending, "ordered")
        },
    };
    Ok(ProviderLease {
        name: Some(token.to_owned()),
        ..lease
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let answer = http.get("/instances").await?;
    let instances: Vec<Instance> = answer.read(refusal_of)?;
    if !instances.iter().all(|instance| is_id(&instance.id)) {
        return Err(answer.unreadable("an instance has no id".to_owned()));
    }
    Ok(instances.into_iter().map(convert_instance).collect())
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    Ok(shown(http, lease).await?.map(convert_instance))
}

/// The instance of a lease; `None` where it is not shown.
async fn shown(http: &Http, lease: &LeaseRef) -> Result<Option<Instance>, AdapterError> {
    let path = format!("/instances/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if is_own_not_found(&answer) {
        return Ok(None);
    }
    answer.read(refusal_of).map(Some)
}

/// Deletes an instance with all its volumes: those that are not named stay, detached and billed.
pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let Some(instance) = shown(http, lease).await? else {
        return Ok(Release::NotShown);
    };
    let state = convert_status(&instance.status);
    if matches!(state, State::Ending | State::Gone) {
        return Ok(Release::Accepted);
    }
    let volumes = instance.volume_ids.into_iter().flatten();
    let volumes: BTreeSet<String> = volumes.chain(instance.os_volume_id).collect();
    let mut delete = json!({ "action": "delete", "id": [lease.id.0], "delete_permanently": true });
    if !volumes.is_empty() {
        delete["volume_ids"] = json!(volumes);
    }
    let answer = http.put(Purpose::Release, "/instances", &delete).await?;
    let Some((status, message)) = refused(&answer) else {
        return Ok(Release::Accepted);
    };
    let is_of = |states: &[&str]| {
        let mut names = states.iter().map(|state| format!(" {state} instance"));
        names.any(|name| message.contains(&name))
    };
    match status {
        _ if is_of(&ENDED) => Ok(Release::Accepted),
        403 if state == State::Pending || is_of(&COMING_UP) => Ok(Release::NotYet),
        _ if is_not_found(status, &message) => Ok(Release::NotShown),
        _ => Err(AdapterError::Refused {
            refusal: Refusal::from_status(status),
            status,
            message: answer.without_secrets(&message),
        }),
    }
}

/// States in which an instance cannot be deleted: yet, and any more.
const COMING_UP: [&str; 5] = ["new", "ordered", "provisioning", "validating", "pending"];
const ENDED: [&str; 2] = ["discontinued", "deleting"];

/// Status and words of a refusal: of the whole call, or of its instance in a list of outcomes.
fn refused(answer: &Answer) -> Option<(u16, String)> {
    let body = answer.json().unwrap_or_default();
    let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if !answer.is_success() {
        return Some((answer.status(), words(&body["message"])));
    }
    let mut outcomes = body.as_array().into_iter().flatten();
    let failed = outcomes.find(|outcome| outcome["status"] == "error")?;
    let status = failed["statusCode"].as_u64();
    let status = status.and_then(|status| u16::try_from(status).ok());
    // Its words decide where it has no status.
    Some((status.unwrap_or(403), words(&failed["error"])))
}

/// Whether the provider itself says that it has no such thing: by 404, or with 400 by these words.
fn is_not_found(status: u16, message: &str) -> bool {
    status == 404 || (status == 400 && message.starts_with("Invalid ") && message.ends_with(" id"))
}

/// As [`is_not_found`], of an answer.
pub(super) fn is_own_not_found(answer: &Answer) -> bool {
    refused(answer).is_some_and(|(status, message)| is_not_found(status, &message))
}

/// The id of what a call made: as plain text, as a JSON text, or in an object.
///
/// Errors: [`AdapterError::Refused`], and an unreadable answer where there is none.
pub(super) fn id_of(answer: &Answer) -> Result<String, AdapterError> {
    let text = answer.text(refusal_of)?;
    let id = match answer.json() {
        Some(Value::String(id)) => id,
        Some(made) if made.is_object() => made["id"].as_str().unwrap_or_default().to_owned(),
        _ => text.to_owned(),
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    match is_id(&id) && id.bytes().all(plain) {
        true => Ok(id),
        false => Err(answer.unreadable("a success that names no id".to_owned())),
    }
}

fn convert_instance(instance: Instance) -> ProviderLease {
    let state = convert_status(&instance.status);
    let is_mark = |text: &String| text.parse::<ClientToken>().is_ok();
    let is_spot = instance.is_spot == Some(true);
    let price_per_node_hour = convert_price(&instance);
    ProviderLease {
        // The host name can be changed later.
        name: instance.description.filter(is_mark).or(instance.hostname),
        end_reason: match instance.status.as_str() {
            "no_capacity" => Some(EndReason::NoCapacity),
            // Only we and the provider end a machine for good.
            "discontinued" if is_spot => Some(EndReason::Preempted),
            _ => None,
        },
        sku: instance.instance_type,
        region: instance.location,
        node_count: Some(1),
        gpus_per_node: instance
            .gpu
            .and_then(|gpu| u32::try_from(gpu.number_of_gpus).ok()),
        nodes: address::node("root", instance.ip, instance.private_ip, instance.ssh_port)
            .into_iter()
            .collect(),
        created_at: instance.created_at.and_then(|text| text.parse().ok()),
        price_per_node_hour,
        ..ProviderLease::new(instance.id, state, instance.status)
    }
}

/// The reported price of a machine for an hour; `None` where it does not say that it is in US dollars.
fn convert_price(instance: &Instance) -> Option<Money> {
    let gpus = gate::gpus(instance.gpu.as_ref()?.number_of_gpus).ok()?;
    let price = gate::price(&instance.price_per_hour).ok()??;
    let price = is_usd(&instance.currency).then_some(price)?;
    gate::node_price(price, gpus).ok()
}

fn convert_status(status: &str) -> State {
    match status {
        "running" => State::Running,
        // Nothing answers there, and whether it is billed is not known of all of them.
        "error" | "installation_failed" | "no_capacity" | "notfound" | "offline" => State::Failed,
        "deleting" => State::Ending,
        "discontinued" => State::Gone,
        // Those of `COMING_UP`, and every unknown word.
        _ => State::Pending,
    }
}

#[derive(Debug, Deserialize)]
struct Instance {
    id: String,
    status: String,
    hostname: Option<String>,
    description: Option<String>,
    ip: Option<String>,
    private_ip: Option<String>,
    /// Sent by the simulator alone, whose machines cannot use port 22.
    ssh_port: Option<u16>,
    location: Option<String>,
    instance_type: Option<String>,
    gpu: Option<Gpu>,
    is_spot: Option<bool>,
    created_at: Option<String>,
    #[serde(default)]
    price_per_hour: Value,
    #[serde(default)]
    currency: Value,
    os_volume_id: Option<String>,
    volume_ids: Option<Vec<String>>,
}
