//! Public keys in OpenSSH form: which ones a machine may get, and their fingerprints.
//!
//! Source: RFC 4253 section 6.6 (the wire form), RFC 5656 section 3.1 (ECDSA), RFC 8709 (Ed25519),
//! OpenSSH `PROTOCOL.u2f` (security keys).

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use sha2::{Digest as _, Sha256};

/// The least bits of an RSA modulus that OpenSSH itself still takes by default is 1024; NIST
/// SP 800-131A allows no less than 2048.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2_048..=16_384;

/// Why a text is no public key that a machine gets.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyRefusal {
    /// It is a private key.
    #[error(
        "this is a private key: send the `.pub` file, and make a new pair, for this one has left your machine"
    )]
    Private,
    /// It is several lines.
    #[error("a public key is one line; send one key at a time")]
    ManyLines,
    /// It is not of a kind that is taken.
    #[error(
        "the key must begin with its kind: ssh-ed25519, ecdsa-sha2-nistp256 (384, 521), ssh-rsa, or the `sk-` kinds"
    )]
    Kind,
    /// The text after the kind is not such a key.
    #[error("the text after `{0}` is not such a key; copy the whole line of the `.pub` file")]
    Damaged(&'static str),
    /// It is an RSA key that is too short or absurdly long.
    #[error(
        "an RSA key must have 2048 to 16384 bits, not {0}; `ssh-keygen -t ed25519` makes a good key"
    )]
    RsaBits(usize),
}

/// A public key that a machine may get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicKey {
    kind: &'static str,
    blob: Vec<u8>,
}

/// The rest of a key's wire form, after the kind.
enum Shape {
    /// A public key of 32 bytes.
    Ed25519,
    /// The name of a curve and an uncompressed point of so many bytes.
    Ecdsa(&'static str, usize),
    /// Exponent and modulus.
    Rsa,
}

/// The kinds, their shapes, and whether the name of an application follows (security keys).
const KINDS: [(&str, Shape, bool); 7] = [
    ("ssh-ed25519", Shape::Ed25519, false),
    ("ecdsa-sha2-nistp256", Shape::Ecdsa("nistp256", 65), false),
    ("ecdsa-sha2-nistp384", Shape::Ecdsa("nistp384", 97), false),
    ("ecdsa-sha2-nistp521", Shape::Ecdsa("nistp521", 133), false),
    ("ssh-rsa", Shape::Rsa, false),
    ("sk-ssh-ed25519@openssh.com", Shape::Ed25519, true),
    (
        "sk-ecdsa-sha2-nistp256@openssh.com",
        Shape::Ecdsa("nistp256", 65),
        true,
    ),
];

impl PublicKey {
    /// Reads the line of a `.pub` file; its comment is left behind.
    ///
    /// Errors: [`KeyRefusal`].
    pub(super) fn parse(text: &str) -> Result<Self, KeyRefusal> {
        let line = text.trim();
        if line.contains("PRIVATE KEY") {
            return Err(KeyRefusal::Private);
        }
        if line.chars().any(char::is_control) {
            return Err(KeyRefusal::ManyLines);
        }
        let mut words = line.split(' ').filter(|word| !word.is_empty());
        let named = words.next().unwrap_or_default();
        let (kind, shape, is_security_key) = KINDS
            .iter()
            .find(|(kind, ..)| *kind == named)
            .ok_or(KeyRefusal::Kind)?;
        let damaged = KeyRefusal::Damaged(kind);
        let blob = STANDARD
            .decode(words.next().unwrap_or_default())
            .map_err(|_| damaged.clone())?;
        let mut rest = blob.as_slice();
        let fits = take(&mut rest) == Some(kind.as_bytes())
            && match shape {
                Shape::Ed25519 => take(&mut rest).is_some_and(|key| key.len() == 32),
                Shape::Ecdsa(curve, length) => {
                    take(&mut rest) == Some(curve.as_bytes())
                        && take(&mut rest)
                            .is_some_and(|point| point.len() == *length && point[0] == 4)
                }
                Shape::Rsa => {
                    let exponent = take(&mut rest).is_some_and(|exponent| bits(exponent) > 1);
                    let Some(modulus) = take(&mut rest).filter(|_| exponent) else {
                        return Err(damaged);
                    };
                    if !RSA_BITS.contains(&bits(modulus)) {
                        return Err(KeyRefusal::RsaBits(bits(modulus)));
                    }
                    true
                }
            }
            && (!is_security_key
                || take(&mut rest).is_some_and(|application| !application.is_empty()))
            && rest.is_empty();
        if fits {
            Ok(Self { kind, blob })
        } else {
            Err(damaged)
        }
    }

    /// The key as a line, without a comment.
    pub(super) fn line(&self) -> String {
        format!("{} {}", self.kind, STANDARD.encode(&self.blob))
    }

    /// The fingerprint as `ssh-keygen -l` shows it.
    pub(super) fn fingerprint(&self) -> String {
        format!(
            "SHA256:{}",
            STANDARD_NO_PAD.encode(Sha256::digest(&self.blob))
        )
    }
}

/// Takes a string off the front: a length of four bytes, then so many.
fn take<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, behind) = rest.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let (string, behind) = behind.split_at_checked(length)?;
    *rest = behind;
    Some(string)
}

/// The bits of a big number in wire form.
fn bits(number: &[u8]) -> usize {
    let from = number
        .iter()
        .position(|byte| *byte != 0)
        .unwrap_or(number.len());
    match &number[from..] {
        [] => 0,
        significant => significant.len() * 8 - significant[0].leading_zeros() as usize,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // Made with `ssh-keygen -t ed25519`, shown by `ssh-keygen -lf`.
    const LINE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt";
    const FINGERPRINT: &str = "SHA256:CAmcjzXaiFN8RInmaYctL7Xr1ku00OJmF6tjbCtUVcA";

    fn wire(parts: &[&[u8]]) -> Vec<u8> {
        parts
            .iter()
            .flat_map(|part| [&(part.len() as u32).to_be_bytes()[..], part].concat())
            .collect()
    }

    fn line(kind: &str, parts: &[&[u8]]) -> String {
        format!("{kind} {}", STANDARD.encode(wire(parts)))
    }

    #[test]
    fn the_fingerprint_is_the_one_that_ssh_keygen_shows() {
        let key = PublicKey::parse(&format!("  {LINE} me@host \n")).expect("a key");
        assert_eq!(key.fingerprint(), FINGERPRINT);
        assert_eq!(key.line(), LINE);
    }

    #[test]
    fn a_private_key_is_refused_with_a_warning() {
        let text = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blb\n-----END OPENSSH PRIVATE KEY-----";
        assert_eq!(PublicKey::parse(text), Err(KeyRefusal::Private));
    }

    #[test]
    fn options_commands_and_second_lines_are_refused() {
        assert_eq!(
            PublicKey::parse(&format!("command=\"x\" {LINE}")),
            Err(KeyRefusal::Kind)
        );
        assert_eq!(
            PublicKey::parse(&format!("{LINE}\n{LINE}")),
            Err(KeyRefusal::ManyLines)
        );
        assert_eq!(PublicKey::parse("ssh-dss AAAA"), Err(KeyRefusal::Kind));
        assert_eq!(PublicKey::parse(""), Err(KeyRefusal::Kind));
    }

    #[test]
    fn a_key_that_is_cut_short_lengthened_or_of_another_kind_is_refused() {
        let ed25519: &[u8] = &[7; 32];
        let kind: &[u8] = b"ssh-ed25519";
        assert!(PublicKey::parse(&line("ssh-ed25519", &[kind, ed25519])).is_ok());
        for parts in [
            &[kind][..],
            &[kind, &[7; 31]],
            &[kind, ed25519, b"more"],
            &[b"ssh-rsa", ed25519],
        ] {
            assert_eq!(
                PublicKey::parse(&line("ssh-ed25519", parts)),
                Err(KeyRefusal::Damaged("ssh-ed25519"))
            );
        }
    }

    #[test]
    fn rsa_keys_need_two_thousand_bits() {
        let rsa = |bytes: usize| line("ssh-rsa", &[b"ssh-rsa", &[1, 0, 1], &vec![0xff; bytes]]);
        assert!(PublicKey::parse(&rsa(256)).is_ok());
        assert_eq!(PublicKey::parse(&rsa(128)), Err(KeyRefusal::RsaBits(1_024)));
    }

    #[test]
    fn curves_and_security_keys_are_read_in_full() {
        let point = [&[4][..], &[9; 64]].concat();
        let curve: [&[u8]; 3] = [b"ecdsa-sha2-nistp256", b"nistp256", &point];
        assert!(PublicKey::parse(&line("ecdsa-sha2-nistp256", &curve)).is_ok());
        let sk: [&[u8]; 3] = [b"sk-ssh-ed25519@openssh.com", &[7; 32], b"ssh:"];
        assert!(PublicKey::parse(&line("sk-ssh-ed25519@openssh.com", &sk)).is_ok());
        assert!(PublicKey::parse(&line("sk-ssh-ed25519@openssh.com", &sk[..2])).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_a_key_or_a_refusal(kind in "(ssh-ed25519|ssh-rsa|.{0,8})", blob in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = PublicKey::parse(&format!("{kind} {}", STANDARD.encode(blob)));
        }
    }
}
