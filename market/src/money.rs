//! Money as integers: amounts, and rates per GPU-hour.
//!
//! The unit is one millionth of the currency's minor unit (USD 1e-8), so that a price per GPU-second never
//! has to be stored and an `i64` still holds 92 billion dollars. Products are taken in `i128`; a result is
//! rounded once, half to even. The meaning of a price (per what, for whom) is in `pricing`.

use std::fmt;
use std::str::FromStr;

use rust_decimal::Decimal;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Seconds in an hour: rates are per GPU-hour, quantities are GPU-seconds.
pub const SECONDS_PER_HOUR: i64 = 3_600;

/// Why an amount of money was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The text is no decimal number.
    #[error("`{0}` is not a decimal amount; write it like `2.49`")]
    NotDecimal(String),
    /// The text has more decimal places than a unit can hold.
    #[error("`{0}` has more decimal places than the 8 that a USD amount can hold")]
    TooFine(String),
    /// The amount does not fit into 64 bits of units.
    #[error("the amount is too large")]
    Overflow,
    /// The currency is not one that the broker deals in.
    #[error("the currency `{0}` is not supported; use USD")]
    UnknownCurrency(String),
    /// A sum of two currencies.
    #[error("cannot add {0} to {1}: amounts of two currencies are never summed")]
    MixedCurrencies(Currency, Currency),
}

/// A currency that the broker deals in.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
pub enum Currency {
    /// United States dollar; minor unit 1e-2, so one unit is 1e-8 dollars.
    #[serde(rename = "USD")]
    Usd,
}

impl Currency {
    /// Decimal places of one unit: those of the minor unit and six more.
    #[must_use]
    pub const fn unit_decimals(self) -> u32 {
        match self {
            Self::Usd => 8,
        }
    }

    /// The ISO 4217 code.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Usd => "USD",
        }
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl FromStr for Currency {
    type Err = MoneyError;

    fn from_str(code: &str) -> Result<Self, MoneyError> {
        match code {
            "USD" => Ok(Self::Usd),
            other => Err(MoneyError::UnknownCurrency(other.to_owned())),
        }
    }
}

/// A sum of money.
///
/// Units: `units` are millionths of the currency's minor unit (USD 1e-8).
/// On the wire it is a decimal string; the currency stands beside it or in the field's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Money {
    units: i64,
    currency: Currency,
}

impl Money {
    /// An amount from its integer units.
    #[must_use]
    pub const fn from_units(units: i64, currency: Currency) -> Self {
        Self { units, currency }
    }

    /// US dollars from integer units of 1e-8 dollar.
    #[must_use]
    pub const fn usd_units(units: i64) -> Self {
        Self::from_units(units, Currency::Usd)
    }

    /// No money.
    #[must_use]
    pub const fn zero(currency: Currency) -> Self {
        Self::from_units(0, currency)
    }

    /// Reads an exact decimal text such as `23.92`.
    ///
    /// Errors: [`MoneyError::NotDecimal`], [`MoneyError::TooFine`] (nothing is rounded away
    /// silently), [`MoneyError::Overflow`].
    pub fn parse(text: &str, currency: Currency) -> Result<Self, MoneyError> {
        let amount = Decimal::from_str_exact(text.trim())
            .map_err(|_| MoneyError::NotDecimal(text.to_owned()))?;
        let units = to_units(amount, currency)?;
        if !units.fract().is_zero() {
            return Err(MoneyError::TooFine(text.to_owned()));
        }
        integer(units).map(|units| Self { units, currency })
    }

    /// Converts a decimal amount, rounding half to even at the unit.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn from_decimal(amount: Decimal, currency: Currency) -> Result<Self, MoneyError> {
        integer(to_units(amount, currency)?.round()).map(|units| Self { units, currency })
    }

    /// The integer units.
    #[must_use]
    pub const fn units(self) -> i64 {
        self.units
    }

    /// The currency.
    #[must_use]
    pub const fn currency(self) -> Currency {
        self.currency
    }

    /// The exact decimal amount.
    #[must_use]
    pub fn to_decimal(self) -> Decimal {
        Decimal::new(self.units, self.currency.unit_decimals()).normalize()
    }

    /// The sum of two amounts of one currency.
    ///
    /// Errors: [`MoneyError::MixedCurrencies`], [`MoneyError::Overflow`].
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::MixedCurrencies(other.currency, self.currency));
        }
        let units = self
            .units
            .checked_add(other.units)
            .ok_or(MoneyError::Overflow)?;
        Ok(Self { units, ..self })
    }

    /// The amount times `times`.
    ///
    /// Errors: [`MoneyError::Overflow`].
    pub fn checked_mul(self, times: i64) -> Result<Self, MoneyError> {
        let units = self.units.checked_mul(times).ok_or(MoneyError::Overflow)?;
        Ok(Self { units, ..self })
    }

    /// Whether the amount is above zero.
    #[must_use]
    pub const fn is_positive(self) -> bool {
        self.units > 0
    }
}

fn to_units(amount: Decimal, currency: Currency) -> Result<Decimal, MoneyError> {
    let scale = Decimal::from(10_i64.pow(currency.unit_decimals()));
    amount.checked_mul(scale).ok_or(MoneyError::Overflow)
}

fn integer(units: Decimal) -> Result<i64, MoneyError> {
    i64::try_from(units).map_err(|_| MoneyError::Overflow)
}

/// Divides in `i128`, rounding half to even; `denominator` must be above zero.
#[must_use]
pub fn divide_half_even(numerator: i128, denominator: i128) -> i128 {
    debug_assert!(denominator > 0, "a rate is never per zero");
    let quotient = numerator.div_euclid(denominator);
    let twice_rest = 2 * numerator.rem_euclid(denominator);
    match twice_rest.cmp(&denominator) {
        std::cmp::Ordering::Less => quotient,
        std::cmp::Ordering::Greater => quotient + 1,
        std::cmp::Ordering::Equal => quotient + (quotient & 1),
    }
}

impl fmt::Display for Money {
    /// The plain decimal amount with at least two places, such as `23.92`; no currency sign.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Formatted from the integer: plans contain hundreds of amounts, and formatting a decimal takes
        // several times as long.
        let per_unit = 10_u64.pow(self.currency.unit_decimals());
        let units = self.units.unsigned_abs();
        let (whole, mut rest) = (units / per_unit, units % per_unit);
        let mut places = self.currency.unit_decimals() as usize;
        while places > 2 && rest.is_multiple_of(10) {
            rest /= 10;
            places -= 1;
        }
        let sign = if self.units < 0 { "-" } else { "" };
        write!(f, "{sign}{whole}.{rest:0places$}")
    }
}

impl Serialize for Money {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Money {
    /// Reads a decimal string as US dollars, the one currency on the wire today.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text, Currency::Usd).map_err(serde::de::Error::custom)
    }
}

/// A price per GPU-hour, frozen in a quote and never changed after.
///
/// Units: millionths of the minor unit (USD 1e-8) per hour of one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rate(Money);

impl Rate {
    /// A rate from the money that one GPU costs for one hour.
    #[must_use]
    pub const fn per_gpu_hour(money: Money) -> Self {
        Self(money)
    }

    /// The money that one GPU costs for one hour.
    #[must_use]
    pub const fn money_per_gpu_hour(self) -> Money {
        self.0
    }

    /// The cost of this many GPU-seconds: `rate × quantity / 3600`, rounded half to even at the unit.
    ///
    /// Callers charge the difference of two such totals, so that splitting an interval does not change the
    /// sum. Errors: [`MoneyError::Overflow`].
    pub fn cost_of(self, gpu_seconds: i64) -> Result<Money, MoneyError> {
        let product = i128::from(self.0.units()) * i128::from(gpu_seconds);
        let units = divide_half_even(product, i128::from(SECONDS_PER_HOUR));
        let units = i64::try_from(units).map_err(|_| MoneyError::Overflow)?;
        Ok(Money::from_units(units, self.0.currency()))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

macro_rules! decimal_string_schema {
    ($type:ty, $name:literal, $description:literal) => {
        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some(r"^-?[0-9]{1,11}(\.[0-9]{1,8})?$"))
                    .description(Some($description))
                    .examples([serde_json::json!("2.49")])
                    .into()
            }
        }
        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed($name)
            }
        }
    };
}
decimal_string_schema!(Money, "Money", "US dollars as a decimal string");
decimal_string_schema!(Rate, "Rate", "US dollars per GPU-hour as a decimal string");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn usd(text: &str) -> Money {
        Money::parse(text, Currency::Usd).expect("a decimal amount")
    }

    #[test]
    fn an_amount_reads_back_as_it_was_written() {
        for text in [
            "0.00",
            "2.49",
            "23.92",
            "0.00000001",
            "92000000000.00",
            "-1.50",
        ] {
            assert_eq!(usd(text).to_string(), text);
        }
    }

    #[test]
    fn an_amount_finer_than_a_unit_is_refused_not_rounded() {
        assert_eq!(
            Money::parse("0.000000001", Currency::Usd),
            Err(MoneyError::TooFine("0.000000001".into()))
        );
    }

    #[test]
    fn words_and_absurd_sizes_are_refused() {
        assert!(matches!(
            Money::parse("$2", Currency::Usd),
            Err(MoneyError::NotDecimal(_))
        ));
        assert_eq!(
            Money::parse("92233720369", Currency::Usd),
            Err(MoneyError::Overflow)
        );
    }

    #[test]
    fn halves_round_to_the_even_neighbour() {
        assert_eq!(divide_half_even(5, 2), 2);
        assert_eq!(divide_half_even(7, 2), 4);
        assert_eq!(divide_half_even(-5, 2), -2);
        assert_eq!(divide_half_even(-7, 2), -4);
    }

    proptest! {
        #[test]
        fn an_amount_is_written_as_its_decimal_is(units in any::<i64>(), scale in 0_u32..12) {
            let money = Money::usd_units(units / 10_i64.pow(scale) * 10_i64.pow(scale));
            let mut decimal = money.to_decimal();
            decimal.rescale(decimal.scale().max(2));
            prop_assert_eq!(money.to_string(), decimal.to_string());
        }

        #[test]
        fn display_and_parse_are_inverse(units in any::<i64>()) {
            let money = Money::usd_units(units);
            prop_assert_eq!(usd(&money.to_string()), money);
        }

        #[test]
        fn a_cost_is_within_half_a_unit_of_exact(rate in 0_i64..10_000_000_000, seconds in 0_i64..1_000_000_000) {
            let Ok(cost) = Rate::per_gpu_hour(Money::usd_units(rate)).cost_of(seconds) else {
                prop_assume!(false);
                unreachable!()
            };
            let exact = i128::from(rate) * i128::from(seconds);
            let off = (i128::from(cost.units()) * 3_600 - exact).abs();
            prop_assert!(2 * off <= 3_600);
        }
    }
}
