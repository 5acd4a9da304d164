//! Finds the private key for `ssh`: the one whose public half was installed on the machines. The key is
//! never copied; only its path is written.

use std::fs;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest as _, Sha256};

use super::profile::{self, Profiles};
use super::route::Route;
use super::sheet::{items, text};
use crate::cli::client::session::Session;
use crate::terminal::ending::Ending;

/// The extension of public key files.
const PUBLIC: &str = "pub";

/// The keys that a configuration of ssh names.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// Private keys, and public keys whose private halves are elsewhere, such as in an agent.
    pub(super) files: Vec<PathBuf>,
    /// Whether any of them is a private key.
    pub(super) has_private: bool,
}

/// The keys for a configuration of ssh: the given private key, else those of the tenant's keys that are
/// on this machine.
///
/// Errors: wrong input if the given key is missing.
pub(super) async fn identities(
    session: &Session,
    given: Option<&Path>,
) -> Result<Identities, Ending> {
    if let Some(file) = given {
        let refuse = |why: String| {
            let shown = file.display();
            Ending::wrong_input(format!("the private key {shown} cannot be used: {why}"))
        };
        let path = std::path::absolute(file).map_err(|error| refuse(error.to_string()))?;
        fs::metadata(&path).map_err(|error| refuse(error.to_string()))?;
        if !stands_for_itself(&path) {
            return Err(refuse("ssh cannot read its path".to_owned()));
        }
        return Ok(Identities {
            files: vec![path],
            has_private: true,
        });
    }
    // A caller who may not list the keys still gets the connection details.
    let listed = session
        .api
        .list(Route::ListSshKeys.all().into(), true)
        .await;
    let Ok(listed) = listed else {
        return Ok(Identities::default());
    };
    let installed: Vec<_> = items(&listed.value, "items")
        .iter()
        .map(|key| text(key, "/fingerprint"))
        .collect();
    let public = known_here().into_iter();
    let public =
        public.filter(|file| fingerprint_of(file).is_some_and(|print| installed.contains(&print)));
    Ok(identities_of(public))
}

/// The private halves of public keys, and the public keys that have none here.
fn identities_of(public: impl Iterator<Item = PathBuf>) -> Identities {
    let mut found = Identities::default();
    for file in public {
        let private = private_half(&file);
        let is_private = private.is_some();
        let named = private.unwrap_or(file);
        if stands_for_itself(&named) {
            found.has_private |= is_private;
            found.files.push(named);
        }
    }
    found.files.sort_unstable();
    found.files.dedup();
    found
}

/// Records the path of a public key that was added from a file, so that `access` finds its private half.
/// If it cannot be saved, the path is not recorded.
pub(super) fn remember(file: &Path) {
    let (Ok(profiles_file), Ok(path)) = (profile::file(), std::path::absolute(file)) else {
        return;
    };
    let Some(fingerprint) = fingerprint_of(&path) else {
        return;
    };
    if let Ok(mut profiles) = Profiles::read(&profiles_file) {
        let before = profiles.ssh_keys.insert(fingerprint, path.clone());
        if before.as_ref() != Some(&path) {
            let _ = profiles.write(&profiles_file);
        }
    }
}

/// Whether a path needs no escaping within double quotes in a configuration of ssh.
pub(super) fn stands_for_itself(path: &Path) -> bool {
    let is_plain = |path: &str| !path.chars().any(|c| c.is_control() || "\"%$\\".contains(c));
    path.to_str().is_some_and(is_plain)
}

/// The files of public keys that were added from this machine, and those in OpenSSH's own directory.
fn known_here() -> Vec<PathBuf> {
    let profiles = profile::file().and_then(|file| Profiles::read(&file));
    let mut known: Vec<PathBuf> = profiles
        .map(|profiles| profiles.ssh_keys.into_values().collect())
        .unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| Path::new(&home).join(".ssh"));
    let files = home.and_then(|folder| fs::read_dir(folder).ok());
    let files = files.into_iter().flatten().flatten();
    known.extend(
        files
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == PUBLIC)),
    );
    known
}

/// The private key beside a public one; `None` if it is elsewhere, such as in an agent, which selects it
/// by its public key.
fn private_half(file: &Path) -> Option<PathBuf> {
    let is_public = file.extension().is_some_and(|end| end == PUBLIC);
    let private = file.with_extension("");
    (is_public && private.is_file()).then_some(private)
}

/// The fingerprint of the public key in a file, as `ssh` and the service show it; `None` without a key.
fn fingerprint_of(file: &Path) -> Option<String> {
    let line = fs::read_to_string(file).ok()?;
    let blob = STANDARD.decode(line.split_whitespace().nth(1)?).ok()?;
    let hash = STANDARD_NO_PAD.encode(Sha256::digest(blob));
    Some(format!("SHA256:{hash}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_ssh_would_read_otherwise_is_not_written() {
        for good in ["/home/ada/nodes/known_hosts", "/tmp/my nodes/known_hosts"] {
            assert!(stands_for_itself(good.as_ref()), "{good}");
        }
        for bad in [
            "/tmp/a\"b",
            "/tmp/%h",
            "/tmp/${HOME}",
            "/tmp/a\nb",
            "/tmp/a\\b",
        ] {
            assert!(!stands_for_itself(bad.as_ref()), "{bad:?}");
        }
    }

    #[test]
    fn a_public_key_is_known_by_its_fingerprint_and_by_what_lies_beside_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let public = folder.path().join("id_ed25519.pub");
        let line =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt ada";
        fs::write(&public, line).expect("written");
        // The output of `ssh-keygen -l`.
        let print = "SHA256:CAmcjzXaiFN8RInmaYctL7Xr1ku00OJmF6tjbCtUVcA";
        assert_eq!(fingerprint_of(&public).as_deref(), Some(print));
        let found = || {
            let found = identities_of([public.clone()].into_iter());
            (found.files, found.has_private)
        };
        assert_eq!(found(), (vec![public.clone()], false), "an agent has it");
        let private = folder.path().join("id_ed25519");
        fs::write(&private, "secret").expect("written");
        assert_eq!(found(), (vec![private], true));
        fs::write(&public, "no key").expect("written");
        assert_eq!(fingerprint_of(&public), None);
    }
}
