//! What a tenant needs to reach its nodes. Secret parts are not among them.

use serde::{Deserialize, Serialize};

use crate::ids::{LeaseId, ReservationId};

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
    /// Its address inside the provider's network, where there is one.
    pub private_address: Option<String>,
    /// GPUs of the node.
    #[schema(minimum = 1, maximum = 1_024)]
    pub gpus: u32,
}

/// How to reach everything that a reservation holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Access {
    /// Whose nodes.
    pub reservation_id: ReservationId,
    /// The nodes, in order.
    pub nodes: Vec<NodeAccess>,
    /// A host file for `mpirun` and `torchrun`: one line a node with its slots.
    pub hostfile: String,
}

impl Access {
    /// Puts nodes into order and writes the host file over their private addresses, or the
    /// public ones where a provider has no private network.
    #[must_use]
    pub fn new(reservation_id: ReservationId, mut nodes: Vec<NodeAccess>) -> Self {
        nodes.sort_by_key(|node| node.node);
        let hostfile = nodes
            .iter()
            .map(|node| {
                let address = node.private_address.as_deref().unwrap_or(&node.host);
                format!("{address} slots={}\n", node.gpus)
            })
            .collect();
        Self {
            reservation_id,
            nodes,
            hostfile,
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_host_file_names_private_addresses_in_node_order() {
        let lease_id = LeaseId::from_uuid(Uuid::from_u128(1));
        let node = |node, private: Option<&str>| NodeAccess {
            node,
            lease_id,
            host: format!("198.51.100.{node}"),
            port: 22,
            user: "ubuntu".into(),
            private_address: private.map(str::to_owned),
            gpus: 8,
        };
        let access = Access::new(
            ReservationId::from_uuid(Uuid::from_u128(2)),
            vec![node(1, None), node(0, Some("10.0.0.5"))],
        );
        assert_eq!(access.hostfile, "10.0.0.5 slots=8\n198.51.100.1 slots=8\n");
    }
}
