//! Why a configuration was refused, in words that hold no secret.

use std::path::PathBuf;

use figment::error::Kind;
use market::verification::Level;

/// Why the configuration was refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is missing, misspelt or of the wrong kind. The value itself, which may be a secret,
    /// is not in the words.
    #[error("the configuration cannot be read: {}", words_of(.0))]
    Unreadable(Box<figment::Error>),
    /// The sealing key is not at the given place, or is not a key.
    #[error(
        "the sealing key cannot be used: {0}; give 64 hexadecimal digits in BROKER__SECRETS__KEY or in the file named by BROKER__SECRETS__KEY_FILE"
    )]
    SealingKey(String),
    /// Others on this machine could replace the stored data.
    #[error(
        "{} can be written by others on this machine, who could replace it: check that it is still yours, and remove their access with `chmod go-w {}`",
        path.display(), path.display()
    )]
    Writable {
        /// The file or directory.
        path: PathBuf,
    },
    /// A value with which the service could not do its job.
    #[error("`{key}` is {is}; {instead}")]
    Unfit {
        /// The key.
        key: &'static str,
        /// The value, in words.
        is: String,
        /// Why that value does not work, and a value that does.
        instead: &'static str,
    },
    /// Nothing fits between the least and the most depth of a verification.
    #[error(
        "`verifier.least_level` is `{}` and `verifier.most_level` `{}`: the least may not be more than the most",
        least.as_str(),
        most.as_str()
    )]
    Levels {
        /// The lowest level for all.
        least: Level,
        /// The highest level that a demand may ask for.
        most: Level,
    },
    /// An outside issuer cannot be used.
    #[error("the issuer `{issuer}` of [[oidc]] cannot be used: {why}")]
    Oidc {
        /// Its name.
        issuer: String,
        /// The error.
        why: String,
    },
}

fn words_of(error: &figment::Error) -> String {
    let key = error.path.join(".");
    match &error.kind {
        Kind::InvalidType(_, expected) => {
            format!("`{key}` must be {expected}; digits meant as text stand in double quotes")
        }
        Kind::InvalidValue(_, expected) => format!("`{key}` must be {expected}"),
        Kind::UnknownField(field, known) => {
            format!(
                "there is no `{field}`, there are {}; take out `{key}`",
                known.join(", ")
            )
        }
        Kind::MissingField(field) => {
            let path = error.path.iter().map(String::as_str);
            let path: Vec<_> = path.chain([field.as_ref()]).collect();
            format!("`{}` is missing; give it a value", path.join("."))
        }
        // A parser shows the line that it stumbled over, and with it the secret that may stand there.
        Kind::Message(text) => {
            let place = text
                .lines()
                .next()
                .filter(|line| line.starts_with("TOML parse error at line"));
            let place = place.map(|line| format!(": {line}")).unwrap_or_default();
            match key.is_empty() {
                true => {
                    format!("a source is not valid{place}; look for a missing quote or bracket")
                }
                false => format!("`{key}` is not valid"),
            }
        }
        _ => error.to_string(),
    }
}
