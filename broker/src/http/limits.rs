//! Rate limits: how often a caller may call, by the cost of the call.
//!
//! A key has a quota for reads and one for writes and plans. All keys of a tenant together have one too, or a
//! tenant would get more by making more keys. A caller without a valid credential has one by address. Nodes
//! that prove themselves and health checks are not counted: one address may stand for a whole fleet. At the
//! routes of nodes, a caller with no node token or a wrong one is counted by address as well; one with a
//! valid token is always admitted.
//!
//! Every counted answer shows the caller's remaining quota, in the three fields that clients read
//! (draft-ietf-httpapi-ratelimit-headers-06; later drafts fold them into one structured field).

use std::net::{IpAddr, Ipv6Addr};

use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{Method, StatusCode};
use actix_web::{HttpRequest, web};
use ipnet::IpNet;

use super::auth;
use super::error::ApiError;
use super::request;
use crate::platform::app::Broker;
use crate::platform::config::{QuotaConfig, RateLimitsConfig};
use crate::platform::coordination::{Quota, RateCheck};
use crate::platform::metrics;

/// The fields of a counted answer, each with its meaning.
pub(super) const FIELDS: [(&str, &str); 3] = [
    (LIMIT.0, LIMIT.1),
    (REMAINING.0, REMAINING.1),
    (RESET.0, RESET.1),
];
const LIMIT: (&str, &str) = ("ratelimit-limit", "How many calls are possible at once");
const REMAINING: (&str, &str) = ("ratelimit-remaining", "How many are possible right now");
const RESET: (&str, &str) = (
    "ratelimit-reset",
    "After how many seconds all are possible again",
);

/// Routes that are not counted.
const UNCOUNTED: [&str; 5] = [
    "/healthz",
    "/readyz",
    "/v1/agents/{sha256}",
    "/v1/verifications/{id}/steps/{n}",
    "/v1/verifications/{id}/gang",
];

/// Whether calls of a route are counted.
pub(super) fn counts(route: &str) -> bool {
    !UNCOUNTED.contains(&route)
}

/// Where the caller of a counted call stands.
pub(super) struct Counted {
    check: RateCheck,
    /// The kind of quota.
    family: &'static str,
}

/// Counts a call against its caller's quota; `None` where it is not counted.
pub(super) async fn count(request: &ServiceRequest) -> Option<Counted> {
    let broker = request.app_data::<web::Data<Broker>>()?;
    if !broker.config().rate_limits.enabled || !counts(&request::route_of(request.request())) {
        return None;
    }
    let Caller {
        family,
        own,
        of_tenant,
    } = caller(broker, request).await;
    let check = check(broker, own, of_tenant).await;
    Some(Counted { check, family })
}

/// Counts a call whose credential a route refused that is else not counted; `None` for any other.
pub(super) async fn count_stranger<B>(response: &ServiceResponse<B>) -> Option<Counted> {
    let request = response.request();
    let broker = request.app_data::<web::Data<Broker>>()?;
    let is_stranger = response.status() == StatusCode::UNAUTHORIZED;
    if !is_stranger || !broker.config().rate_limits.enabled || counts(&request::route_of(request)) {
        return None;
    }
    let Caller { family, own, .. } = by_address(broker, request);
    let check = check(broker, own, None).await;
    Some(Counted { check, family })
}

impl Counted {
    /// The answer to a caller who has used up the quota; `None` within it.
    pub(super) fn refusal(&self) -> Option<ApiError> {
        if self.check.allowed {
            return None;
        }
        metrics::rate_limited(self.family);
        Some(refusal(&self.check))
    }

    /// Adds the caller's remaining quota.
    pub(super) fn tell(&self, headers: &mut HeaderMap) {
        let reset = self.check.reset_after.as_secs_f64().ceil() as u64;
        for ((name, _), value) in [
            (LIMIT, u64::from(self.check.limit)),
            (REMAINING, u64::from(self.check.remaining)),
            (RESET, reset),
        ] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from(value));
        }
    }
}

/// Under which names a call is counted, and how much each may.
struct Caller {
    /// The kind of quota.
    family: &'static str,
    /// The key or login, or the address.
    own: (String, Quota),
    /// All keys and logins of its tenant; `None` for who shows no valid credential.
    of_tenant: Option<(String, Quota)>,
}

/// Counts a call, of its tenant too where its own quota allows it; the answer shows the tighter of both.
async fn check(
    broker: &Broker,
    own: (String, Quota),
    of_tenant: Option<(String, Quota)>,
) -> RateCheck {
    let own = broker.hot().check_rate(&own.0, own.1).await;
    let Some((tenant, quota)) = of_tenant.filter(|_| own.allowed) else {
        return own;
    };
    let all = broker.hot().check_rate(&tenant, quota).await;
    if all.allowed && own.remaining <= all.remaining {
        own
    } else {
        all
    }
}

async fn caller(broker: &Broker, request: &ServiceRequest) -> Caller {
    let limits = &broker.config().rate_limits;
    match auth::identify(request.request()).await {
        Ok(principal) => {
            let (family, own, of_tenant) = family(limits, request.method());
            let (tenant, id) = (principal.own_tenant, principal.id);
            Caller {
                family,
                own: (format!("{family}:{tenant}:{id}"), own),
                of_tenant: Some((format!("{family}:{tenant}"), of_tenant)),
            }
        }
        // An invalid credential counts as none: a caller who tries many is counted by address.
        Err(_) => by_address(broker, request.request()),
    }
}

fn by_address(broker: &Broker, request: &HttpRequest) -> Caller {
    let config = broker.config();
    let address = address(request, &config.server.trusted_proxies);
    let name = address.map_or_else(|| "unknown".to_owned(), |ip| neighbourhood(ip).to_string());
    let family = "anonymous";
    Caller {
        family,
        own: (
            format!("{family}:{name}"),
            quota(config.rate_limits.anonymous),
        ),
        of_tenant: None,
    }
}

/// The kind of quota, how much one key or login may, and how much all of a tenant together.
fn family(limits: &RateLimitsConfig, method: &Method) -> (&'static str, Quota, Quota) {
    let (family, own, of_tenant) = if method.is_safe() {
        ("reads", limits.reads, limits.tenant_reads)
    } else {
        ("writes", limits.writes, limits.tenant_writes)
    };
    (family, quota(own), quota(of_tenant))
}

fn quota(config: QuotaConfig) -> Quota {
    Quota {
        per_second: config.per_second,
        burst: config.burst,
    }
}

/// The address that a call comes from: the peer's, or behind proxies that we trust the last one
/// that none of them is.
pub(super) fn address(request: &HttpRequest, trusted: &[IpNet]) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip();
    let headers = request.headers().get_all("x-forwarded-for");
    let lines: Vec<&str> = headers.filter_map(|line| line.to_str().ok()).collect();
    Some(origin(peer, &lines.join(","), trusted))
}

/// Walks back from the peer through the addresses that proxies recorded, as long as each is one of ours.
/// Addresses that a stranger wrote further on are never trusted.
fn origin(peer: IpAddr, forwarded: &str, trusted: &[IpNet]) -> IpAddr {
    let mut origin = peer.to_canonical();
    for hop in forwarded.rsplit(',') {
        if !trusted.iter().any(|net| net.contains(&origin)) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(before) => origin = before.to_canonical(),
            Err(_) => break,
        }
    }
    origin
}

/// The holder of one IPv6 address has its whole network of 64 bits, and is counted by that.
pub(super) fn neighbourhood(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

fn refusal(check: &RateCheck) -> ApiError {
    let wait = check.retry_after.as_secs_f64().ceil().max(1.0) as u64;
    ApiError::rate_limited(format!(
        "these were more calls than the quota allows; call again in {wait} s, and more slowly"
    ))
    .retry_after_seconds(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn only_what_our_own_proxies_noted_is_believed() {
        let trusted = ["10.0.0.0/8".parse().expect("a network")];
        for (peer, forwarded, wanted) in [
            ("203.0.113.9", "198.51.100.1", "203.0.113.9"),
            ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
            (
                "10.0.0.1",
                "6.6.6.6, 198.51.100.1, 10.9.9.9",
                "198.51.100.1",
            ),
            ("10.0.0.1", "", "10.0.0.1"),
            ("10.0.0.1", "198.51.100.1, nonsense", "10.0.0.1"),
            ("::ffff:10.0.0.1", "2001:db8::5", "2001:db8::5"),
        ] {
            let found = origin(ip(peer), forwarded, &trusted);
            assert_eq!(found, ip(wanted), "{peer} with {forwarded}");
        }
        assert_eq!(origin(ip("10.0.0.1"), "198.51.100.1", &[]), ip("10.0.0.1"));
    }

    #[test]
    fn a_network_of_ipv6_is_one_caller() {
        let first = neighbourhood(ip("2001:db8:1:2:3::4"));
        assert_eq!(first, neighbourhood(ip("2001:db8:1:2:ffff::9")));
        assert_ne!(first, neighbourhood(ip("2001:db8:1:3::4")));
        assert_ne!(neighbourhood(ip("1.2.3.4")), neighbourhood(ip("1.2.3.5")));
    }

    #[test]
    fn what_is_not_counted_is_a_route() {
        let document = crate::http::document();
        let paths: Vec<_> = document.paths().map(|(path, _)| path).collect();
        for route in UNCOUNTED {
            assert!(paths.contains(&route), "{route}");
        }
    }
}
