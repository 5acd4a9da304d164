//! What distinguishes one provider from another, as data. Its dialect (which path is which operation, and how
//! bodies are written) is in the functions that this data names; all that happens to every provider alike is in
//! `exchange` and `call`.

use serde_json::{Value, json};

use crate::FaultKind;
use crate::machine::{Phase, Shown};
use crate::market::{PriceBasis, Row};
use crate::page::Paging;
use crate::reply::{Refusal, Reply};
use crate::request::Request;
use crate::route::Route;
use crate::things::Thing;

/// A provider: its data, and the three functions of its dialect.
pub struct Twin {
    /// As the broker writes it.
    pub id: &'static str,
    /// The path before every other, without a slash at its end; may be empty.
    pub base_path: &'static str,
    /// Its usual durations.
    pub timing: Timing,
    /// How callers show who they are.
    pub auth: Auth,
    /// Whether strangers get the price list and the places.
    pub public_catalog: bool,
    /// Whether it refuses an unknown method at a known path otherwise than an unknown path.
    pub knows_methods: bool,
    /// Whether a machine that is gone is still found by its id.
    pub keeps_gone: bool,
    /// Whether a launch may have more than one node.
    pub several_nodes: bool,
    /// Whether a node knows only its private address.
    pub is_container: bool,
    /// Whether prices name their currency.
    pub has_currency: bool,
    /// The SSH user of its images.
    pub ssh_user: &'static str,
    /// The form of its ids, of machines and of the things beside them.
    pub ids: Ids,
    /// How its lists are paged, if they are.
    pub paging: Option<Paging>,
    /// What its rows of the market file must meet.
    pub rows: RowRules,
    /// How it names the phases of a machine.
    pub words: StatusWords,
    /// Faults that cannot happen there, with the reason.
    pub impossible: &'static [(FaultKind, &'static str)],
    /// The operation of a call; none for an unknown path or method.
    pub route: fn(&Request) -> Option<Route>,
    /// A machine as it is listed and read.
    pub machine: fn(&Shown<'_>) -> Value,
    /// A thing beside the machines as it is listed and answered; by default an SSH key.
    pub thing: fn(&Thing) -> Value,
    /// The wording of a refusal. It never gets [`Refusal::Own`].
    pub refuse: fn(&Refusal, &Request) -> Reply,
}

impl Twin {
    /// One virtual machine a launch, with a bearer token and UUIDs. Its dialect is empty.
    pub const BASE: Self = Self {
        id: "",
        base_path: "",
        timing: Timing::boot(300),
        auth: Auth::BEARER,
        public_catalog: false,
        knows_methods: false,
        keeps_gone: false,
        several_nodes: false,
        is_container: false,
        has_currency: false,
        ssh_user: "ubuntu",
        ids: Ids::Uuid,
        paging: None,
        rows: RowRules::BASE,
        words: StatusWords {
            booting: "booting",
            running: "running",
            failed: "failed",
            ending: "ending",
            gone: "gone",
            no_capacity: None,
            preempted: None,
        },
        impossible: &[],
        route: |_| None,
        machine: |_| Value::Null,
        thing: |thing| json!({ "id": thing.id, "name": thing.name, "public_key": thing.body }),
        refuse: |refusal, _| Reply::text(refusal.status(), refusal.words()),
    };
}

/// Durations of a provider, by the caller's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// From launch to running.
    pub boot_seconds: u32,
    /// How long a machine whose end was accepted is still listed.
    pub ending_seconds: u32,
    /// The least time between two launches; the second one gets 429 without `Retry-After`. Absent, there is no
    /// limit.
    pub launch_spacing_seconds: Option<u32>,
}

impl Timing {
    /// This boot time, no time of ending, and no limit on launches.
    #[must_use]
    pub const fn boot(boot_seconds: u32) -> Self {
        Self {
            boot_seconds,
            ending_seconds: 0,
            launch_spacing_seconds: None,
        }
    }

    /// The same with a time of ending.
    #[must_use]
    pub const fn ending(self, ending_seconds: u32) -> Self {
        Self {
            ending_seconds,
            ..self
        }
    }
}

/// How the credential travels.
pub enum Auth {
    /// In this header, after this prefix.
    Header {
        /// Whatever its case.
        name: &'static str,
        /// May be empty.
        prefix: &'static str,
    },
    /// A client id and its secret are exchanged at this path, below the base path, for a bearer token that
    /// lives for so long by the clock.
    ClientCredentials {
        /// For `POST`, with the slash at its start.
        path: &'static str,
        /// How long a token lives.
        lifetime_seconds: u32,
    },
}

impl Auth {
    /// `Authorization: Bearer …`.
    pub const BEARER: Self = Self::Header {
        name: "authorization",
        prefix: "Bearer ",
    };
}

/// The form of ids.
#[derive(Debug, Clone, Copy)]
pub enum Ids {
    /// A UUID with its hyphens.
    Uuid,
    /// So many hexadecimal digits, 32 at most.
    Hex(usize),
    /// Nine decimal digits.
    Number,
}

/// The words for the phases of a machine.
pub struct StatusWords {
    /// Created, not up yet.
    pub booting: &'static str,
    /// Up.
    pub running: &'static str,
    /// Never came up.
    pub failed: &'static str,
    /// Its end was accepted.
    pub ending: &'static str,
    /// No longer there.
    pub gone: &'static str,
    /// A launch for which there was no machine after all; absent, the word for `failed`.
    pub no_capacity: Option<&'static str>,
    /// A machine that the provider took back, listed like this until it is released; absent, it ends as if it
    /// had been released.
    pub preempted: Option<&'static str>,
}

impl StatusWords {
    /// The word for this phase.
    pub fn of(&self, phase: Phase) -> &'static str {
        match phase {
            Phase::Booting => self.booting,
            Phase::Running => self.running,
            Phase::Failed => self.failed,
            Phase::NoCapacity => self.no_capacity.unwrap_or(self.failed),
            Phase::Preempted => self.preempted.unwrap_or(self.ending),
            Phase::Ending => self.ending,
            Phase::Gone => self.gone,
        }
    }
}

/// What the rows of a provider must meet, so that its wire format can express them.
pub struct RowRules {
    /// The basis of its prices.
    pub per: PriceBasis,
    /// Whether a network is chosen at launch.
    pub networks: bool,
    /// The GPUs that a node may have; empty is any number.
    pub counts: &'static [u32],
    /// The most decimals of a price.
    pub price_decimals: u32,
    /// The name of a row in commands and faults. Rows at different places may share it.
    pub key: fn(&Row) -> String,
    /// Rows of one group have one price on the wire.
    pub price_group: fn(&Row) -> String,
}

impl RowRules {
    /// Whole nodes without a network, any number of GPUs, one price wherever a SKU is sold.
    pub const BASE: Self = Self {
        per: PriceBasis::Node,
        networks: false,
        counts: &[],
        price_decimals: 8,
        key: Row::usual_key,
        price_group: Row::key,
    };

    /// The same with prices in whole cents.
    pub const fn in_cents(self) -> Self {
        Self {
            price_decimals: 2,
            ..self
        }
    }

    /// Whether a price can be published.
    pub fn take_price(&self, price: rust_decimal::Decimal) -> Result<(), &'static str> {
        if price <= rust_decimal::Decimal::ZERO {
            return Err("a price is above zero");
        }
        if price.normalize().scale() > self.price_decimals {
            return Err("it has more decimals than the provider publishes");
        }
        Ok(())
    }

    /// Whether a row can be published.
    pub fn take_row(&self, row: &Row) -> Result<(), &'static str> {
        self.take_price(row.price_usd_hour)?;
        match row.network {
            Some(_) if !self.networks => return Err("no network is chosen at launch there"),
            None if self.networks => return Err("the network is chosen at launch there: name it"),
            _ => {}
        }
        if row.per != self.per {
            return Err("prices there are for a node, or for a GPU, and these are not");
        }
        if !self.counts.is_empty() && !self.counts.contains(&row.gpus) {
            return Err("no node there has so many GPUs");
        }
        Ok(())
    }
}
