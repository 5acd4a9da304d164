//! A machine that was created. Its phase follows from the clock alone: only time changes it, the call that
//! ends it, and a command that takes it back. The word for a phase on the wire is in the data of its twin.

use std::ops::Deref;

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
    /// Never came up, because there was no such machine after all; the bill ended with the boot.
    NoCapacity,
    /// Taken back by the provider, which ended the bill; listed until it is released.
    Preempted,
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
pub struct Order {
    /// As [`Row::key`] writes it.
    pub sku: String,
    /// The first one with room is taken.
    pub places: Vec<String>,
    /// Each with what the row says.
    pub nodes: u32,
    /// By which a caller finds the machine after a lost answer.
    pub name: String,
    /// The public keys that get access.
    pub authorized_keys: Vec<String>,
    /// What the dialect repeats when it shows the machine.
    pub echo: Value,
    /// The script of each node, or a document for cloud-init that has it.
    pub user_data: Option<String>,
    /// What is made with the machine and outlives it, each with its kind and name; once, where it is there already.
    pub beside: Vec<(&'static str, String)>,
    /// The bid, in the basis of the market file, in place of the list price.
    pub bid_usd_hour: Option<Decimal>,
    /// Someone else's with the same account; the kit sets it.
    pub foreign: bool,
}

impl Order {
    /// One node at this place, with nothing else.
    pub fn of(sku: impl Into<String>, place: impl Into<String>) -> Self {
        Self {
            sku: sku.into(),
            places: vec![place.into()],
            nodes: 1,
            ..Self::default()
        }
    }
}

/// What becomes of a machine when it should come up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Runs,
    Fails,
    /// There was none: it takes no room, and is billed for its boot alone.
    NoCapacity,
}

/// Everything kept about a machine.
#[derive(Debug, Clone)]
pub struct Record {
    pub(crate) provider: Provider,
    /// The provider's id.
    pub id: String,
    /// The row that was sold, at the price of the launch.
    pub row: Row,
    /// As it was read.
    pub order: Order,
    /// When its bill started.
    pub created_at: DateTime<Utc>,
    pub(crate) boot: TimeDelta,
    pub(crate) ending: TimeDelta,
    pub(crate) released_at: Option<DateTime<Utc>>,
    pub(crate) preempted_at: Option<DateTime<Utc>>,
    pub(crate) outcome: Outcome,
    /// Shown with a status that nobody knows, until it is released.
    pub(crate) is_in_unknown_state: bool,
    pub(crate) flaw: Option<FaultKind>,
    /// Its nodes, from the start.
    pub hosts: Vec<Host>,
    pub(crate) scripts_started: bool,
    /// The port at which its nodes answer SSH.
    pub ssh_port: u16,
}

/// The addresses of one node.
#[derive(Debug, Clone)]
pub struct Host {
    /// A loopback address, where it answers SSH.
    pub public_ip: String,
    /// An address that leads nowhere.
    pub private_ip: String,
    pub(crate) gpu_uuids: Vec<String>,
}

impl Record {
    pub(crate) fn phase(&self, now: DateTime<Utc>) -> Phase {
        // A read of the past sees nothing that came later.
        let happened = |at: Option<DateTime<Utc>>| at.filter(|at| *at <= now);
        let after = |ended_at: DateTime<Utc>| {
            let is_listed = now < ended_at + self.ending;
            if is_listed {
                Phase::Ending
            } else {
                Phase::Gone
            }
        };
        if let Some(released_at) = happened(self.released_at) {
            return after(released_at);
        }
        match happened(self.preempted_at) {
            Some(_) if self.provider.twin().words.preempted.is_some() => Phase::Preempted,
            Some(preempted_at) => after(preempted_at),
            None if now < self.up_at() => Phase::Booting,
            None => match self.outcome {
                Outcome::Runs => Phase::Running,
                Outcome::Fails => Phase::Failed,
                Outcome::NoCapacity => Phase::NoCapacity,
            },
        }
    }

    /// When it comes up, or should.
    pub fn up_at(&self) -> DateTime<Utc> {
        self.created_at + self.boot
    }

    /// When its bill ended, if it has by then.
    pub(crate) fn ended_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let never_up = (self.outcome == Outcome::NoCapacity).then(|| self.up_at());
        let ends = [self.released_at, self.preempted_at, never_up];
        ends.into_iter().flatten().filter(|at| *at <= now).min()
    }

    /// Whether it is billed.
    pub(crate) fn is_alive(&self, now: DateTime<Utc>) -> bool {
        self.ended_at(now).is_none()
    }

    /// As it is seen at this moment.
    pub(crate) fn shown(&self, now: DateTime<Utc>) -> Shown<'_> {
        Shown {
            record: self,
            phase: self.phase(now),
            now,
        }
    }

    /// The place of the row that was sold.
    pub fn place(&self) -> &str {
        &self.row.place
    }

    /// How many nodes it has.
    pub const fn nodes(&self) -> u32 {
        self.order.nodes
    }

    /// List price of the whole machine for an hour, frozen at launch.
    pub fn price_usd_hour(&self) -> Decimal {
        self.row.price_of(self.nodes())
    }

    pub(crate) fn describe(&self, now: DateTime<Utc>) -> Machine {
        Machine {
            provider: self.provider,
            id: self.id.clone(),
            name: self.order.name.clone(),
            sku: self.order.sku.clone(),
            place: self.place().to_owned(),
            nodes: self.nodes(),
            gpus_per_node: self.row.gpus,
            phase: self.phase(now),
            started_at: self.created_at,
            ended_at: self.ended_at(now),
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
        self.provider.twin().ssh_user
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
                let known_as = if self.provider.twin().is_container {
                    &host.private_ip
                } else {
                    &host.public_ip
                };
                Hardware::of(&self.row, (index, known_as), host, flaw)
            })
            .collect()
    }
}

/// The status of a machine in an unknown state: no provider has this word.
const UNKNOWN_STATE: &str = "recalibrating";

/// A machine as it is seen at one moment.
pub struct Shown<'a> {
    record: &'a Record,
    /// At that moment.
    pub phase: Phase,
    /// The moment.
    pub now: DateTime<Utc>,
}

impl Deref for Shown<'_> {
    type Target = Record;

    fn deref(&self) -> &Record {
        self.record
    }
}

impl Shown<'_> {
    /// The provider's word for its phase, or a word that nobody knows.
    pub fn status(&self) -> &'static str {
        let is_over = matches!(self.phase, Phase::Ending | Phase::Gone);
        if self.is_in_unknown_state && !is_over {
            return UNKNOWN_STATE;
        }
        self.provider.twin().words.of(self.phase)
    }

    /// Whether it runs.
    pub fn is_up(&self) -> bool {
        self.phase == Phase::Running
    }

    /// Its first node, once it is up.
    pub fn host(&self) -> Option<&Host> {
        self.hosts.first().filter(|_| self.is_up())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Market;

    fn record() -> Record {
        Record {
            provider: Market::bundled().rows()[0].provider,
            id: "one".to_owned(),
            row: Market::bundled().rows()[0].clone(),
            order: Order {
                nodes: 1,
                ..Order::default()
            },
            created_at: DateTime::UNIX_EPOCH,
            boot: TimeDelta::seconds(300),
            ending: TimeDelta::seconds(20),
            released_at: None,
            preempted_at: None,
            outcome: Outcome::Runs,
            is_in_unknown_state: false,
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
        machine.released_at = Some(at(400));
        let phases: Vec<Phase> = [400, 419, 420]
            .into_iter()
            .map(|s| machine.phase(at(s)))
            .collect();
        assert_eq!(phases, [Phase::Ending, Phase::Ending, Phase::Gone]);
    }

    #[test]
    fn a_machine_that_fails_does_so_when_it_should_have_come_up() {
        let machine = Record {
            outcome: Outcome::Fails,
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
