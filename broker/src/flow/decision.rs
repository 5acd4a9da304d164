//! The decision record: every input of a search, and the plan it returned. Anyone with the file and a program
//! with the same models finds the same plan, bit for bit.
//!
//! The record holds the offers themselves, so that a replay needs neither the price lists nor the market of
//! that day. It holds the performance models as a digest. The service keeps its plans without offers, because
//! the history has every offer: `stored` joins both.

mod sources;
mod stored;

use std::sync::LazyLock;

use chrono::{DateTime, Utc};
use market::demand::Demand;
use market::ids::OfferId;
use market::offer::Offer;
use matcher::{MatchError, OfferVerdict, Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

pub use sources::Sources;
pub(crate) use stored::StoredSources;
pub use stored::{StoredError, of_stored_plan};

use crate::flow::plan::Question;

/// The form of the record that this program writes, and the only one that it reads.
const FORMAT: u32 = 4;

/// A decision, and its inputs.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionRecord {
    format: u32,
    demand: Demand,
    /// The inputs beside the demand and the offers.
    sources: Sources,
    /// Every offer that was considered, in the order of the snapshot, at the tenant's own prices.
    offers: Vec<Offer>,
    /// The plan, as it was written.
    plan: Box<RawValue>,
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

/// The digest of everything that predictions follow from beside the program itself.
#[must_use]
pub fn models_digest() -> &'static str {
    static DIGEST: LazyLock<String> = LazyLock::new(|| digest_of(&matcher::tables()));
    &DIGEST
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
        let offers = question.snapshot.offers().map(|offer| offer.to_offer());
        Self::put_together(
            Sources::of(question),
            question.demand.clone(),
            offers.collect(),
            plan,
        )
    }

    fn put_together(
        sources: Sources,
        demand: Demand,
        offers: Vec<Offer>,
        plan: &Plan,
    ) -> Result<Self, ReplayError> {
        Ok(Self {
            format: FORMAT,
            demand,
            sources,
            offers,
            plan: serde_json::value::to_raw_value(plan).map_err(ReplayError::Unwritable)?,
        })
    }

    /// Reads a record.
    ///
    /// Errors: [`ReplayError::Unreadable`], [`ReplayError::Format`].
    pub fn parse(text: &str) -> Result<Self, ReplayError> {
        /// The parts that all forms share.
        #[derive(Deserialize)]
        struct Form {
            format: u32,
        }
        let form: Form = serde_json::from_str(text).map_err(ReplayError::Unreadable)?;
        match form.format {
            FORMAT => serde_json::from_str(text).map_err(ReplayError::Unreadable),
            other => Err(ReplayError::Format(other)),
        }
    }

    /// Searches again, and compares the result with the record, byte by byte.
    ///
    /// Errors: [`ReplayError::Models`], [`ReplayError::Match`], [`ReplayError::Differs`] with the path
    /// of the first difference.
    pub fn replay(&self) -> Result<Plan, ReplayError> {
        self.sources.check_models()?;
        let snapshot = self.sources.snapshot(self.offers.iter().cloned());
        let plan = self.sources.search(&self.demand, &snapshot)?;
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

    /// The outcome of one of its offers, and why; `None` where it was not on sale there.
    ///
    /// Errors: those of [`DecisionRecord::replay`].
    pub fn ask(&self, offer: OfferId) -> Result<Option<Vec<OfferVerdict>>, ReplayError> {
        self.sources.check_models()?;
        let recorded: Plan =
            serde_json::from_str(self.plan.get()).map_err(ReplayError::Unreadable)?;
        let snapshot = self.sources.snapshot(self.offers.iter().cloned());
        if snapshot.offer(&offer).is_none() {
            return Ok(None);
        }
        let asked = self.sources.asking(offer);
        let plan = asked.search(&self.demand, &snapshot)?;
        // The report must describe the plan that was shown.
        if (&plan.candidates, &plan.rejected) != (&recorded.candidates, &recorded.rejected) {
            return Err(ReplayError::Differs("plan.candidates".to_owned()));
        }
        Ok(Some(plan.verdicts(offer)))
    }

    /// When it was decided.
    #[must_use]
    pub const fn decided_at(&self) -> DateTime<Utc> {
        self.sources.decided_at()
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
