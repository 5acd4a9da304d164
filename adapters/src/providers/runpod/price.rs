//! Published prices: per GPU and hour, with placeholders among them.

use market::catalog::SkipReason;
use market::money::Money;
use market::quantity::GpuCount;
use rust_decimal::Decimal;
use serde_json::Value;

use crate::gate::{self, Rejection};

/// Placeholders for a missing price per GPU-hour. Zero is one for every provider.
const PLACEHOLDERS: [Decimal; 2] = [Decimal::from_parts(5, 0, 0, false, 1), Decimal::ONE];

/// A price per GPU-hour in US dollars; a placeholder is an error.
pub(super) fn read_price(price: &Value) -> Result<Decimal, Rejection> {
    let none = |why: String| Err(Rejection::new(SkipReason::NoPrice, why));
    let text = match price {
        Value::Null => return none("there is no price".to_owned()),
        Value::Number(number) => number.to_string(),
        other => other.as_str().unwrap_or_default().to_owned(),
    };
    let Ok(price) = Decimal::from_str_exact(&text).or_else(|_| Decimal::from_scientific(&text))
    else {
        let why = format!("the price `{}` is no number", gate::shown(&text));
        return Err(Rejection::new(SkipReason::Unreadable, why));
    };
    if price.is_zero() || PLACEHOLDERS.contains(&price) {
        return none(format!("a price of {price} is a placeholder here"));
    }
    Ok(price)
}

/// The lowest bid per GPU-hour, which is at most the price on demand.
pub(super) fn read_bid(bid: &Value, list_price: Decimal) -> Result<Decimal, Rejection> {
    let bid = read_price(bid)?;
    if bid > list_price {
        let why = format!("the least bid of {bid} is above {list_price} on demand");
        return Err(Rejection::new(SkipReason::SpotAboveOnDemand, why));
    }
    Ok(bid)
}

/// The price of a pod with this many GPUs.
pub(super) fn node_price(per_gpu: Decimal, gpus: GpuCount) -> Result<Money, Rejection> {
    let count = Decimal::new(i64::from(gpus.thousandths()), 3);
    let overflow = || Rejection::new(SkipReason::ImplausiblePrice, "the price is beyond any");
    gate::node_price(per_gpu.checked_mul(count).ok_or_else(overflow)?, gpus)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_placeholder_is_no_price_and_a_price_beside_one_is() {
        let price = |value: Value| {
            read_price(&value)
                .map(|price| price.to_string())
                .map_err(|rejection| rejection.reason)
        };
        for none in [
            json!(null),
            json!(0),
            json!(0.0),
            json!(0.5),
            json!("0.50"),
            json!(1),
        ] {
            assert_eq!(price(none.clone()), Err(SkipReason::NoPrice), "{none}");
        }
        assert_eq!(price(json!(1.0)), Err(SkipReason::NoPrice));
        assert_eq!(price(json!(0.49)), Ok("0.49".into()));
        assert_eq!(price(json!(1.01)), Ok("1.01".into()));
        assert_eq!(price(json!(2.99e0)), Ok("2.99".into()));
        assert_eq!(price(json!("ask us")), Err(SkipReason::Unreadable));
        assert_eq!(price(json!({})), Err(SkipReason::Unreadable));
    }

    #[test]
    fn a_bid_above_the_price_on_demand_is_no_offer() {
        let list = Decimal::new(299, 2);
        assert_eq!(read_bid(&json!(1.5), list).ok(), Some(Decimal::new(15, 1)));
        assert_eq!(read_bid(&json!(2.99), list).ok(), Some(list));
        let above = read_bid(&json!(3), list).map_err(|rejection| rejection.reason);
        assert_eq!(above, Err(SkipReason::SpotAboveOnDemand));
    }
}
