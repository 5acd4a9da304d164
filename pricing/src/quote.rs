//! A placement's price, frozen. Metering at the frozen rate is in [`crate::meter`].

use market::demand::Ceiling;
use market::money::{Currency, Money};
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
    use market::money::Rate;
    use market::quantity::GpuCount;

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
