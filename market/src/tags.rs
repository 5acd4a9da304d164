//! Tags: the words by which finance groups a tenant's spending.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

/// The most tags that one thing may carry.
pub const MAX_TAGS: usize = 32;

/// Free tags and the fixed fields that every reservation carries from its first row on.
///
/// Each charge keeps them as they are at the moment it is made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribution {
    /// The person who answers for the spending inside the tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub owner: Option<String>,
    /// The cost centre that pays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub cost_centre: Option<String>,
    /// `production`, `research`, or any word of the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 100)]
    pub environment: Option<String>,
    /// The purchase order that pays for it.
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

/// A fixed field of [`Attribution`].
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum AttributionField {
    /// The person who answers for the spending.
    Owner,
    /// The cost centre.
    CostCentre,
    /// The environment.
    Environment,
    /// The purchase order.
    PurchaseOrder,
}

impl AttributionField {
    /// Its name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::CostCentre => "cost_centre",
            Self::Environment => "environment",
            Self::PurchaseOrder => "purchase_order",
        }
    }

    const fn of(self, attribution: &Attribution) -> Option<&String> {
        match self {
            Self::Owner => attribution.owner.as_ref(),
            Self::CostCentre => attribution.cost_centre.as_ref(),
            Self::Environment => attribution.environment.as_ref(),
            Self::PurchaseOrder => attribution.purchase_order.as_ref(),
        }
    }
}

/// The tags that every reservation of a tenant must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RequiredTags {
    /// Keys of free tags.
    #[schema(max_items = 32)]
    pub tags: BTreeSet<String>,
    /// Fixed fields.
    pub fields: BTreeSet<AttributionField>,
}

impl RequiredTags {
    /// Checks that each key can be a tag's.
    ///
    /// Errors: [`TagError`], the first that is found.
    pub fn check(&self) -> Result<(), TagError> {
        let tags = self.tags.iter().map(|key| (key.clone(), String::new()));
        check_tags(&tags.collect())
    }

    /// The required keys of free tags that are missing here; a blank value counts as missing.
    #[must_use]
    pub fn missing_tags<'a>(&'a self, tags: &Tags) -> Vec<&'a str> {
        let says = |key: &&String| tags.get(*key).is_some_and(|value| !value.trim().is_empty());
        let missing = self.tags.iter().filter(|key| !says(key));
        missing.map(String::as_str).collect()
    }

    /// The required fields that are missing here; a blank value counts as missing.
    #[must_use]
    pub fn missing_fields(&self, attribution: &Attribution) -> Vec<&'static str> {
        let says = |field: AttributionField| {
            let value = field.of(attribution);
            value.is_some_and(|value| !value.trim().is_empty())
        };
        let fields = self.fields.iter().copied();
        let missing = fields.filter(|field| !says(*field));
        missing.map(AttributionField::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_required_and_blank_or_absent_is_missing() {
        let required = RequiredTags {
            tags: ["project".to_owned(), "team".to_owned()].into(),
            fields: [AttributionField::CostCentre, AttributionField::Owner].into(),
        };
        let said = Attribution {
            owner: Some("ada".to_owned()),
            cost_centre: Some(" ".to_owned()),
            ..Attribution::default()
        };
        let tags = Tags::from([("team".to_owned(), String::new())]);
        assert_eq!(required.missing_tags(&tags), ["project", "team"]);
        assert_eq!(required.missing_fields(&said), ["cost_centre"]);
        let tags = ["project", "team"].map(|key| (key.to_owned(), "x".to_owned()));
        assert!(required.missing_tags(&tags.into()).is_empty());
        assert!(RequiredTags::default().missing_fields(&said).is_empty());
    }

    #[test]
    fn what_can_be_no_key_is_not_required() {
        let of = |key: &str| RequiredTags {
            tags: [key.to_owned()].into(),
            ..RequiredTags::default()
        };
        assert_eq!(of("team").check(), Ok(()));
        assert!(matches!(of("two words").check(), Err(TagError::BadKey(_))));
    }
}
