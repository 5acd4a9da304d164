//! The median of measurements. For an even number it is always one of the measurements, never a value between
//! two.

/// The upper median, so that a single slow measurement of two is seen; none of an empty list.
#[must_use]
pub fn upper(measured: &[u64]) -> Option<u64> {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable();
    sorted.get(measured.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_in_the_middle_it_is_the_upper_one() {
        assert_eq!(upper(&[9, 1, 5, 7]), Some(7));
        assert_eq!(upper(&[5, 9, 1]), Some(5));
        assert_eq!(upper(&[5]), Some(5));
        assert_eq!(upper(&[]), None);
    }
}
