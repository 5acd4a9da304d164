//! Roles, the scopes of an API key, and the projects that it works in.
//!
//! Keys themselves, and how they are checked, are not here.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{ProjectId, TenantId};

/// The role of a member of a tenant.
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
    /// Manages its own supply.
    Provider,
    /// Plans and reserves in its projects, ends what it created.
    Member,
    /// Reads spending; reserves nothing.
    Finance,
    /// Reads only.
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

/// Resources that a key gets access to together.
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
    /// Providers and their suspensions.
    Providers,
    /// Public SSH keys.
    SshKeys,
    /// Capacity that a tenant has paid for, and prices that it agreed.
    Capacity,
    /// Plans and quotes.
    Plans,
    /// Reservations, their nodes and the access to them.
    Reservations,
    /// Events and webhooks.
    Events,
    /// Verifications and attestations.
    Attestations,
    /// Cost reports and everything else about spending.
    Spending,
    /// Keys, tokens, projects and members.
    Identity,
    /// The audit log.
    Audit,
}

impl ResourceFamily {
    /// Every family.
    pub const ALL: [Self; 10] = [
        Self::Providers,
        Self::SshKeys,
        Self::Capacity,
        Self::Plans,
        Self::Reservations,
        Self::Events,
        Self::Attestations,
        Self::Spending,
        Self::Identity,
        Self::Audit,
    ];
}

/// A key's level of access to a family. Each level includes the one before.
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
    /// No access.
    #[default]
    None,
    /// To read.
    Read,
    /// To read and to change.
    Write,
}

/// The scopes of a key; it has no access to a family that is not named.
pub type Scopes = BTreeMap<ResourceFamily, Scope>;

/// The projects of its tenant that a credential works in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Projects {
    /// In all of them, and with what belongs to the tenant as a whole.
    #[default]
    All,
    /// In these alone: it sees everything outside as another tenant's.
    Only(BTreeSet<ProjectId>),
}

impl Projects {
    /// Whether this reaches a project.
    #[must_use]
    pub fn has(&self, project: ProjectId) -> bool {
        self.named().is_none_or(|named| named.contains(&project))
    }

    /// Whether this reaches everything that `other` reaches.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Only(_), Self::All) => false,
            (Self::Only(own), Self::Only(theirs)) => theirs.is_subset(own),
        }
    }

    /// The projects, where they are named; `None` for all.
    #[must_use]
    pub const fn named(&self) -> Option<&BTreeSet<ProjectId>> {
        match self {
            Self::All => None,
            Self::Only(named) => Some(named),
        }
    }
}

impl From<Option<BTreeSet<ProjectId>>> for Projects {
    fn from(named: Option<BTreeSet<ProjectId>>) -> Self {
        named.map_or(Self::All, Self::Only)
    }
}

/// The part of a tenant's resources that a caller reaches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TenantScope {
    /// The tenant.
    pub tenant: TenantId,
    /// The projects of it.
    pub projects: Projects,
}

impl TenantScope {
    /// Everything of a tenant.
    #[must_use]
    pub const fn whole(tenant: TenantId) -> Self {
        Self {
            tenant,
            projects: Projects::All,
        }
    }
}

impl fmt::Display for TenantScope {
    /// The tenant, and after a slash the projects, where they are named.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.tenant)?;
        for (place, project) in self.projects.named().into_iter().flatten().enumerate() {
            let mark = if place == 0 { '/' } else { '+' };
            write!(f, "{mark}{project}")?;
        }
        Ok(())
    }
}

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
    fn named_projects_reach_themselves_and_never_the_whole_tenant() {
        let project = |n: u128| ProjectId::from_uuid(uuid::Uuid::from_u128(n));
        let only =
            |numbers: &[u128]| Projects::Only(numbers.iter().copied().map(project).collect());
        assert!(Projects::All.has(project(1)) && only(&[1, 2]).has(project(2)));
        assert!(!only(&[1]).has(project(2)) && !only(&[]).has(project(1)));
        assert!(Projects::All.covers(&Projects::All) && Projects::All.covers(&only(&[1])));
        assert!(only(&[1, 2]).covers(&only(&[2])) && !only(&[2]).covers(&only(&[1, 2])));
        assert!(!only(&[1, 2]).covers(&Projects::All));
    }

    #[test]
    fn two_reaches_are_never_the_same_text() {
        let project = |n: u128| ProjectId::from_uuid(uuid::Uuid::from_u128(n));
        let tenant = TenantId::from_uuid(uuid::Uuid::from_u128(7));
        let only = |numbers: &[u128]| TenantScope {
            tenant,
            projects: Projects::Only(numbers.iter().copied().map(project).collect()),
        };
        let texts: BTreeSet<String> = [
            TenantScope::whole(tenant),
            only(&[1]),
            only(&[2]),
            only(&[1, 2]),
        ]
        .iter()
        .map(ToString::to_string)
        .collect();
        assert_eq!(texts.len(), 4, "{texts:?}");
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
