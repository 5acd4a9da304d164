//! Powers, logarithms and angles that give the same number on every machine.
//!
//! Decisions are replayed bit for bit on other machines. The standard library delegates these functions to
//! the platform, and each platform rounds its own way. The `libm` crate computes them from sums and products,
//! which IEEE 754 defines. It also defines roots, absolute values and whole parts of the standard library, so
//! they are not here. `clippy.toml` refuses the rest.

pub use libm::{asin, cos, exp, log as ln, log2, pow, sin};

#[cfg(test)]
mod tests {
    use super::*;

    // To the last bit, because one different bit fails a replay. At these values the library of one platform
    // rounds differently.
    #[test]
    fn the_last_bit_is_the_same_on_every_machine() {
        let at = |step: u32| f64::from(step) * 0.001_37;
        for (name, found, bits) in [
            ("pow", pow(at(27), 0.7), 0x3fb9_765e_8b14_6104_u64),
            ("ln", ln(at(29)), 0xc009_ce20_e911_aa14),
            ("exp", exp(at(86)), 0x3ff2_002b_9b10_764e),
            ("log2", log2(at(216)), 0xbffc_1b87_5cfc_c6ff),
            ("sin", sin(at(59)), 0x3fb4_ab82_2bf0_5203),
            ("cos", cos(at(157)), 0x3fef_433b_b908_9384),
            ("asin", asin(at(28) / 6.0), 0x3f7a_2ff1_0a58_fa54),
        ] {
            assert_eq!(found.to_bits(), bits, "{name}");
        }
    }
}
