//! The providers that this replica is connected to.

use std::collections::BTreeMap;
use std::sync::Arc;

use adapters::{Adapter, Http};
use chrono::{DateTime, Utc};
use market::ids::ProviderId;
use store::providers::ProviderStanding;

/// A provider that we read and order from.
pub struct ProviderLink {
    /// Our code for it.
    pub adapter: &'static dyn Adapter,
    /// The connection that all calls to it use.
    pub http: Http,
}

/// The settings of a connection; another mark means another connection.
pub(crate) type Mark = (Option<String>, DateTime<Utc>);

struct Member {
    /// `None` where the row cannot be connected; that was logged.
    link: Option<Arc<ProviderLink>>,
    /// `None` for a provider given at the start: configured, or simulated.
    entered: Option<Mark>,
}

/// The providers that are connected.
pub(crate) struct ProviderSet(BTreeMap<ProviderId, Member>);

impl ProviderSet {
    /// Those that are connected from the start on.
    pub(crate) fn given(links: Vec<ProviderLink>) -> Self {
        let given = |link: ProviderLink| {
            let id = link.adapter.profile().provider_id();
            let link = Some(Arc::new(link));
            let entered = None;
            (id, Member { link, entered })
        };
        Self(links.into_iter().map(given).collect())
    }

    /// Every connection, by provider.
    pub(crate) fn links(&self) -> Vec<Arc<ProviderLink>> {
        let members = self.0.values();
        members.filter_map(|member| member.link.clone()).collect()
    }

    /// The connection of one provider.
    pub(crate) fn link(&self, id: &ProviderId) -> Option<Arc<ProviderLink>> {
        self.0.get(id)?.link.clone()
    }

    /// Whether a provider is connected as it was given at the start.
    pub(crate) fn is_given(&self, id: &ProviderId) -> bool {
        self.0
            .get(id)
            .is_some_and(|member| member.entered.is_none())
    }

    /// The rows of the database that are not connected like that.
    pub(crate) fn out_of_date(
        &self,
        standings: &[ProviderStanding],
    ) -> Vec<(ProviderId, Option<Mark>)> {
        let mut changes = Vec::new();
        for standing in standings {
            let Ok(id) = ProviderId::parse(&standing.id) else {
                continue;
            };
            let mark = standing
                .credential_set_at
                .map(|set_at| (standing.base_url.clone(), set_at));
            let entered = self.0.get(&id).and_then(|member| member.entered.as_ref());
            if !self.is_given(&id) && entered != mark.as_ref() {
                changes.push((id, mark));
            }
        }
        changes
    }

    /// Puts a connection in the place of the one before, or takes it out.
    pub(crate) fn put(
        &mut self,
        id: ProviderId,
        link: Option<ProviderLink>,
        entered: Option<Mark>,
    ) {
        match entered {
            None => self.0.remove(&id),
            Some(_) => {
                let link = link.map(Arc::new);
                self.0.insert(id, Member { link, entered })
            }
        };
    }
}
