//! The shared vectors, played on a card.

use market::verification::Word64;
use serde::Serialize;

use crate::device::{Device, DeviceError};
use crate::tensor::{Format, TensorWork};
use crate::vectors::{memories, products, sum_of};

/// A vector that a card was to play.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Played {
    /// What it is: the kind of work with its size.
    pub name: String,
    /// The result that it must have.
    pub wanted: Word64,
    /// The result that the card gave; none where it has no units for it.
    pub gave: Option<Word64>,
    /// Whether that is the same, bit for bit.
    pub equal: Option<bool>,
}

impl Played {
    fn of(name: String, wanted: Word64, gave: Option<Word64>) -> Self {
        Self {
            name,
            wanted,
            gave,
            equal: gave.map(|gave| gave == wanted),
        }
    }
}

/// Plays all of them. What was on the card is lost.
///
/// Errors: [`DeviceError`] when the card does not do its work; what it did before is in `into`.
pub(super) fn play(device: &mut dyn Device, into: &mut Vec<Played>) -> Result<(), DeviceError> {
    for vector in products() {
        let (inputs, wanted) = (vector.inputs, vector.checksum);
        let name =
            |units: &str| format!("{units}, {0} x {0}, inner {1}", vector.inputs.n, inputs.k);
        // As 16-bit numbers the product is that of the integers.
        if vector.format == Format::Bf16 {
            let gave = device.multiply(&inputs)?;
            into.push(Played::of(name("integers"), wanted, Some(gave)));
        }
        let run = device.tensor_products(&TensorWork {
            inputs,
            format: vector.format,
            timed: 1,
            checked: 1,
        })?;
        let gave = run.and_then(|run| run.checksums.first().copied());
        into.push(Played::of(name(vector.format.words()), wanted, gave));
    }
    for vector in memories() {
        let bytes = vector.blocks * u64::from(vector.block_bytes);
        device.fill(&vector.contents, bytes)?;
        let digests = device.digest_blocks(vector.block_bytes, &vector.key)?;
        let name = format!(
            "memory {:?}, {} blocks of {} bytes",
            vector.contents.pattern, vector.blocks, vector.block_bytes
        );
        let gave = sum_of(&digests);
        into.push(Played::of(name, vector.digests, Some(gave)));
    }
    Ok(())
}
