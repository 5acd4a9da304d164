//! `broker keys list|rotate|reseal`: the service's own signing keys, and the key that seals
//! them.

use std::path::PathBuf;

use chrono::SecondsFormat;
use clap::{Args, Subcommand, ValueEnum};
use store::Store;
use store::audit::NewAuditEntry;
use store::sealed::ResealError;
use store::signing_keys::KeyPurpose;

use crate::cli::database::DatabaseArgs;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::platform::config::Config;
use crate::platform::keys;
use crate::platform::secrets::{CannotOpen, SealingKey};
use crate::service::start;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::table::table;
use crate::terminal::text::{print_line, print_text};

#[derive(Debug, Subcommand)]
pub(super) enum KeysCommand {
    /// Lists the signing keys, oldest first.
    List(ListArgs),
    Rotate(RotateArgs),
    Reseal(ResealArgs),
}

/// Lists the signing keys, oldest first.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Creates a new signing key; signatures of the old key stay valid.
///
/// It signs at once here, and within a minute on every running replica. The old token key verifies
/// until the last token signed with it has expired; old attestation keys stay published.
#[derive(Debug, Args)]
pub(super) struct RotateArgs {
    /// What the key signs.
    #[arg(long, value_enum, default_value_t = PurposeArg::Token)]
    purpose: PurposeArg,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

/// Seals every secret in the database with a new sealing key.
///
/// Stop the service first, and start it with the new key: a process with the old key cannot open any
/// secret.
#[derive(Debug, Args)]
pub(super) struct ResealArgs {
    /// The file of the new key, 64 hexadecimal digits. A missing file is created, but only beside an
    /// embedded database.
    #[arg(long, value_name = "FILE")]
    new_key_file: PathBuf,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PurposeArg {
    Token,
    Attestation,
}

impl PurposeArg {
    /// The name of the purpose in `keys list`.
    fn word(self) -> &'static str {
        match self {
            Self::Token => "token",
            Self::Attestation => "attestation",
        }
    }
}

impl From<PurposeArg> for KeyPurpose {
    fn from(purpose: PurposeArg) -> Self {
        match purpose {
            PurposeArg::Token => Self::Token,
            PurposeArg::Attestation => Self::Attestation,
        }
    }
}

pub(super) fn run(command: KeysCommand) -> Result<(), Ending> {
    match command {
        KeysCommand::List(args) => list(&args),
        KeysCommand::Rotate(args) => rotate(&args),
        KeysCommand::Reseal(args) => reseal(&args),
    }
}

fn load(database: &DatabaseArgs) -> Result<Config, Ending> {
    Config::load(database.data_dir.as_deref()).map_err(Ending::wrong_input)
}

async fn open(database: &DatabaseArgs) -> Result<(Config, Store), Ending> {
    let config = load(database)?;
    let store = super::database::open(&config).await?;
    Ok((config, store))
}

fn list(args: &ListArgs) -> Result<(), Ending> {
    block_on(async {
        let (_, store) = open(&args.database).await?;
        let mut rows = Vec::new();
        for purpose in [PurposeArg::Token, PurposeArg::Attestation] {
            let known = store.signing_keys().list(purpose.into()).await?;
            rows.extend(known.into_iter().map(|key| (purpose.word(), key)));
        }
        if args.json {
            let keys: Vec<_> = rows
                .iter()
                .map(|(purpose, key)| {
                    serde_json::json!({
                        "kid": key.kid, "purpose": purpose,
                        "created_at": key.created_at, "retired_at": key.retired_at,
                    })
                })
                .collect();
            return Ok(print_line(
                &serde_json::json!({ "keys": keys }).to_string(),
            )?);
        }
        let time = |at: chrono::DateTime<_>| at.to_rfc3339_opts(SecondsFormat::Secs, true);
        let cells = rows.into_iter().map(|(purpose, key)| {
            let retired = key.retired_at.map_or("signs".to_owned(), time);
            vec![key.kid, purpose.to_owned(), time(key.created_at), retired]
        });
        let headings = ["key", "purpose", "made", "retired"];
        Ok(print_line(&table(&headings, cells))?)
    })
}

fn rotate(args: &RotateArgs) -> Result<(), Ending> {
    block_on(async {
        let (config, store) = open(&args.database).await?;
        let sealing = start::sealing_key(&config, &store).await;
        let sealing = sealing.map_err(Ending::cannot_start)?;
        let now = SystemClock.now();
        let kid = keys::rotate(&store, &sealing, args.purpose.into(), now).await?;
        if args.json {
            let rotated = serde_json::json!({ "kid": kid, "purpose": args.purpose.word() });
            return Ok(print_line(&rotated.to_string())?);
        }
        Ok(print_line(&kid)?)
    })
}

fn reseal(args: &ResealArgs) -> Result<(), Ending> {
    block_on(async {
        let config = load(&args.database)?;
        let file = &args.new_key_file;
        // Another machine or container may start the service on this database. A key created here could
        // be lost when this command's container ends.
        let may_be_made = config.database.url.is_none();
        if !may_be_made && matches!(file.try_exists(), Ok(false)) {
            let file = file.display();
            return Err(Ending::wrong_input(format!(
                "there is no {file}, and no key is created for a database on a server: create it where \
                 you keep it, readable by its owner alone, with \
                 `(umask 077; openssl rand -hex 32 > {file})`"
            )));
        }
        let store = super::database::open(&config).await?;
        let old = start::sealing_key(&config, &store).await;
        let old = old.map_err(Ending::cannot_start)?;
        let is_made = may_be_made && SealingKey::make(file).map_err(Ending::wrong_input)?;
        let new = SealingKey::of_file(file).map_err(Ending::wrong_input)?;
        let anew = |purpose: &str, sealed: &[u8]| {
            let secret = old.open(purpose, sealed)?;
            Ok::<_, CannotOpen>(new.seal(purpose, &secret))
        };
        let entry = NewAuditEntry::of_command(None, "keys reseal", None, SystemClock.now());
        let count = store
            .sealed()
            .reseal(&anew, entry)
            .await
            .map_err(|error| match error {
                unopened @ ResealError::Secret { .. } => {
                    if is_made {
                        // Nothing is sealed with it, and the error is reported: a leftover file is harmless.
                        let _ = std::fs::remove_file(file);
                    }
                    Ending::WrongInput(crate::chain(&unopened))
                }
                // The database may have committed the change before the connection broke.
                broken @ ResealError::Store(_) => {
                    let keep = format!(
                        "keep {} until a start has shown which key seals the secrets",
                        file.display()
                    );
                    Ending::Broken(anyhow::Error::from(broken).context(keep))
                }
            })?;
        if args.json {
            let resealed = serde_json::json!({ "secrets": count, "new_key_file": file });
            return Ok(print_line(&resealed.to_string())?);
        }
        let next = match (
            &config.database.url,
            &config.secrets.key,
            &config.secrets.key_file,
        ) {
            (None, None, None) => format!(
                "Put {} in place of {}, then start the service.",
                file.display(),
                config.data_dir.join("secret.key").display()
            ),
            // The setting takes precedence over any file.
            (_, Some(_), _) => format!(
                "Start the service with the content of {} in BROKER__SECRETS__KEY.",
                file.display()
            ),
            _ => format!(
                "Start the service with BROKER__SECRETS__KEY_FILE={}.",
                file.display()
            ),
        };
        Ok(print_text(&format!(
            "Sealed {count} secrets again. {next}"
        ))?)
    })
}
