//! The machine lists that providers return: one per provider and round, shared by all callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use adapters::AdapterError;
use chrono::{DateTime, TimeDelta, Utc};
use market::ids::ProviderId;
use market::order::{ProviderLease, ProviderLeaseState};
use store::leases::Lease;
use tokio::sync::Mutex as AsyncMutex;

use super::proof::REPEATED;
use crate::platform::app::Broker;
use crate::platform::provider_set::ProviderLink;

/// A list serves everybody who looks so soon after it was asked for.
const ROUND: TimeDelta = TimeDelta::seconds(5);

/// All machines that a provider shows.
#[derive(Debug)]
pub(crate) struct List {
    /// A time before it was asked for.
    pub(crate) asked_at: DateTime<Utc>,
    /// With which credential it was read, as a mark.
    pub(crate) credential: String,
    /// The machines, ours or not.
    pub(crate) machines: Vec<ProviderLease>,
    /// Whether it is half as long as one of the last ten minutes, or shorter.
    is_halved: bool,
}

impl List {
    /// The machine of a lease, by its id or by its mark; one that lives is preferred.
    pub(crate) fn shows(&self, lease: &Lease) -> Option<&ProviderLease> {
        let is_its = |machine: &&ProviderLease| {
            lease.provider_lease_id.as_ref().map_or_else(
                || machine.client_token().as_ref() == Some(&lease.client_token),
                |id| machine.id == *id,
            )
        };
        let its = self.machines.iter().filter(is_its);
        its.min_by_key(|machine| machine.state == ProviderLeaseState::Gone)
    }

    /// Whether it is empty, or shrank by half: that proves nothing by itself.
    pub(crate) const fn is_doubtful(&self) -> bool {
        self.machines.is_empty() || self.is_halved
    }
}

/// Why there is no list.
#[derive(Debug, Clone)]
pub(crate) struct Unlisted {
    /// In words.
    pub(crate) words: String,
    /// Whether the provider gave no answer.
    pub(crate) silent: bool,
}

/// The last lists of all providers. Kept in this process only: they are asked for again after a start.
#[derive(Debug, Default)]
pub(crate) struct Lists(Mutex<HashMap<ProviderId, Arc<AsyncMutex<Shelf>>>>);

/// The outcome of asking for a list.
#[derive(Debug)]
struct Asked {
    /// A time before it was asked for.
    at: DateTime<Utc>,
    answer: Result<Arc<List>, Unlisted>,
}

/// The state kept for one provider.
#[derive(Debug, Default)]
struct Shelf {
    last: Option<Asked>,
    /// The longest list of the last ten minutes, and when that was.
    longest: Option<(DateTime<Utc>, usize)>,
}

impl Lists {
    /// The list of this round: the last one, if somebody asked just now or while this caller waited, however
    /// long the answer took; else a new one.
    pub(crate) async fn of_this_round(
        &self,
        broker: &Broker,
        link: &ProviderLink,
    ) -> Result<Arc<List>, Unlisted> {
        let came_at = broker.now();
        let shelf = self.shelf(link);
        let mut shelf = shelf.lock().await;
        let now = broker.now();
        let credential = link.http.credential_mark();
        let serves = |asked: &&Asked| {
            let is_of_this_round = asked.at <= now && came_at - asked.at < ROUND;
            let is_same = |list: &Arc<List>| list.credential == credential;
            is_of_this_round && asked.answer.as_ref().map_or(true, is_same)
        };
        if let Some(asked) = shelf.last.as_ref().filter(serves) {
            return asked.answer.clone();
        }
        let asked = shelf.ask(broker, link).await;
        asked.map_err(|error| unlisted(&error))
    }

    /// A new list, which serves this round.
    ///
    /// Errors: why there is no list.
    pub(crate) async fn new_round(
        &self,
        broker: &Broker,
        link: &ProviderLink,
    ) -> Result<Arc<List>, AdapterError> {
        let shelf = self.shelf(link);
        let mut shelf = shelf.lock().await;
        shelf.ask(broker, link).await
    }

    fn shelf(&self, link: &ProviderLink) -> Arc<AsyncMutex<Shelf>> {
        let provider = link.adapter.profile().provider_id();
        let mut shelves = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(shelves.entry(provider).or_default())
    }
}

impl Shelf {
    async fn ask(
        &mut self,
        broker: &Broker,
        link: &ProviderLink,
    ) -> Result<Arc<List>, AdapterError> {
        let asked_at = broker.now();
        let credential = link.http.credential_mark();
        match link.adapter.list_leases(&link.http).await {
            Ok(machines) => {
                let is_halved = self.has_halved(machines.len(), asked_at);
                let list = Arc::new(List {
                    asked_at,
                    credential,
                    machines,
                    is_halved,
                });
                self.last = Some(Asked {
                    at: asked_at,
                    answer: Ok(Arc::clone(&list)),
                });
                Ok(list)
            }
            Err(error) => {
                self.last = Some(Asked {
                    at: asked_at,
                    answer: Err(unlisted(&error)),
                });
                Err(error)
            }
        }
    }

    /// Whether a list of so many is half as long as one of the last ten minutes, or shorter.
    fn has_halved(&mut self, length: usize, now: DateTime<Utc>) -> bool {
        let (at, longest) = *self.longest.get_or_insert((now, length));
        if length >= longest || now - at >= REPEATED {
            self.longest = Some((now, length));
            return false;
        }
        length * 2 <= longest
    }
}

fn unlisted(error: &AdapterError) -> Unlisted {
    Unlisted {
        words: error.to_string(),
        silent: matches!(error, AdapterError::Unreachable { .. }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_shrank_by_half_is_doubted_until_it_was_so_for_ten_minutes() {
        let mut shelf = Shelf::default();
        let at = |minute: i64| DateTime::UNIX_EPOCH + TimeDelta::minutes(minute);
        let looks = [
            (0, 4, false),
            (1, 3, false),
            (2, 2, true),
            (9, 1, true),
            (10, 2, false),
            (11, 2, false),
            (12, 1, true),
            (13, 4, false),
            (14, 2, true),
        ];
        for (minute, length, halved) in looks {
            assert_eq!(shelf.has_halved(length, at(minute)), halved, "{minute}");
        }
    }
}
