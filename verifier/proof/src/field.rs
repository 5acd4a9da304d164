//! Arithmetic modulo the Mersenne prime 2^61 - 1, in which products and memory are checked.

/// The modulus.
pub const P: u64 = (1 << 61) - 1;

/// An element, always below [`P`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Element(u64);

impl Element {
    /// Zero.
    pub const ZERO: Self = Self(0);
    /// One.
    pub const ONE: Self = Self(1);

    /// The element congruent to a word.
    #[must_use]
    pub const fn new(word: u64) -> Self {
        Self(word % P)
    }

    /// The element congruent to a signed sum.
    #[must_use]
    pub fn from_i128(sum: i128) -> Self {
        // The remainder lies in 0..P, which fits 61 bits.
        Self(sum.rem_euclid(i128::from(P)) as u64)
    }

    /// The element that this word represents, when it is one.
    #[must_use]
    pub fn from_canonical(word: u64) -> Option<Self> {
        (word < P).then_some(Self(word))
    }

    /// The representative in `0..P`.
    #[must_use]
    pub const fn value(self) -> u64 {
        self.0
    }

    /// The sum.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self::fold(self.0 + other.0)
    }

    /// The product.
    #[must_use]
    pub const fn times(self, other: Self) -> Self {
        let product = self.0 as u128 * other.0 as u128;
        Self::fold((product as u64 & P) + (product >> 61) as u64)
    }

    /// Reduces a word below 2 P.
    const fn fold(word: u64) -> Self {
        Self(if word >= P { word - P } else { word })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_and_products_agree_with_wide_integers(a in any::<u64>(), b in any::<u64>()) {
            let (x, y) = (Element::new(a), Element::new(b));
            let p = u128::from(P);
            let (wide_a, wide_b) = (u128::from(a) % p, u128::from(b) % p);
            prop_assert_eq!(u128::from(x.plus(y).value()), (wide_a + wide_b) % p);
            prop_assert_eq!(u128::from(x.times(y).value()), wide_a * wide_b % p);
        }

        #[test]
        fn a_negative_sum_cancels_its_positive(sum in 0..i128::from(u64::MAX)) {
            let both = Element::from_i128(sum).plus(Element::from_i128(-sum));
            prop_assert_eq!(both, Element::ZERO);
        }
    }

    #[test]
    fn the_edges_are_reduced() {
        assert_eq!(Element::new(P), Element::ZERO);
        let last = Element::new(P - 1);
        assert_eq!(last.times(last), Element::ONE);
        assert_eq!(last.plus(Element::ONE), Element::ZERO);
        assert_eq!(Element::from_canonical(P), None);
    }
}
