//! What a tenant wants of a machine beyond its GPUs: image, disk, open ports.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The largest disk that can be asked for. Units: GiB.
pub const MOST_DISK_GIB: u32 = 65_536;
/// The most ports that can be opened beside that of SSH.
pub const MOST_PORTS: usize = 16;
/// The longest name of an image. Units: bytes.
const LONGEST_IMAGE: usize = 300;

/// The image that a machine starts from.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ImageChoice {
    /// A word of our catalogue, which stands for an image of each provider: `ubuntu-22.04-cuda-12`.
    Catalogue(String),
    /// A provider's own id: `provider:ubuntu22.04_cuda12.2`.
    Provider(String),
    /// A container image by its digest: `registry.example.com/team/image@sha256:…`.
    Container(String),
}

/// Why a text is no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadImage {
    /// It is empty, too long, or has characters that no name has.
    #[error(
        "the name of an image is 1 to {LONGEST_IMAGE} visible characters, with spaces inside at most"
    )]
    Unprintable,
    /// A container image without a digest can change under its name.
    #[error("a container image is given with its digest: `NAME@sha256:` and 64 hexadecimal digits")]
    NoDigest,
    /// The word is none of the catalogue.
    #[error(
        "an image is a word of the catalogue such as `ubuntu-22.04-cuda-12`, `provider:ID`, or a container image with its digest"
    )]
    NoWord,
}

impl FromStr for ImageChoice {
    type Err = BadImage;

    fn from_str(text: &str) -> Result<Self, BadImage> {
        let visible = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let is_name = !text.is_empty() && text.len() <= LONGEST_IMAGE && text.trim() == text;
        if !is_name || !text.bytes().all(visible) {
            return Err(BadImage::Unprintable);
        }
        if let Some(id) = text.strip_prefix("provider:") {
            return match id.is_empty() {
                true => Err(BadImage::NoWord),
                false => Ok(Self::Provider(id.to_owned())),
            };
        }
        if let Some((name, digest)) = text.split_once('@') {
            let digits = digest.strip_prefix("sha256:").unwrap_or_default();
            let is_digest = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_hexdigit());
            return match is_digest && !name.is_empty() {
                true => Ok(Self::Container(text.to_owned())),
                false => Err(BadImage::NoDigest),
            };
        }
        if text.contains(['/', ':']) {
            return Err(BadImage::NoDigest);
        }
        let in_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-".contains(&b);
        match text.bytes().all(in_word) {
            true => Ok(Self::Catalogue(text.to_owned())),
            false => Err(BadImage::NoWord),
        }
    }
}

impl fmt::Display for ImageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider(id) => write!(f, "provider:{id}"),
            Self::Catalogue(text) | Self::Container(text) => f.write_str(text),
        }
    }
}

impl Serialize for ImageChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// What the machines of an order must have beyond their GPUs. The default asks for nothing: the provider's
/// usual image and disk, and SSH alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineRequest {
    /// The image to start from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageChoice>,
    /// The least disk of each node. Units: GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_gib: Option<u32>,
    /// TCP ports that must be reachable from outside beside that of SSH.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_word_a_providers_id_or_a_container_with_its_digest() {
        let digest = format!("registry.example.com/a/b@sha256:{}", "0f".repeat(32));
        for image in [
            ImageChoice::Catalogue("ubuntu-22.04-cuda-12".into()),
            ImageChoice::Provider("ubuntu22.04_cuda12.2_shade_os".into()),
            ImageChoice::Provider("Ubuntu Server 22.04 LTS".into()),
            ImageChoice::Container(digest.clone()),
        ] {
            assert_eq!(image.to_string().parse(), Ok(image));
        }
        for (text, why) in [
            ("", BadImage::Unprintable),
            (" ubuntu", BadImage::Unprintable),
            ("a\tb", BadImage::Unprintable),
            ("a b", BadImage::NoWord),
            ("Ubuntu", BadImage::NoWord),
            ("provider:", BadImage::NoWord),
            ("nvidia/cuda:12", BadImage::NoDigest),
            (&digest[..digest.len() - 1], BadImage::NoDigest),
        ] {
            assert_eq!(text.parse::<ImageChoice>(), Err(why), "{text}");
        }
    }
}
