//! Orders at Voltage Park and the resulting rentals.

use market::machine::MachineRequest;
use market::money::Money;
use market::order::{
    ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State,
};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Network, PAGING, PROFILE, refusal_of, sku};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::gate;
use crate::http::{Http, Purpose, is_id, segment};
use crate::providers::{address, ssh};

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| AdapterError::CannotOrder(why.to_owned());
    let offer = &order.offer;
    let location_id = offer
        .place
        .region
        .as_deref()
        .ok_or_else(|| cannot("the offer names no location to rent at"))?;
    let network = Network::ALL
        .into_iter()
        .find(|network| network.internode() == offer.internode)
        .ok_or_else(|| cannot("the offer is on a network that is not rented here"))?;
    let gpus_per_node = offer
        .gpus
        .as_whole()
        .ok_or_else(|| cannot("only whole GPUs are rented here"))?;
    let gpu_count = order
        .nodes
        .checked_mul(gpus_per_node)
        .filter(|_| (1..=PROFILE.nodes_per_lease.max()).contains(&order.nodes))
        .ok_or_else(|| cannot("the number of nodes is out of range for one rental"))?;
    ssh::check(&order.ssh_public_keys)?;
    if order.machine != MachineRequest::default() {
        return Err(cannot("image, disk and open ports cannot be chosen here"));
    }
    let token = order.client_token.as_str();
    let rent = Rent {
        location_id,
        gpu_count,
        name: token,
        // The provider's default is Ethernet.
        network_type: network.word(),
        organization_ssh_keys: OrganizationKeys { mode: "none" },
        ssh_keys: &order.ssh_public_keys,
        tags: [token],
        cloudinit_script: &order.startup_script,
    };
    let answer = http.post(Purpose::Order, "/bare-metal/", &rent).await?;
    let rental: Rental = answer.read(refusal_of)?;
    let lease = convert_rental(rental)
        .ok_or_else(|| answer.unreadable("a success that names no rental".to_owned()))?;
    Ok(ProviderLease {
        name: lease.name.or_else(|| Some(token.to_owned())),
        ..lease
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let path = "/bare-metal/";
    let records = http.pages(path, &PAGING, refusal_of).await?.whole()?;
    let unreadable = |how: &str| AdapterError::Unreadable {
        method: "GET",
        path: path.to_owned(),
        how: how.to_owned(),
    };
    let convert = |record: Value| {
        // The parser's error may repeat the record's values, so it is not shown.
        let rental: Rental = serde_json::from_value(record)
            .map_err(|_| unreadable("a rental is not as published"))?;
        convert_rental(rental).ok_or_else(|| unreadable("a rental has no id"))
    };
    records.into_iter().map(convert).collect()
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let path = format!("/bare-metal/{}", segment(&lease.id.0)?);
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    let rental: Rental = answer.read(refusal_of)?;
    let lease =
        convert_rental(rental).ok_or_else(|| answer.unreadable("a rental has no id".into()))?;
    Ok(Some(lease))
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let path = format!("/bare-metal/{}", segment(&lease.id.0)?);
    let answer = http.delete(&path).await?;
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

/// The rental in our words; `None` when it has no id.
fn convert_rental(rental: Rental) -> Option<ProviderLease> {
    let price_per_node_hour = convert_rate(&rental);
    let id = rental.id.or(rental.rental_id).filter(|id| is_id(id))?;
    let raw_status = rental.status.unwrap_or_default();
    let tags = rental
        .tags
        .as_ref()
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let marked = tags
        .filter(|tag| tag.parse::<ClientToken>().is_ok())
        .map(str::to_owned)
        .next();
    let network = rental.network_type;
    let specs = rental.specs_per_node;
    Some(ProviderLease {
        name: marked.or(rental.name),
        sku: specs
            .as_ref()
            .zip(network)
            .map(|(specs, network)| sku(&specs.gpu_model, &network.to_lowercase())),
        region: rental.location_id,
        node_count: rental.node_count,
        gpus_per_node: specs.and_then(|specs| u32::try_from(specs.gpu_count).ok()),
        nodes: rental
            .node_networking
            .into_iter()
            .flatten()
            .filter_map(|node| {
                address::node("ubuntu", node.public_ip, node.private_ip, node.ssh_port)
            })
            .collect(),
        created_at: rental.creation_timestamp.and_then(|text| text.parse().ok()),
        price_per_node_hour,
        ..ProviderLease::new(id, convert_status(&raw_status), raw_status)
    })
}

/// The price of one node and hour from `rate_hourly`, which is for all nodes of the rental; `None` where the
/// count is missing, or the price is implausible.
fn convert_rate(rental: &Rental) -> Option<Money> {
    let gpus = u32::try_from(rental.specs_per_node.as_ref()?.gpu_count).ok()?;
    let gpus = GpuCount::whole(gpus).ok()?;
    let of_all = gate::price(&rental.rate_hourly).ok()??;
    // None for a rental of zero nodes.
    let of_one = of_all.checked_div(Decimal::from(rental.node_count?))?;
    gate::node_price(of_one, gpus).ok()
}

fn convert_status(status: &str) -> State {
    match status.to_ascii_lowercase().as_str() {
        "running" => State::Running,
        "failed" => State::Failed,
        "terminated" => State::Gone,
        // `pending`, and every unknown word.
        _ => State::Pending,
    }
}

// Without `Debug`, because the start-up script holds the one-time token.
#[derive(Serialize)]
struct Rent<'a> {
    location_id: &'a str,
    gpu_count: u32,
    name: &'a str,
    network_type: &'static str,
    organization_ssh_keys: OrganizationKeys,
    ssh_keys: &'a [String],
    tags: [&'a str; 1],
    cloudinit_script: &'a str,
}

#[derive(Debug, Serialize)]
struct OrganizationKeys {
    mode: &'static str,
}

#[derive(Debug, Deserialize)]
struct Rental {
    id: Option<String>,
    /// The answer to an order has been seen to name the rental in this field.
    rental_id: Option<String>,
    name: Option<String>,
    status: Option<String>,
    node_count: Option<u32>,
    node_networking: Option<Vec<Networking>>,
    specs_per_node: Option<super::Specs>,
    network_type: Option<String>,
    location_id: Option<String>,
    creation_timestamp: Option<String>,
    #[serde(default)]
    rate_hourly: Value,
    /// Texts where they were seen; their shape is not published.
    tags: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Networking {
    public_ip: Option<String>,
    private_ip: Option<String>,
    /// Sent by the simulator alone, whose machines cannot use port 22.
    ssh_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_rate_of_a_rental_is_shared_by_its_nodes_and_nothing_credible_is_unknown() {
        let price = |rate: Value, nodes: Value| {
            let rental = json!({
                "id": "r-1", "status": "Running", "node_count": nodes, "rate_hourly": rate,
                "specs_per_node": {"gpu_model": "h100-sxm5-80gb", "gpu_count": 8},
            });
            let rental = serde_json::from_value(rental).expect("a rental");
            let lease = convert_rental(rental).expect("a lease");
            lease.price_per_node_hour.map(|price| price.to_string())
        };
        assert_eq!(price(json!("39.84"), json!(2)), Some("19.92".into()));
        assert_eq!(price(json!(19.92), json!(1)), Some("19.92".into()));
        for (rate, nodes) in [
            (json!(null), json!(1)),
            (json!("0.00"), json!(1)),
            (json!("-19.92"), json!(1)),
            (json!("199200"), json!(1)),
            (json!("soon"), json!(1)),
            (json!("39.84"), json!(null)),
            (json!("39.84"), json!(0)),
        ] {
            assert_eq!(price(rate.clone(), nodes), None, "{rate}");
        }
    }

    #[test]
    fn every_status_seen_has_its_state_and_an_unknown_word_means_pending() {
        let states = [
            "Pending",
            "Running",
            "Failed",
            "Terminated",
            "Rebalancing",
            "",
        ]
        .map(convert_status);
        assert_eq!(
            states,
            [
                State::Pending,
                State::Running,
                State::Failed,
                State::Gone,
                State::Pending,
                State::Pending
            ]
        );
    }
}
