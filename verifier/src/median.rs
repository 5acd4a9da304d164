//! The middle of what was measured. Of an even number it is always one that was measured, never between two.

/// The middle, the upper one of two, so that a single slow one of two is seen; none of nothing.
#[must_use]
pub fn upper(measured: &[u64]) -> Option<u64> {
    sorted(measured).get(measured.len() / 2).copied()
}

/// The middle, the lower one of two; none of nothing.
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
