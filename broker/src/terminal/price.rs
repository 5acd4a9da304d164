//! The display of a spot price: its provider may reclaim the capacity.

/// The mark before the price of spot capacity.
pub(crate) const SPOT: &str = "spot ";

/// A price for people, marked if any part of it is sold as spot. A text that is no price, such as a dash,
/// has no mark.
pub(crate) fn marked_price(price: impl Into<String>, is_spot: bool) -> String {
    let price = price.into();
    match is_spot && price.starts_with(|c: char| c.is_ascii_digit()) {
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
            ("-", true, "-"),
            ("", true, ""),
        ] {
            assert_eq!(marked_price(price, is_spot), shown);
        }
    }
}
