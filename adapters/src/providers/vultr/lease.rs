//! Orders at Vultr and the resulting machines.
//!
//! Virtual machines and bare metal have paths of their own. The id of a lease of bare metal has a prefix of ours,
//! so that it says where it is.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use market::order::{
    ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseState as State,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Kind, PROFILE, paging, refusal_of};
use crate::adapter::Release;
use crate::error::AdapterError;
use crate::http::{Answer, Http, Paging, Purpose, is_id, segment};
use crate::images;
use crate::providers::{address, ssh, user_data};

/// The largest user data before it is encoded: no limit is published. Units: bytes.
const MAX_USER_DATA_BYTES: usize = 65_536;

/// The usual image: Ubuntu 22.04.
const USUAL_IMAGE: &str = "1743";

/// Before the id of bare metal.
const METAL_PREFIX: &str = "bare-metal:";

/// An address that is not assigned yet.
const NO_ADDRESS: &str = "0.0.0.0";

impl Kind {
    const fn of_plan(plan: &str) -> Self {
        // The id of each plan for bare metal begins so.
        match plan.as_bytes() {
            [b'v', b'b', b'm', ..] => Self::Metal,
            _ => Self::Vm,
        }
    }

    /// The path of its machines, their list, and the member that one of them is in.
    const fn machines(self) -> (&'static str, Paging, &'static str) {
        match self {
            Self::Vm => ("/instances", paging("/instances"), "instance"),
            Self::Metal => ("/bare-metals", paging("/bare_metals"), "bare_metal"),
        }
    }

    fn lease_id(self, id: &str) -> String {
        match self {
            Self::Vm => id.to_owned(),
            Self::Metal => format!("{METAL_PREFIX}{id}"),
        }
    }
}

pub(super) async fn request(
    http: &Http,
    order: &LeaseOrder,
) -> Result<ProviderLease, AdapterError> {
    let cannot = |why: &str| Err(AdapterError::CannotOrder(why.to_owned()));
    let offer = &order.offer;
    if order.nodes != 1 {
        return cannot("one launch makes exactly one machine");
    }
    if !offer.orderable {
        return cannot("slices of a GPU, and these terms, are not ordered here");
    }
    let Some(region) = &offer.place.region else {
        return cannot("the offer names no region to launch in");
    };
    let included_gib = offer.particulars.disk_gib.unwrap_or(0);
    if order.machine.disk_gib.is_some_and(|gib| gib > included_gib) {
        return cannot("the disk comes with the plan and is smaller than that");
    }
    ssh::check(&order.ssh_public_keys)?;
    let user_data = user_data::of(order, &order.ssh_public_keys, MAX_USER_DATA_BYTES)?;
    let image = images::chosen(&PROFILE, order.machine.image.as_ref(), USUAL_IMAGE)?;
    let os_id = image.parse().ok();
    let token = order.client_token.as_str();
    let kind = Kind::of_plan(&offer.sku);
    let launch = Launch {
        region,
        plan: &offer.sku,
        label: token,
        tags: [token],
        os_id,
        image_id: os_id.is_none().then_some(image),
        user_data: STANDARD.encode(&user_data),
        backups: (kind == Kind::Vm).then_some("disabled"),
        activation_email: false,
    };
    let answer = http
        .post(Purpose::Order, kind.machines().0, &launch)
        .await?;
    let lease = convert_answer(&answer, kind)?;
    Ok(ProviderLease {
        name: lease.name.or_else(|| Some(token.to_owned())),
        ..lease
    })
}

pub(super) async fn list(http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
    let mut leases = Vec::new();
    for kind in Kind::ALL {
        let (path, paging, _) = kind.machines();
        for record in http.pages(path, &paging, refusal_of).await?.whole()? {
            // What is wrong may repeat the record, so it is not shown.
            let lease = convert_record(record, kind).map_err(|_| AdapterError::Unreadable {
                method: "GET",
                path: path.to_owned(),
                how: "a machine is not as published, or has no id".to_owned(),
            })?;
            leases.push(lease);
        }
    }
    Ok(leases)
}

pub(super) async fn read(
    http: &Http,
    lease: &LeaseRef,
) -> Result<Option<ProviderLease>, AdapterError> {
    let (kind, path) = path_of(lease)?;
    let answer = http.get(&path).await?;
    if answer.is_not_shown() {
        return Ok(None);
    }
    convert_answer(&answer, kind).map(Some)
}

pub(super) async fn release(http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
    let (_, path) = path_of(lease)?;
    let answer = match http.delete(&path).await {
        // While it is installed: the status is 500 and only the words say so.
        Err(AdapterError::Unreachable { how, .. }) if how.contains("is currently locked") => {
            return Ok(Release::NotYet);
        }
        answer => answer?,
    };
    if answer.is_not_shown() {
        return Ok(Release::NotShown);
    }
    answer.accepted(refusal_of)?;
    Ok(Release::Accepted)
}

fn path_of(lease: &LeaseRef) -> Result<(Kind, String), AdapterError> {
    let id = lease.id.0.as_str();
    let (kind, id) = match id.strip_prefix(METAL_PREFIX) {
        Some(id) => (Kind::Metal, id),
        None => (Kind::Vm, id),
    };
    Ok((kind, format!("{}/{}", kind.machines().0, segment(id)?)))
}

/// The one machine of an answer.
fn convert_answer(answer: &Answer, kind: Kind) -> Result<ProviderLease, AdapterError> {
    let mut body: Value = answer.read(refusal_of)?;
    let machine = body[kind.machines().2].take();
    convert_record(machine, kind).map_err(|how| answer.unreadable(how))
}

fn convert_record(record: Value, kind: Kind) -> Result<ProviderLease, String> {
    let machine: Machine = serde_json::from_value(record).map_err(|error| error.to_string())?;
    if !is_id(&machine.id) {
        return Err("a machine has no id".to_owned());
    }
    Ok(convert_machine(machine, kind))
}

fn convert_machine(machine: Machine, kind: Kind) -> ProviderLease {
    let is_mark = |name: &&String| name.parse::<ClientToken>().is_ok();
    let mark = machine.tags.iter().flatten().find(is_mark).cloned();
    let assigned = |address: &Option<String>| address.clone().filter(|it| it != NO_ADDRESS);
    let node = address::node(
        "root",
        assigned(&machine.main_ip),
        assigned(&machine.internal_ip),
        machine.ssh_port,
    );
    let state = convert_status(&machine, kind, node.is_some());
    ProviderLease {
        name: mark.or(machine.label),
        sku: machine.plan,
        region: machine.region,
        node_count: Some(1),
        nodes: node.into_iter().collect(),
        created_at: machine.date_created.and_then(|text| text.parse().ok()),
        ..ProviderLease::new(
            kind.lease_id(&machine.id),
            state,
            machine.status.unwrap_or_default(),
        )
    }
}

fn convert_status(machine: &Machine, kind: Kind, has_address: bool) -> State {
    let is = |word: &Option<String>, expected: &str| word.as_deref() == Some(expected);
    let is_installed = kind == Kind::Metal || is(&machine.server_status, "ok");
    match machine.status.as_deref().unwrap_or_default() {
        // Powered off, and billed as before.
        "active" if is_installed && is(&machine.power_status, "stopped") => State::Failed,
        "active" if !is_installed || !has_address => State::Pending,
        "active" if kind == Kind::Metal || is(&machine.power_status, "running") => State::Running,
        "failed" | "suspended" => State::Failed,
        // `pending`, `resizing`, and every unknown word.
        _ => State::Pending,
    }
}

// It holds the one-time token, so it has no debug form.
#[derive(Serialize)]
struct Launch<'a> {
    region: &'a str,
    plan: &'a str,
    label: &'a str,
    tags: [&'a str; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    os_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_id: Option<&'a str>,
    user_data: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    backups: Option<&'static str>,
    activation_email: bool,
}

#[derive(Debug, Deserialize)]
struct Machine {
    id: String,
    label: Option<String>,
    tags: Option<Vec<String>>,
    status: Option<String>,
    power_status: Option<String>,
    server_status: Option<String>,
    plan: Option<String>,
    region: Option<String>,
    main_ip: Option<String>,
    internal_ip: Option<String>,
    date_created: Option<String>,
    /// Sent by the simulator alone, whose machines cannot use port 22.
    ssh_port: Option<u16>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_machine_runs_once_it_is_installed_powered_and_has_an_address() {
        let state = |kind, status: &str, power: &str, server: &str, ip: &str| {
            let machine = json!({"id": "i-1", "status": status, "power_status": power, "server_status": server, "main_ip": ip});
            convert_record(machine, kind).expect("a machine").state
        };
        let vm = |status, power, server, ip| state(Kind::Vm, status, power, server, ip);
        let ip = "198.51.100.7";
        assert_eq!(vm("active", "running", "ok", ip), State::Running);
        assert_eq!(vm("active", "running", "ok", "0.0.0.0"), State::Pending);
        assert_eq!(
            vm("active", "running", "installingbooting", ip),
            State::Pending
        );
        assert_eq!(vm("active", "stopped", "none", ip), State::Pending);
        assert_eq!(vm("active", "stopped", "ok", ip), State::Failed);
        assert_eq!(vm("active", "", "ok", ip), State::Pending);
        assert_eq!(vm("suspended", "running", "ok", ip), State::Failed);
        for word in ["pending", "resizing", "hibernating", ""] {
            assert_eq!(vm(word, "running", "ok", ip), State::Pending, "{word}");
        }
        let metal = |status, ip| state(Kind::Metal, status, "", "", ip);
        assert_eq!(metal("active", ip), State::Running);
        assert_eq!(metal("active", "0.0.0.0"), State::Pending);
        assert_eq!(metal("pending", ip), State::Pending);
        assert_eq!(metal("failed", ip), State::Failed);
    }
}
