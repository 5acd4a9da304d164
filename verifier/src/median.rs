//! The median of measurements. For an even number it is always one of the measurements, never a value between
//! two.

/// The upper median, so that a single slow measurement of two is seen; none of an empty list.
#[must_use]
pub fn upper(measured: &[u64]) -> Option<u64> {
    sorted(measured).get(measured.len() / 2).copied()
}

/// The lower median; none of an empty list.
#[must_use]
pub fn lower(measured: &[u64]) -> Option<u64> {
    let at = measured.len().checked_sub(1)? / 2;
    sorted(measured).get(at).copied()
}

fn sorted(measured: &[u64]) -> Vec<u64> {
    let mut sorted = measured.to_vec();
    sorted.sort_unstable();
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_in_the_middle_each_has_its_own() {
        let measured = [9, 1, 5, 7];
        assert_eq!((lower(&measured), upper(&measured)), (Some(5), Some(7)));
        assert_eq!((lower(&[5, 9, 1]), upper(&[5, 9, 1])), (Some(5), Some(5)));
        assert_eq!((lower(&[5]), upper(&[5])), (Some(5), Some(5)));
        assert_eq!((lower(&[]), upper(&[])), (None, None));
    }
}
