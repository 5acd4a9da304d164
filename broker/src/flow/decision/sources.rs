//! The inputs of a decision beside the demand and the offers: the time, the state of the market, holds, the
//! tenant's own capacity, and the search options.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::acceptance::AcceptanceRecord;
use market::capacity::OwnCapacity;
use market::demand::Demand;
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use market::provider_facts::ProviderFacts;
use matcher::{Cooling, Held, MatchError, Plan, ProviderView, Quarantine, SearchOptions, Snapshot};
use serde::{Deserialize, Serialize};

use super::{ReplayError, models_digest};
use crate::flow::plan::Question;

/// The inputs of a search beside the demand and the offers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sources {
    /// The program that decided.
    program: String,
    /// The digest of the models, chips and constants that it predicted with.
    models: String,
    decided_at: DateTime<Utc>,
    options: RecordedOptions,
    generation: u64,
    taken_at: DateTime<Utc>,
    /// The sellers, and the state of each.
    providers: BTreeMap<ProviderId, RecordedProvider>,
    /// Nodes that were held or leased, by offer.
    held: BTreeMap<OfferId, u32>,
    /// The offers in cool-down, and until when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    cooling: Cooling,
    /// The tenant's own capacity.
    #[serde(default, skip_serializing_if = "OwnCapacity::is_empty")]
    own: OwnCapacity,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedOptions {
    limit: usize,
    orderable_kept: usize,
    orderable_only: bool,
    alternatives: bool,
    simulated: usize,
    ties: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    asked: Vec<OfferId>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedProvider {
    freshness_limit_seconds: Option<u64>,
    stale: Option<String>,
    quarantine: Option<RecordedQuarantine>,
    /// Its record at that time.
    #[serde(default)]
    facts: ProviderFacts,
    /// How recent orders there ended.
    #[serde(default)]
    acceptance: AcceptanceRecord,
    /// In decisions of before offers named their operators: where it sold machines of other people.
    #[serde(default, rename = "peer_regions", skip_serializing)]
    _peer_regions: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedQuarantine {
    reason: String,
    until: DateTime<Utc>,
}

impl Sources {
    /// The inputs of a question.
    #[must_use]
    pub fn of(question: &Question<'_>) -> Self {
        let snapshot = question.snapshot;
        let providers = snapshot.sellers().into_iter().filter_map(|id| {
            let view = snapshot.provider(id)?;
            Some((id.clone(), RecordedProvider::of(view)))
        });
        Self {
            program: concat!("broker ", env!("CARGO_PKG_VERSION")).to_owned(),
            models: models_digest().to_owned(),
            decided_at: question.now,
            options: RecordedOptions::of(question),
            generation: snapshot.generation(),
            taken_at: snapshot.taken_at(),
            providers: providers.collect(),
            held: question
                .held
                .iter()
                .map(|(id, held)| (*id, *held))
                .collect(),
            cooling: Cooling::clone(&question.options.cooling),
            own: OwnCapacity::clone(&question.options.own),
        }
    }

    /// Refuses a record that was predicted with other models than ours.
    pub(super) fn check_models(&self) -> Result<(), ReplayError> {
        let now = models_digest();
        if self.models == now {
            return Ok(());
        }
        Err(ReplayError::Models {
            program: self.program.clone(),
            then: self.models.clone(),
            now: now.to_owned(),
        })
    }

    /// The market of these offers, with its sellers as they stood.
    pub(super) fn snapshot(&self, offers: impl IntoIterator<Item = Offer>) -> Snapshot {
        let views: HashMap<_, _> = (self.providers.iter())
            .map(|(id, provider)| (id.clone(), provider.view()))
            .collect();
        Snapshot::new(self.generation, self.taken_at, offers, views)
    }

    /// Searches a market once more, as it was searched then.
    pub(super) fn search(&self, demand: &Demand, snapshot: &Snapshot) -> Result<Plan, MatchError> {
        let held: Held = self.held.iter().map(|(id, held)| (*id, *held)).collect();
        let (own, cooling) = (self.own.clone(), self.cooling.clone());
        let options = self.options.as_options(Arc::new(own), Arc::new(cooling));
        let question = Question {
            demand,
            snapshot,
            held: &held,
            now: self.decided_at,
            options: &options,
            orderable_kept: self.options.orderable_kept,
        };
        question.answer()
    }

    /// The same, for a search about one offer.
    pub(super) fn asking(&self, offer: OfferId) -> Self {
        let mut asking = self.clone();
        asking.options.asked = vec![offer];
        asking
    }

    /// When it was decided.
    pub(super) const fn decided_at(&self) -> DateTime<Utc> {
        self.decided_at
    }

    /// The sellers of the offers that were considered.
    pub(super) fn sellers(&self) -> impl Iterator<Item = &ProviderId> {
        self.providers.keys()
    }

    /// The tenant's own capacity.
    pub(super) const fn own(&self) -> &OwnCapacity {
        &self.own
    }
}

impl RecordedOptions {
    fn of(question: &Question<'_>) -> Self {
        let SearchOptions {
            limit,
            orderable_only,
            alternatives,
            // The search finds it for the halves of a hybrid demand.
            evidence_until: _,
            simulated,
            ties,
            asked,
            own: _,
            cooling: _,
        } = question.options;
        Self {
            limit: *limit,
            orderable_kept: question.orderable_kept,
            orderable_only: *orderable_only,
            alternatives: *alternatives,
            simulated: *simulated,
            ties: *ties,
            asked: asked.clone(),
        }
    }

    fn as_options(&self, own: Arc<OwnCapacity>, cooling: Arc<Cooling>) -> SearchOptions {
        SearchOptions {
            limit: self.limit,
            orderable_only: self.orderable_only,
            alternatives: self.alternatives,
            evidence_until: None,
            simulated: self.simulated,
            ties: self.ties,
            asked: self.asked.clone(),
            own,
            cooling,
        }
    }
}

impl RecordedProvider {
    fn of(view: &ProviderView) -> Self {
        let ProviderView {
            freshness_limit_seconds,
            stale,
            quarantine,
            facts,
            acceptance,
        } = view.clone();
        Self {
            freshness_limit_seconds,
            stale,
            quarantine: quarantine
                .map(|Quarantine { reason, until }| RecordedQuarantine { reason, until }),
            facts,
            acceptance,
            _peer_regions: Vec::new(),
        }
    }

    fn view(&self) -> ProviderView {
        let quarantine = self.quarantine.clone();
        ProviderView {
            freshness_limit_seconds: self.freshness_limit_seconds,
            stale: self.stale.clone(),
            quarantine: quarantine
                .map(|RecordedQuarantine { reason, until }| Quarantine { reason, until }),
            facts: self.facts.clone(),
            acceptance: self.acceptance,
        }
    }
}
