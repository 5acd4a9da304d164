//! One recorded call and its answer, as a file that a person can read and edit.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::Reply;

/// The answer to a call.
///
/// `body` is the JSON of the answer, or a string holding an answer that is no JSON, such as one
/// that was cut short.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exchange {
    pub(super) method: String,
    /// Below the base URL, with its query.
    pub(super) path: String,
    pub(super) status: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) retry_after_seconds: Option<u64>,
    /// Why this answer is in the recording, for the reader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) note: Option<String>,
    pub(super) body: Box<RawValue>,
}

impl Exchange {
    /// The reply as it came over the wire, byte for byte where it was JSON.
    pub(super) fn reply(&self) -> Reply {
        let raw = self.body.get();
        let body = serde_json::from_str::<String>(raw)
            .unwrap_or_else(|_| raw.to_owned())
            .into_bytes();
        Reply {
            status: self.status,
            retry_after: self.retry_after_seconds.map(std::time::Duration::from_secs),
            body,
        }
    }

    /// Writes the exchange into a directory, after those that are there.
    pub(super) fn write_to(&self, directory: &Path, number: u64) -> std::io::Result<()> {
        std::fs::create_dir_all(directory)?;
        let path = self.path.split('?').next().unwrap_or_default();
        let words = format!("{}{}", self.method.to_ascii_lowercase(), path).replace('/', "-");
        let name = words
            .chars()
            .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
            .take(80);
        let name: String = name.collect();
        let json = serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?;
        std::fs::write(directory.join(format!("{number:04}-{name}.json")), json)
    }
}
