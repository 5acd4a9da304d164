//! The service and the key of a command: from flags, else from the environment, else from the
//! profile.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use market::ids::TenantId;
use reqwest::Url;
use secrecy::SecretString;

use super::profile::{self, Profile, Profiles, parse_name};
use crate::cli::input::read_text;
use crate::terminal::ending::Ending;

/// The service, the key for it, and the format of the output.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Service")]
pub(super) struct ServiceArgs {
    /// The service's address; default: that of the named profile, `BROKER_URL`, or the profile of the
    /// last login.
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
    /// A profile saved by `broker login`; default: `BROKER_PROFILE`, or that of the last login.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    pub(super) profile: Option<String>,
    /// A file that holds only the API key; default: the key of the named profile, `BROKER_KEY`, or the
    /// key of the last login.
    #[arg(long, value_name = "FILE")]
    pub(super) key_file: Option<PathBuf>,
    /// Allows sending the key unencrypted to another host.
    #[arg(long)]
    pub(super) insecure_http: bool,
    /// For administrators: the tenant to act for.
    #[arg(long, value_name = "ID")]
    pub(super) tenant: Option<TenantId>,
    /// Prints the API's JSON, and nothing else on stdout.
    #[arg(long)]
    pub(super) json: bool,
}

/// The settings from the environment.
#[derive(Debug, Default)]
pub(super) struct Environment {
    url: Option<String>,
    profile: Option<String>,
    key: Option<SecretString>,
}

impl Environment {
    /// Reads `BROKER_URL`, `BROKER_PROFILE` and `BROKER_KEY`; an empty one counts as absent.
    pub(super) fn read() -> Result<Self, Ending> {
        let named = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let profile = named("BROKER_PROFILE")
            .map(|name| parse_name(&name))
            .transpose()
            .map_err(|why| Ending::wrong_input(format!("BROKER_PROFILE: {why}")))?;
        let key = named("BROKER_KEY")
            .map(|key| check_key(&key, "BROKER_KEY"))
            .transpose()?;
        Ok(Self {
            url: named("BROKER_URL"),
            profile,
            key,
        })
    }

    /// The key, if there is one.
    pub(super) fn key(&self) -> Option<&SecretString> {
        self.key.as_ref()
    }
}

/// A service, and the key for it.
#[derive(Debug)]
pub(super) struct Connection {
    /// The address that paths are appended to.
    pub(super) server: Address,
    /// The key; public routes need none.
    pub(super) key: Option<SecretString>,
    /// The profile of the address or the key.
    pub(super) profile: Option<String>,
}

/// Selects the service and the key from the arguments.
///
/// The key of a profile is sent only to the service of that profile.
/// Errors: wrong input if no service is named, a profile or file is missing, or the key would be sent
/// unencrypted.
pub(super) fn connect(
    args: &ServiceArgs,
    environment: &Environment,
    profiles: &Profiles,
) -> Result<Connection, Ending> {
    let find = |name: &str| find_profile(profiles, name);
    let named = args.profile.as_deref().map(find).transpose()?;
    let usual = match (&environment.profile, &profiles.default) {
        (Some(name), _) => Some(find(name)?),
        (None, Some(name)) => profiles.profiles.get_key_value(name),
        (None, None) => None,
    };
    let server = args
        .server
        .as_deref()
        .or(named.map(|(_, profile)| profile.server.as_str()))
        .or(environment.url.as_deref())
        .or(usual.map(|(_, profile)| profile.server.as_str()))
        .ok_or_else(|| {
            Ending::wrong_input(
                "no service is named; log in with `broker login --server URL`, or give --server \
                 or BROKER_URL",
            )
        })?;
    let server = Address::parse(server)?;
    let of_this_server = |profile: Option<(&String, &Profile)>| {
        let (name, profile) = profile?;
        let same = Address::parse(&profile.server).is_ok_and(|address| address == server);
        same.then(|| (name.clone(), profile.clone()))
    };
    let (named, usual) = (of_this_server(named), of_this_server(usual));
    let known = named.as_ref().or(usual.as_ref());
    let agreed = args.insecure_http || known.is_some_and(|(_, profile)| profile.insecure_http);
    server.check_encryption(agreed)?;
    let name = known.map(|(name, _)| name.clone());
    let key = match &args.key_file {
        Some(file) => Some(read_key_file(file)?),
        None => named
            .map(|(_, profile)| profile.key)
            .or_else(|| environment.key.clone())
            .or(usual.map(|(_, profile)| profile.key)),
    };
    Ok(Connection {
        server,
        key,
        profile: name,
    })
}

fn find_profile<'a>(
    profiles: &'a Profiles,
    name: &str,
) -> Result<(&'a String, &'a Profile), Ending> {
    profiles.profiles.get_key_value(name).ok_or_else(|| {
        let known: Vec<&str> = profiles.profiles.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "there is none yet".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Ending::wrong_input(format!(
            "there is no profile `{name}` ({known}); `broker login --server URL --profile {name}` \
             makes it"
        ))
    })
}

/// Selects the connection of a command from its flags, the environment and the saved profiles.
pub(super) fn settle(args: &ServiceArgs) -> Result<Connection, Ending> {
    let environment = Environment::read()?;
    // With everything in flags or the environment, no profile file is needed.
    let all_said = args.profile.is_none()
        && environment.profile.is_none()
        && (args.server.is_some() || environment.url.is_some())
        && (args.key_file.is_some() || environment.key.is_some());
    let profiles = if all_said {
        Profiles::default()
    } else {
        Profiles::read(&profile::file()?)?
    };
    connect(args, &environment, &profiles)
}

/// The address of a login: from flags, else the environment, else the profile to log in to again.
pub(super) fn login_server(
    args: &ServiceArgs,
    environment: &Environment,
    again: Option<&Profile>,
) -> Result<Address, Ending> {
    let server = args
        .server
        .as_deref()
        .or(environment.url.as_deref())
        .or(again.map(|profile| profile.server.as_str()))
        .ok_or_else(|| {
            Ending::wrong_input("name the service with --server URL, such as https://HOST")
        })?;
    let server = Address::parse(server)?;
    server.check_encryption(args.insecure_http)?;
    Ok(server)
}

/// The profile that a login writes.
pub(super) fn login_profile(
    args: &ServiceArgs,
    environment: &Environment,
    profiles: &Profiles,
) -> String {
    args.profile
        .clone()
        .or_else(|| environment.profile.clone())
        .or_else(|| profiles.default.clone())
        .unwrap_or_else(|| "default".to_owned())
}

/// Reads the key from a file that holds nothing else; `-` is standard input.
pub(super) fn read_key_file(file: &Path) -> Result<SecretString, Ending> {
    let shown = file.display();
    let text = read_text("the key file", file)?;
    check_key(&text, &format!("the key file {shown}"))
}

/// Checks that a text can be a key. The text is not quoted: it may be part of a key.
pub(super) fn check_key(text: &str, whence: &str) -> Result<SecretString, Ending> {
    let key = text.trim();
    if key.is_empty() || key.len() > 4_096 || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Ending::wrong_input(format!(
            "{whence} holds no key; it must be one word, as `broker token create` prints it"
        )));
    }
    Ok(key.into())
}

/// The address of a service: scheme, host, port and perhaps a path; no trailing slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address(String);

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Address {
    /// Reads an address.
    ///
    /// Errors: wrong input. An address with a password is not quoted.
    pub(super) fn parse(text: &str) -> Result<Self, Ending> {
        let refuse = |why: &str| {
            Ending::wrong_input(format!(
                "the service's address {why}; give it as https://HOST or http://127.0.0.1:PORT"
            ))
        };
        let url = Url::parse(text.trim()).map_err(|_| refuse("cannot be read"))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(refuse(
                "must begin with https:// or http:// and name a host",
            ));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("must not hold a user or a password"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("must end with its path"));
        }
        Ok(Self(url.as_str().trim_end_matches('/').to_owned()))
    }

    /// The address as text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the service runs on this host.
    pub(super) fn is_loopback(&self) -> bool {
        let Ok(url) = Url::parse(&self.0) else {
            return false;
        };
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }

    pub(super) fn check_encryption(&self, agreed: bool) -> Result<(), Ending> {
        if self.0.starts_with("https:") || self.is_loopback() || agreed {
            return Ok(());
        }
        Err(Ending::wrong_input(format!(
            "{self} is another host and not encrypted, so others on the network could read the \
             key; use https://, or accept this with --insecure-http"
        )))
    }
}

#[cfg(test)]
mod tests;
