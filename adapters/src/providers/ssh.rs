//! Public SSH keys in the form that providers accept.

use crate::error::AdapterError;

/// Refuses a text that is no public key on one line, so that none can smuggle in a second line.
pub(super) fn check(keys: &[String]) -> Result<(), AdapterError> {
    let is_key = |key: &String| {
        let mut words = key.split(' ');
        let known_kind = words.next().is_some_and(|kind| {
            ["ssh-", "ecdsa-", "sk-"]
                .iter()
                .any(|known| kind.starts_with(known))
        });
        let has_material = words.next().is_some_and(|material| !material.is_empty());
        known_kind && has_material && !key.chars().any(char::is_control)
    };
    match keys.iter().position(|key| !is_key(key)) {
        None => Ok(()),
        Some(at) => Err(AdapterError::CannotOrder(format!(
            "SSH key {} of the order is no OpenSSH public key on one line",
            at + 1
        ))),
    }
}

/// Kind and material of a key, without its comment.
pub(super) fn material(key: &str) -> String {
    key.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

/// The name under which a key is registered where it is shared by several orders: made of the key itself, so
/// that two simultaneous orders register the same.
pub(super) fn name_of(key: &str) -> String {
    let digest = blake3::hash(material(key).as_bytes()).to_hex();
    format!("gpb-key-{}", &digest[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_line_is_no_part_of_a_key() {
        assert!(
            check(&[
                "ssh-ed25519 AAAAC3Nz me@home".into(),
                "ecdsa-sha2-nistp256 AAAA".into()
            ])
            .is_ok()
        );
        for bad in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 AAAA\nssh-rsa BBBB",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "hello world",
        ] {
            let error = check(&["ssh-rsa AAAA".into(), bad.into()])
                .expect_err(bad)
                .to_string();
            assert!(error.contains("SSH key 2"), "{error}");
        }
    }

    #[test]
    fn the_comment_does_not_make_another_key() {
        assert_eq!(
            material("ssh-ed25519 AAAA me"),
            material("ssh-ed25519 AAAA")
        );
    }
}
