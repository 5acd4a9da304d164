//! Profiles: the services that the user has logged in to, each with its key, in a file that only the
//! user can read.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer};
use tempfile::NamedTempFile;

use crate::terminal::ending::Ending;

/// A service and the key for it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profile {
    /// The service's address.
    pub(super) server: String,
    /// The API key.
    #[serde(serialize_with = "expose")]
    pub(super) key: SecretString,
    /// Whether the user has agreed to send the key unencrypted.
    #[serde(default)]
    pub(super) insecure_http: bool,
    /// The tenant of the key; unknown in a profile saved by an earlier release.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
}

impl Profile {
    /// The owner of the key, in words.
    pub(super) fn whose(&self) -> String {
        match &self.tenant {
            Some(id) => format!("tenant {id}"),
            None => "an unknown tenant".to_owned(),
        }
    }

    /// Whether it is for the same tenant of the same service.
    fn is_of(&self, other: &Self) -> bool {
        self.server == other.server && self.tenant.is_some() && self.tenant == other.tenant
    }
}

fn expose<S: Serializer>(key: &SecretString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(key.expose_secret())
}

/// All profiles, as in the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Profiles {
    /// The default profile: that of the last login.
    #[serde(default)]
    pub(super) default: Option<String>,
    /// The profiles by name.
    #[serde(default)]
    pub(super) profiles: BTreeMap<String, Profile>,
    /// The files of public SSH keys that were added from this machine, by their fingerprints.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) ssh_keys: BTreeMap<String, PathBuf>,
}

/// The path of the file: in `$XDG_CONFIG_HOME/gpu-broker`, else in `~/.config/gpu-broker`.
///
/// Errors: wrong input if neither is set.
pub(super) fn file() -> Result<PathBuf, Ending> {
    let named = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let config = named("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| named("HOME").map(|home| PathBuf::from(home).join(".config")));
    match config {
        Some(config) => Ok(config.join("gpu-broker").join("profiles.toml")),
        None => Err(Ending::wrong_input(
            "no place for profiles is known; set HOME, or XDG_CONFIG_HOME to a directory",
        )),
    }
}

/// Checks the name of a profile.
pub(in crate::cli) fn parse_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&name.len()) && name.chars().all(plain) {
        return Ok(name.to_owned());
    }
    Err("a profile's name must be 1 to 64 of letters, digits, `-`, `_` and `.`".to_owned())
}

impl Profiles {
    /// Saves a profile and makes it the default. Returns a message if it replaces the key of another
    /// tenant or service.
    pub(super) fn keep(&mut self, name: &str, profile: Profile) -> Option<String> {
        self.default = Some(name.to_owned());
        let old = self.profiles.insert(name.to_owned(), profile)?;
        let new = &self.profiles[name];
        if old.is_of(new) || old.key.expose_secret() == new.key.expose_secret() {
            return None;
        }
        Some(format!(
            "profile {name} held another key, for {} at {}; it is deleted here, and stays \
             valid there (--profile NAME keeps several keys)",
            old.whose(),
            old.server
        ))
    }

    /// Reads the file; without a file there are no profiles.
    ///
    /// Errors: wrong input if others can read the file or it cannot be parsed. The content is not
    /// quoted: it holds keys.
    pub(super) fn read(file: &Path) -> Result<Self, Ending> {
        let shown = file.display();
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => {
                return Err(Ending::wrong_input(format!(
                    "the profiles {shown} cannot be read: {error}"
                )));
            }
        };
        if fs::metadata(file)?.permissions().mode() & 0o077 != 0 {
            return Err(Ending::wrong_input(format!(
                "the profiles {shown} can be read by others; run `chmod 600 {shown}`"
            )));
        }
        toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                text.get(..span.start)
                    .map_or(1, |before| before.lines().count().max(1))
            });
            Ending::wrong_input(format!(
                "the profiles {shown} cannot be parsed at line {line}; correct them, or delete \
                 the file and log in again"
            ))
        })
    }

    /// Writes the whole file at once, so that a reader sees the old or the new one. Only the user can read
    /// it and its directory.
    pub(super) fn write(&self, file: &Path) -> Result<(), Ending> {
        let text = toml::to_string(self)?;
        let directory = file.parent().unwrap_or(Path::new("."));
        let failed = |error: &dyn std::fmt::Display| {
            Ending::wrong_input(format!(
                "the profiles {} cannot be written: {error}",
                file.display()
            ))
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .and_then(|()| fs::set_permissions(directory, Permissions::from_mode(0o700)))
            .map_err(|error| failed(&error))?;
        // Only the owner can read a temporary file.
        let mut new = NamedTempFile::new_in(directory).map_err(|error| failed(&error))?;
        new.write_all(text.as_bytes())
            .and_then(|()| new.as_file().sync_all())
            .map_err(|error| failed(&error))?;
        new.persist(file).map_err(|error| failed(&error.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiles(key: &str) -> Profiles {
        let profile = Profile {
            server: "http://127.0.0.1:8080".into(),
            key: key.into(),
            insecure_http: false,
            tenant: Some("ten_acme".into()),
        };
        Profiles {
            default: Some("here".into()),
            profiles: BTreeMap::from([("here".into(), profile)]),
            ssh_keys: BTreeMap::from([("SHA256:x".into(), "/home/ada/key.pub".into())]),
        }
    }

    #[test]
    fn profiles_are_read_as_they_were_written_and_are_for_their_user_alone() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("gpu-broker/profiles.toml");
        assert!(Profiles::read(&file).expect("none yet").profiles.is_empty());
        profiles("gpb_canary").write(&file).expect("written");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().expect("a directory")), 0o700);
        let read = Profiles::read(&file).expect("read");
        assert_eq!(read.default.as_deref(), Some("here"));
        assert_eq!(read.profiles["here"].key.expose_secret(), "gpb_canary");
        assert_eq!(read.ssh_keys["SHA256:x"], Path::new("/home/ada/key.pub"));
        assert!(!format!("{read:?}").contains("canary"));
    }

    #[test]
    fn a_file_that_others_can_read_or_nobody_understands_is_refused_without_quoting_it() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("profiles.toml");
        profiles("gpb_canary").write(&file).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o644)).expect("changed");
        let refused = format!("{:?}", Profiles::read(&file).expect_err("refused"));
        assert!(refused.contains("chmod 600"), "{refused}");
        fs::write(&file, "\n[profiles.x]\nkey = gpb_canary\n").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("changed");
        let refused = format!("{:?}", Profiles::read(&file).expect_err("refused"));
        assert!(refused.contains("line 3"), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }

    #[test]
    fn a_key_that_gives_way_to_another_is_told_unless_it_is_of_the_same_tenant_there() {
        let held = |server: &str, key: &str, tenant: Option<&str>| Profile {
            server: server.into(),
            key: key.into(),
            insecure_http: false,
            tenant: tenant.map(str::to_owned),
        };
        let here = "http://127.0.0.1:8080";
        for (next, is_told) in [
            (held(here, "gpb_canary", Some("ten_other")), false),
            (held(here, "gpb_next", Some("ten_acme")), false),
            (held(here, "gpb_next", Some("ten_other")), true),
            (
                held("http://127.0.0.1:9", "gpb_next", Some("ten_acme")),
                true,
            ),
        ] {
            let mut profiles = profiles("gpb_canary");
            let told = profiles.keep("here", next);
            assert_eq!(told.is_some(), is_told, "{told:?}");
            let Some(told) = told else { continue };
            for said in ["profile here", here, "ten_acme"] {
                assert!(told.contains(said), "{told}");
            }
            assert!(!told.contains("gpb_"), "{told}");
        }
        let mut profiles = profiles("gpb_canary");
        assert_eq!(profiles.keep("there", held(here, "gpb_next", None)), None);
        assert_eq!(profiles.default.as_deref(), Some("there"));
        let told = profiles.keep("there", held(here, "gpb_last", None));
        let told = told.expect("whose it was is not known");
        assert!(told.contains("unknown tenant"), "{told}");
    }

    #[test]
    fn the_name_of_a_profile_is_a_plain_word() {
        assert_eq!(parse_name("eu-1.test"), Ok("eu-1.test".into()));
        for bad in ["", "a b", "a/b", &"x".repeat(65)] {
            assert!(parse_name(bad).is_err(), "{bad:?}");
        }
    }
}
