//! Refused credentials: all are counted, and the first of a caller in an hour is in the audit log.
//!
//! A caller with many bad credentials must not be able to fill the log, which is kept for good. A caller is
//! an address (of IPv6 its network), with the key it showed where that is one of ours. A replica writes at
//! most [`MOST_AN_HOUR`] of these entries for keys of ours, and as many for all others, so that noise from
//! strangers does not hide the use of a revoked key. Of calls refused for lack of a right, the first of a
//! principal and operation in an hour is logged.

use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use actix_web::dev::ServiceResponse;
use actix_web::http::StatusCode;
use actix_web::web;
use chrono::{DateTime, Utc};
use market::ids::{ApiKeyId, PrincipalId};
use store::api_keys::ApiKey;
use store::audit::{Actor, AuditOutcome, CredentialKind, NewAuditEntry};
use tracing::error;

use super::record::operation;
use crate::http::auth::bearer;
use crate::http::credential::{API_KEY_PREFIX, hash_api_key};
use crate::http::error::ApiError;
use crate::http::{limits, request};
use crate::platform::app::Broker;
use crate::platform::metrics;

/// Entries of refused credentials that a replica writes in an hour: of keys of ours, and of all else.
const MOST_AN_HOUR: usize = 200;
/// Entries of calls that were refused for want of a right, in an hour.
const MOST_DENIED_AN_HOUR: usize = 1_000;
/// How much of an API key is noted, as of good ones. Units: characters.
const PREFIX_CHARS: usize = 12;
/// Where a node shows its one-time token. That one dies with the report, which may be sent twice.
const OF_NODES: [&str; 2] = [
    "/v1/verifications/{id}/steps/{n}",
    "/v1/verifications/{id}/gang",
];

/// The callers whose refusals are in the log already.
#[derive(Default)]
pub(crate) struct Refused(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    hour: i64,
    known: HashSet<Refusee>,
    strangers: HashSet<Refusee>,
    denied: HashSet<(PrincipalId, String)>,
}

/// An address, and the key of ours that it showed.
type Refusee = (Option<IpAddr>, Option<ApiKeyId>);

impl Refused {
    /// Whether there is room for another entry in this hour. Keys of ours and other credentials have separate
    /// room.
    fn has_room(&self, may_be_known: bool, now: DateTime<Utc>) -> bool {
        self.within(now, |noted| {
            let room = |callers: &HashSet<Refusee>| callers.len() < MOST_AN_HOUR;
            room(&noted.strangers) || may_be_known && room(&noted.known)
        })
    }

    /// Whether it is the caller's first refusal in this hour, and there is room for it.
    fn is_first(&self, caller: Refusee, now: DateTime<Utc>) -> bool {
        self.within(now, |noted| {
            let callers = match caller.1 {
                Some(_) => &mut noted.known,
                None => &mut noted.strangers,
            };
            callers.len() < MOST_AN_HOUR && callers.insert(caller)
        })
    }

    /// Whether it is the principal's first refusal of this operation for want of a right in this hour,
    /// and there is room for it.
    pub(super) fn is_first_denial(
        &self,
        principal: PrincipalId,
        operation: &str,
        now: DateTime<Utc>,
    ) -> bool {
        self.within(now, |noted| {
            noted.denied.len() < MOST_DENIED_AN_HOUR
                && noted.denied.insert((principal, operation.to_owned()))
        })
    }

    fn within<T>(&self, now: DateTime<Utc>, ask: impl FnOnce(&mut Noted) -> T) -> T {
        let mut noted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hour = now.timestamp().div_euclid(3_600);
        if noted.hour != hour {
            *noted = Noted {
                hour,
                ..Noted::default()
            };
        }
        ask(&mut noted)
    }
}

/// Counts a refused credential and notes who showed it.
pub(super) async fn note<B>(response: &ServiceResponse<B>) {
    // A login without membership showed a credential that is not good here.
    if matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) {
        record(response).await;
    }
}

async fn record<B>(response: &ServiceResponse<B>) -> Option<()> {
    let said = response.response().error()?;
    let code = said.as_error::<ApiError>()?.code();
    if response.status() == StatusCode::FORBIDDEN && code != "not_a_member" {
        return None;
    }
    metrics::credential_refused(code);
    let request = response.request();
    let shown = bearer(request).unwrap_or_default();
    let is_key = shown.starts_with(API_KEY_PREFIX);
    let ordinary = match code {
        "token_missing" => true,
        // Every token lapses within the hour, and is then traded for another.
        "token_expired" => !is_key,
        _ => (request.match_pattern()).is_some_and(|route| OF_NODES.contains(&route.as_str())),
    };
    if ordinary {
        return None;
    }
    let broker = request.app_data::<web::Data<Broker>>()?;
    let refused = request.app_data::<web::Data<Refused>>()?;
    // Finding the owner of a key takes a look into the database.
    if !refused.has_room(is_key, broker.now()) {
        return None;
    }
    let key = if is_key {
        known(broker, shown).await
    } else {
        None
    };
    let address = limits::address(request, &broker.config().server.trusted_proxies);
    let caller = (
        address.map(limits::neighbourhood),
        key.as_ref().map(|key| key.id),
    );
    if !refused.is_first(caller, broker.now()) {
        return None;
    }
    let entry = NewAuditEntry {
        tenant: key.as_ref().map(|key| key.tenant_id),
        at: broker.now(),
        actor: Actor {
            principal: key.as_ref().map(|key| key.principal),
            own_tenant: key.as_ref().map(|key| key.tenant_id),
            role: key.as_ref().map(|key| key.role),
            credential: match is_key {
                true => CredentialKind::ApiKey,
                false => CredentialKind::Token,
            },
            key_prefix: is_key.then(|| shown.chars().take(PREFIX_CHARS).collect()),
            issuer: None,
            subject: None,
        },
        operation: operation(request).to_owned(),
        target: None,
        outcome: AuditOutcome::Refused,
        status: Some(response.status().as_u16()),
        code: Some(code.to_owned()),
        peer: address.map(|address| address.to_string()),
        request_id: request::id_of(request),
    };
    if let Err(failure) = broker.store().audit().append(entry).await {
        let causes = crate::chain(&failure);
        error!(error = %causes, "An audit entry could not be written: {causes}");
    }
    Some(())
}

/// The key that was shown, where it is one that was good once.
async fn known(broker: &Broker, shown: &str) -> Option<ApiKey> {
    let keys = broker.store().api_keys().across_tenants();
    // A key that cannot be looked up is recorded as unknown.
    keys.find_by_hash(&hash_api_key(shown)).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    fn of(number: u32) -> Refusee {
        (Some(IpAddr::V4(number.into())), None)
    }

    fn with_key(number: u32) -> Refusee {
        let key = ApiKeyId::from_uuid(uuid::Uuid::from_u128(1));
        (of(number).0, Some(key))
    }

    #[test]
    fn a_caller_is_noted_once_an_hour_and_all_together_have_little_room() {
        for of in [of, with_key] {
            let (refused, now) = (Refused::default(), DateTime::UNIX_EPOCH);
            assert!(refused.is_first(of(0), now));
            assert!(!refused.is_first(of(0), now + TimeDelta::minutes(59)));
            assert!(refused.is_first(of(0), now + TimeDelta::minutes(60)));
            let later = now + TimeDelta::hours(2);
            let written = (0..10_000).filter(|n| refused.is_first(of(*n), later));
            assert_eq!(written.count(), MOST_AN_HOUR);
            assert!(refused.is_first(of(1), later + TimeDelta::hours(1)));
        }
    }

    #[test]
    fn a_principal_is_noted_once_an_hour_for_what_it_may_not() {
        let (refused, now) = (Refused::default(), DateTime::UNIX_EPOCH);
        let one = PrincipalId::from_uuid(uuid::Uuid::from_u128(1));
        assert!(refused.is_first_denial(one, "list_budgets", now));
        assert!(!refused.is_first_denial(one, "list_budgets", now));
        assert!(refused.is_first_denial(one, "add_budget", now));
        assert!(refused.is_first_denial(one, "list_budgets", now + TimeDelta::hours(1)));
        let later = now + TimeDelta::hours(2);
        let of = |number| PrincipalId::from_uuid(uuid::Uuid::from_u128(number));
        let noted = (0..10_000).filter(|n| refused.is_first_denial(of(*n), "x", later));
        assert_eq!(noted.count(), MOST_DENIED_AN_HOUR);
    }

    #[test]
    fn strangers_leave_room_for_keys_of_ours_and_nothing_is_looked_up_without_room() {
        let (refused, now) = (Refused::default(), DateTime::UNIX_EPOCH);
        let room = |now| (refused.has_room(false, now), refused.has_room(true, now));
        assert_eq!(room(now), (true, true));
        assert!((0..200).all(|number| refused.is_first(of(number), now)));
        assert_eq!(room(now), (false, true));
        assert!((0..200).all(|number| refused.is_first(with_key(number), now)));
        assert_eq!(room(now), (false, false));
        assert!(!refused.is_first(of(200), now));
        assert!(!refused.is_first(with_key(200), now));
        assert_eq!(room(now + TimeDelta::hours(1)), (true, true));
    }
}
