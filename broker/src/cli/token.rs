//! `broker token create`: creates an API key, directly in the database.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use clap::{Args, Subcommand, ValueEnum};
use market::identity::{Projects, Role};
use market::ids::{ApiKeyId, ProjectId, ProviderId, TenantId};
use serde_json::json;
use store::Store;
use store::audit::{AuditNote, NewAuditEntry};
use store::idempotency::{Answer, Completion};
use store::tenants::Project;

use super::client::{NewProfile, parse_name};
use super::database::open_or_make;
use crate::cli::database::DatabaseArgs;
use crate::flow::providers::is_known;
use crate::http::api_keys::{NewSecret, default_scopes};
use crate::platform::clock::{Clock as _, SystemClock};
use crate::platform::config::Config;
use crate::terminal::ending::{Ending, block_on};
use crate::terminal::text::{print_line, print_text};

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    Create(CreateArgs),
}

/// Creates an API key, and prints it this once, alone on stdout, or logs in with it.
///
/// Send it as `Authorization: Bearer KEY`. The database stores only its hash.
#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// The tenant of the key; created if there is none of that name.
    #[arg(long, value_name = "NAME")]
    tenant: String,
    /// The role of the key.
    #[arg(long, value_enum, default_value_t = RoleArg::Member)]
    role: RoleArg,
    /// A project that the key may use, by name or id; may be repeated. The key cannot see anything
    /// outside its projects. A project of a new name is created. By default, all projects.
    #[arg(long = "project", value_name = "NAME|ID")]
    projects: Vec<String>,
    /// With --role provider, which requires it: the one provider that the key may read.
    #[arg(long, value_name = "PROVIDER", required_if_eq("role", "provider"))]
    provider: Option<String>,
    /// A name for the key.
    #[arg(long, default_value = "command line")]
    name: String,
    /// Days until the key expires; by default, it never does.
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..=3_650))]
    expires_in_days: Option<u32>,
    /// Logs in to the service at this address with the key, instead of printing it; the service
    /// need not run yet.
    #[arg(long, value_name = "URL", conflicts_with = "json")]
    login: Option<String>,
    /// With --login: the profile to save the key in; by default, that of the last login.
    #[arg(long, value_name = "NAME", value_parser = parse_name, requires = "login")]
    profile: Option<String>,
    /// With --login: replaces the key that the profile holds.
    #[arg(long, requires = "login")]
    force: bool,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
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
    check_name("the tenant's name", name)?;
    for project in &args.projects {
        check_name("a project's name", project.trim())?;
    }
    let profile = args.login.as_deref();
    let profile = profile.map(|server| NewProfile::of(server, args.profile.as_deref(), args.force));
    let profile = profile.transpose()?;
    let config = Config::load(args.database.data_dir.as_deref()).map_err(Ending::wrong_input)?;
    block_on(async {
        let store = open_or_make(&config).await?;
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
        let role = args.role.into();
        let projects = projects(&store, tenant.id, role, &args.projects).await?;
        let provider = provider(&store, role, args.provider.as_deref()).await?;
        let secret = NewSecret::generate();
        let key = store::api_keys::NewApiKey {
            id: ApiKeyId::from_uuid(uuid::Uuid::now_v7()),
            name: args.name,
            role,
            scopes: default_scopes(role),
            projects,
            provider,
            prefix: secret.prefix(),
            hash: secret.hash(),
            expires_at: args
                .expires_in_days
                .map(|days| now + TimeDelta::days(days.into())),
            created_at: now,
            made_by: None,
        };
        let id = key.id.to_string();
        let made = json!({ "id": id, "tenant_id": tenant.id, "secret": secret.reveal() });
        let entry = NewAuditEntry::of_command(Some(tenant.id), "token create", Some(id), now);
        let note = AuditNote::new(entry);
        let completion = Completion {
            mark: None,
            audit: Some(&note),
            // No later call asks for this reply.
            render: &|_| Answer {
                status: 201,
                body: String::new(),
            },
        };
        let keys = store.api_keys().of(tenant.id);
        keys.insert(key, Some(completion)).await?;
        if let Some(profile) = profile {
            return Ok(print_text(
                &profile.keep(secret.reveal().into(), tenant.id)?,
            )?);
        }
        if args.json {
            return Ok(print_line(&made.to_string())?);
        }
        Ok(print_line(secret.reveal())?)
    })
}

fn check_name(whose: &str, name: &str) -> Result<(), Ending> {
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        let said = format!("{whose} must be 1 to 100 printable characters");
        return Err(Ending::WrongInput(said));
    }
    Ok(())
}

/// The provider of the key.
async fn provider(
    store: &Store,
    role: Role,
    named: Option<&str>,
) -> Result<Option<ProviderId>, Ending> {
    let Some(named) = named else { return Ok(None) };
    if role != Role::Provider {
        return Err(Ending::wrong_input(
            "`--provider` is for --role provider alone; leave it out",
        ));
    }
    let id = ProviderId::parse(named).ok();
    match id {
        Some(id) if is_known(store, &id).await? => Ok(Some(id)),
        _ => Err(Ending::wrong_input(format!(
            "there is no provider `{named}` here; `broker providers list` shows the known ones"
        ))),
    }
}

/// The projects of the key; those of a new name are created.
async fn projects(
    store: &Store,
    tenant: TenantId,
    role: Role,
    wanted: &[String],
) -> Result<Projects, Ending> {
    if wanted.is_empty() {
        return Ok(Projects::All);
    }
    if matches!(role, Role::Admin | Role::Provider) {
        let role = role.as_str();
        return Err(Ending::wrong_input(format!(
            "`--project` is for members, finance and viewers; the role `{role}` does not belong to projects"
        )));
    }
    let known = store.tenants().projects(tenant).await?;
    let mut named = BTreeSet::new();
    for wanted in wanted
        .iter()
        .map(|name| name.trim())
        .collect::<BTreeSet<_>>()
    {
        let is_it = |project: &&Project| project.name == wanted || project.id.to_string() == wanted;
        let id = match known.iter().find(is_it) {
            Some(project) => project.id,
            None if wanted.parse::<ProjectId>().is_ok() => {
                return Err(Ending::wrong_input(format!(
                    "the tenant has no project {wanted}; give a name to create one"
                )));
            }
            None => {
                let (id, now) = (
                    ProjectId::from_uuid(uuid::Uuid::now_v7()),
                    SystemClock.now(),
                );
                let tenants = store.tenants();
                tenants.add_project(tenant, wanted, id, now, None).await?.id
            }
        };
        named.insert(id);
    }
    Ok(Projects::Only(named))
}
