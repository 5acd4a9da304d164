//! `broker login`, `logout` and `whoami`.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use clap::Args;
use market::ids::TenantId;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::api::Api;
use super::connection::{
    Address, Connection, Environment, ServiceArgs, check_key, login_profile, login_server,
    read_key_file, settle,
};
use super::profile::{self, Profile, Profiles, parse_name};
use super::route::Route;
use super::sheet::{print_sheet, text};
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;
use crate::terminal::text::{clean, print_line, print_text};

/// Checks an API key with a service, and saves both as a profile.
///
/// The key is read from --key-file, BROKER_KEY, standard input, or a prompt that does not show it. It is
/// never read from the command line, which others can see. Commands without a profile use that of the last
/// login. Profiles are in `$XDG_CONFIG_HOME/gpu-broker/profiles.toml`, readable only by you.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker login --server https://broker.example.com")]
pub(in crate::cli) struct LoginArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Deletes a profile and its key. The key itself stays valid until its tenant revokes it.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker logout")]
pub(in crate::cli) struct LogoutArgs {
    /// The profile; by default, that of the last login.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    profile: Option<String>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Shows the service in use, and the rights of the key.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker whoami")]
pub(in crate::cli) struct WhoamiArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn login(args: LoginArgs) -> Result<(), Ending> {
    let args = args.service;
    let file = profile::file()?;
    let environment = Environment::read()?;
    let mut profiles = Profiles::read(&file)?;
    let name = login_profile(&args, &environment, &profiles);
    let server = login_server(&args, &environment, profiles.profiles.get(&name))?;
    let key = match (&args.key_file, environment.key()) {
        (Some(file), _) => read_key_file(file)?,
        (None, Some(key)) => key.clone(),
        (None, None) => ask_for_key(server.as_str())?,
    };
    let connection = Connection {
        server,
        key: Some(key.clone()),
        profile: Some(name.clone()),
    };
    let who = identity(&connection).await?;
    let profile = Profile {
        server: connection.server.to_string(),
        key,
        insecure_http: args.insecure_http,
        tenant: who["tenant"].as_str().map(str::to_owned),
    };
    let replaced = profiles.keep(&name, profile);
    profiles.write(&file)?;
    if let Some(replaced) = replaced {
        note(&replaced);
    }
    if args.json {
        return Ok(print_line(&who.to_string())?);
    }
    Ok(print_text(&format!(
        "Logged in to {} as {} of {}. Kept as profile {name} in {}.",
        connection.server,
        text(&who, "/role"),
        text(&who, "/tenant"),
        file.display()
    ))?)
}

/// A profile for a newly created key: the service need not run yet.
pub(in crate::cli) struct NewProfile {
    file: PathBuf,
    profiles: Profiles,
    name: String,
    server: Address,
}

impl NewProfile {
    /// A profile for the service at this address; by default, the profile that is used when none is
    /// named.
    ///
    /// Errors: wrong input if keys may not be sent to the address, if the profiles cannot be read, or if
    /// the profile already holds a key and `force` is not set.
    pub(in crate::cli) fn of(
        server: &str,
        name: Option<&str>,
        force: bool,
    ) -> Result<Self, Ending> {
        let file = profile::file()?;
        let profiles = Profiles::read(&file)?;
        let server = Address::parse(server)?;
        server.check_encryption(false)?;
        let name = name.or(profiles.default.as_deref()).unwrap_or("default");
        if let Some(held) = profiles.profiles.get(name).filter(|_| !force) {
            return Err(Ending::wrong_input(format!(
                "profile {name} holds a key already, for {} at {}; save this one under another name with \
                 --profile NAME, or replace the old key with --force",
                held.whose(),
                held.server
            )));
        }
        Ok(Self {
            name: name.to_owned(),
            file,
            profiles,
            server,
        })
    }

    /// Saves the key of this tenant, and returns a message that says where.
    pub(in crate::cli) fn keep(
        mut self,
        key: SecretString,
        tenant: TenantId,
    ) -> Result<String, Ending> {
        let profile = Profile {
            server: self.server.to_string(),
            key,
            insecure_http: false,
            tenant: Some(tenant.to_string()),
        };
        let replaced = self.profiles.keep(&self.name, profile);
        self.profiles.write(&self.file)?;
        if let Some(replaced) = replaced {
            note(&replaced);
        }
        let (name, file) = (self.name, self.file.display());
        Ok(format!(
            "Saved the key for {} as profile {name} in {file}.",
            self.server
        ))
    }
}

/// Reads the key from a terminal without showing it, or from piped input.
fn ask_for_key(server: &str) -> Result<SecretString, Ending> {
    if !std::io::stdin().is_terminal() {
        return read_key_file("-".as_ref());
    }
    let typed = rpassword::prompt_password(format!("API key for {server} (not shown): ")).map_err(
        |error| Ending::wrong_input(format!("the key cannot be read: {error}; give --key-file")),
    )?;
    check_key(&typed, "what was typed")
}

pub(super) fn logout(args: &LogoutArgs) -> Result<(), Ending> {
    let file = profile::file()?;
    let mut profiles = Profiles::read(&file)?;
    let name = args.profile.clone().or_else(|| profiles.default.clone());
    let Some(name) = name.filter(|name| profiles.profiles.remove(name).is_some()) else {
        return Err(Ending::No(
            "there is no such profile; nothing was deleted".to_owned(),
        ));
    };
    if profiles.default.as_ref() == Some(&name) {
        profiles.default = None;
    }
    profiles.write(&file)?;
    if args.json {
        return Ok(print_line(&json!({ "forgotten": name }).to_string())?);
    }
    Ok(print_text(&format!("Deleted profile {name} and its key."))?)
}

pub(super) async fn whoami(args: WhoamiArgs) -> Result<(), Ending> {
    let connection = settle(&args.service)?;
    let who = identity(&connection).await?;
    if args.service.json {
        return Ok(print_line(&who.to_string())?);
    }
    let scopes = who["scopes"].as_object();
    let scopes: Vec<_> = scopes
        .into_iter()
        .flatten()
        .filter_map(|(family, level)| Some((family, level.as_str()?)))
        .filter(|(_, level)| *level != "none")
        .map(|(family, level)| clean(&format!("{} {level}", family.replace('_', " "))))
        .collect();
    print_sheet(&[
        ("service", text(&who, "/server")),
        ("profile", text(&who, "/profile")),
        ("tenant", text(&who, "/tenant")),
        ("role", text(&who, "/role")),
        ("may", scopes.join(", ")),
        ("projects", names(&who["projects"])),
        ("API key", text(&who, "/api_key_id")),
    ])
}

/// The names of projects; empty without any.
fn names(projects: &Value) -> String {
    let projects = projects.as_array().into_iter().flatten();
    let names = projects.filter_map(|project| project["name"].as_str());
    names.map(clean).collect::<Vec<_>>().join(", ")
}

/// The owner of the key, from the token that the service issues for it. The token itself is dropped:
/// it is a secret too.
async fn identity(connection: &Connection) -> Result<Value, Ending> {
    let api = Api::new(connection, None)?;
    let token = api.send(Route::TradeToken.all()).await?.value;
    let claims = token["access_token"]
        .as_str()
        .and_then(|token| token.split('.').nth(1))
        .and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok())
        .and_then(|claims| serde_json::from_slice::<Value>(&claims).ok())
        .ok_or_else(|| {
            let why = "the service accepted the key but did not name its owner; \
                       is it of another version than this command?";
            Ending::No(why.to_owned())
        })?;
    // The key of a provider, and a key without the scope, can list none.
    let projects = api.list(Route::ListProjects.all().into(), true).await;
    let projects = projects.ok().map(|mut answer| answer.value["items"].take());
    Ok(json!({
        "projects": projects,
        "server": connection.server.as_str(),
        "profile": connection.profile,
        "tenant": claims["tenant"],
        "role": claims["role"],
        "scopes": claims["scopes"],
        "api_key_id": claims["sub"],
    }))
}
