//! Why the broker cannot start, with the change that is needed.

use std::path::PathBuf;

use store::StoreError;

use crate::platform::config::ConfigError;
use crate::platform::coordination::RedisRefused;
use crate::platform::keys::KeyError;

/// Why the broker could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configuration is not usable.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The database is not usable.
    #[error("the database cannot be used")]
    Store(#[from] StoreError),
    /// The address of Redis is not valid.
    #[error(transparent)]
    Redis(#[from] RedisRefused),
    /// The signing keys are not usable.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// A provider is named that no adapter speaks for.
    #[error("there is no adapter for the provider `{0}`; take it out of the configuration")]
    UnknownProvider(String),
    /// A provider without a usable connection.
    #[error("the provider `{provider}` cannot be used: {why}")]
    Provider {
        /// Which one.
        provider: String,
        /// The missing or refused part.
        why: String,
    },
    /// Providers of a simulator outside a simulation.
    #[error("simulated providers were given to a production database; use a simulation database")]
    SimulatedInProduction,
    /// An address of ours at which no machine reaches us.
    #[error(
        "the machines that are verified call the service, and cannot at {0}; set server.public_url (BROKER__SERVER__PUBLIC_URL) to its https address, or take verifier.agent_path out"
    )]
    PublicUrl(String),
    /// Another service runs on the embedded database.
    #[error(
        "another service runs on the data directory {}; stop it, give this one another with --data-dir, or set DATABASE_URL to PostgreSQL, which several replicas share",
        dir.display()
    )]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// The embedded database is damaged.
    #[error(
        "the database {} {what}: a new one would lack its data; restore it from a backup, or move it and secret.key aside to begin with a new one",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The error.
        what: &'static str,
    },
    /// A file or directory cannot be used.
    #[error("{what} cannot be used")]
    File {
        /// Which file.
        what: String,
        /// The system's word.
        #[source]
        source: std::io::Error,
    },
}
