//! `broker providers …`: the providers whose offers are read and sold, directly in the database. A running
//! service applies every change within a second.
//!
//! A credential comes from a file or from standard input, never from the command line, where
//! everybody on the machine could read it.

mod connect;
mod standing;

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use market::acceptance::AcceptanceRecord;
use market::ids::ProviderId;
use serde_json::{Value, json};
use store::audit::NewAuditEntry;
use store::providers::{Cause, Provider, ProviderChange};
use store::settings::DatabaseMode;
use store::{Conflict, Store, StoreError};

use super::database::{open, open_or_make};
use crate::cli::database::DatabaseArgs;
use crate::flow::providers::acceptance_of_all;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::platform::config::Config;
use crate::platform::secrets::SealingKey;
use crate::service::start;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::print_answer;

#[derive(Debug, Subcommand)]
pub(super) enum ProvidersCommand {
    /// Lists the providers, their connections and the state of their readings.
    List(ListArgs),
    /// Connects a provider with a credential.
    Add(AddArgs),
    /// Reads a provider once, stores nothing, and reports the result.
    Check(CheckArgs),
    /// Replaces the credential of a provider.
    Rotate(RotateArgs),
    /// Deletes the credential of a disabled provider without open holds or leases.
    Forget(OneArgs),
    /// Reads and sells a provider's offers again.
    Enable(OneArgs),
    /// Stops reading and selling a provider's offers; its running machines stay managed.
    Disable(OneArgs),
    /// Suspends new sales at a provider for a time.
    Quarantine(QuarantineArgs),
}

/// Lists the providers, their connections and the state of their readings.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    form: FormArgs,
}

/// The database, and the format of the output.
#[derive(Debug, Args)]
struct FormArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// A provider.
#[derive(Debug, Args)]
pub(super) struct OneArgs {
    /// The provider's id, such as `lambda`.
    #[arg(value_name = "ID")]
    id: ProviderId,
    #[command(flatten)]
    form: FormArgs,
}

/// Connects a provider with a credential, and reads it once. A credential that the provider refuses
/// is not stored.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker providers add lambda --credential-file lambda.key")]
pub(super) struct AddArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The file that holds only the credential; `-` reads it from standard input.
    #[arg(long, value_name = "FILE")]
    credential_file: PathBuf,
    /// Stores the credential, but does not read or sell yet.
    #[arg(long)]
    disabled: bool,
    /// In a simulation only: the address of its interface on this machine.
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
}

/// Reads the catalogue and our account at a provider once, stores nothing, and reports the result. Exit
/// status 1 if it could not be read well.
#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    one: OneArgs,
    /// A file with a credential to try instead of the stored one; `-` reads standard input.
    #[arg(long, value_name = "FILE")]
    credential_file: Option<PathBuf>,
    /// In a simulation only, with a credential: the address of its interface on this machine.
    #[arg(long, value_name = "URL", requires = "credential_file")]
    base_url: Option<String>,
}

/// Replaces the credential of a provider, after trying the new one once.
#[derive(Debug, Args)]
pub(super) struct RotateArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The file that holds only the new credential; `-` reads it from standard input.
    #[arg(long, value_name = "FILE")]
    credential_file: PathBuf,
}

/// Suspends new sales at a provider for a time. Plans show the reason; existing holds and leases
/// continue.
#[derive(Debug, Args)]
pub(super) struct QuarantineArgs {
    #[command(flatten)]
    one: OneArgs,
    /// The reason, shown to tenants.
    #[arg(long, value_name = "TEXT", required_unless_present = "end")]
    reason: Option<String>,
    /// The end, such as 2026-11-21T14:00:00Z: within a year.
    #[arg(long, value_name = "TIME", required_unless_present = "end")]
    until: Option<DateTime<Utc>>,
    /// Ends the suspension now.
    #[arg(long, conflicts_with_all = ["reason", "until"])]
    end: bool,
}

pub(super) fn run(command: ProvidersCommand) -> Result<(), Ending> {
    use ProvidersCommand as C;
    block_on(async {
        match command {
            C::List(args) => standing::list(&args.form).await,
            C::Add(args) => connect::add(&args).await,
            C::Check(args) => connect::check_one(&args).await,
            C::Rotate(args) => connect::rotate(&args).await,
            C::Forget(args) => connect::forget(&args).await,
            C::Enable(args) => standing::switch(&args, true).await,
            C::Disable(args) => standing::switch(&args, false).await,
            C::Quarantine(args) => standing::quarantine(&args).await,
        }
    })
}

/// An open database.
struct Desk {
    config: Config,
    store: Store,
    mode: DatabaseMode,
    json: bool,
}

impl Desk {
    async fn open(form: &FormArgs) -> Result<Self, Ending> {
        let config = load(form)?;
        let store = open(&config).await?;
        Self::over(config, store, form).await
    }

    /// Creates the embedded database if it is missing.
    async fn open_or_make(form: &FormArgs) -> Result<Self, Ending> {
        let config = load(form)?;
        let store = open_or_make(&config).await?;
        Self::over(config, store, form).await
    }

    async fn over(config: Config, store: Store, form: &FormArgs) -> Result<Self, Ending> {
        let mode = store.settings().mode().await?;
        Ok(Self {
            mode: mode.unwrap_or(DatabaseMode::Production),
            config,
            store,
            json: form.json,
        })
    }

    async fn sealing_key(&self) -> Result<SealingKey, Ending> {
        let key = start::sealing_key(&self.config, &self.store).await;
        key.map_err(Ending::cannot_start)
    }

    /// Whether the configuration connects a provider; it takes precedence over the database.
    fn is_configured(&self, id: &ProviderId) -> bool {
        let settings = self.config.providers.get(id);
        settings.is_some_and(|settings| settings.enabled)
    }

    fn not_configured(&self, id: &ProviderId) -> Result<(), Ending> {
        if self.is_configured(id) {
            return Err(Ending::wrong_input(format!(
                "the configuration connects {id}; change it there, or remove it there \
                 first"
            )));
        }
        Ok(())
    }

    async fn find(&self, id: &ProviderId) -> Result<Provider, Ending> {
        let found = self.store.providers().find(id).await?;
        found.ok_or_else(|| unknown(id))
    }

    async fn change(
        &self,
        id: &ProviderId,
        operation: &str,
        change: &ProviderChange,
    ) -> Result<Provider, Ending> {
        let cause = cause(operation, id);
        let changed = self.store.providers().change(id, change, &cause).await;
        changed.map_err(|error| refused(id, error))
    }

    /// The provider in JSON.
    fn json_of(&self, provider: &Provider, acceptance: &AcceptanceRecord) -> Value {
        let now = SystemClock.now();
        let quarantine = provider
            .quarantine_at(now)
            .map(|held| json!({ "reason": held.reason, "since": held.since, "until": held.until }));
        let credential = provider
            .credential
            .as_ref()
            .map(|credential| json!({ "hint": credential.hint, "set_at": credential.set_at }));
        json!({
            "id": provider.id,
            "enabled": provider.enabled,
            "connected_by": self.connected_by(provider),
            "credential": credential,
            "base_url": provider.base_url,
            "acceptance": acceptance,
            "quarantine": quarantine,
            "last_attempt_at": provider.last_attempt_at,
            "last_read_at": provider.last_read_at,
            "last_complete_at": provider.last_complete_at,
            "stale_reason": provider.stale_reason,
            "live_offers": provider.live_offers,
            "skipped": provider.skipped.iter().map(|record| record.rows).sum::<u64>(),
        })
    }

    fn connected_by(&self, provider: &Provider) -> &'static str {
        if self.is_configured(&provider.id) {
            "configuration"
        } else if provider.credential.is_some() {
            "entry"
        } else {
            "nothing"
        }
    }

    /// How the recent orders at each provider ended.
    async fn acceptance(&self) -> Result<BTreeMap<ProviderId, AcceptanceRecord>, Ending> {
        Ok(acceptance_of_all(&self.store, SystemClock.now()).await?)
    }

    /// Prints the result for a provider.
    async fn tell(&self, provider: &Provider, people: &str) -> Result<(), Ending> {
        let line = match self.json {
            true => {
                let acceptance = self.acceptance().await?.remove(&provider.id);
                self.json_of(provider, &acceptance.unwrap_or_default())
                    .to_string()
            }
            false => format!("{people} A running service applies it within a second."),
        };
        Ok(print_answer(&line, self.json)?)
    }
}

fn load(form: &FormArgs) -> Result<Config, Ending> {
    Config::load(form.database.data_dir.as_deref()).map_err(Ending::wrong_input)
}

fn cause(operation: &str, id: &ProviderId) -> Cause<'static> {
    let target = Some(id.to_string());
    let entry = NewAuditEntry::of_command(None, operation, target, SystemClock.now());
    Cause::Command(Box::new(entry))
}

fn unknown(id: &ProviderId) -> Ending {
    Ending::wrong_input(format!(
        "there is no provider {id} here; `broker providers list` shows the known ones"
    ))
}

/// The refusal of a change by the database, and the next step.
fn refused(id: &ProviderId, error: StoreError) -> Ending {
    match error {
        StoreError::NotFound { .. } => unknown(id),
        StoreError::Conflict(Conflict::Exists { .. }) => Ending::No(format!(
            "{id} has a credential already; `broker providers rotate {id}` replaces it"
        )),
        StoreError::Conflict(Conflict::ProviderInUse) => Ending::No(format!(
            "{id} is enabled, or has open holds or leases that need its \
             credential; disable it, wait until nothing is open there, then try again"
        )),
        other => other.into(),
    }
}
