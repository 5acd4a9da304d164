//! A placement's price, frozen. Metering at the frozen rate is in [`crate::meter`].

use market::demand::Ceiling;
use market::money::{Currency, Money, MoneyError, Rate, divide_half_even};
use market::offer::Offer;
use market::quote::QuoteLine;

use crate::PriceError;
use crate::rate::per_gpu_hour;

/// Freezes the rates of a placement: a number of nodes of each offer, numbered from 0.
///
/// The rate is the offer's price per GPU-hour with no margin on it.
/// Errors: [`PriceError::NothingToQuote`] for no line or no node, [`PriceError::Slice`],
/// [`PriceError::UnknownPrice`], [`PriceError::Money`] when a sum exceeds 64 bits.
pub fn quote_lines<'a>(
    placement: impl IntoIterator<Item = (&'a Offer, u32)>,
) -> Result<Vec<QuoteLine>, PriceError> {
    let mut lines = Vec::new();
    for (line, (offer, nodes)) in (0..).zip(placement) {
        if nodes == 0 {
            return Err(PriceError::NothingToQuote);
        }
        if offer.gpus.as_whole().is_none() {
            return Err(PriceError::Slice(offer.offer_id));
        }
        let rate = per_gpu_hour(offer.price_per_node_hour, 3_600, offer.gpus)?;
        lines.push(QuoteLine {
            line,
            offer: offer.clone(),
            nodes,
            rate,
            rate_at_most: None,
            half: None,
            covered: None,
        });
    }
    if lines.is_empty() {
        return Err(PriceError::NothingToQuote);
    }
    // A quote whose hourly cost does not fit could never be charged.
    cost_per_hour(&lines)?;
    Ok(lines)
}

/// The tenant's cost for an hour of all lines, at their frozen rates.
///
/// Errors: [`PriceError::Money`].
pub fn cost_per_hour(lines: &[QuoteLine]) -> Result<Money, PriceError> {
    let currency = lines.first().map_or(Currency::Usd, |line| {
        line.rate.money_per_gpu_hour().currency()
    });
    lines.iter().try_fold(Money::zero(currency), |sum, line| {
        Ok(sum.checked_add(line.cost_per_hour()?)?)
    })
}

/// Makes bounds of frozen rates, for a later start: the ceiling per GPU-hour; else, under a ceiling on
/// everything, each line's share of it; else the rate.
///
/// Errors: [`PriceError::Money`].
pub fn bound(lines: &mut [QuoteLine], ceiling: Option<&Ceiling>) -> Result<(), PriceError> {
    let sum = cost_per_hour(lines)?;
    let ceiling = ceiling.cloned().unwrap_or_default();
    for line in lines {
        line.rate_at_most = Some(match (ceiling.usd_per_gpu_hour, ceiling.usd_per_hour) {
            (Some(rate), _) => rate,
            (None, Some(limit)) => share_of(limit, line.rate, sum)?,
            (None, None) => line.rate,
        });
    }
    Ok(())
}

/// The part of a ceiling on everything for a rate, of rates that sum up to `sum` per hour.
fn share_of(limit: Money, rate: Rate, sum: Money) -> Result<Rate, MoneyError> {
    let rate = i128::from(rate.money_per_gpu_hour().units());
    let share = divide_half_even(
        rate * i128::from(limit.units()),
        i128::from(sum.units()).max(1),
    );
    let share = i64::try_from(share).map_err(|_| MoneyError::Overflow)?;
    Ok(Rate::per_gpu_hour(Money::from_units(
        share,
        limit.currency(),
    )))
}

/// The tenant's cost for the first hour of all lines: committed nodes at the price that they still cost.
///
/// Errors: [`PriceError::Money`].
pub fn first_hour(lines: &[QuoteLine]) -> Result<Money, PriceError> {
    let mut sum = Money::zero(Currency::Usd);
    for line in lines {
        let rate = line
            .covered
            .map_or(line.rate, |covered| covered.rate_usd_gpu_hour);
        let cost = rate
            .money_per_gpu_hour()
            .checked_mul(i64::from(line.gpus()))?;
        sum = sum.checked_add(cost)?;
    }
    Ok(sum)
}

/// Checks a placement against the ceiling that the tenant set.
///
/// The ceiling applies to the offers' own rates, which are paid once a commitment has ended. A replacement is
/// checked by the same rule. A value equal to the ceiling is allowed.
/// Errors: [`PriceError::RateAboveCeiling`] for the first line above it,
/// [`PriceError::CostAboveCeiling`], [`PriceError::Money`].
pub fn check_ceiling(lines: &[QuoteLine], ceiling: &Ceiling) -> Result<(), PriceError> {
    if let Some(ceiling) = ceiling.usd_per_gpu_hour
        && let Some(line) = lines.iter().find(|line| line.rate > ceiling)
    {
        return Err(PriceError::RateAboveCeiling {
            ceiling,
            actual: line.rate,
        });
    }
    if let Some(ceiling) = ceiling.usd_per_hour {
        let actual = cost_per_hour(lines)?;
        if actual > ceiling {
            return Err(PriceError::CostAboveCeiling { ceiling, actual });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use market::quantity::GpuCount;

    use market::quote::most_per_hour;

    use super::*;
    use crate::samples::{offer, usd};

    fn rate(text: &str) -> Rate {
        Rate::per_gpu_hour(usd(text))
    }

    #[test]
    fn lines_are_numbered_and_carry_the_rate_that_the_offer_shows() {
        let (first, second) = (offer("23.92", 8), offer("1.10", 1));
        let lines = quote_lines([(&first, 2), (&second, 3)]).expect("a quote");
        assert_eq!(
            lines.iter().map(|l| (l.line, l.nodes)).collect::<Vec<_>>(),
            [(0, 2), (1, 3)]
        );
        for line in &lines {
            assert_eq!(line.rate, line.offer.rate().expect("a rate"));
        }
        assert_eq!(cost_per_hour(&lines).expect("a sum"), usd("51.14"));
    }

    #[test]
    fn a_ceiling_is_passed_by_one_unit_and_not_by_equality() {
        let eight = offer("23.92", 8);
        let lines = quote_lines([(&eight, 2)]).expect("a quote");
        let within = Ceiling {
            usd_per_gpu_hour: Some(rate("2.99")),
            usd_per_hour: Some(usd("47.84")),
        };
        check_ceiling(&lines, &within).expect("what equals the ceiling is under it");

        let by_rate = Ceiling {
            usd_per_gpu_hour: Some(rate("2.98999999")),
            ..within.clone()
        };
        assert!(matches!(
            check_ceiling(&lines, &by_rate),
            Err(PriceError::RateAboveCeiling { .. })
        ));
        let by_cost = Ceiling {
            usd_per_hour: Some(usd("47.83999999")),
            ..within
        };
        assert!(matches!(
            check_ceiling(&lines, &by_cost),
            Err(PriceError::CostAboveCeiling { .. })
        ));
    }

    #[test]
    fn a_later_start_costs_at_most_the_ceiling_a_share_of_it_or_the_rate() {
        let (eight, one) = (offer("24.00", 8), offer("1.00", 1));
        let most = |by_gpu: Option<&str>, in_all: Option<&str>| {
            let ceiling = Ceiling {
                usd_per_gpu_hour: by_gpu.map(rate),
                usd_per_hour: in_all.map(usd),
            };
            let mut lines = quote_lines([(&eight, 1), (&one, 1)]).expect("a quote");
            bound(&mut lines, Some(&ceiling)).expect("bounds");
            let each = lines
                .iter()
                .map(|line| line.rate_at_most.expect("one").to_string());
            let hour = most_per_hour(&lines, Some(&ceiling)).expect("a sum");
            (each.collect::<Vec<_>>().join(" "), hour.to_string())
        };
        let said = |each: &str, hour: &str| (each.to_owned(), hour.to_owned());
        assert_eq!(most(None, None), said("3.00 1.00", "25.00"));
        assert_eq!(most(Some("2.00"), None), said("2.00 2.00", "18.00"));
        assert_eq!(most(None, Some("50.00")), said("6.00 2.00", "50.00"));
        // Two thirds of three and of one, each rounded, make a unit more than the ceiling.
        assert_eq!(
            most(None, Some("16.66666667")),
            said("2.00 0.66666667", "16.66666667")
        );
        assert_eq!(
            most(Some("2.00"), Some("17.00")),
            said("2.00 2.00", "17.00")
        );
        assert_eq!(
            most(Some("2.00"), Some("19.00")),
            said("2.00 2.00", "18.00")
        );
    }

    #[test]
    fn a_slice_a_price_of_zero_and_an_empty_placement_are_no_quote() {
        let mut slice = offer("0.50", 1);
        slice.gpus = GpuCount::parse("0.5").expect("half");
        assert!(matches!(
            quote_lines([(&slice, 1)]),
            Err(PriceError::Slice(_))
        ));
        let free = offer("0.00", 1);
        assert!(matches!(
            quote_lines([(&free, 1)]),
            Err(PriceError::UnknownPrice(_))
        ));
        let one = offer("1.00", 1);
        assert!(matches!(
            quote_lines([(&one, 0)]),
            Err(PriceError::NothingToQuote)
        ));
        assert!(matches!(quote_lines([]), Err(PriceError::NothingToQuote)));
    }

    #[test]
    fn a_cost_that_no_charge_could_hold_is_refused() {
        let dear = offer("90000000000.00", 1);
        assert!(matches!(
            quote_lines([(&dear, 2)]),
            Err(PriceError::Money(_))
        ));
    }
}
