//! The operator's record of a provider: the company behind it, the certificates that were seen, and the
//! storage speed that it promised. None of it relies on the provider's own word alone.

use std::fmt;

use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

use crate::certification::CertificationName;
use crate::demand::Policy;
use crate::place::Country;
use crate::verification::StoragePromise;

/// The longest name of a company and the longest reference to evidence. Units: characters.
const LONGEST: usize = 500;

/// The record of a provider. The default is a provider without one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderFacts {
    /// The company that operates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operator: Option<Operator>,
    /// Its certifications.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certifications: Vec<Certification>,
    /// The storage speed that it promised for its machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub storage: Vec<StorageOnRecord>,
}

/// The company that operates a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Operator {
    /// The company that operates the provider; a policy on operators excludes a provider without one on
    /// record.
    #[serde(deserialize_with = "printable")]
    #[schema(min_length = 1, max_length = 500)]
    pub company: String,
    /// The country whose law that company is under, as two letters (ISO 3166).
    pub country: Country,
}

/// A certification of a provider, with the evidence that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Certification {
    /// Its name: `iso27001`, `soc2_type2`, `hipaa_baa`, `c5`, `secnumcloud` or another name. All spellings of
    /// a name mean the same.
    pub name: CertificationName,
    /// Where the certificate or contract is found: a URL or the id of a document.
    #[serde(deserialize_with = "printable")]
    #[schema(min_length = 1, max_length = 500)]
    pub evidence: String,
    /// The last day on which it is valid, such as `2027-03-31`; it ends with that day in UTC.
    pub valid_until: NaiveDate,
}

/// The storage speed that a provider promised for its machines, one block after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StorageOnRecord {
    /// The provider's own name of the thing that the promise is for; without one it is for everything that it
    /// sells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Reading, megabytes (1e6 bytes) per second; absent where no rate was promised.
    #[serde(default, deserialize_with = "rate")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub read_mb_per_s: Option<u32>,
    /// Writing, megabytes (1e6 bytes) per second; absent where no rate was promised.
    #[serde(default, deserialize_with = "rate")]
    #[schema(minimum = 1, maximum = 1_000_000)]
    pub write_mb_per_s: Option<u32>,
}

impl StorageOnRecord {
    fn promise(&self) -> StoragePromise {
        let bytes = |megabytes: Option<u32>| megabytes.map(|rate| u64::from(rate) * 1_000_000);
        StoragePromise {
            read_bytes_per_s: bytes(self.read_mb_per_s),
            write_bytes_per_s: bytes(self.write_mb_per_s),
        }
    }
}

impl Certification {
    /// Whether it is valid at a time.
    #[must_use]
    pub fn is_valid_at(&self, time: DateTime<Utc>) -> bool {
        time.date_naive() <= self.valid_until
    }
}

/// How a provider's record does not meet a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FactsLack<'a> {
    /// No operator is on record.
    OperatorUnknown,
    /// The operator's law is none of those that the policy names.
    OperatorElsewhere(&'a Operator),
    /// No evidence of a certification is on record.
    NoEvidence(&'a CertificationName),
    /// The evidence on record ends too early.
    EvidenceEnds {
        /// The one that is valid the longest.
        certification: &'a Certification,
        /// Until when the policy needs it.
        wanted_until: DateTime<Utc>,
    },
}

impl fmt::Display for FactsLack<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OperatorUnknown => f.write_str("nothing is on record of who operates it"),
            Self::OperatorElsewhere(Operator { company, country }) => {
                write!(f, "{company} operates it, under the law of {country}")
            }
            Self::NoEvidence(name) => write!(f, "no evidence of {name} is on record"),
            Self::EvidenceEnds {
                certification,
                wanted_until,
            } => write!(
                f,
                "the evidence of {} ({}) is valid until {}, and it is wanted until {}",
                certification.name,
                certification.evidence,
                certification.valid_until,
                wanted_until.to_rfc3339_opts(SecondsFormat::Secs, true),
            ),
        }
    }
}

impl Policy {
    /// Checks a provider's record against the policy until a time; `None`: there is no record, and unknown is
    /// refused.
    ///
    /// Errors: the first thing that it lacks, the operator before the certifications.
    pub fn check_facts<'a>(
        &'a self,
        facts: Option<&'a ProviderFacts>,
        until: DateTime<Utc>,
    ) -> Result<(), FactsLack<'a>> {
        if !self.operator_countries.is_empty() {
            let operator = facts.and_then(|facts| facts.operator.as_ref());
            let operator = operator.ok_or(FactsLack::OperatorUnknown)?;
            if !self.operator_countries.contains(&operator.country) {
                return Err(FactsLack::OperatorElsewhere(operator));
            }
        }
        for name in &self.certifications {
            let best = facts.and_then(|facts| facts.longest(name));
            let certification = best.ok_or(FactsLack::NoEvidence(name))?;
            if !certification.is_valid_at(until) {
                return Err(FactsLack::EvidenceEnds {
                    certification,
                    wanted_until: until,
                });
            }
        }
        Ok(())
    }

    /// The last second in which all certifications of the policy are valid by a provider's record; `None`
    /// where the policy asks for none, or one is lacking.
    #[must_use]
    pub fn evidence_lasts(&self, facts: Option<&ProviderFacts>) -> Option<DateTime<Utc>> {
        let mut last: Option<NaiveDate> = None;
        for name in &self.certifications {
            let until = facts?.longest(name)?.valid_until;
            last = Some(last.map_or(until, |last| last.min(until)));
        }
        // Every day has this second.
        Some(last?.and_hms_opt(23, 59, 59)?.and_utc())
    }
}

impl ProviderFacts {
    /// The evidence of a certification on record that is valid the longest.
    #[must_use]
    pub fn longest(&self, name: &CertificationName) -> Option<&Certification> {
        let of_name = self.certifications.iter().filter(|one| one.name == *name);
        of_name.max_by_key(|one| one.valid_until)
    }

    /// The storage promise for what a provider sells by this name: from an entry for it, else from one for
    /// everything that it sells.
    #[must_use]
    pub fn storage_of(&self, sku: &str) -> Option<StoragePromise> {
        let named = |name: Option<&str>| {
            let mut entries = self.storage.iter();
            entries.find(|entry| entry.sku.as_deref() == name)
        };
        let entry = named(Some(sku)).or_else(|| named(None))?;
        Some(entry.promise())
    }
}

/// A plausible rate of a machine. Units: megabytes per second.
fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let rate = Option::<u32>::deserialize(from)?;
    let Some(wrong) = rate.filter(|rate| !(1..=1_000_000).contains(rate)) else {
        return Ok(rate);
    };
    let wanted = "1 to 1000000 MB/s";
    Err(D::Error::invalid_value(
        Unexpected::Unsigned(u64::from(wrong)),
        &wanted,
    ))
}

/// A text that a person can read: reasons and errors quote it.
fn printable<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    let visible = !text.trim().is_empty() && !text.contains(char::is_control);
    if visible && text.chars().count() <= LONGEST {
        return Ok(text);
    }
    let wanted = "a text of 1 to 500 printable characters";
    Err(D::Error::invalid_value(Unexpected::Str(&text), &wanted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(time: &str) -> DateTime<Utc> {
        time.parse().expect("a time")
    }

    fn facts(certifications: serde_json::Value) -> ProviderFacts {
        let operator = json!({"company": "Example GmbH", "country": "de"});
        let body = json!({"operator": operator, "certifications": certifications});
        serde_json::from_value(body).expect("facts")
    }

    fn iso(valid_until: &str) -> serde_json::Value {
        json!({"name": "ISO 27001", "evidence": "doc 12", "valid_until": valid_until})
    }

    fn policy(body: serde_json::Value) -> Policy {
        serde_json::from_value(body).expect("a policy")
    }

    fn lack(
        policy: &Policy,
        facts: Option<&ProviderFacts>,
        until: DateTime<Utc>,
    ) -> Option<String> {
        let checked = policy.check_facts(facts, until);
        checked.err().map(|lack| lack.to_string())
    }

    // S50
    #[test]
    fn evidence_is_good_to_the_end_of_its_last_day_and_the_longest_counts() {
        let known = facts(json!([iso("2026-03-31"), iso("2025-01-01")]));
        let policy = policy(json!({"certifications": ["iso27001"]}));
        let told = |time| lack(&policy, Some(&known), at(time));
        assert_eq!(told("2026-03-31T23:59:59Z"), None);
        let expired = "the evidence of iso27001 (doc 12) is valid until 2026-03-31, and it is wanted \
                       until 2026-04-01T00:00:00Z";
        assert_eq!(told("2026-04-01T00:00:00Z").as_deref(), Some(expired));
    }

    // S50
    #[test]
    fn what_is_not_known_of_a_provider_is_refused() {
        let known = facts(json!([iso("2026-03-31")]));
        let time = at("2026-01-01T00:00:00Z");
        for (asked, told) in [
            (json!({}), None),
            (json!({"operator_countries": ["DE", "FR"]}), None),
            (
                json!({"operator_countries": ["FR"]}),
                Some("Example GmbH operates it, under the law of DE"),
            ),
            (
                json!({"certifications": ["iso-27001", "c5"]}),
                Some("no evidence of c5 is on record"),
            ),
        ] {
            let policy = policy(asked.clone());
            assert_eq!(
                lack(&policy, Some(&known), time).as_deref(),
                told,
                "{asked}"
            );
            let asks = policy != Policy::default();
            for nothing in [None, Some(&ProviderFacts::default())] {
                assert_eq!(lack(&policy, nothing, time).is_some(), asks, "{asked}");
            }
        }
    }

    #[test]
    fn storage_is_promised_by_name_before_what_is_promised_of_all() {
        let known: ProviderFacts = serde_json::from_value(json!({"storage": [
            {"read_mb_per_s": 500},
            {"sku": "big", "read_mb_per_s": 7_000, "write_mb_per_s": 3_000},
        ]}))
        .expect("facts");
        let rates = |sku| {
            let promise = known.storage_of(sku).expect("a promise");
            (promise.read_bytes_per_s, promise.write_bytes_per_s)
        };
        assert_eq!(rates("big"), (Some(7_000_000_000), Some(3_000_000_000)));
        assert_eq!(rates("small"), (Some(500_000_000), None));
        assert_eq!(ProviderFacts::default().storage_of("big"), None);
    }

    #[test]
    fn facts_that_nobody_could_read_are_refused() {
        let with = |company: &str| json!({"operator": {"company": company, "country": "FR"}});
        for wrong in [
            with(""),
            with(" "),
            with("a\nb"),
            with(&"x".repeat(501)),
            json!({"operator": {"company": "A", "country": "XX"}}),
            json!({"certifications": [{"name": "c5", "evidence": "", "valid_until": "2026-01-01"}]}),
            json!({"certifications": [{"name": "c5", "evidence": "a", "valid_until": "soon"}]}),
            json!({"certifications": [{"name": "c5", "evidence": "a"}]}),
            json!({"storage": [{"read_mb_per_s": 0}]}),
            json!({"storage": [{"write_mb_per_s": 1_000_001}]}),
            json!({"storage": [{"read_bytes_per_s": 1_000_000}]}),
        ] {
            let read = serde_json::from_value::<ProviderFacts>(wrong.clone());
            assert!(read.is_err(), "{wrong}");
        }
    }
}
