//! The compiled kernels that the agent carries, and which of them a GPU runs.

use std::io::Read;
use std::sync::LazyLock;

use market::verification::Digest;

/// Name (`memory_fill.sm_90a.cubin`) and packed contents of each.
const IMAGES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// The hash of all compiled kernels, by which floors are kept.
#[must_use]
pub fn kernels_digest() -> Digest {
    static DIGEST: LazyLock<Digest> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new();
        for (name, packed) in IMAGES {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(blake3::hash(packed).as_bytes());
        }
        Digest(*hasher.finalize().as_bytes())
    });
    *DIGEST
}

/// A GPU's compute capability: 9 and 0 of an H100.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capability {
    /// The generation.
    pub major: u32,
    /// The part of it.
    pub minor: u32,
}

/// What an image was compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Runs on this part only (`sm_90a`).
    Only(Capability),
    /// Runs on this part and on later ones of its generation (`sm_86`).
    Within(Capability),
    /// The driver compiles it for this part and any later one (`compute_90`).
    From(Capability),
}

impl Target {
    fn parse(word: &str) -> Option<Self> {
        let capability = |digits: &str| {
            let (major, minor) = digits.split_at_checked(digits.len().checked_sub(1)?)?;
            Some(Capability {
                major: major.parse().ok()?,
                minor: minor.parse().ok()?,
            })
        };
        if let Some(digits) = word.strip_prefix("compute_") {
            return Some(Self::From(capability(digits)?));
        }
        let digits = word.strip_prefix("sm_")?;
        match digits.strip_suffix('a') {
            Some(digits) => Some(Self::Only(capability(digits)?)),
            None => Some(Self::Within(capability(digits)?)),
        }
    }

    /// How well it fits: larger is better, none is not at all.
    fn fit(self, gpu: Capability) -> Option<u32> {
        match self {
            Self::Only(part) => (part == gpu).then_some(1_000),
            Self::Within(part) => {
                (part.major == gpu.major && part.minor <= gpu.minor).then_some(100 + part.minor)
            }
            Self::From(part) => {
                ((part.major, part.minor) <= (gpu.major, gpu.minor)).then_some(part.major)
            }
        }
    }
}

/// The image of a kernel that fits a GPU best, unpacked; PTX ends in a zero byte.
#[must_use]
pub fn image(kernel: &str, gpu: Capability) -> Option<Vec<u8>> {
    let of_kernel = IMAGES.iter().filter_map(|(name, packed)| {
        let mut parts = name.split('.');
        let fits = parts.next()? == kernel;
        let fit = Target::parse(parts.next()?)?.fit(gpu)?;
        fits.then_some((fit, packed))
    });
    let (_, packed) = of_kernel.max_by_key(|(fit, _)| *fit)?;
    let mut bytes = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(*packed)
        .ok()?
        .read_to_end(&mut bytes)
        .ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn gpu(major: u32, minor: u32) -> Capability {
        Capability { major, minor }
    }

    fn chosen(major: u32, minor: u32) -> Option<&'static str> {
        let words = [
            "sm_70",
            "sm_75",
            "sm_80",
            "sm_86",
            "sm_89",
            "sm_90a",
            "sm_100a",
            "sm_103a",
            "sm_120",
            "compute_90",
        ];
        words
            .into_iter()
            .filter_map(|word| Some((Target::parse(word)?.fit(gpu(major, minor))?, word)))
            .max()
            .map(|(_, word)| word)
    }

    #[test]
    fn each_part_gets_its_own_kernels_and_a_later_one_what_the_driver_can_compile() {
        for (part, word) in [
            ((7, 0), "sm_70"),
            ((7, 2), "sm_70"),
            ((7, 5), "sm_75"),
            ((8, 0), "sm_80"),
            ((8, 6), "sm_86"),
            ((8, 7), "sm_86"),
            ((8, 9), "sm_89"),
            ((9, 0), "sm_90a"),
            ((10, 0), "sm_100a"),
            ((10, 1), "compute_90"),
            ((10, 3), "sm_103a"),
            ((12, 0), "sm_120"),
            ((12, 1), "sm_120"),
            ((13, 0), "compute_90"),
        ] {
            assert_eq!(chosen(part.0, part.1), Some(word), "{part:?}");
        }
        assert_eq!(chosen(6, 1), None);
    }

    #[test]
    fn the_matrix_is_what_the_agent_carries_and_each_image_unpacks() {
        let matrix = include_str!("../../kernels/matrix.csv");
        let mut reader = csv::Reader::from_reader(matrix.as_bytes());
        let mut pairs = 0;
        for record in reader.records() {
            let record = record.expect("a row");
            let kind = if record[1].starts_with("sm_") {
                "cubin"
            } else {
                "ptx"
            };
            let name = format!("{}.{}.{kind}", &record[0], &record[1]);
            assert!(IMAGES.iter().any(|(image, _)| **image == name), "{name}");
            pairs += 1;
        }
        assert_eq!(pairs, IMAGES.len());
        for (part, start) in [(gpu(9, 0), &b"\x7fELF"[..]), (gpu(13, 0), &b"//\n"[..])] {
            let image = image("gemm_exact", part).expect("an image");
            assert!(image.starts_with(start), "{:?}", &image[..8]);
        }
        assert_eq!(image("gemm_exact", gpu(6, 0)), None);
        assert_eq!(image("gemm", gpu(9, 0)), None);
    }

    #[test]
    fn all_kernels_together_stay_under_half_a_megabyte() {
        let bytes: usize = IMAGES.iter().map(|(_, packed)| packed.len()).sum();
        assert!(bytes < 500_000, "{bytes}");
    }
}
