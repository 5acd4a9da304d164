//! The first gate: the rules by which a record becomes no offer, the same for every reader.
//!
//! A price of zero, null, absent or absurd is unknown, never cheapest; unknown hardware is listed as unmapped
//! and counted, never guessed. Rules that need more than one record (a price against the market's, a listing
//! against the one before) apply where readings are compared.

use market::catalog::{SkipReason, Skipped};
use market::gpu::{self, GpuIdentity, Resolution};
use market::money::{Currency, Money};
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde_json::Value;

use crate::error::AdapterError;

/// The least plausible price of a GPU-hour. Units: USD 1e-8.
///
/// One cent is about the electricity of the smallest card (75 W at 0.13 USD per kWh); the
/// cheapest honest listing seen is 0.0525 USD (RTX 3060, vast, May 2026).
const LEAST_UNITS_PER_GPU_HOUR: i64 = 1_000_000;

/// The highest plausible price of a GPU-hour. Units: USD 1e-8.
///
/// A thousand dollars is some forty times the highest honest listing seen (23.33 USD, H100, azure, May 2026)
/// and less than a price in cents read as dollars.
const MOST_UNITS_PER_GPU_HOUR: i64 = 100_000_000_000;

/// Why a record, or one price of it, became no offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rejection {
    pub(crate) reason: SkipReason,
    pub(crate) why: String,
}

impl Rejection {
    pub(crate) fn new(reason: SkipReason, why: impl Into<String>) -> Self {
        Self {
            reason,
            why: why.into(),
        }
    }

    /// The catalogue entry for an unreadable part of the listing, which may contain any offer.
    pub(crate) fn of_part(what: &str, why: impl std::fmt::Display) -> Skipped {
        let why = format!("{what} could not be read: {why}");
        Self::new(SkipReason::Unreadable, why).of_record(None, 0)
    }

    /// The error for a whole listing, the answer of this method at `path`, that was rejected.
    pub(crate) fn of_listing(self, method: &'static str, path: &str) -> AdapterError {
        AdapterError::Unreadable {
            method,
            path: path.to_owned(),
            how: self.why,
        }
    }

    /// The entry of a catalogue for a record that was rejected. `rows` is 0 where the record
    /// still gave another offer.
    pub(crate) fn of_record(self, sku: Option<&str>, rows: u64) -> Skipped {
        Skipped {
            file: None,
            row: None,
            rows,
            sku: sku.map(shown),
            reason: self.reason,
            why: self.why,
        }
    }
}

/// The longest plausible name of a SKU, a GPU or a place. Units: bytes.
pub(crate) const LONGEST_NAME: usize = 200;

/// More offers than this are not the catalogue of one provider.
pub(crate) const MOST_OFFERS: usize = 50_000;

/// Refuses a catalogue that is implausibly large.
pub(crate) fn count(what: &str, count: usize, most: usize) -> Result<(), Rejection> {
    if count <= most {
        return Ok(());
    }
    let why = format!("{count} {what} exceed the plausible maximum of {most}");
    Err(Rejection::new(SkipReason::Unreadable, why))
}

/// Refuses a name that is too long, because every offer would repeat it, and one with control characters,
/// because terminals would obey them.
pub(crate) fn name(what: &str, name: &str) -> Result<(), Rejection> {
    let why = if name.len() > LONGEST_NAME {
        format!("{what} is longer than {LONGEST_NAME} bytes")
    } else if name.chars().any(char::is_control) {
        format!("{what} has control characters")
    } else {
        return Ok(());
    };
    Err(Rejection::new(SkipReason::Unreadable, why))
}

/// A provider's text for display: cut short, without control characters.
pub(crate) fn shown(text: &str) -> String {
    text.chars()
        .filter(|letter| !letter.is_control())
        .take(80)
        .collect()
}

/// Checks the price of one node for one hour.
///
/// `amount` is in US dollars. Rounded half to even where it is finer than a unit.
pub(crate) fn node_price(amount: Decimal, gpus: GpuCount) -> Result<Money, Rejection> {
    if amount.is_zero() {
        return Err(Rejection::new(
            SkipReason::NoPrice,
            format!("a price of {amount} means that none is known"),
        ));
    }
    let implausible = |what: &str| {
        let why = format!("{amount} USD an hour for {gpus} GPUs is {what}");
        Rejection::new(SkipReason::ImplausiblePrice, why)
    };
    let price =
        Money::from_decimal(amount, Currency::Usd).map_err(|_| implausible("beyond any price"))?;
    if !price.is_positive() {
        return Err(implausible("no price to pay"));
    }
    // In thousandths of a GPU on both sides, so that nothing is rounded before the comparison.
    let scaled = i128::from(price.units()) * 1_000;
    let bound =
        |units_per_gpu_hour| i128::from(units_per_gpu_hour) * i128::from(gpus.thousandths());
    if scaled < bound(LEAST_UNITS_PER_GPU_HOUR) {
        return Err(implausible("less than its electricity costs"));
    }
    if scaled > bound(MOST_UNITS_PER_GPU_HOUR) {
        return Err(implausible("more than 1000 USD a GPU-hour"));
    }
    Ok(price)
}

/// A price as it stands on the wire: a number, or a text that is one.
///
/// `None` where it is absent, null or an empty text; [`SkipReason::Unreadable`] for anything else. Exact: a
/// number is read by its digits, never as floating point.
pub(crate) fn price(value: &Value) -> Result<Option<Decimal>, Rejection> {
    let digits = match value {
        Value::Null => return Ok(None),
        Value::String(text) if text.trim().is_empty() => return Ok(None),
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        other => other.to_string(),
    };
    let exact = Decimal::from_str_exact(&digits);
    let read = exact.or_else(|_| Decimal::from_scientific(&digits));
    read.map(Some).map_err(|_| {
        let why = format!("the price `{}` is no number", shown(&digits));
        Rejection::new(SkipReason::Unreadable, why)
    })
}

/// As [`price`], of a record that must have one.
pub(crate) fn needed_price(value: &Value, what: &str) -> Result<Decimal, Rejection> {
    let none = || Rejection::new(SkipReason::NoPrice, format!("{what} is absent or empty"));
    price(value)?.ok_or_else(none)
}

/// The GPUs of one node, by a provider's count.
pub(crate) fn gpus(count: i64) -> Result<GpuCount, Rejection> {
    if count == 0 {
        return Err(Rejection::new(SkipReason::NoGpu, "it has no GPU"));
    }
    let whole = u32::try_from(count).ok();
    let whole = whole.and_then(|count| GpuCount::whole(count).ok());
    whole.ok_or_else(|| {
        let why = format!("no machine has {count} GPUs");
        Rejection::new(SkipReason::ImpossibleCount, why)
    })
}

/// More free machines than this at one place is an error, such as minus one without its sign.
const MOST_FREE: i64 = 1_000_000;

/// A provider's count of free machines; a count that no provider has is a fault of the record.
pub(crate) fn free(count: &Value) -> Result<Option<u32>, Rejection> {
    if count.is_null() {
        return Ok(None);
    }
    let possible = count.as_i64().filter(|free| (0..=MOST_FREE).contains(free));
    let possible = possible.and_then(|free| u32::try_from(free).ok());
    possible.map(Some).ok_or_else(|| {
        let why = format!(
            "{} free machines is no possible count",
            shown(&count.to_string())
        );
        Rejection::new(SkipReason::ImpossibleCount, why)
    })
}

/// The most main memory or disk of one machine. Units: GiB.
const MOST_GIB: u64 = 1 << 20;

/// The main memory or the disk of a machine, in units of which a GiB has `per_gib`. Units: GiB, rounded down.
///
/// `None` where it is absent or zero; a size that no machine has is a fault of the record.
pub(crate) fn size_gib(what: &str, size: &Value, per_gib: u64) -> Result<Option<u32>, Rejection> {
    if size.is_null() || size.as_u64() == Some(0) {
        return Ok(None);
    }
    let gib = size.as_u64().map(|size| size / per_gib.max(1));
    let possible = gib.filter(|gib| (1..=MOST_GIB).contains(gib));
    let possible = possible.and_then(|gib| u32::try_from(gib).ok());
    possible.map(Some).ok_or_else(|| {
        let why = format!("{what} of {} is no possible size", shown(&size.to_string()));
        Rejection::new(SkipReason::Unreadable, why)
    })
}

/// The hardware of a seller's words, with the count of GPUs where the seller's own is wrong.
pub(crate) fn hardware(
    seller: &str,
    sku: &str,
    gpu_name: Option<&str>,
    memory_mib_per_gpu: Option<u64>,
) -> Result<(GpuIdentity, Option<GpuCount>), Rejection> {
    match gpu::resolve(seller, sku, gpu_name, memory_mib_per_gpu) {
        Resolution::Gpu {
            identity,
            share_of_gpu,
            ..
        } => Ok((identity, share_of_gpu)),
        Resolution::NotAGpu { rule } => Err(Rejection::new(SkipReason::NotAGpu, rule)),
        Resolution::Unknown { why } => Err(Rejection::new(SkipReason::UnknownGpu, why)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn gate(amount: &str, gpus: &str) -> Result<Money, SkipReason> {
        let gpus = GpuCount::parse(gpus).expect("a count");
        node_price(amount.parse().expect("a number"), gpus).map_err(|rejection| rejection.reason)
    }

    #[test]
    fn zero_is_no_price_and_what_cannot_be_meant_is_implausible() {
        assert_eq!(gate("0", "8"), Err(SkipReason::NoPrice));
        assert_eq!(gate("0.000", "8"), Err(SkipReason::NoPrice));
        for absurd in [
            "-1",
            "0.0799",
            "8000.01",
            "99999999999999999",
            "0.0000000001",
        ] {
            assert_eq!(
                gate(absurd, "8"),
                Err(SkipReason::ImplausiblePrice),
                "{absurd}"
            );
        }
    }

    #[test]
    fn a_price_is_a_number_or_a_text_that_is_one() {
        let read = |value: Value| {
            let price = price(&value).map_err(|rejection| rejection.reason);
            price.map(|price| price.map(|price| price.normalize().to_string()))
        };
        for none in [json!(null), json!(""), json!("  ")] {
            assert_eq!(read(none), Ok(None));
        }
        for (value, digits) in [
            (json!("18.32"), "18.32"),
            (json!(2.49), "2.49"),
            (json!(1e-3), "0.001"),
            (json!("1.2E1"), "12"),
            (json!(0), "0"),
        ] {
            assert_eq!(read(value), Ok(Some(digits.into())));
        }
        for bad in [
            json!("contact us"),
            json!("$12"),
            json!(true),
            json!([1]),
            json!("1e99"),
        ] {
            assert_eq!(read(bad.clone()), Err(SkipReason::Unreadable), "{bad}");
        }
    }

    #[test]
    fn a_name_is_short_and_moves_no_cursor_of_a_terminal() {
        assert!(name("a region", "eu-north-1 (Luleå)").is_ok());
        for bad in ["a\nb", "\u{1b}[2J", &"x".repeat(LONGEST_NAME + 1)] {
            assert!(name("a region", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_count_is_one_that_a_machine_can_have() {
        let of_one = |count| gpus(count).map(|it| it.to_string()).map_err(|it| it.reason);
        assert_eq!(of_one(8), Ok("8".into()));
        assert_eq!(of_one(0), Err(SkipReason::NoGpu));
        let free = |value: Value| free(&value).map_err(|it| it.reason);
        assert_eq!(free(json!(17)), Ok(Some(17)));
        assert_eq!(free(json!(null)), Ok(None));
        for (gpu_count, free_count) in [
            (-1, json!(-1)),
            (i64::MAX, json!(u64::MAX)),
            (100_000, json!("many")),
            (4_294_967_296, json!(1.5)),
        ] {
            assert_eq!(of_one(gpu_count), Err(SkipReason::ImpossibleCount));
            assert_eq!(free(free_count), Err(SkipReason::ImpossibleCount));
        }
    }

    #[test]
    fn a_size_is_one_that_a_machine_can_have() {
        let of = |size: Value| size_gib("memory", &size, 1_024).map_err(|it| it.reason);
        assert_eq!(of(json!(245_760)), Ok(Some(240)));
        assert_eq!(of(json!(null)), Ok(None));
        assert_eq!(of(json!(0)), Ok(None));
        for bad in [
            json!(1_023),
            json!(-1),
            json!(u64::MAX),
            json!("many"),
            json!(1.5),
        ] {
            assert_eq!(of(bad.clone()), Err(SkipReason::Unreadable), "{bad}");
        }
    }

    #[test]
    fn the_bounds_themselves_pass() {
        assert_eq!(gate("0.08", "8"), Ok(Money::usd_units(8_000_000)));
        assert_eq!(gate("8000", "8"), Ok(Money::usd_units(800_000_000_000)));
    }

    #[test]
    fn a_slice_is_judged_as_its_share_of_a_gpu() {
        assert_eq!(gate("0.00167", "0.167"), Ok(Money::usd_units(167_000)));
        assert_eq!(gate("0.00166", "0.167"), Err(SkipReason::ImplausiblePrice));
    }

    proptest! {
        #[test]
        fn what_passes_is_positive_and_within_bounds_per_gpu(units in any::<i64>(), thousandths in 1_u32..=1_024_000) {
            let gpus = GpuCount::from_thousandths(thousandths).expect("in range");
            if let Ok(price) = node_price(Decimal::new(units, 8), gpus) {
                prop_assert_eq!(price.units(), units);
                let dollars_per_gpu = price.units() as f64 / 1e8 / gpus.to_f64();
                prop_assert!((0.009_999..=1_000.001).contains(&dollars_per_gpu));
            }
        }
    }
}
