//! Which private key `ssh` logs in with: the one whose public half the machines got. It never leaves its
//! place; only its path is written.

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

/// How the file of a public key ends.
const PUBLIC: &str = "pub";

/// What a configuration of ssh logs in with.
#[derive(Debug, Default)]
pub(super) struct Identities {
    /// Private keys; and public ones whose private halves are kept elsewhere, such as by an agent.
    pub(super) files: Vec<PathBuf>,
    /// Whether any of them is a private key.
    pub(super) has_private: bool,
}

/// The keys that a configuration of ssh names: the private one that was given, else those of the tenant's
/// keys that are known here.
///
/// Errors: wrong input, where the one given is not there.
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
            return Err(refuse("its path is none that ssh reads".to_owned()));
        }
        return Ok(Identities {
            files: vec![path],
            has_private: true,
        });
    }
    // Who may not list the keys still gets the way to the nodes.
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

/// The private halves of public keys, and those keys of which there is none here.
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

/// Remembers where the public key lies that was added from a file, so that `access` finds its private half.
/// A home that cannot keep it does without.
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

/// Whether a path stands for itself within double quotes in a configuration of ssh.
pub(super) fn stands_for_itself(path: &Path) -> bool {
    let is_plain = |path: &str| !path.chars().any(|c| c.is_control() || "\"%$\\".contains(c));
    path.to_str().is_some_and(is_plain)
}

/// The files of public keys that were added from here, and those where OpenSSH keeps its own.
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

/// The private key beside a public one; `None` where that is kept elsewhere, such as by an agent, which
/// knows by the public one which to use.
fn private_half(file: &Path) -> Option<PathBuf> {
    let is_public = file.extension().is_some_and(|end| end == PUBLIC);
    let private = file.with_extension("");
    (is_public && private.is_file()).then_some(private)
}

/// The fingerprint of the public key in a file, as `ssh` and the service show it; `None` where it holds none.
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
        // As `ssh-keygen -l` prints it.
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
