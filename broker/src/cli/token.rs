//! `broker token create`: an API key, written straight to the database.

use chrono::TimeDelta;
use clap::{Args, Subcommand, ValueEnum};
use market::identity::Role;
use market::ids::{ApiKeyId, ProjectId, TenantId};
use store::audit::{AuditNote, NewAuditEntry};
use store::idempotency::{Answer, Completion};

use super::table::print_line;
use super::{DatabaseArgs, Ending, block_on};
use crate::clock::{Clock as _, SystemClock};
use crate::config::Config;
use crate::http::api_keys::{NewSecret, default_scopes};
use crate::start;

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Makes an API key and prints it alone on stdout, this once.
    Create(CreateArgs),
}

/// Makes an API key and prints it alone on stdout, this once.
///
/// It is sent as `Authorization: Bearer KEY`. The database keeps only its hash.
#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The tenant that it belongs to; made when there is none of that name.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// What its bearer is there to do.
    #[arg(long, value_enum, default_value_t = RoleArg::Member)]
    role: RoleArg,
    /// A name to know it by.
    #[arg(long, default_value = "command line")]
    name: String,
    /// For how many days it is good; for ever, when nothing is said.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    expires_in_days: Option<u32>,
    #[command(flatten)]
    database: DatabaseArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum RoleArg {
    Admin,
    Provider,
    Member,
    Finance,
    Viewer,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Admin => Self::Admin,
            RoleArg::Provider => Self::Provider,
            RoleArg::Member => Self::Member,
            RoleArg::Finance => Self::Finance,
            RoleArg::Viewer => Self::Viewer,
        }
    }
}

pub(super) fn run(command: TokenCommand) -> Result<(), Ending> {
    let TokenCommand::Create(args) = command;
    let name = args.tenant.trim();
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Ending::wrong_input(
            "the tenant's name must be 1 to 100 printable characters",
        ));
    }
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    block_on(async {
        let store = start::open_store(&config)
            .await
            .map_err(Ending::cannot_start)?;
        store.migrate_up().await?;
        let now = SystemClock.now();
        let tenant = store
            .tenants()
            .ensure(
                name,
                TenantId::from_uuid(uuid::Uuid::now_v7()),
                ProjectId::from_uuid(uuid::Uuid::now_v7()),
                now,
            )
            .await?;
        let secret = NewSecret::generate();
        let role = args.role.into();
        let key = store::api_keys::NewApiKey {
            id: ApiKeyId::from_uuid(uuid::Uuid::now_v7()),
            name: args.name,
            role,
            scopes: default_scopes(role),
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at: args
                .expires_in_days
                .map(|days| now + TimeDelta::days(days.into())),
            created_at: now,
        };
        let id = key.id.to_string();
        let entry = NewAuditEntry::of_command(Some(tenant.id), "token create", Some(id), now);
        let note = AuditNote::new(entry);
        let completion = Completion {
            mark: None,
            audit: Some(&note),
            // Nobody asks for it again.
            render: &|_| Answer {
                status: 201,
                body: String::new(),
            },
        };
        let keys = store.api_keys().of(tenant.id);
        keys.insert(key, Some(completion)).await?;
        Ok(print_line(secret.reveal())?)
    })
}
