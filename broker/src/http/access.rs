//! The rights: one table of roles and resource families, and the one function that reads it.
//!
//! Nothing is allowed that the table does not name. The scopes of a key narrow its role and never
//! widen it, and so do its projects. A key of the role `provider` is bound to one provider, and reads
//! nothing of the others. Whether a credential is genuine is settled in `auth`.

use market::identity::{Projects, ResourceFamily, Role, Scope, Scopes};
use market::ids::ProviderId;
use store::api_keys::ApiKey;

use super::error::ApiError;

/// How far a role reaches into a family.
#[must_use]
pub fn role_reaches(role: Role, family: ResourceFamily) -> Scope {
    use ResourceFamily as F;
    match (role, family) {
        (Role::Admin, _) => Scope::Write,

        (Role::Provider, F::Providers) => Scope::Read,

        (Role::Member, F::SshKeys | F::Plans | F::Reservations | F::Events | F::Identity) => {
            Scope::Write
        }
        // A member who reserves capacity does not decide the price that the tenant pays for it.
        (Role::Member, F::Capacity | F::Providers | F::Attestations | F::Spending) => Scope::Read,

        (Role::Finance, F::Capacity | F::Spending | F::Reservations | F::Events) => Scope::Read,

        (
            Role::Viewer,
            F::Providers
            | F::SshKeys
            | F::Capacity
            | F::Plans
            | F::Reservations
            | F::Events
            | F::Attestations,
        ) => Scope::Read,

        _ => Scope::None,
    }
}

/// The scopes of a key for which none are named: as far as its role reaches.
#[must_use]
pub fn default_scopes(role: Role) -> Scopes {
    ResourceFamily::ALL
        .into_iter()
        .map(|family| (family, role_reaches(role, family)))
        .filter(|(_, scope)| *scope > Scope::None)
        .collect()
}

/// The rights of a credential: its role, narrowed by its scopes, its projects and its provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The bearer's role.
    pub role: Role,
    /// How far it reaches; a family that is not named is out of reach.
    pub scopes: Scopes,
    /// In which of its tenant's projects it works.
    pub projects: Projects,
    /// The one provider that it reads; `None` for every role but `provider`.
    pub provider: Option<ProviderId>,
}

impl From<&ApiKey> for Grant {
    fn from(key: &ApiKey) -> Self {
        Self {
            role: key.role,
            scopes: key.scopes.clone(),
            projects: key.projects.clone(),
            provider: key.provider.clone(),
        }
    }
}

impl Grant {
    /// How far the grant reaches into a family.
    #[must_use]
    pub fn reaches(&self, family: ResourceFamily) -> Scope {
        let scope = self.scopes.get(&family).copied().unwrap_or_default();
        scope.min(role_reaches(self.role, family))
    }

    /// Whether all that `other` allows is allowed by this grant as well.
    ///
    /// Only an administrator can make an administrator: the role sees every tenant, which no scope states. A
    /// key bound to a provider can be made by administrators, and by keys bound to the same one.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let may_make = self.role == Role::Admin
            || other.role != Role::Admin && self.provider == other.provider;
        may_make
            && self.projects.covers(&other.projects)
            && ResourceFamily::ALL
                .into_iter()
                .all(|family| other.reaches(family) <= self.reaches(family))
    }

    /// Whether the provider's own data may be shown.
    #[must_use]
    pub fn sees_provider(&self, provider: &ProviderId) -> bool {
        let own = self.provider.as_ref();
        own.map_or(self.role != Role::Provider, |own| own == provider)
    }
}

/// Lets a request pass or refuses it.
///
/// Errors: `access_denied`, naming the family and the missing right.
pub(crate) fn allow(grant: &Grant, family: ResourceFamily, wanted: Scope) -> Result<(), ApiError> {
    check_bound(grant)?;
    if wanted > Scope::None && grant.reaches(family) >= wanted {
        return Ok(());
    }
    let (family, wanted) = (word(family), word(wanted));
    Err(ApiError::access_denied(format!(
        "this needs `{wanted}` on `{family}`, which the role `{}` or the scopes of the key do not give; use another key",
        grant.role.as_str()
    )))
}

/// Refuses a key with the role `provider` that is bound to none: keys from before they were bound.
///
/// Errors: `access_denied`.
pub(crate) fn check_bound(grant: &Grant) -> Result<(), ApiError> {
    if grant.role == Role::Provider && grant.provider.is_none() {
        return Err(ApiError::access_denied(
            "the role `provider` is for one provider, and this key is bound to none; ask an administrator for another, made with `broker token create --role provider --provider NAME` or with `provider_id` in POST /v1/api-keys",
        ));
    }
    Ok(())
}

/// The serialised word of a unit variant.
fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// The right that a route needs. The type of a handler's argument names it, so a handler that forgets to ask
/// has no caller at all.
pub(crate) trait Right: 'static {
    /// The family that the route belongs to.
    const FAMILY: ResourceFamily;
    /// How far one must reach.
    const SCOPE: Scope;
}

macro_rules! rights {
    ($($right:ident: $family:ident $scope:ident;)+) => {
        $(
            #[doc = concat!("`", stringify!($scope), "` on `", stringify!($family), "`.")]
            #[derive(Debug)]
            pub(crate) enum $right {}

            impl Right for $right {
                const FAMILY: ResourceFamily = ResourceFamily::$family;
                const SCOPE: Scope = Scope::$scope;
            }
        )+
    };
}

rights! {
    ReadProviders: Providers Read;
    WriteProviders: Providers Write;
    ReadSshKeys: SshKeys Read;
    WriteSshKeys: SshKeys Write;
    ReadCapacity: Capacity Read;
    WriteCapacity: Capacity Write;
    ReadPlans: Plans Read;
    WritePlans: Plans Write;
    ReadReservations: Reservations Read;
    WriteReservations: Reservations Write;
    ReadEvents: Events Read;
    WriteEvents: Events Write;
    ReadAttestations: Attestations Read;
    ReadSpending: Spending Read;
    WriteSpending: Spending Write;
    ReadIdentity: Identity Read;
    WriteIdentity: Identity Write;
    ReadAudit: Audit Read;
}

#[cfg(test)]
mod tests {
    use market::ids::ProjectId;
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    fn grant(role: Role) -> Grant {
        Grant {
            role,
            scopes: default_scopes(role),
            projects: Projects::All,
            provider: (role == Role::Provider).then(|| provider("lambda")),
        }
    }

    fn provider(id: &str) -> ProviderId {
        ProviderId::parse(id).expect("a provider")
    }

    #[test]
    fn finance_reads_money_and_reserves_nothing() {
        let finance = grant(Role::Finance);
        assert!(allow(&finance, ResourceFamily::Spending, Scope::Read).is_ok());
        let refusal =
            allow(&finance, ResourceFamily::Reservations, Scope::Write).expect_err("refused");
        assert_eq!(refusal.code(), "access_denied");
        assert!(
            refusal.to_string().contains("`write` on `reservations`"),
            "{refusal}"
        );
    }

    #[test]
    fn a_viewer_changes_nothing_and_a_provider_sees_no_tenant() {
        for family in ResourceFamily::ALL {
            assert!(
                allow(&grant(Role::Viewer), family, Scope::Write).is_err(),
                "{family:?}"
            );
            let provider = grant(Role::Provider).reaches(family);
            assert!(
                provider == Scope::None || family == ResourceFamily::Providers,
                "{family:?}"
            );
        }
    }

    #[test]
    fn a_family_that_the_scopes_do_not_name_is_out_of_reach() {
        let narrow = Grant {
            role: Role::Admin,
            scopes: [(ResourceFamily::Plans, Scope::Read)].into(),
            projects: Projects::All,
            provider: None,
        };
        assert_eq!(narrow.reaches(ResourceFamily::Plans), Scope::Read);
        assert_eq!(narrow.reaches(ResourceFamily::Reservations), Scope::None);
    }

    #[test]
    fn asking_for_nothing_is_not_a_way_in() {
        assert!(allow(&grant(Role::Viewer), ResourceFamily::Spending, Scope::None).is_err());
    }

    #[test]
    fn a_member_makes_no_administrator_even_of_empty_scopes() {
        let nothing = Grant {
            role: Role::Admin,
            scopes: Scopes::new(),
            projects: Projects::All,
            provider: None,
        };
        assert!(!grant(Role::Member).covers(&nothing));
        assert!(grant(Role::Admin).covers(&grant(Role::Member)));
        assert!(grant(Role::Member).covers(&grant(Role::Finance)));
        assert!(!grant(Role::Finance).covers(&grant(Role::Viewer)));
    }

    #[test]
    fn a_key_of_some_projects_makes_none_of_others_nor_of_the_whole_tenant() {
        let project = |n| ProjectId::from_uuid(Uuid::from_u128(n));
        let of = |numbers: &[u128]| Grant {
            projects: Projects::Only(numbers.iter().copied().map(project).collect()),
            ..grant(Role::Member)
        };
        assert!(grant(Role::Member).covers(&of(&[1])) && of(&[1, 2]).covers(&of(&[2])));
        assert!(!of(&[1]).covers(&of(&[2])) && !of(&[1]).covers(&grant(Role::Viewer)));
    }

    #[test]
    fn a_key_of_a_provider_is_made_by_an_administrator_or_by_its_like() {
        let of = |id: Option<&str>| Grant {
            provider: id.map(provider),
            ..grant(Role::Provider)
        };
        let (lambda, runpod, unbound) = (of(Some("lambda")), of(Some("runpod")), of(None));
        for (maker, made, covers) in [
            (&grant(Role::Admin), &lambda, true),
            (&grant(Role::Admin), &unbound, true),
            (&lambda, &lambda, true),
            (&lambda, &runpod, false),
            (&lambda, &unbound, false),
            (&unbound, &lambda, false),
            // A member reads everything that the role `provider` reads, and of every provider.
            (&grant(Role::Member), &lambda, false),
            (&grant(Role::Viewer), &lambda, false),
        ] {
            assert_eq!(maker.covers(made), covers, "{maker:?} and {made:?}");
        }
    }

    #[test]
    fn a_provider_sees_itself_alone_and_nothing_until_it_is_bound() {
        let (lambda, runpod) = (provider("lambda"), provider("runpod"));
        let bound = grant(Role::Provider);
        assert!(bound.sees_provider(&lambda) && !bound.sees_provider(&runpod));
        assert!(grant(Role::Viewer).sees_provider(&runpod));
        let unbound = Grant {
            provider: None,
            ..bound
        };
        assert!(!unbound.sees_provider(&lambda));
        let refusal = allow(&unbound, ResourceFamily::Providers, Scope::Read);
        let refusal = refusal.expect_err("refused").to_string();
        assert!(refusal.contains("--provider NAME"), "{refusal}");
    }

    fn any_grant() -> impl Strategy<Value = Grant> {
        let scope = prop::sample::select(vec![Scope::None, Scope::Read, Scope::Write]);
        let scopes = prop::collection::btree_map(
            prop::sample::select(ResourceFamily::ALL.to_vec()),
            scope,
            0..ResourceFamily::ALL.len(),
        );
        (prop::sample::select(Role::ALL.to_vec()), scopes).prop_map(|(role, scopes)| Grant {
            scopes,
            ..grant(role)
        })
    }

    proptest! {
        #[test]
        fn scopes_never_widen_a_role(grant in any_grant()) {
            for family in ResourceFamily::ALL {
                prop_assert!(grant.reaches(family) <= role_reaches(grant.role, family));
            }
        }

        #[test]
        fn what_a_covered_grant_may_do_its_maker_may_do(maker in any_grant(), made in any_grant()) {
            prop_assume!(maker.covers(&made));
            for family in ResourceFamily::ALL {
                for scope in [Scope::Read, Scope::Write] {
                    prop_assert!(allow(&made, family, scope).is_err() || allow(&maker, family, scope).is_ok());
                }
            }
        }
    }
}
