//! The hardware of a pretend node: the file that `SIMULATED_NODE` names. The verifier's reference device
//! reads it; nothing here touches real hardware.

use serde::Serialize;

use crate::FaultKind;
use crate::machine::Host;
use crate::market::Row;

/// The version of a driver that does not exist.
const DRIVER: &str = "570.000.00-simulated";
/// The node to which a node with a slow link has that link.
const SLOW_LINK_TO: u32 = 1;
/// The share of the memory bandwidth that is left on a node with slow memory.
const SLOW_MEMORY: f64 = 0.4;

/// One node as its reference device presents it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Hardware {
    schema: &'static str,
    node_index: usize,
    host: String,
    gpu: String,
    gpus: u32,
    memory_mib: u32,
    vcpus: u32,
    memory_gib: u32,
    uuids: Vec<String>,
    driver: &'static str,
    memory_speed: f64,
    internode: String,
    nics: Vec<String>,
    bad_words: u32,
    slow_link_to: Option<u32>,
    ssh_host_keys: Vec<String>,
}

impl Hardware {
    /// The node with this number, which has this address as its own.
    pub(crate) fn of(
        row: &Row,
        (node_index, known_as): (usize, &str),
        host: &Host,
        flaw: Option<&FaultKind>,
    ) -> Self {
        let missing = u32::from(flaw == Some(&FaultKind::MissingGpu));
        let gpus = row.gpus - missing;
        let (gpu, memory_mib) = match flaw {
            Some(FaultKind::WrongModel) => lesser_than(&row.gpu),
            _ => (row.gpu.as_str(), row.gpu_memory_mib),
        };
        let uuids: Vec<String> = host
            .gpu_uuids
            .iter()
            .take(gpus as usize)
            .map(|uuid| format!("GPU-{uuid}"))
            .collect();
        Self {
            schema: "simulated-node-1",
            node_index,
            host: known_as.to_owned(),
            gpu: gpu.to_owned(),
            gpus,
            memory_mib,
            vcpus: row.vcpus,
            memory_gib: row.memory_gib,
            uuids,
            driver: DRIVER,
            memory_speed: if flaw == Some(&FaultKind::SlowMemory) {
                SLOW_MEMORY
            } else {
                1.0
            },
            internode: row.internode.clone(),
            nics: nics(&row.internode, row.gpus),
            bad_words: 0,
            slow_link_to: (flaw == Some(&FaultKind::SlowLink)).then_some(SLOW_LINK_TO),
            ssh_host_keys: Vec::new(),
        }
    }

    /// The same node with an SSH server that has this key.
    pub(crate) fn with_host_key(mut self, public_key: String) -> Self {
        self.ssh_host_keys = vec![public_key];
        self
    }

    /// Its host name.
    pub(crate) fn host_name(&self) -> String {
        format!("node-{}", self.host.replace('.', "-"))
    }

    /// Its GPUs as their driver lists them.
    pub(crate) fn gpu_list(&self) -> String {
        let gpu =
            |(index, uuid): (usize, &String)| format!("GPU {index}: {} (UUID: {uuid})\n", self.gpu);
        self.uuids.iter().enumerate().map(gpu).collect()
    }
}

/// One adapter beside each GPU, where `InfiniBand` connects the nodes.
fn nics(internode: &str, gpus: u32) -> Vec<String> {
    let adapters = if internode.starts_with("infiniband") {
        gpus
    } else {
        0
    };
    (0..adapters).map(|index| format!("mlx5_{index}")).collect()
}

/// A GPU that could be passed off as the one sold, and the memory its driver reports.
fn lesser_than(gpu: &str) -> (&'static str, u32) {
    match gpu {
        "H100-SXM" => ("H100-PCIe", 81_559),
        "A10" => ("T4", 15_360),
        _ => ("A10", 23_028),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Market;

    fn node(flaw: Option<FaultKind>) -> Hardware {
        let host = Host {
            public_ip: "10.20.0.1".to_owned(),
            private_ip: "10.148.0.1".to_owned(),
            gpu_uuids: (0..8)
                .map(|n| format!("0000000{n}-0000-4000-8000-000000000000"))
                .collect(),
        };
        let market = Market::bundled();
        let row = &market.rows()[0];
        Hardware::of(row, (0, &host.public_ip), &host, flaw.as_ref())
    }

    #[test]
    fn a_healthy_node_is_what_the_market_file_says() {
        let node = node(None);
        assert_eq!(
            (node.gpu.as_str(), node.gpus, node.memory_mib),
            ("H100-SXM", 8, 81_559)
        );
        assert_eq!(
            (node.memory_speed, node.uuids.len(), node.host.as_str()),
            (1.0, 8, "10.20.0.1")
        );
    }

    #[test]
    fn each_flaw_changes_only_what_it_is_about() {
        let healthy = node(None);
        assert_eq!(
            node(Some(FaultKind::SlowMemory)),
            Hardware {
                memory_speed: 0.4,
                ..healthy.clone()
            }
        );
        let missing = node(Some(FaultKind::MissingGpu));
        assert_eq!((missing.gpus, missing.uuids.len()), (7, 7));
        let slow_link = node(Some(FaultKind::SlowLink));
        assert_eq!(slow_link.slow_link_to, Some(1));
        let wrong = node(Some(FaultKind::WrongModel));
        assert_ne!(wrong.gpu, healthy.gpu);
        assert_eq!(wrong.gpus, healthy.gpus);
    }
}
