//! A machine that was created. Its phase follows from the clock alone: only time changes it, and the call
//! that ends it. The wording of a phase on the wire is in [`crate::lambda`], [`crate::runpod`] and
//! [`crate::voltagepark`].

use chrono::{DateTime, TimeDelta, Utc};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;

use crate::cloud_init::script_in;
use crate::hardware::Hardware;
use crate::market::Row;
use crate::{FaultKind, Provider};

/// The phase of a machine's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Created and billed, not reachable yet.
    Booting,
    /// Up.
    Running,
    /// Never came up; billed all the same.
    Failed,
    /// The end was accepted, so the bill has stopped; it is still listed.
    Ending,
    /// No longer there.
    Gone,
}

/// A machine as the simulator itself knows it, beside the wire formats.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Machine {
    /// The provider.
    pub provider: Provider,
    /// The provider's id.
    pub id: String,
    /// The name given at launch, by which a caller finds the machine after a lost answer.
    pub name: String,
    /// The SKU as [`crate::Row::key`] writes it.
    pub sku: String,
    /// The region, or the id of the location.
    pub place: String,
    /// Nodes that exist.
    pub nodes: u32,
    /// GPUs sold with each node.
    pub gpus_per_node: u32,
    /// The phase of its life.
    pub phase: Phase,
    /// When it was created, which is when the bill starts.
    pub started_at: DateTime<Utc>,
    /// When its end was accepted, which is when the bill stops.
    pub ended_at: Option<DateTime<Utc>>,
    /// Launched by someone else with the same account: no script of it ever runs.
    pub foreign: bool,
}

/// A launch that was carried out, even if the answer was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Launch {
    /// The provider's id.
    pub id: String,
    /// The name given at launch.
    pub name: String,
    /// When.
    pub at: DateTime<Utc>,
    /// The SKU as [`crate::Row::key`] writes it.
    pub sku: String,
    /// Nodes that were created.
    pub nodes: u32,
    /// Launched by someone else with the same account.
    pub foreign: bool,
}

/// The contents of a launch, parsed from the wire format.
#[derive(Debug, Clone, Default)]
pub(crate) struct Order {
    pub(crate) sku: String,
    pub(crate) place: String,
    pub(crate) nodes: u32,
    pub(crate) name: String,
    pub(crate) hostname: Option<String>,
    pub(crate) ssh_key_names: Vec<String>,
    /// The public keys that get access.
    pub(crate) authorized_keys: Vec<String>,
    /// As ordered, returned unread.
    pub(crate) tags: Option<Value>,
    pub(crate) user_data: Option<String>,
    /// The bid for one GPU and hour, in place of the list price.
    pub(crate) bid_usd_hour: Option<Decimal>,
    pub(crate) foreign: bool,
}

/// Everything kept about a machine.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) provider: Provider,
    pub(crate) id: String,
    /// The row that was sold, at the price of the launch.
    pub(crate) row: Row,
    pub(crate) order: Order,
    pub(crate) created_at: DateTime<Utc>,
    pub(crate) boot: TimeDelta,
    pub(crate) ending: TimeDelta,
    pub(crate) ended_at: Option<DateTime<Utc>>,
    pub(crate) fails: bool,
    pub(crate) flaw: Option<FaultKind>,
    pub(crate) hosts: Vec<Host>,
    pub(crate) scripts_started: bool,
    /// The port at which its nodes answer SSH.
    pub(crate) ssh_port: u16,
}

/// The addresses of one node.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) public_ip: String,
    pub(crate) private_ip: String,
    pub(crate) gpu_uuids: Vec<String>,
}

impl Record {
    pub(crate) fn phase(&self, now: DateTime<Utc>) -> Phase {
        // A read of the past sees nothing that came later.
        match self.ended_at.filter(|ended_at| *ended_at <= now) {
            Some(ended_at) if now < ended_at + self.ending => Phase::Ending,
            Some(_) => Phase::Gone,
            None if now < self.created_at + self.boot => Phase::Booting,
            None if self.fails => Phase::Failed,
            None => Phase::Running,
        }
    }

    pub(crate) const fn nodes(&self) -> u32 {
        self.order.nodes
    }

    /// List price of the whole machine for an hour, frozen at launch.
    pub(crate) fn price_usd_hour(&self) -> Decimal {
        self.row.price_of(self.nodes())
    }

    pub(crate) fn describe(&self, now: DateTime<Utc>) -> Machine {
        Machine {
            provider: self.provider,
            id: self.id.clone(),
            name: self.order.name.clone(),
            sku: self.order.sku.clone(),
            place: self.order.place.clone(),
            nodes: self.nodes(),
            gpus_per_node: self.row.gpus,
            phase: self.phase(now),
            started_at: self.created_at,
            ended_at: self.ended_at,
            foreign: self.order.foreign,
        }
    }

    pub(crate) fn launch(&self) -> Launch {
        Launch {
            id: self.id.clone(),
            name: self.order.name.clone(),
            at: self.created_at,
            sku: self.order.sku.clone(),
            nodes: self.nodes(),
            foreign: self.order.foreign,
        }
    }

    /// The script that the nodes run, if any.
    pub(crate) fn script(&self) -> Option<String> {
        let silent = self.order.foreign || self.flaw == Some(FaultKind::NeverCallsHome);
        let user_data = self.order.user_data.as_deref().filter(|_| !silent)?;
        script_in(user_data)
    }

    /// The SSH user of the provider's images.
    pub(crate) const fn ssh_user(&self) -> &'static str {
        match self.provider {
            Provider::Runpod => "root",
            Provider::Lambda | Provider::Voltagepark => "ubuntu",
        }
    }

    /// The hardware of each node, in order.
    pub(crate) fn hardware(&self) -> Vec<Hardware> {
        let last = self.hosts.len().saturating_sub(1);
        self.hosts
            .iter()
            .enumerate()
            .map(|(index, host)| {
                let flaw = self.flaw.as_ref().filter(|_| index == last);
                // A container does not know the address that it is reached at.
                let known_as = match self.provider {
                    Provider::Runpod => &host.private_ip,
                    Provider::Lambda | Provider::Voltagepark => &host.public_ip,
                };
                Hardware::of(&self.row, (index, known_as), host, flaw)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Market;

    fn record() -> Record {
        Record {
            provider: Provider::Lambda,
            id: "one".to_owned(),
            row: Market::bundled().rows()[0].clone(),
            order: Order {
                nodes: 1,
                ..Order::default()
            },
            created_at: DateTime::UNIX_EPOCH,
            boot: TimeDelta::seconds(300),
            ending: TimeDelta::seconds(20),
            ended_at: None,
            fails: false,
            flaw: None,
            hosts: Vec::new(),
            scripts_started: false,
            ssh_port: 22,
        }
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn the_phase_follows_from_the_clock_alone() {
        let mut machine = record();
        let phases: Vec<Phase> = [0, 299, 300, 9_000]
            .into_iter()
            .map(|s| machine.phase(at(s)))
            .collect();
        assert_eq!(
            phases,
            [
                Phase::Booting,
                Phase::Booting,
                Phase::Running,
                Phase::Running
            ]
        );
        machine.ended_at = Some(at(400));
        let phases: Vec<Phase> = [400, 419, 420]
            .into_iter()
            .map(|s| machine.phase(at(s)))
            .collect();
        assert_eq!(phases, [Phase::Ending, Phase::Ending, Phase::Gone]);
    }

    #[test]
    fn a_machine_that_fails_does_so_when_it_should_have_come_up() {
        let machine = Record {
            fails: true,
            ..record()
        };
        assert_eq!(machine.phase(at(299)), Phase::Booting);
        assert_eq!(machine.phase(at(300)), Phase::Failed);
    }

    #[test]
    fn only_a_script_of_our_own_launch_is_run() {
        let order = Order {
            user_data: Some("#!/bin/sh\n".to_owned()),
            nodes: 1,
            ..Order::default()
        };
        let own = Record { order, ..record() };
        assert!(own.script().is_some());
        let foreign = Record {
            order: Order {
                foreign: true,
                ..own.order.clone()
            },
            ..own.clone()
        };
        assert_eq!(foreign.script(), None);
        let silent = Record {
            flaw: Some(FaultKind::NeverCallsHome),
            ..own.clone()
        };
        assert_eq!(silent.script(), None);
        let config = Order {
            user_data: Some("#cloud-config\n".to_owned()),
            ..own.order.clone()
        };
        assert_eq!(
            Record {
                order: config,
                ..own
            }
            .script(),
            None
        );
    }
}
