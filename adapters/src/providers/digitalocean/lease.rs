//! Orders at DigitalOcean and the resulting Droplets.
//!
//! A tag that an order names is made with its Droplet and outlives it, so that tags are listed and removed as
//! what is beside a machine.

use market::gpu::GpuVendor;
use market::machine::ImageChoice;
use market::money::Money;
use market::offer::Offer;
use market::order::{
    Attachment, ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{PROFILE, Size, paging, refusal_of};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::gate;
use crate::http::{Answer, Http, Paging, Purpose, segment};
use crate::images;
use crate::providers::{address, ssh, user_data};

/// The largest user data: 64 KiB. Units: bytes.
const MAX_USER_DATA_BYTES: usize = 65_536;

/// Machines with a GPU. The list without this filter holds all others.
const GPU_DROPLETS: &str = "/droplets?type=gpus";
const DROPLETS: Paging = paging("/droplets");

const TAGS: Paging = paging("/tags");
/// The kind of the tags among the attachments.
const TAG_KIND: &str = "tags";

/// The images with a driver: for one NVIDIA GPU, for several that NVLink joins, and for AMD's.
const NVIDIA_IMAGE: &str = "gpu-h100x1-base";
const NVLINK_IMAGE: &str = "gpu-h100x8-base";
const AMD_IMAGE: &str = "gpu-amd-base";

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| Err(AdapterError::CannotOrder(why.to_owned()));
    let offer = &order.offer;
    if order.nodes != 1 {
        return cannot("one launch makes exactly one machine");
    }
    // Without a region the machine may be made in any.
    let Some(region) = &offer.place.region else {
        return cannot("the offer names no region to launch in");
    };
    let included_gib = offer.particulars.disk_gib.unwrap_or(0);
    if order.machine.disk_gib.is_some_and(|gib| gib > included_gib) {
        return cannot("the disk comes with the size and is smaller than that");
    }
    ssh::check(&order.ssh_public_keys)?;
    let token = order.client_token.as_str();
    let launch = Launch {
        name: token,
        region,
        size: &offer.sku,
        image: convert_image(order)?,
        tags: [token],
        user_data: user_data::of_root(order, &order.ssh_public_keys, MAX_USER_DATA_BYTES)?,
    };
    let answer = http.post(Purpose::Order, "/droplets", &launch).await?;
    let launched: One = answer.read(refusal_of)?;
    let lease = convert_droplet(launched.droplet);
    Ok(ProviderLease {
        name: lease.name.or_else(|| Some(token.to_owned())),
        ..lease
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let records = http
        .pages(GPU_DROPLETS, &DROPLETS, refusal_of)
        .await?
        .whole()?;
    let convert = |record| parse(record, GPU_DROPLETS).map(convert_droplet);
    records.into_iter().map(convert).collect()
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let path = format!("/droplets/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let read: One = answer.read(refusal_of)?;
    Ok(Some(convert_droplet(read.droplet)))
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let path = format!("/droplets/{}", segment(&lease.id.0)?);
    let answer = http.delete(&path).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    if is_busy(&answer) {
        return Ok(Release::NotYet);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

/// Every tag that is a mark of ours, whether a machine still carries it or not.
pub(super) async fn list_tags(http: &Http) -> Result<Vec<Attachment>, AdapterError> {
    let records = http.pages("/tags", &TAGS, refusal_of).await?.whole()?;
    let mut marks = Vec::new();
    for record in records {
        let tag: Tag = parse(record, "/tags")?;
        if let Ok(client_token) = tag.name.parse::<ClientToken>() {
            marks.push(Attachment {
                kind: TAG_KIND.to_owned(),
                id: tag.name,
                region: None,
                client_token,
            });
        }
    }
    Ok(marks)
}

pub(super) async fn remove_tag(http: &Http, tag: &Attachment) -> Result<(), AdapterError> {
    let answer = http.delete(&format!("/tags/{}", segment(&tag.id)?)).await?;
    match answer.is_not_shown() {
        true => Ok(()),
        false => answer.accepted(refusal_of),
    }
}

/// Whether the machine is in the middle of something, such as coming up, and takes no other request.
fn is_busy(answer: &Answer) -> bool {
    let body = answer.json().unwrap_or_default();
    let message = body["message"].as_str().unwrap_or_default();
    answer.status() == 422 && message.to_lowercase().contains("pending event")
}

/// Reads a record of a list. The parser's error may repeat the record's values, so it is not shown.
fn parse<T: serde::de::DeserializeOwned>(record: Value, path: &str) -> Result<T, AdapterError> {
    serde_json::from_value(record).map_err(|_| AdapterError::Unreadable {
        method: "GET",
        path: path.to_owned(),
        how: "a record is not as published".to_owned(),
    })
}

/// The image of an order: a slug, or the number of one that has none.
fn convert_image(order: &LeaseOrder) -> Result<Value, AdapterError> {
    let usual = usual_image(&order.offer);
    let choice = order.machine.image.as_ref();
    let chosen = images::chosen(&PROFILE, choice, usual)?;
    let is_word = matches!(choice, Some(ImageChoice::Catalogue(_)));
    let image = match chosen {
        // The table has one of two builds of the same image.
        NVIDIA_IMAGE if is_word && usual == AMD_IMAGE => {
            let why = "an image with CUDA is of no use on this GPU".to_owned();
            return Err(AdapterError::CannotOrder(why));
        }
        NVIDIA_IMAGE if is_word => usual,
        chosen => chosen,
    };
    Ok(image
        .parse::<u64>()
        .map_or_else(|_| json!(image), |number| json!(number)))
}

fn usual_image(offer: &Offer) -> &'static str {
    let vendor = offer.gpu.forms().next().map(|gpu| gpu.spec().vendor);
    match vendor {
        Some(GpuVendor::Amd) => AMD_IMAGE,
        _ if offer.gpus.as_whole() == Some(1) => NVIDIA_IMAGE,
        _ => NVLINK_IMAGE,
    }
}

fn convert_droplet(droplet: Droplet) -> ProviderLease {
    let is_mark = |name: &String| name.parse::<ClientToken>().is_ok();
    let mark = droplet.tags.into_iter().flatten().find(is_mark);
    let of_kind = |kind: &str| {
        let networks = droplet
            .networks
            .iter()
            .flat_map(|it| it.v4.iter().flatten());
        let mut of_kind = networks.filter(|one| one.kind.as_deref() == Some(kind));
        of_kind.next()
    };
    let public = of_kind("public");
    let node = address::node(
        "root",
        public.and_then(|network| network.ip_address.clone()),
        of_kind("private").and_then(|network| network.ip_address.clone()),
        public.and_then(|network| network.ssh_port),
    );
    let status = droplet.status.unwrap_or_default();
    ProviderLease {
        name: mark.or(droplet.name),
        price_per_node_hour: droplet.size.as_ref().and_then(convert_price),
        gpus_per_node: droplet
            .size
            .and_then(|size| u32::try_from(size.gpu_info?.count).ok()),
        sku: droplet.size_slug,
        region: droplet.region.and_then(|region| region.slug),
        node_count: Some(1),
        created_at: droplet.created_at.and_then(|text| text.parse().ok()),
        state: convert_status(&status, node.is_some()),
        nodes: node.into_iter().collect(),
        ..ProviderLease::new(droplet.id.to_string(), State::Pending, status)
    }
}

/// The reported price of a machine of this size for an hour; `None` where it is implausible.
fn convert_price(size: &Size) -> Option<Money> {
    let gpus = gate::gpus(size.gpu_info.as_ref()?.count).ok()?;
    gate::node_price(gate::price(&size.price_hourly).ok()??, gpus).ok()
}

fn convert_status(status: &str, has_address: bool) -> State {
    match status {
        "active" if has_address => State::Running,
        // Powered off, and billed as before.
        "off" => State::Failed,
        "archive" => State::Gone,
        // `new`, one without an address, and every unknown word.
        _ => State::Pending,
    }
}

// It holds the one-time token, so it has no debug form.
#[derive(Serialize)]
struct Launch<'a> {
    name: &'a str,
    region: &'a str,
    size: &'a str,
    image: Value,
    tags: [&'a str; 1],
    user_data: String,
}

#[derive(Debug, Deserialize)]
struct One {
    droplet: Droplet,
}

#[derive(Debug, Deserialize)]
struct Droplet {
    id: u64,
    name: Option<String>,
    status: Option<String>,
    created_at: Option<String>,
    size: Option<Size>,
    size_slug: Option<String>,
    region: Option<InRegion>,
    networks: Option<Networks>,
    tags: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct InRegion {
    slug: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Networks {
    v4: Option<Vec<Network>>,
}

#[derive(Debug, Deserialize)]
struct Network {
    ip_address: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    /// Sent by the simulator alone, whose machines cannot use port 22.
    ssh_port: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct Tag {
    name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_status_has_its_state_and_an_unknown_word_means_pending() {
        for (status, has_address, state) in [
            ("new", false, State::Pending),
            ("active", false, State::Pending),
            ("active", true, State::Running),
            ("off", true, State::Failed),
            ("archive", true, State::Gone),
            ("hibernating", true, State::Pending),
            ("", true, State::Pending),
        ] {
            assert_eq!(convert_status(status, has_address), state, "{status}");
        }
    }

    #[test]
    fn a_droplet_of_which_only_the_number_is_known_is_pending_under_that_number() {
        let droplet: Droplet = serde_json::from_value(json!({"id": 7})).expect("a droplet");
        let lease = convert_droplet(droplet);
        assert_eq!((lease.id.0.as_str(), lease.state), ("7", State::Pending));
        assert!(lease.nodes.is_empty() && lease.price_per_node_hour.is_none());
    }

    #[test]
    fn a_price_that_nobody_pays_is_unknown() {
        let price = |price: Value| {
            let size = json!({"slug": "gpu-h100x8-640gb", "price_hourly": price,
                "gpu_info": {"count": 8, "model": "nvidia_h100"}});
            let size: Size = serde_json::from_value(size).expect("a size");
            convert_price(&size).map(|price| price.to_string())
        };
        assert_eq!(price(json!(23.92)), Some("23.92".into()));
        for none in [json!(null), json!(0), json!(-1), json!(1e9), json!("soon")] {
            assert_eq!(price(none.clone()), None, "{none}");
        }
    }
}
