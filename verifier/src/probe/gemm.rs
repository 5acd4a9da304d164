//! The exact product: computed again and again, committed to, then opened where the broker asks.

use market::verification::{Digest, GemmCommitment, GemmWork, OpenedRow, Word64};

use crate::device::{Device, DeviceError};
use crate::gemm::{GemmInputs, freivalds_vector, row_leaf, row_times};
use crate::merkle::Tree;

/// A product that was committed to.
#[derive(Debug)]
pub struct CommittedProduct {
    gpu: u32,
    n: u32,
    entries: Vec<i32>,
    tree: Tree,
}

/// Computes the product as often as ordered and commits to the last result.
///
/// Errors: [`DeviceError`] when the device does not compute.
pub fn commit(
    device: &mut dyn Device,
    nonce: &Digest,
    gpu: u32,
    work: &GemmWork,
) -> Result<(GemmCommitment, CommittedProduct), DeviceError> {
    let inputs = GemmInputs::derive(nonce, gpu, work);
    let checksums = (0..work.iterations)
        .map(|_| device.multiply(&inputs))
        .collect::<Result<Vec<Word64>, DeviceError>>()?;
    let entries = device.read_product()?;
    let rows = entries.chunks(work.n as usize);
    let tree = Tree::over(
        rows.zip(0..)
            .map(|(values, row)| row_leaf(row, values))
            .collect(),
    );
    let commitment = GemmCommitment {
        root: tree.root(),
        checksums,
    };
    Ok((
        commitment,
        CommittedProduct {
            gpu,
            n: work.n,
            entries,
            tree,
        },
    ))
}

impl CommittedProduct {
    /// Opens rows and multiplies by the vector that the broker drew.
    #[must_use]
    pub fn open(&self, seed: &Digest, rows: &[u32]) -> (Vec<OpenedRow>, Vec<Word64>) {
        let n = self.n as usize;
        let opened = rows
            .iter()
            .filter_map(|&row| {
                let values = self.entries.chunks(n).nth(row as usize)?.to_vec();
                Some(OpenedRow {
                    row,
                    values,
                    path: self.tree.path(u64::from(row)),
                })
            })
            .collect();
        let vector = freivalds_vector(seed, self.gpu, self.n);
        let times = |row: &[i32]| row_times(row.iter().map(|&v| i64::from(v)), &vector);
        let product = self
            .entries
            .chunks(n)
            .map(|row| Word64(times(row).value()))
            .collect();
        (opened, product)
    }
}
