//! Sealing: secrets lie in the database only under a key that lies elsewhere.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rand::RngCore as _;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use secrecy::ExposeSecret as _;

use crate::platform::config::{ConfigError, SecretsConfig};

/// The sealed bytes cannot be opened with this key.
#[derive(Debug, thiserror::Error)]
#[error("a sealed secret cannot be opened: the sealing key is not the one that it was sealed with")]
pub struct CannotOpen;

/// The key under which secrets are sealed (ChaCha20-Poly1305).
pub struct SealingKey(LessSafeKey);

impl std::fmt::Debug for SealingKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealingKey(***)")
    }
}

impl SealingKey {
    /// The configured key, where one is.
    ///
    /// Errors: [`ConfigError::SealingKey`] when the configured value is not a key.
    pub fn configured(config: &SecretsConfig) -> Result<Option<Self>, ConfigError> {
        match (&config.key, &config.key_file) {
            (Some(key), _) => Self::parse(key.expose_secret()).map(Some),
            (None, Some(file)) => Self::of_file(file).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// The key in a file.
    ///
    /// Errors: [`ConfigError::SealingKey`]; [`ConfigError::Writable`] for one that others can write.
    pub fn of_file(file: &Path) -> Result<Self, ConfigError> {
        refuse_writable(file)?;
        Self::parse(&read(file)?)
    }

    /// Makes a key in a file, readable by its owner alone; `false` where there is one already.
    ///
    /// Errors: [`ConfigError::SealingKey`].
    pub fn make(file: &Path) -> Result<bool, ConfigError> {
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut made = match options.open(file) {
            Ok(made) => made,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
            Err(error) => return Err(unusable(file, &error)),
        };
        // On the disk before anything is sealed with it.
        let written = made
            .write_all(hex::encode(key).as_bytes())
            .and_then(|()| made.sync_all());
        written.map_err(|error| {
            // Half a key is not a key.
            let _ = fs::remove_file(file);
            unusable(file, &error)
        })?;
        Ok(true)
    }

    fn parse(text: &str) -> Result<Self, ConfigError> {
        let refuse = || ConfigError::SealingKey("it is not 64 hexadecimal digits".into());
        let bytes = hex::decode(text.trim()).map_err(|_| refuse())?;
        let key = UnboundKey::new(&CHACHA20_POLY1305, &bytes).map_err(|_| refuse())?;
        Ok(Self(LessSafeKey::new(key)))
    }

    /// Seals a secret for one purpose; it opens for that purpose only.
    #[must_use]
    pub fn seal(&self, purpose: &str, secret: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        rand::rng().fill_bytes(&mut nonce);
        let mut sealed = secret.to_vec();
        let tag = self
            .0
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(purpose.as_bytes()),
                &mut sealed,
            )
            // Sealing fails only past the cipher's limit of 256 GiB.
            .expect("a key is shorter than the limit of the cipher");
        [&nonce[..], &sealed, tag.as_ref()].concat()
    }

    /// Opens the result of [`Self::seal`].
    ///
    /// Errors: [`CannotOpen`] for another key, another purpose or altered bytes.
    pub fn open(&self, purpose: &str, sealed: &[u8]) -> Result<Vec<u8>, CannotOpen> {
        let (nonce, rest) = sealed.split_at_checked(NONCE_LEN).ok_or(CannotOpen)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| CannotOpen)?;
        let mut rest = rest.to_vec();
        let secret = self
            .0
            .open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut rest)
            .map_err(|_| CannotOpen)?;
        Ok(secret.to_vec())
    }
}

/// Refuses a file or directory that others on this machine can write; a missing one passes. A group with the
/// number of the owner is the owner's own, as most systems make it, and one with our number is ours.
///
/// Errors: [`ConfigError::Writable`].
pub(crate) fn refuse_writable(path: &Path) -> Result<(), ConfigError> {
    let Ok(found) = fs::metadata(path) else {
        return Ok(());
    };
    let own = [found.uid(), rustix::process::geteuid().as_raw()];
    let by_group = found.mode() & 0o020 != 0 && !own.contains(&found.gid());
    match by_group || found.mode() & 0o002 != 0 {
        true => Err(ConfigError::Writable {
            path: path.to_owned(),
        }),
        false => Ok(()),
    }
}

fn read(file: &Path) -> Result<String, ConfigError> {
    fs::read_to_string(file).map_err(|error| unusable(file, &error))
}

fn unusable(file: &Path, error: &io::Error) -> ConfigError {
    ConfigError::SealingKey(format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(dir: &Path) -> SealingKey {
        let file = dir.join("a.key");
        SealingKey::make(&file).expect("made, or there");
        SealingKey::of_file(&file).expect("a key")
    }

    #[test]
    fn what_is_sealed_opens_with_the_same_key_and_purpose_only() {
        let dir = tempfile::tempdir().expect("a directory");
        let other = tempfile::tempdir().expect("a directory");
        let sealed = key(dir.path()).seal("token", b"canary");
        assert!(!sealed.windows(6).any(|window| window == b"canary"));
        assert_eq!(
            key(dir.path()).open("token", &sealed).expect("opens"),
            b"canary"
        );
        assert!(key(dir.path()).open("attestation", &sealed).is_err());
        assert!(key(other.path()).open("token", &sealed).is_err());
    }

    #[test]
    fn a_key_is_made_once_and_never_written_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.key");
        assert!(SealingKey::make(&file).expect("made"));
        let first = fs::read(&file).expect("a key");
        assert!(!SealingKey::make(&file).expect("left alone"));
        assert_eq!(fs::read(&file).expect("a key"), first);
    }

    #[test]
    fn the_made_key_is_readable_by_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        key(dir.path());
        let mode = fs::metadata(dir.path().join("a.key"))
            .expect("made")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
