//! Configuration: defaults < `broker.toml` < environment < flags.
//!
//! Environment variables are `BROKER__SECTION__KEY`; `DATABASE_URL` stands for
//! `BROKER__DATABASE__URL` and `REDIS_URL` for `BROKER__REDIS__URL`. Secrets are types whose `Debug` is stars.

mod check;
mod error;
mod oidc;
mod old_names;
mod provider;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::time::Duration;

use figment::Figment;
use figment::providers::{Env, Format, Serialized, Toml};
use ipnet::IpNet;
use market::demand::OnUnreachable;
use market::ids::ProviderId;
use market::money::Money;
use market::offer::{MachineOperator, Offer};
use market::provider_facts::ProviderFacts;
use market::spending::SpendingLimits;
use market::verification::Level;
use secrecy::SecretString;
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

pub use error::ConfigError;
pub use oidc::{OidcAlgorithm, OidcConfig};
pub use provider::ProviderConfig;

use old_names::OldNames;

/// Everything that can be set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where the embedded database and its key are kept.
    pub data_dir: PathBuf,
    /// The HTTP server.
    pub server: ServerConfig,
    /// The database, when it is not the embedded one.
    pub database: DatabaseConfig,
    /// The coordination state, which replicas share for speed, when there are several.
    pub redis: RedisConfig,
    /// A simulated market to join, where there is one.
    pub simulation: SimulationConfig,
    /// How often a caller may call.
    pub rate_limits: RateLimitsConfig,
    /// The key under which signing keys are sealed.
    pub secrets: SecretsConfig,
    /// Quotes and holds.
    pub sales: SalesConfig,
    /// The limits of tenants that have none of their own.
    pub spending: SpendingConfig,
    /// The agent and how long nodes may take.
    pub verifier: VerifierConfig,
    /// Looking whether nodes in use can be reached.
    pub reach: ReachConfig,
    /// How long data outside the accounts is kept.
    pub retention: RetentionConfig,
    /// Providers by id.
    pub providers: BTreeMap<ProviderId, ProviderConfig>,
    /// Price lists to read at start.
    pub pricesheets: Vec<PathBuf>,
    /// Outside issuers whose tokens are trusted.
    pub oidc: Vec<OidcConfig>,
}

/// The HTTP server.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port to listen at.
    pub listen: String,
    /// The address under which nodes and tenants reach the service.
    pub public_url: Option<String>,
    /// How long work under way may take to end once the service is stopping.
    pub drain_seconds: u32,
    /// Proxies whose `X-Forwarded-For` is trusted, as addresses of networks: `10.0.0.0/8`.
    pub trusted_proxies: Vec<IpNet>,
    /// The bearer token of a scraper for `/metrics`; without it only administrators read it.
    #[serde(skip_serializing)]
    pub metrics_token: Option<SecretString>,
}

impl ServerConfig {
    /// How long work under way may take to end once the service is stopping.
    #[must_use]
    pub fn drain(&self) -> Duration {
        Duration::from_secs(self.drain_seconds.into())
    }
}

/// The database.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DatabaseConfig {
    /// `postgres://…`; without it the embedded database in `data_dir` is used.
    pub url: Option<SecretString>,
}

/// The coordination state, which replicas share for speed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RedisConfig {
    /// `redis://…`, `rediss://…` or `unix://…`; without it each replica is by itself.
    pub url: Option<SecretString>,
}

/// A simulated market that runs in another process, and that several replicas share.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SimulationConfig {
    /// The address of its control plane, on this machine; without it only `serve --simulate` starts a
    /// simulation.
    pub market_url: Option<String>,
    /// The credential that it made up at its start.
    pub credential: Option<SecretString>,
}

/// How often a caller may call. Each quota is per caller: per API key, or per address for those
/// without one.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateLimitsConfig {
    /// Whether calls are counted at all.
    pub enabled: bool,
    /// Calls with a key that only read.
    pub reads: QuotaConfig,
    /// Calls with a key that write or plan.
    pub writes: QuotaConfig,
    /// Calls of all keys and logins of a tenant together that only read.
    pub tenant_reads: QuotaConfig,
    /// Calls of all keys and logins of a tenant together that write or plan.
    pub tenant_writes: QuotaConfig,
    /// Calls without a valid credential.
    pub anonymous: QuotaConfig,
}

/// How often something may be done.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaConfig {
    /// How many times a second in the long run.
    pub per_second: NonZeroU32,
    /// How many times at once.
    pub burst: NonZeroU32,
}

/// The key under which signing keys are sealed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecretsConfig {
    /// 64 hexadecimal digits.
    pub key: Option<SecretString>,
    /// A file that holds them.
    pub key_file: Option<PathBuf>,
}

/// Quotes and holds.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SalesConfig {
    /// How long a quote is valid.
    pub quote_seconds: u32,
    /// How long a hold is valid.
    pub hold_seconds: u32,
    /// How many live holds or lease sets an offer without a count may carry.
    pub soft_holds_per_offer: u32,
    /// How many nodes one of them may take of it.
    pub soft_nodes_per_hold: u32,
    /// How many leases one reservation may have: each is an order of its own.
    pub leases_per_reservation: u32,
    /// The period in which three failed reservations put an offer in cool-down, and the cool-down's length.
    pub cooldown_seconds: u32,
}

/// The limits on concurrent use for tenants that have none of their own; an unset one does not limit.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SpendingConfig {
    /// GPUs that are held or leased.
    pub gpus: Option<u32>,
    /// The cost of all holds and leases together. Units: US dollars per hour.
    pub usd_per_hour: Option<Money>,
    /// Holds that are not confirmed.
    pub open_holds: Option<u32>,
    /// Nodes of holds that are not confirmed.
    pub held_nodes: Option<u32>,
    /// Reservations that are not closed.
    pub reservations: Option<u32>,
    /// Orders that may be cancelled before their hand-off within 24 hours; beyond it nothing more is
    /// confirmed.
    pub cancelled_orders: Option<u32>,
}

impl SpendingConfig {
    /// As limits.
    #[must_use]
    pub const fn limits(&self) -> SpendingLimits {
        SpendingLimits {
            gpus: self.gpus,
            usd_per_hour: self.usd_per_hour,
            open_holds: self.open_holds,
            held_nodes: self.held_nodes,
            reservations: self.reservations,
            cancelled_orders: self.cancelled_orders,
        }
    }
}

/// The agent and how long nodes may take.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifierConfig {
    /// The agent file for real nodes; in simulation, the broker executable whose agent pretend
    /// nodes run.
    pub agent_path: Option<PathBuf>,
    /// How long a machine may take to come up.
    pub boot_seconds: u32,
    /// How long its nodes may take to prove themselves once they are up; with a deeper verification than
    /// `standard` as much longer as its steps may take longer.
    pub verify_seconds: u32,
    /// The verification level where a demand names none: `quick`, `standard` or `deep`.
    pub level: Level,
    /// The lowest level for all demands, even if a demand asks for less; no more than `verifier.most_level`.
    pub least_level: Level,
    /// The lowest level for a reservation with an unproven seller: one without a good record (of 20 orders or
    /// more in 30 days at least 95 % ended well), or whose machine belongs to other people than the
    /// marketplace that sells it. `deep` makes new sellers prove more. If not set, there is no such minimum.
    /// The level follows from the sellers of the quote; a later replacement comes from sellers for whom this
    /// level is enough.
    pub unproven_level: Option<Level>,
    /// The most that a demand may ask for: `deep` keeps a machine up to 100 minutes at the service's cost.
    pub most_level: Level,
}

/// Looking whether nodes in use can be reached.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReachConfig {
    /// How long from one look at a node to the next, about.
    pub probe_seconds: u32,
    /// How long a node may take to answer.
    pub timeout_seconds: u32,
    /// How long a node may be silent before the broker notifies its tenant.
    pub unreachable_seconds: u32,
    /// The action then, where the demand names none.
    pub on_unreachable: OnUnreachable,
}

/// How long data outside the accounts is kept. The ledger, its sources and the audit log stay for good;
/// answers under an `Idempotency-Key` are kept for the 24 hours that they are replayed.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetentionConfig {
    /// Events. One that a delivery still refers to is kept as long as that one. Units: days,
    /// 1..=36500.
    #[serde(deserialize_with = "days")]
    pub events_days: u32,
    /// Deliveries of webhooks that are over, with their attempts. Units: days, 1..=36500.
    #[serde(deserialize_with = "days")]
    pub webhook_deliveries_days: u32,
    /// Re-checks that a node in use passed, with their signed documents. The last one of a node stays, and
    /// all that were not passed. Units: days, 1..=36500.
    #[serde(deserialize_with = "days")]
    pub rechecks_days: u32,
}

/// An age of whole days: none would let everything go at once, and the calendar has an end.
fn days<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let days = i64::deserialize(from)?;
    u32::try_from(days)
        .ok()
        .filter(|days| (1..=36_500).contains(days))
        .ok_or_else(|| {
            let wanted = "a number of days from 1 to 36500";
            D::Error::invalid_value(Unexpected::Signed(days), &wanted)
        })
}

impl VerifierConfig {
    /// Whether machines can be verified by it.
    ///
    /// Errors: [`ConfigError::Levels`].
    fn check(&self) -> Result<(), ConfigError> {
        let (least, most) = (self.least_level, self.most_level);
        match least > most {
            true => Err(ConfigError::Levels { least, most }),
            false => Ok(()),
        }
    }
}

impl Config {
    /// Reads `broker.toml` in the working directory, where there is one, and the environment.
    ///
    /// Errors: [`ConfigError::Unreadable`], naming the key.
    pub fn load(data_dir: Option<&Path>) -> Result<Self, ConfigError> {
        let mut figment = Figment::from(Serialized::defaults(defaults()))
            .merge(OldNames(Toml::file("broker.toml")))
            .merge(OldNames(Env::prefixed("BROKER__").split("__")))
            .merge(
                Env::raw()
                    .only(&["DATABASE_URL"])
                    .map(|_| "database.url".into()),
            )
            .merge(Env::raw().only(&["REDIS_URL"]).map(|_| "redis.url".into()));
        if let Some(data_dir) = data_dir {
            figment = figment.merge(Serialized::default("data_dir", data_dir));
        }
        figment
            .extract()
            .map_err(|error| ConfigError::Unreadable(Box::new(error)))
    }

    /// The record of a provider.
    #[must_use]
    pub fn facts_of(&self, id: &ProviderId) -> ProviderFacts {
        let settings = self.providers.get(id);
        settings.map_or_else(ProviderFacts::default, ProviderConfig::facts)
    }

    /// The record of the operator of an offer; `None` where the operator is not known, as with machines of
    /// other people.
    #[must_use]
    pub fn facts_of_operator(&self, offer: &Offer) -> Option<ProviderFacts> {
        match &offer.particulars.operator {
            MachineOperator::Seller => Some(self.facts_of(&offer.provider)),
            MachineOperator::Cloud(id) => Some(self.facts_of(id)),
            MachineOperator::Peer(_) => None,
        }
    }

    /// The configuration with nothing set but where data is kept.
    ///
    /// Errors: none in practice; the defaults are read like any other source.
    pub fn embedded(data_dir: &Path) -> Result<Self, ConfigError> {
        Figment::from(Serialized::defaults(defaults()))
            .merge(Serialized::default("data_dir", data_dir))
            .extract()
            .map_err(|error| ConfigError::Unreadable(Box::new(error)))
    }
}

/// The defaults, by section.
#[must_use]
pub fn defaults() -> serde_json::Value {
    serde_json::json!({
        "data_dir": ".broker",
        "server": { "listen": "127.0.0.1:8080", "drain_seconds": 30, "trusted_proxies": [] },
        "database": {},
        "redis": {},
        "simulation": {},
        "rate_limits": {
            "enabled": true,
            "reads": { "per_second": 50, "burst": 200 },
            "writes": { "per_second": 10, "burst": 50 },
            "tenant_reads": { "per_second": 200, "burst": 800 },
            "tenant_writes": { "per_second": 40, "burst": 200 },
            "anonymous": { "per_second": 10, "burst": 50 },
        },
        "secrets": {},
        "sales": {
            "quote_seconds": 600,
            "hold_seconds": 900,
            "soft_holds_per_offer": 1,
            "soft_nodes_per_hold": 16,
            "leases_per_reservation": 64,
            "cooldown_seconds": 1800,
        },
        "spending": {
            "gpus": 4_096, "open_holds": 5, "held_nodes": 64, "reservations": 2_000, "cancelled_orders": 5,
        },
        "verifier": {
            "boot_seconds": 2700, "verify_seconds": 600, "level": "standard", "least_level": "quick",
            "most_level": "deep",
        },
        "reach": {
            "probe_seconds": 60,
            "timeout_seconds": 10,
            "unreachable_seconds": 600,
            "on_unreachable": "event",
        },
        "retention": { "events_days": 90, "webhook_deliveries_days": 30, "rechecks_days": 90 },
        "providers": {},
        "pricesheets": [],
        "oidc": [],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_a_whole_configuration() {
        let config = Config::embedded(Path::new("somewhere")).expect("the defaults are complete");
        assert_eq!(config.server.listen, "127.0.0.1:8080");
        assert!(config.database.url.is_none());
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_named_by_line_and_not_shown() {
        let error = Figment::from(Toml::string("[secrets]\nkey = \"canary"))
            .extract::<Config>()
            .expect_err("no TOML");
        let words = ConfigError::Unreadable(Box::new(error)).to_string();
        assert!(
            words.contains("line 2") && !words.contains("canary"),
            "{words}"
        );
    }

    #[test]
    fn no_more_is_demanded_at_least_than_may_be_asked_for_at_most() {
        let mut verifier = Config::embedded(Path::new("somewhere"))
            .expect("defaults")
            .verifier;
        (verifier.least_level, verifier.most_level) = (Level::Standard, Level::Standard);
        verifier.check().expect("they fit");
        verifier.least_level = Level::Deep;
        let refused = verifier.check().expect_err("nothing fits between");
        let said = "`verifier.least_level` is `deep` and `verifier.most_level` `standard`";
        assert!(refused.to_string().starts_with(said), "{refused}");
    }

    #[test]
    fn a_secret_does_not_show_in_debug() {
        let mut config = Config::embedded(Path::new("somewhere")).expect("defaults");
        config.database.url = Some(SecretString::from("postgres://user:canary@host/db"));
        config.redis.url = Some(SecretString::from("redis://:canary@host"));
        config.server.metrics_token = Some(SecretString::from("canary"));
        assert!(!format!("{config:?}").contains("canary"));
    }
    #[test]
    fn a_secret_of_the_wrong_kind_does_not_show_in_the_error() {
        let error = Figment::from(Serialized::defaults(defaults()))
            .merge(Serialized::default("secrets.key", 31_415_926))
            .extract::<Config>()
            .map_err(|error| ConfigError::Unreadable(Box::new(error)))
            .expect_err("a key is text");
        let words = error.to_string();
        assert!(
            words.contains("secrets.key") && !words.contains("31415926"),
            "{words}"
        );
    }

    #[test]
    fn a_misspelt_key_is_named_beside_those_there_are() {
        let error = Figment::from(Serialized::defaults(defaults()))
            .merge(Serialized::default("server.listenn", "127.0.0.1:1"))
            .extract::<Config>()
            .map_err(|error| ConfigError::Unreadable(Box::new(error)))
            .expect_err("no such key");
        let words = error.to_string();
        assert!(
            words.contains("listenn") && words.contains("public_url"),
            "{words}"
        );
    }

    #[test]
    fn what_is_let_go_is_at_least_a_day_old_and_at_most_a_century() {
        for key in ["events_days", "webhook_deliveries_days", "rechecks_days"] {
            let set = |days: i64| {
                Figment::from(Serialized::defaults(defaults()))
                    .merge(Serialized::default(&format!("retention.{key}"), days))
                    .extract::<Config>()
                    .map_err(|error| ConfigError::Unreadable(Box::new(error)))
            };
            for good in [1, 36_500] {
                set(good).expect("in the range");
            }
            for bad in [-1, 0, 36_501, 1_000_000_000, i64::MAX] {
                let words = set(bad).expect_err("out of the range").to_string();
                let wanted = format!("`retention.{key}` must be a number of days from 1 to 36500");
                assert!(words.ends_with(&wanted), "{words}");
            }
        }
    }
}
