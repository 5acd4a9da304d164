//! The types of GPU that each data centre lists, with their stock.

use std::collections::BTreeMap;

use market::catalog::Skipped;
use market::offer::{Availability, AvailabilityLevel};
use serde::Deserialize;
use serde_json::Value;

use super::COUNTS;
use crate::gate::{self, Rejection};

/// The types that each data centre lists, with the stock of each count of GPUs.
pub(super) struct Places {
    /// Keyed by data centre, then by type. The stock has one entry for each of [`COUNTS`].
    stock: BTreeMap<String, BTreeMap<String, [Availability; COUNTS.len()]>>,
    /// The data centres that could not be read.
    pub(super) unreadable: Vec<Skipped>,
}

impl Places {
    pub(super) fn of(records: Vec<Value>) -> Self {
        let mut stock = BTreeMap::new();
        let mut unreadable = Vec::new();
        for mut record in records {
            let lists = COUNTS.map(|count| {
                let list = record.get_mut(format!("gpus{count}"));
                let list = list.map(Value::take).unwrap_or_default();
                Option::<Vec<Listed>>::deserialize(list).map(Option::unwrap_or_default)
            });
            let centre = DataCentre::deserialize(&record).ok();
            let centre = centre.filter(|centre| gate::name("the data centre", &centre.id).is_ok());
            let Some(centre) = centre.filter(|_| lists.iter().all(Result::is_ok)) else {
                let name = gate::shown(record["id"].as_str().unwrap_or("without an id"));
                let what = format!("the data centre {name}");
                unreadable.push(Rejection::of_part(&what, "it is not as published"));
                continue;
            };
            if !centre.listed.unwrap_or(true) {
                continue;
            }
            let types: &mut BTreeMap<String, _> = stock.entry(centre.id).or_default();
            for (at, list) in lists.into_iter().flatten().enumerate() {
                for listed in list {
                    let availability = listed.availability();
                    let of_type = types
                        .entry(listed.gpu_type_id)
                        .or_insert([Availability::UNKNOWN; COUNTS.len()]);
                    of_type[at] = availability;
                }
            }
        }
        Self { stock, unreadable }
    }

    /// Whether the type is in no data centre's list.
    pub(super) fn lack(&self, type_id: &str) -> bool {
        !self.stock.values().any(|types| types.contains_key(type_id))
    }

    /// The data centres that list a type, each with the stock for `COUNTS[at]` GPUs.
    pub(super) fn with_type<'a>(
        &'a self,
        type_id: &'a str,
        at: usize,
    ) -> impl Iterator<Item = (&'a str, Availability)> {
        self.stock
            .iter()
            .filter_map(move |(centre, types)| Some((centre.as_str(), types.get(type_id)?[at])))
    }
}

/// The availability for a stock word of the provider. A missing or new word means unknown.
pub(super) fn convert_stock(word: Option<&str>) -> Availability {
    let level = match word.unwrap_or_default().to_ascii_lowercase().as_str() {
        "high" => AvailabilityLevel::High,
        "medium" => AvailabilityLevel::Medium,
        "low" => AvailabilityLevel::Low,
        "none" => return Availability::NONE,
        _ => return Availability::UNKNOWN,
    };
    Availability {
        level,
        ..Availability::UNKNOWN
    }
}

#[derive(Debug, Deserialize)]
struct DataCentre {
    id: String,
    listed: Option<bool>,
}

/// A type in the list of a data centre.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    gpu_type_id: String,
    stock_status: Option<String>,
    available: Option<bool>,
}

impl Listed {
    fn availability(&self) -> Availability {
        if self.available == Some(false) {
            return Availability::NONE;
        }
        convert_stock(self.stock_status.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_word_that_is_absent_or_new_means_unknown() {
        let level = |word| convert_stock(word).level;
        assert_eq!(level(Some("High")), AvailabilityLevel::High);
        assert_eq!(level(Some("MEDIUM")), AvailabilityLevel::Medium);
        assert_eq!(level(Some("Low")), AvailabilityLevel::Low);
        assert_eq!(level(Some("None")), AvailabilityLevel::None);
        for unsaid in [None, Some(""), Some("Plenty")] {
            assert_eq!(level(unsaid), AvailabilityLevel::Unknown, "{unsaid:?}");
        }
    }

    #[test]
    fn what_is_said_to_be_unavailable_is_sold_out_whatever_its_word() {
        let listed = |available, word: Option<&str>| Listed {
            gpu_type_id: "x".into(),
            stock_status: word.map(str::to_owned),
            available,
        };
        assert!(listed(Some(false), None).availability().is_sold_out());
        assert!(
            listed(Some(false), Some("High"))
                .availability()
                .is_sold_out()
        );
        assert_eq!(
            listed(Some(true), None).availability(),
            Availability::UNKNOWN
        );
    }
}
