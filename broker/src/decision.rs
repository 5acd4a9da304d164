//! The decision record: everything that a search took in, and the plan that it gave. Whoever has
//! the file and a program with the same models finds the same plan, bit for bit.
//!
//! The record holds the offers themselves, so that a replay needs neither the price lists nor the
//! market of that day. What the performance models knew is held by its digest.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use market::capacity::OwnCapacity;
use market::demand::Demand;
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use market::provider_facts::ProviderFacts;
use matcher::{Held, MatchError, Plan, ProviderView, Quarantine, SearchOptions, Snapshot};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The form of the record that this program writes, and the only one that it reads.
const FORMAT: u32 = 1;

/// What was decided, and from what.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRecord {
    format: u32,
    /// The program that decided.
    program: String,
    /// The digest of the models, chips and constants that it predicted with.
    models: String,
    decided_at: DateTime<Utc>,
    demand: Demand,
    options: RecordedOptions,
    generation: u64,
    taken_at: DateTime<Utc>,
    providers: BTreeMap<ProviderId, RecordedProvider>,
    /// Nodes that were held or leased, by offer.
    held: BTreeMap<OfferId, u32>,
    /// What the tenant had of its own. Agreed prices stand in the offers already.
    #[serde(default, skip_serializing_if = "OwnCapacity::is_empty")]
    own: OwnCapacity,
    /// Every offer that was looked at, in the order of the snapshot.
    offers: Vec<Offer>,
    /// The plan, as it was written.
    plan: Box<RawValue>,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedOptions {
    limit: usize,
    orderable_only: bool,
    alternatives: bool,
    simulated: usize,
    /// Records that do not say so were made before anything tied.
    #[serde(default)]
    ties: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedProvider {
    freshness_limit_seconds: Option<u64>,
    stale: Option<String>,
    quarantine: Option<RecordedQuarantine>,
    /// What was on record of it then.
    #[serde(default)]
    facts: ProviderFacts,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedQuarantine {
    reason: String,
    until: DateTime<Utc>,
}

/// Why a record does not replay.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// It is no record of this form.
    #[error("this is no decision record: {0}")]
    Unreadable(#[source] serde_json::Error),
    /// It is of another form.
    #[error("the record has form {0}; this program reads form {FORMAT}")]
    Format(u32),
    /// The program predicts with other models.
    #[error(
        "the decision was made by {program} with the models {then}, and this program has {now}; replay it with that program"
    )]
    Models {
        /// The program that decided.
        program: String,
        /// The digest of its models.
        then: String,
        /// The digest of ours.
        now: String,
    },
    /// The demand can no longer be matched at all.
    #[error(transparent)]
    Match(#[from] MatchError),
    /// Another plan was found.
    #[error("the replay differs from the record, first at `{0}`")]
    Differs(String),
    /// A plan has no JSON form.
    #[error("the plan cannot be written")]
    Unwritable(#[source] serde_json::Error),
}

/// What a search takes in.
#[derive(Debug)]
pub struct Question<'a> {
    /// What was asked for.
    pub demand: &'a Demand,
    /// The market.
    pub snapshot: &'a Snapshot,
    /// What of it is held or leased.
    pub held: &'a Held,
    /// When.
    pub now: DateTime<Utc>,
    /// How it is searched.
    pub options: &'a SearchOptions,
}

/// The digest of everything that predictions follow from beside the program itself.
#[must_use]
pub fn models_digest() -> String {
    digest_of(&matcher::tables())
}

fn digest_of(tables: &[&str]) -> String {
    let mut hasher = blake3::Hasher::new();
    for table in tables {
        // The length keeps two tables from passing as two others.
        hasher.update(&(table.len() as u64).to_le_bytes());
        hasher.update(table.as_bytes());
    }
    hasher.finalize().to_hex().to_string()
}

impl DecisionRecord {
    /// Records a search with the plan that it gave.
    ///
    /// Errors: [`ReplayError::Unwritable`].
    pub fn of(question: &Question<'_>, plan: &Plan) -> Result<Self, ReplayError> {
        let snapshot = question.snapshot;
        let offers: Vec<Offer> = snapshot.offers().map(|offer| offer.to_offer()).collect();
        let providers = offers.iter().filter_map(|offer| {
            let view = snapshot.provider(&offer.provider)?;
            Some((offer.provider.clone(), RecordedProvider::of(view)))
        });
        Ok(Self {
            format: FORMAT,
            program: concat!("broker ", env!("CARGO_PKG_VERSION")).to_owned(),
            models: models_digest(),
            decided_at: question.now,
            demand: question.demand.clone(),
            options: RecordedOptions::of(question.options),
            generation: snapshot.generation(),
            taken_at: snapshot.taken_at(),
            providers: providers.collect(),
            held: question
                .held
                .iter()
                .map(|(id, held)| (*id, *held))
                .collect(),
            own: OwnCapacity::clone(&question.options.own),
            plan: serde_json::value::to_raw_value(plan).map_err(ReplayError::Unwritable)?,
            offers,
        })
    }

    /// Reads a record.
    ///
    /// Errors: [`ReplayError::Unreadable`], [`ReplayError::Format`].
    pub fn parse(text: &str) -> Result<Self, ReplayError> {
        let record: Self = serde_json::from_str(text).map_err(ReplayError::Unreadable)?;
        if record.format == FORMAT {
            Ok(record)
        } else {
            Err(ReplayError::Format(record.format))
        }
    }

    /// Searches again, and compares what is found with what is recorded, byte by byte.
    ///
    /// Errors: [`ReplayError::Models`], [`ReplayError::Match`], [`ReplayError::Differs`] with the path
    /// of the first difference.
    pub fn replay(&self) -> Result<Plan, ReplayError> {
        let now = models_digest();
        if self.models != now {
            return Err(ReplayError::Models {
                program: self.program.clone(),
                then: self.models.clone(),
                now,
            });
        }
        let views: HashMap<_, _> = (self.providers.iter())
            .map(|(id, provider)| (id.clone(), provider.view()))
            .collect();
        let offers = self.offers.iter().cloned();
        let snapshot = Snapshot::new(self.generation, self.taken_at, offers, views);
        let held: Held = self.held.iter().map(|(id, held)| (*id, *held)).collect();
        let options = self.options.as_options(Arc::new(self.own.clone()));
        let plan = matcher::search(&snapshot, &self.demand, &held, self.decided_at, &options)?;
        let found = serde_json::to_string(&plan).map_err(ReplayError::Unwritable)?;
        if found == self.plan.get() {
            return Ok(plan);
        }
        let read = |text: &str| serde_json::from_str::<Value>(text);
        let recorded = read(self.plan.get()).map_err(ReplayError::Unreadable)?;
        let found = read(&found).map_err(ReplayError::Unwritable)?;
        let path = first_difference(&recorded, &found, "plan");
        Err(ReplayError::Differs(path.unwrap_or_else(|| "plan".into())))
    }

    /// When it was decided.
    #[must_use]
    pub const fn decided_at(&self) -> DateTime<Utc> {
        self.decided_at
    }
}

impl RecordedOptions {
    const fn of(options: &SearchOptions) -> Self {
        let SearchOptions {
            limit,
            orderable_only,
            alternatives,
            simulated,
            ties,
            own: _,
        } = options;
        Self {
            limit: *limit,
            orderable_only: *orderable_only,
            alternatives: *alternatives,
            simulated: *simulated,
            ties: *ties,
        }
    }

    const fn as_options(self, own: Arc<OwnCapacity>) -> SearchOptions {
        SearchOptions {
            limit: self.limit,
            orderable_only: self.orderable_only,
            alternatives: self.alternatives,
            simulated: self.simulated,
            ties: self.ties,
            own,
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
        } = view.clone();
        Self {
            freshness_limit_seconds,
            stale,
            quarantine: quarantine
                .map(|Quarantine { reason, until }| RecordedQuarantine { reason, until }),
            facts,
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
        }
    }
}

/// Where two JSON values differ first, as a path such as `plan.candidates[2].rank`.
fn first_difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            keys.into_iter().find_map(|key| {
                let here = format!("{path}.{key}");
                let (a, b) = (a.get(key), b.get(key));
                match (a, b) {
                    (Some(a), Some(b)) => first_difference(a, b, &here),
                    _ => Some(here),
                }
            })
        }
        (Value::Array(a), Value::Array(b)) => {
            let pairs = a.iter().zip(b).enumerate();
            let inside = pairs
                .map(|(at, (a, b))| first_difference(a, b, &format!("{path}[{at}]")))
                .find_map(|found| found);
            let short = a.len().min(b.len());
            inside.or_else(|| (a.len() != b.len()).then(|| format!("{path}[{short}]")))
        }
        (a, b) => (a != b).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_difference_is_named_by_its_path() {
        let a = json!({"x": [1, {"y": 2}], "z": 3});
        for (b, path) in [
            (json!({"x": [1, {"y": 9}], "z": 4}), Some("p.x[1].y")),
            (json!({"x": [1], "z": 3}), Some("p.x[1]")),
            (json!({"x": [1, {"y": 2}]}), Some("p.z")),
            (a.clone(), None),
        ] {
            assert_eq!(first_difference(&a, &b, "p").as_deref(), path);
        }
    }

    #[test]
    fn other_tables_have_another_digest() {
        assert_eq!(models_digest().len(), 64);
        let tables = matcher::tables();
        for at in 0..tables.len() {
            let last = tables[at].trim_end().len() - 1;
            let mut bytes = tables[at].as_bytes().to_vec();
            bytes[last] = if bytes[last] == b'x' { b'y' } else { b'x' };
            let changed = String::from_utf8(bytes).expect("plain letters at the end");
            let mut others: [&str; 8] = tables;
            others[at] = &changed;
            assert_ne!(digest_of(&others), models_digest(), "table {at}");
        }
    }
}
