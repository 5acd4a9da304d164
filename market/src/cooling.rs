//! The cool-down of an offer that failed several times recently: for whom, and until when.

use std::collections::HashSet;

use chrono::{DateTime, TimeDelta, Utc};

use crate::ids::TenantId;

/// For how many reservations an offer must fail within the cool-down period to be in cool-down.
const FAILURES: usize = 3;

/// A reservation for which an offer failed before its machines were handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EarlyFailure {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The last time that the offer failed for it.
    pub at: DateTime<Utc>,
}

/// Until when an offer with these failures is in cool-down for a tenant: until few enough of them are left
/// within the period to try it again. `None` where there are too few.
///
/// Three failures of one tenant's own put it in cool-down for that tenant, and three of at least two tenants
/// do for everyone. No tenant takes an offer from others by itself.
#[must_use]
pub fn rests_until(
    failures: &[EarlyFailure],
    tenant: TenantId,
    cooldown: TimeDelta,
) -> Option<DateTime<Utc>> {
    let mut latest_first = failures.to_vec();
    latest_first.sort_unstable_by_key(|failure| std::cmp::Reverse(failure.at));
    let own = latest_first
        .iter()
        .filter(|failure| failure.tenant_id == tenant)
        .nth(FAILURES - 1);
    let mut tenants = HashSet::new();
    let of_several = latest_first.iter().enumerate().find(|(before, failure)| {
        tenants.insert(failure.tenant_id);
        before + 1 >= FAILURES && tenants.len() > 1
    });
    let decisive = own
        .into_iter()
        .chain(of_several.map(|(_, failure)| failure));
    decisive.map(|failure| failure.at + cooldown).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(nth: u128) -> TenantId {
        TenantId::from_uuid(uuid::Uuid::from_u128(nth))
    }

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    /// For the first and the second tenant, with failures of these tenants at these seconds.
    fn rests(failures: &[(u128, i64)]) -> [Option<i64>; 2] {
        let failures: Vec<_> = failures
            .iter()
            .map(|(nth, seconds)| EarlyFailure {
                tenant_id: tenant(*nth),
                at: at(*seconds),
            })
            .collect();
        let until = |nth| rests_until(&failures, tenant(nth), TimeDelta::seconds(100));
        [1, 2].map(|nth| until(nth).map(|until| (until - at(100)).num_seconds()))
    }

    #[test]
    fn three_failures_of_one_tenant_rest_an_offer_for_that_tenant_alone() {
        assert_eq!(rests(&[(1, 5), (1, 7)]), [None, None]);
        assert_eq!(rests(&[(1, 7), (1, 5), (1, 6)]), [Some(5), None]);
        let many: Vec<_> = (0..50).map(|second| (1, second)).collect();
        assert_eq!(rests(&many), [Some(47), None]);
    }

    #[test]
    fn three_failures_of_two_tenants_rest_an_offer_for_everyone() {
        assert_eq!(rests(&[(1, 5), (1, 6)]), [None, None]);
        assert_eq!(rests(&[(1, 5), (1, 6), (3, 7)]), [Some(5), Some(5)]);
        assert_eq!(rests(&[(3, 5), (4, 6), (5, 7)]), [Some(5), Some(5)]);
        // The first tenant has many failures: its own cool-down lasts until its third last failure has
        // expired, that of the others until the other tenant's has.
        assert_eq!(
            rests(&[(2, 5), (1, 6), (1, 7), (1, 8), (1, 9)]),
            [Some(7), Some(5)]
        );
    }
}
