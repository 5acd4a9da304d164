//! Numbers of things, as people write them: `1 row`, `2 rows`, `3 copies`.

use std::fmt::Display;

/// A count with its noun, which is given in the singular.
#[must_use]
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, thing: &str) -> String {
    if count == N::from(1) {
        return format!("1 {thing}");
    }
    match thing.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'i', 'o', 'u']) => format!("{count} {stem}ies"),
        _ => format!("{count} {thing}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_none_are_many() {
        assert_eq!(counted(1_u64, "row"), "1 row");
        assert_eq!(counted(0_usize, "row"), "0 rows");
        assert_eq!(counted(2_u32, "GPU"), "2 GPUs");
        assert_eq!(counted(2_u32, "copy"), "2 copies");
        assert_eq!(counted(2_u32, "day"), "2 days");
    }
}
