//! What a tenant needs to reach its nodes. None of it is secret: only the holder of the private half of an
//! installed key gets in. No provider gives us a password to pass on.

use std::net::Ipv6Addr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::ids::{LeaseId, ReservationId};

/// The port at which nodes meet the first node of a run. Source: the default of `torchrun`.
const RENDEZVOUS_PORT: u16 = 29_500;
/// The SSH port, which clients use by default.
const SSH_PORT: u16 = 22;

/// Where we got a node's host keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostKeySource {
    /// The node reported them itself in its verification, under the one-time credential of its lease and in a
    /// report that it signed, before the hand-off.
    Verification,
    /// The server that answered at the node's address on our first connection: when we brought the agent over
    /// SSH, else after the hand-off.
    FirstContact,
}

/// A host key of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct HostKey {
    /// Its fingerprint, as `ssh` shows it: `SHA256:…`.
    pub fingerprint: String,
    /// Its line of a known-hosts file.
    pub known_hosts: String,
}

impl HostKey {
    /// A host key for clients that reach the node at this host and port.
    ///
    /// Shape: `public_key` is a kind and its key, in one line.
    #[must_use]
    pub fn at(host: &str, port: u16, public_key: &str, fingerprint: String) -> Self {
        let known_hosts = if port == SSH_PORT {
            format!("{host} {public_key}")
        } else {
            format!("[{host}]:{port} {public_key}")
        };
        Self {
            fingerprint,
            known_hosts,
        }
    }
}

/// How to reach one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NodeAccess {
    /// The node's number within the reservation, from 0.
    #[schema(minimum = 0, maximum = 100_000)]
    pub node: u32,
    /// The lease that it belongs to.
    pub lease_id: LeaseId,
    /// The address to reach it at.
    pub host: String,
    /// The SSH port.
    #[schema(minimum = 1, maximum = 65_535)]
    pub port: u16,
    /// The SSH user.
    pub user: String,
    /// Its SSH host keys; none until they are known.
    #[schema(max_items = 16)]
    pub host_keys: Vec<HostKey>,
    /// Where we got them; `null` while there are none.
    pub host_key_source: Option<HostKeySource>,
    /// Its address inside the provider's network, where there is one.
    pub private_address: Option<String>,
    /// GPUs of the node.
    #[schema(minimum = 1, maximum = 1_024)]
    pub gpus: u32,
    /// The ids of its GPUs in the driver's order, as its verification found them.
    #[schema(max_items = 64)]
    pub gpu_order: Vec<String>,
    /// Its adapters to the network between nodes in the system's order, as its verification found
    /// them.
    #[schema(max_items = 64)]
    pub nic_order: Vec<String>,
    /// When its SSH server last answered us with one of these host keys; `null` until it has.
    pub last_reachable_at: Option<DateTime<Utc>>,
    /// Since when it has not answered; `null` while it answers.
    pub unreachable_since: Option<DateTime<Utc>>,
}

impl NodeAccess {
    /// Where the other nodes find it: inside the provider's network, where there is one.
    fn inner_address(&self) -> &str {
        self.private_address.as_deref().unwrap_or(&self.host)
    }
}

/// How `torchrun` is started on the nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Torchrun {
    /// Where the nodes meet: the first one.
    pub rendezvous_endpoint: String,
    /// How many nodes there are.
    #[schema(minimum = 1, maximum = 100_000)]
    pub nnodes: u32,
    /// How the command begins on each node, in order; the script and its arguments follow.
    pub commands: Vec<String>,
}

/// How to reach everything that a reservation holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Access {
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The nodes, in order.
    pub nodes: Vec<NodeAccess>,
    /// A host file for `mpirun`: one line a node with its slots.
    pub hostfile: String,
    /// The same for `torchrun`.
    pub torchrun: Torchrun,
    /// Entries for `~/.ssh/config`, one a node, that refuse any other host key.
    pub ssh_config: String,
    /// The known-hosts file that those entries name.
    pub known_hosts: String,
}

impl Access {
    /// Puts nodes into order and writes the files. Runs meet over private addresses, or the public
    /// ones where a provider has no private network.
    #[must_use]
    pub fn new(reservation_id: ReservationId, mut nodes: Vec<NodeAccess>) -> Self {
        nodes.sort_by_key(|node| node.node);
        let slots = |node: &NodeAccess| format!("{} slots={}\n", node.inner_address(), node.gpus);
        let known = nodes.iter().flat_map(|node| &node.host_keys);
        Self {
            reservation_id,
            hostfile: nodes.iter().map(slots).collect(),
            torchrun: torchrun(reservation_id, &nodes),
            ssh_config: nodes
                .iter()
                .map(|node| ssh_entry(reservation_id, node))
                .collect(),
            known_hosts: known.map(|key| format!("{}\n", key.known_hosts)).collect(),
            nodes,
        }
    }
}

/// The name of a reservation in its tenant's files: `gpb-` and the end of its id.
fn short_name(id: ReservationId) -> String {
    let id = id.to_string();
    format!("gpb-{}", &id[id.len() - 8..])
}

fn ssh_entry(id: ReservationId, node: &NodeAccess) -> String {
    let name = short_name(id);
    let (host, port, user) = (&node.host, node.port, &node.user);
    // The first key of a node without known keys is accepted, and every later one must be the same.
    let strict = if node.host_keys.is_empty() {
        "accept-new"
    } else {
        "yes"
    };
    format!(
        "Host {name}-{}\n    HostName {host}\n    Port {port}\n    User {user}\n    \
         UserKnownHostsFile ~/.ssh/known_hosts.{name}\n    StrictHostKeyChecking {strict}\n",
        node.node
    )
}

fn torchrun(id: ReservationId, nodes: &[NodeAccess]) -> Torchrun {
    let first = nodes.first().map_or("", NodeAccess::inner_address);
    let rendezvous_endpoint = if first.parse::<Ipv6Addr>().is_ok() {
        format!("[{first}]:{RENDEZVOUS_PORT}")
    } else {
        format!("{first}:{RENDEZVOUS_PORT}")
    };
    let nnodes = nodes.len();
    let command = |(rank, node): (usize, &NodeAccess)| {
        format!(
            "torchrun --nnodes={nnodes} --node-rank={rank} --nproc-per-node={} --rdzv-id={} \
             --rdzv-backend=static --rdzv-endpoint={rendezvous_endpoint}",
            node.gpus,
            short_name(id)
        )
    };
    Torchrun {
        commands: nodes.iter().enumerate().map(command).collect(),
        nnodes: u32::try_from(nnodes).unwrap_or(u32::MAX),
        rendezvous_endpoint,
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const KEY: &str = "ssh-ed25519 AAAA";

    fn node(node: u32, private: Option<&str>, port: u16) -> NodeAccess {
        let host = format!("198.51.100.{node}");
        NodeAccess {
            node,
            lease_id: LeaseId::from_uuid(Uuid::from_u128(1)),
            host_keys: vec![HostKey::at(&host, port, KEY, "SHA256:x".into())],
            host_key_source: Some(HostKeySource::Verification),
            host,
            port,
            user: "ubuntu".into(),
            private_address: private.map(str::to_owned),
            gpus: 8,
            gpu_order: Vec::new(),
            nic_order: Vec::new(),
            last_reachable_at: None,
            unreachable_since: None,
        }
    }

    fn access(nodes: Vec<NodeAccess>) -> Access {
        Access::new(ReservationId::from_uuid(Uuid::from_u128(0x2f)), nodes)
    }

    #[test]
    fn the_host_file_names_private_addresses_in_node_order() {
        let access = access(vec![node(1, None, 22), node(0, Some("10.0.0.5"), 22)]);
        assert_eq!(access.hostfile, "10.0.0.5 slots=8\n198.51.100.1 slots=8\n");
    }

    #[test]
    fn torchrun_meets_at_the_first_node_and_numbers_the_others() {
        let two = access(vec![node(1, None, 22), node(0, Some("10.0.0.5"), 22)]).torchrun;
        assert_eq!(
            (two.rendezvous_endpoint.as_str(), two.nnodes),
            ("10.0.0.5:29500", 2)
        );
        assert_eq!(
            two.commands[1],
            "torchrun --nnodes=2 --node-rank=1 --nproc-per-node=8 --rdzv-id=gpb-0000002f \
             --rdzv-backend=static --rdzv-endpoint=10.0.0.5:29500"
        );
        let six = access(vec![node(0, Some("fd00::5"), 22)]).torchrun;
        assert_eq!(six.rendezvous_endpoint, "[fd00::5]:29500");
    }

    #[test]
    fn an_entry_for_ssh_refuses_every_other_host_key_once_one_is_known() {
        let mut unknown = node(1, None, 40_022);
        unknown.host_keys.clear();
        let access = access(vec![node(0, None, 40_022), unknown]);
        let entry = |node: u32, strict: &str| {
            format!(
                "Host gpb-0000002f-{node}\n    HostName 198.51.100.{node}\n    Port 40022\n    \
                 User ubuntu\n    UserKnownHostsFile ~/.ssh/known_hosts.gpb-0000002f\n    \
                 StrictHostKeyChecking {strict}\n"
            )
        };
        let expected = format!("{}{}", entry(0, "yes"), entry(1, "accept-new"));
        assert_eq!(access.ssh_config, expected);
        assert_eq!(
            access.known_hosts,
            "[198.51.100.0]:40022 ssh-ed25519 AAAA\n"
        );
    }

    #[test]
    fn the_usual_port_is_left_unsaid_among_known_hosts() {
        let key = HostKey::at("198.51.100.7", 22, KEY, "SHA256:x".into());
        assert_eq!(key.known_hosts, "198.51.100.7 ssh-ed25519 AAAA");
    }
}
