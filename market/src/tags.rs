//! Tags: the words by which finance groups what a tenant spends.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The most tags that one thing may carry.
pub const MAX_TAGS: usize = 32;

/// Free tags and the fixed fields that every reservation carries from its first row on.
///
/// They freeze into each charge at the moment it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribution {
    /// Who answers for the spending inside the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub owner: Option<String>,
    /// The cost centre that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub cost_centre: Option<String>,
    /// `production`, `research`, whatever the tenant says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub environment: Option<String>,
    /// The purchase order that it falls under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub purchase_order: Option<String>,
}

/// Free tags: key to value.
pub type Tags = BTreeMap<String, String>;

/// Why tags were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TagError {
    /// Too many of them.
    #[error("{0} tags are too many; at most {MAX_TAGS} are kept")]
    TooMany(usize),
    /// A key that cannot stand in a report.
    #[error("the tag key `{0}` must be 1 to 64 of letters, digits, `-`, `_`, `.` and `/`")]
    BadKey(String),
    /// A value that cannot stand in a report.
    #[error("the value of the tag `{0}` is longer than 256 characters or has control characters")]
    BadValue(String),
}

/// Checks keys and values of tags.
///
/// Errors: [`TagError`], the first that is found.
pub fn check_tags(tags: &Tags) -> Result<(), TagError> {
    if tags.len() > MAX_TAGS {
        return Err(TagError::TooMany(tags.len()));
    }
    for (key, value) in tags {
        let word = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if key.is_empty() || key.len() > 64 || !key.chars().all(word) {
            return Err(TagError::BadKey(key.chars().take(64).collect()));
        }
        if value.chars().count() > 256 || value.chars().any(char::is_control) {
            return Err(TagError::BadValue(key.clone()));
        }
    }
    Ok(())
}
