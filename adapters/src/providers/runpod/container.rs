//! The container of an order: its image, its environment, its command.
//!
//! A pod has no cloud-init. The start-up script is passed as an environment variable. The container's command
//! runs it before the image's own start, which brings up SSH for the keys of the order.

use std::collections::BTreeMap;

use market::order::LeaseOrder;

use super::{Cloud, sku};
use crate::error::AdapterError;
use crate::providers::ssh;

/// An official image: it starts an SSH server for the keys in `PUBLIC_KEY` and holds curl.
pub(super) const IMAGE: &str = "runpod/pytorch:1.0.2-cu1281-torch280-ubuntu2404";

/// The CUDA version of the image, below which a host cannot run it.
pub(super) const MIN_CUDA: &str = "12.8";

/// The variable that holds the start-up script.
const SCRIPT_VARIABLE: &str = "GPU_BROKER_START_SCRIPT";

/// The command of the container. The variable is gone before anything else runs.
pub(super) const START_COMMAND: &str = "sh -c 'sh -c \"$GPU_BROKER_START_SCRIPT\"; \
     unset GPU_BROKER_START_SCRIPT; exec /start.sh'";

/// The largest environment variable on Linux, with room for its name. Units: bytes.
const MAX_SCRIPT_BYTES: usize = 120_000;

/// Enough for the agent and a model of usual size. Units: GB.
pub(super) const DISK_GB: u32 = 50;

/// The port of the SSH server, which every pod publishes under a number of its own.
pub(super) const SSH_PORTS: &str = "22/tcp";

/// The common fields of both ways to create a pod.
// Its environment holds the one-time token, so it has no debug form.
pub(super) struct NewPod<'a> {
    pub(super) name: &'a str,
    pub(super) cloud: Cloud,
    pub(super) type_id: &'a str,
    pub(super) gpus: u32,
    pub(super) env: BTreeMap<&'static str, String>,
    /// On the secure cloud, the data centre of the offer.
    pub(super) data_centre: Option<[&'a str; 1]>,
}

impl<'a> NewPod<'a> {
    pub(super) fn of(order: &'a LeaseOrder) -> Result<Self, AdapterError> {
        let offer = &order.offer;
        if order.nodes != 1 {
            return Err(cannot(
                "a pod is one container and cannot be part of a gang",
            ));
        }
        let region = offer.place.region.as_deref();
        let region = region.ok_or_else(|| cannot("the offer names no data centre"))?;
        let gpus = offer.gpus.as_whole();
        let gpus = gpus.ok_or_else(|| cannot("only whole GPUs are ordered here"))?;
        ssh::check(&order.ssh_public_keys)?;
        if order.startup_script.len() > MAX_SCRIPT_BYTES {
            return Err(cannot(
                "the start-up script is larger than a variable of the environment may be",
            ));
        }
        let cloud = Cloud::of_region(region);
        let env = BTreeMap::from([
            ("PUBLIC_KEY", order.ssh_public_keys.join("\n")),
            (SCRIPT_VARIABLE, order.startup_script.clone()),
        ]);
        Ok(Self {
            name: order.client_token.as_str(),
            cloud,
            type_id: offer.sku.strip_prefix(&sku(gpus, "")).unwrap_or(&offer.sku),
            gpus,
            env,
            data_centre: (cloud == Cloud::Secure).then_some([region]),
        })
    }
}

pub(super) fn cannot(why: &str) -> AdapterError {
    AdapterError::CannotOrder(why.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_runs_the_script_and_takes_it_out_of_the_environment() {
        assert_eq!(START_COMMAND.matches(SCRIPT_VARIABLE).count(), 2);
        let line = START_COMMAND.replace("exec /start.sh", "echo started as \"[$0]\"; env");
        let script = "#!/bin/sh\nset -eu\necho \"it's mine: $HOME\"\nexit 3\n";
        let output = std::process::Command::new("/bin/sh")
            .args(["-c", &line])
            .env(SCRIPT_VARIABLE, script)
            .env("HOME", "/home/x")
            .output()
            .expect("a shell");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.starts_with("it's mine: /home/x\nstarted as"), "{said}");
        assert!(!said.contains(SCRIPT_VARIABLE), "{said}");
    }
}
