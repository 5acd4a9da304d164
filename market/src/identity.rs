//! Who may do what: roles, and the scopes of an API key.
//!
//! Keys themselves, and how they are checked, are not here.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a member of a tenant is there to do.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Runs the broker.
    Admin,
    /// Looks after its own supply.
    Provider,
    /// Plans and reserves in its projects, ends what it created.
    Member,
    /// Reads money, reserves nothing.
    Finance,
    /// Looks.
    Viewer,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [
        Self::Admin,
        Self::Provider,
        Self::Member,
        Self::Finance,
        Self::Viewer,
    ];

    /// The word on the wire and in the database.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Provider => "provider",
            Self::Member => "member",
            Self::Finance => "finance",
            Self::Viewer => "viewer",
        }
    }
}

/// Resources that a key is let at together.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ResourceFamily {
    /// Providers and their quarantine.
    Providers,
    /// Public SSH keys.
    SshKeys,
    /// Plans and quotes.
    Plans,
    /// Reservations, their nodes and the access to them.
    Reservations,
    /// Events and webhooks.
    Events,
    /// Verifications and attestations.
    Attestations,
    /// Cost reports and everything else about money.
    Spending,
    /// Keys, tokens, projects and members.
    Identity,
    /// The audit log.
    Audit,
}

impl ResourceFamily {
    /// Every family.
    pub const ALL: [Self; 9] = [
        Self::Providers,
        Self::SshKeys,
        Self::Plans,
        Self::Reservations,
        Self::Events,
        Self::Attestations,
        Self::Spending,
        Self::Identity,
        Self::Audit,
    ];
}

/// How far a key is let at a family. Each level includes the one before.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Not at all.
    #[default]
    None,
    /// To look.
    Read,
    /// To look and to change.
    Write,
}

/// The scopes of a key; a family that is not named is out of reach.
pub type Scopes = BTreeMap<ResourceFamily, Scope>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_the_same_word_in_text_and_in_json() {
        for role in Role::ALL {
            assert_eq!(serde_json::to_value(role).expect("json"), role.as_str());
        }
    }

    #[test]
    fn scopes_are_an_object_of_words_and_grow_from_none_to_write() {
        let scopes: Scopes = ResourceFamily::ALL
            .into_iter()
            .map(|f| (f, Scope::Read))
            .collect();
        let json = serde_json::to_value(&scopes).expect("json");
        assert_eq!(json["ssh_keys"], "read");
        assert_eq!(
            serde_json::from_value::<Scopes>(json).expect("reads back"),
            scopes
        );
        assert!(Scope::None < Scope::Read && Scope::Read < Scope::Write);
    }
}
