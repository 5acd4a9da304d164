//! The stock answer: how many whole machines of each size can be made now, by region and GPU.

use std::collections::BTreeMap;

use market::offer::{Availability, Stock};
use serde_json::Value;

use crate::gate::{self, Rejection};

/// The counts by region and word for the GPU. What is not in it, or cannot be read, is unknown.
#[derive(Default)]
pub(super) struct Stocks(BTreeMap<(String, String), Value>);

impl Stocks {
    /// Reads the regions of the answer.
    pub(super) fn read(regions: &[Value]) -> Self {
        let mut counts = BTreeMap::new();
        for listed in regions {
            for model in listed["models"].as_array().into_iter().flatten() {
                if let (Some(region), Some(gpu)) =
                    (listed["region"].as_str(), model["model"].as_str())
                {
                    let of_sizes = model["configurations"].clone();
                    counts.insert((region.to_owned(), gpu.to_owned()), of_sizes);
                }
            }
        }
        Self(counts)
    }

    /// How many machines with this many GPUs can be made.
    ///
    /// Only the count of that very size says it: `available` is a floor in words that was seen to differ.
    pub(super) fn availability(
        &self,
        region: &str,
        gpu: &str,
        gpus: i64,
    ) -> Result<Availability, Rejection> {
        let counts = self.counts(region, gpu);
        let count = counts.and_then(|counts| counts.get(format!("{gpus}x")));
        convert_count(count.unwrap_or(&Value::Null))
    }

    /// The stock that all sizes draw on. Its free GPUs are those of the size that uses most of them.
    pub(super) fn stock(&self, region: &str, gpu: &str) -> Stock {
        Stock {
            id: format!("{region}/{gpu}"),
            gpus: self.counts(region, gpu).and_then(convert_gpus),
        }
    }

    fn counts(&self, region: &str, gpu: &str) -> Option<&Value> {
        self.0.get(&(region.to_owned(), gpu.to_owned()))
    }
}

/// A count of machines: a number, or a text such as `10+` for at least that many.
fn convert_count(count: &Value) -> Result<Availability, Rejection> {
    let text = count.as_str().map(str::trim);
    let least = text.and_then(|text| text.strip_suffix('+'));
    let number = least.or(text).and_then(|digits| digits.parse::<u64>().ok());
    let free = gate::free(&number.map_or_else(|| count.clone(), Value::from))?;
    Ok(match free {
        None => Availability::UNKNOWN,
        Some(0) if least.is_some() => Availability::UNKNOWN,
        Some(free) => Availability {
            at_least: least.is_some(),
            ..Availability::exactly(free)
        },
    })
}

/// The most GPUs that machines of one size take together; unknown where any count is.
fn convert_gpus(counts: &Value) -> Option<u32> {
    let known = counts
        .as_object()?
        .iter()
        .filter(|(_, free)| !free.is_null());
    let gpus = known.map(|(size, free)| {
        let size: u32 = size.strip_suffix('x')?.parse().ok()?;
        size.checked_mul(u32::try_from(free.as_u64()?).ok()?)
    });
    gpus.collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_count_is_a_number_or_a_floor_in_words() {
        let at_least = Availability {
            at_least: true,
            ..Availability::exactly(10)
        };
        for (count, free) in [
            (json!(6), Availability::exactly(6)),
            (json!("3"), Availability::exactly(3)),
            (json!("10+"), at_least),
            (json!(0), Availability::NONE),
            (json!("0+"), Availability::UNKNOWN),
            (json!(null), Availability::UNKNOWN),
        ] {
            assert_eq!(convert_count(&count), Ok(free), "{count}");
        }
    }

    #[test]
    fn the_gpus_of_a_stock_are_those_of_its_best_use() {
        let gpus = |counts: Value| convert_gpus(&counts);
        assert_eq!(gpus(json!({"1x": 30, "2x": 14, "10x": null})), Some(30));
        assert_eq!(gpus(json!({"1x": 0, "8x": 5})), Some(40));
        assert_eq!(gpus(json!({"1x": 5, "8x": "10+"})), None);
        assert_eq!(gpus(json!({"8x": u64::MAX})), None);
        assert_eq!(gpus(json!(null)), None);
    }
}
