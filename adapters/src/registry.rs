//! Every adapter there is.

use market::ids::ProviderId;

use crate::adapter::Adapter;
use crate::providers::{
    digitalocean, hyperstack, lambda, runpod, shadeform, verda, voltagepark, vultr,
};

/// All adapters, in the order of their ids.
#[must_use]
pub fn all() -> &'static [&'static dyn Adapter] {
    &[
        &digitalocean::DigitalOcean,
        &hyperstack::Hyperstack,
        &lambda::Lambda,
        &runpod::RunPod,
        &shadeform::Shadeform,
        &verda::Verda,
        &voltagepark::VoltagePark,
        &vultr::Vultr,
    ]
}

/// The adapter of a provider; `None` for one without an adapter.
#[must_use]
pub fn by_id(provider: &ProviderId) -> Option<&'static dyn Adapter> {
    all()
        .iter()
        .copied()
        .find(|adapter| adapter.profile().id == provider.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_adapter_is_found_by_its_own_id_and_they_are_in_order() {
        let ids: Vec<ProviderId> = all()
            .iter()
            .map(|adapter| adapter.profile().provider_id())
            .collect();
        assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
        for id in &ids {
            assert!(by_id(id).is_some_and(|adapter| adapter.profile().id == id.as_str()));
        }
        let nobody = ProviderId::parse("nobody").expect("an id");
        assert!(by_id(&nobody).is_none());
    }

    #[test]
    fn every_lack_is_declared_once_and_explained() {
        for adapter in all() {
            let profile = adapter.profile();
            for (at, (capability, why)) in profile.unsupported.iter().enumerate() {
                assert!(why.split_whitespace().count() >= 3, "{}: {why}", profile.id);
                assert_eq!(profile.lack(*capability), Some(*why));
                assert!(
                    !profile.unsupported[..at]
                        .iter()
                        .any(|(other, _)| other == capability)
                );
            }
            assert!(
                profile.freshness_limit >= 2 * profile.poll_interval,
                "{} is stale between two polls",
                profile.id
            );
        }
    }
}
