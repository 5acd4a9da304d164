//! The display of a price that is not settled: of spot capacity, which its provider may reclaim, or a bound.

/// The mark before the price of spot capacity.
pub(crate) const SPOT: &str = "spot ";
/// The mark before a price that is a bound.
pub(crate) const AT_MOST: &str = "at most ";

/// A price without its marks.
pub(crate) fn unmarked(price: &str) -> &str {
    let price = price.strip_prefix(SPOT).unwrap_or(price);
    price.strip_prefix(AT_MOST).unwrap_or(price)
}

/// A price for people, marked if any part of it is sold as spot. A text that is no price, such as a dash,
/// has no mark.
pub(crate) fn marked_price(price: impl Into<String>, is_spot: bool) -> String {
    let price = price.into();
    match is_spot && unmarked(&price).starts_with(|c: char| c.is_ascii_digit()) {
        true => format!("{SPOT}{price}"),
        false => price,
    }
}

#[cfg(test)]
mod tests {
    use crate::terminal::price::*;

    #[test]
    fn a_price_of_spot_is_marked_and_what_is_no_price_is_not() {
        for (price, is_spot, shown) in [
            ("2.50", true, "spot 2.50"),
            ("2.50", false, "2.50"),
            ("at most 2.50", true, "spot at most 2.50"),
            ("-", true, "-"),
            ("", true, ""),
        ] {
            assert_eq!(marked_price(price, is_spot), shown);
        }
        for (marked, price) in [
            ("spot 2.50", "2.50"),
            ("at most 2.50", "2.50"),
            ("spot at most 2.50", "2.50"),
            ("2.50", "2.50"),
        ] {
            assert_eq!(unmarked(marked), price);
        }
    }
}
