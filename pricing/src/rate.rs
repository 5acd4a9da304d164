//! A provider's price as a rate per GPU-hour. The next stage is [`crate::quote`].

use market::money::{Money, MoneyError, Rate, SECONDS_PER_HOUR, divide_half_even};
use market::quantity::GpuCount;

use crate::PriceError;

/// Converts a node's price into a rate per GPU-hour.
///
/// Units: `price` per `per_seconds` of the whole node; the result in units (1e-6 of the minor
/// unit) of the same currency per GPU-hour, rounded half to even.
/// Shape: `gpus` counts physical GPUs; for a slice the result is the price of a whole GPU's worth
/// of such slices.
/// Errors: [`PriceError::ZeroInterval`] when `per_seconds` is 0, [`PriceError::UnknownPrice`] when
/// the price is not above zero, [`PriceError::Money`] when the rate exceeds 64 bits.
/// Source: FOCUS 1.2, ListUnitPrice; provider notes in `fixtures/<provider>/SOURCE.md`.
pub fn per_gpu_hour(price: Money, per_seconds: u32, gpus: GpuCount) -> Result<Rate, PriceError> {
    if per_seconds == 0 {
        return Err(PriceError::ZeroInterval);
    }
    if !price.is_positive() {
        return Err(PriceError::UnknownPrice(price));
    }
    let numerator = i128::from(price.units()) * i128::from(SECONDS_PER_HOUR) * 1_000;
    let denominator = i128::from(per_seconds) * i128::from(gpus.thousandths());
    let units = divide_half_even(numerator, denominator);
    let units = i64::try_from(units).map_err(|_| MoneyError::Overflow)?;
    Ok(Rate::per_gpu_hour(Money::from_units(
        units,
        price.currency(),
    )))
}

#[cfg(test)]
mod tests {
    use market::money::Currency;
    use proptest::prelude::*;

    use super::*;

    fn usd(text: &str) -> Money {
        Money::parse(text, Currency::Usd).expect("an amount")
    }

    #[test]
    fn a_node_of_eight_costs_an_eighth_per_gpu() {
        let eight = GpuCount::whole(8).expect("eight");
        let rate = per_gpu_hour(usd("23.92"), 3_600, eight).expect("a rate");
        assert_eq!(rate.to_string(), "2.99");
    }

    #[test]
    fn a_price_per_month_of_thirty_days_is_divided_by_its_hours() {
        let one = GpuCount::whole(1).expect("one");
        let rate = per_gpu_hour(usd("720.00"), 30 * 86_400, one).expect("a rate");
        assert_eq!(rate.to_string(), "1.00");
    }

    #[test]
    fn a_slice_is_scaled_up_to_a_whole_gpu() {
        let half = GpuCount::parse("0.5").expect("half");
        let rate = per_gpu_hour(usd("0.50"), 3_600, half).expect("a rate");
        assert_eq!(rate.to_string(), "1.00");
    }

    #[test]
    fn a_price_of_zero_or_for_no_time_has_no_rate() {
        let one = GpuCount::whole(1).expect("one");
        assert!(matches!(
            per_gpu_hour(usd("1.00"), 0, one),
            Err(PriceError::ZeroInterval)
        ));
        assert!(matches!(
            per_gpu_hour(usd("0.00"), 3_600, one),
            Err(PriceError::UnknownPrice(_))
        ));
    }

    #[test]
    fn the_largest_price_per_second_is_refused_not_wrapped() {
        let one = GpuCount::whole(1).expect("one");
        let refusal = per_gpu_hour(Money::usd_units(i64::MAX), 1, one);
        assert!(
            matches!(refusal, Err(PriceError::Money(MoneyError::Overflow))),
            "{refusal:?}"
        );
    }

    proptest! {
        #[test]
        fn a_rate_is_within_half_a_unit_of_the_exact_quotient(
            units in 1_i64..1_000_000_000_000,
            per_seconds in 1_u32..40_000_000,
            thousandths in 1_u32..=16_000,
        ) {
            let gpus = GpuCount::from_thousandths(thousandths).expect("in range");
            let rate = per_gpu_hour(Money::usd_units(units), per_seconds, gpus).expect("fits");
            let got = i128::from(rate.money_per_gpu_hour().units());
            let scale = i128::from(per_seconds) * i128::from(thousandths);
            let exact = i128::from(units) * 3_600_000;
            prop_assert!(2 * (got * scale - exact).abs() <= scale);
        }
    }
}
