//! The compiled kernels in the agent, and which of them a GPU runs.

use std::io::{self, Read};
use std::sync::LazyLock;

use market::verification::Digest;
use ruzstd::decoding::StreamingDecoder;

/// All images in one packed stream, which stores the common parts of one kernel's images once.
///
/// Shape, unpacked: a line `<name> <bytes>` for each (`memory_fill.sm_90a.cubin 11752`), an empty line,
/// then the images in the same order. `kernels/build.py` writes it beside the pairs of `kernels/cubins`.
const PACKED: &[u8] = include_bytes!("../../kernels/images.zst");

static IMAGES: LazyLock<Vec<(String, Vec<u8>)>> = LazyLock::new(|| {
    // The stream is part of the program, and the tests read all of it through this function.
    unpacked(PACKED)
        .unwrap_or_else(|error| panic!("the compiled-in kernels cannot be read: {error}"))
});

fn unpack(packed: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    StreamingDecoder::new(packed)
        .map_err(io::Error::other)?
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unpacked(packed: &[u8]) -> io::Result<Vec<(String, Vec<u8>)>> {
    let bytes = unpack(packed)?;
    let broken = || io::Error::other("its list does not have the expected form");
    let end = bytes.windows(2).position(|two| two == b"\n\n");
    let (list, mut rest) = bytes.split_at(end.ok_or_else(broken)?);
    rest = &rest[2..];
    let lines = str::from_utf8(list).map_err(io::Error::other)?.lines();
    let image = |line: &str| {
        let (name, length) = line.split_once(' ').ok_or_else(broken)?;
        let length = length.parse().map_err(io::Error::other)?;
        let (image, behind) = rest.split_at_checked(length).ok_or_else(broken)?;
        rest = behind;
        Ok((name.to_owned(), image.to_owned()))
    };
    lines.map(image).collect()
}

/// The hash of all compiled kernels, under which floors are kept.
#[must_use]
pub fn kernels_digest() -> Digest {
    static DIGEST: LazyLock<Digest> = LazyLock::new(|| {
        let mut hasher = blake3::Hasher::new();
        for (name, image) in IMAGES.iter() {
            hasher.update(&(name.len() as u64).to_le_bytes());
            hasher.update(name.as_bytes());
            hasher.update(blake3::hash(image).as_bytes());
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
    /// The part within it.
    pub minor: u32,
}

/// The target that an image was compiled for.
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

    /// How well it fits: larger is better; none if it does not run there.
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

/// The image of a kernel that fits a GPU best; PTX ends in a zero byte.
#[must_use]
pub fn image(kernel: &str, gpu: Capability) -> Option<&'static [u8]> {
    let of_kernel = IMAGES.iter().filter_map(|(name, image)| {
        let mut parts = name.split('.');
        let fits = parts.next()? == kernel;
        let fit = Target::parse(parts.next()?)?.fit(gpu)?;
        fits.then_some((fit, image.as_slice()))
    });
    let (_, image) = of_kernel.max_by_key(|(fit, _)| *fit)?;
    Some(image)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

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
    fn the_matrix_is_what_the_agent_carries_and_each_image_is_that_of_its_pair() {
        let matrix = include_str!("../../kernels/matrix.csv");
        let mut reader = csv::Reader::from_reader(matrix.as_bytes());
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/cubins");
        let mut pairs = 0;
        for record in reader.records() {
            let record = record.expect("a row");
            let kind = if record[1].starts_with("sm_") {
                "cubin"
            } else {
                "ptx"
            };
            let name = format!("{}.{}.{kind}", &record[0], &record[1]);
            let carried = IMAGES.iter().find(|(image, _)| *image == name);
            let packed = std::fs::read(folder.join(format!("{name}.zst"))).expect("a pair");
            let compiled = unpack(&packed).expect("unpacked");
            assert!(
                carried.is_some_and(|(_, image)| *image == compiled),
                "{name}"
            );
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
    fn all_kernels_together_stay_under_a_quarter_of_a_megabyte() {
        assert!(PACKED.len() < 250_000, "{}", PACKED.len());
    }
}
