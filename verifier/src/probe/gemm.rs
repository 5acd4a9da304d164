//! The exact product: computed again and again, committed to, then opened where the broker asks.

use market::verification::{
    Digest, GemmCommitment, GemmWork, NodeFacts, OpenedRow, VerificationOrder, Word64,
};

use crate::device::{Device, DeviceError, Node};
use crate::gemm::{GemmInputs, freivalds_vector, row_leaf, row_times};
use crate::merkle::Tree;
use crate::tensor::{Format, TensorWork};

/// How long the products of one sample of their rate take, about, but for the first, and as long those
/// before them that are not timed; and how many they are at most. Units: nanoseconds.
pub const SAMPLE_NS: u64 = 100_000_000;
const MOST_PRODUCTS: f64 = 100.0;
/// How many more of them are looked at for each sample.
pub const CHECKED: u32 = 1;
/// The most different checksums of a GPU that are told.
const MOST_SUMS: usize = 8;

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
    let rows: Vec<&[i32]> = entries.chunks(work.n as usize).collect();
    // No product has more rows than 32 bits count.
    let leaf = |row: u64| row_leaf(row as u32, rows[row as usize]);
    let tree = Tree::over(rows.len() as u64, 1, leaf);
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

/// Measures the rates of products on the tensor units, all GPUs at once, where the agent has kernels that
/// reach them, and looks at what comes out. Gives the GPUs that did not finish.
pub fn rates(
    node: &mut Node,
    facts: &mut NodeFacts,
    nonce: &Digest,
    order: &VerificationOrder,
) -> Vec<DeviceError> {
    for format in Format::ALL {
        let rated = facts.gpus.iter().map(|gpu| {
            let capability = gpu.compute_capability.as_deref();
            capability.is_some_and(|capability| format.is_rated_on(capability))
        });
        let measured = node.on_all(rated.collect(), |gpu, device, is_rated| {
            let samples = if is_rated { order.bandwidth.samples } else { 0 };
            let inputs = GemmInputs::derive(nonce, gpu, &order.gemm);
            sampled(device, inputs, format, samples)
        });
        let measured = match measured {
            Ok(rates) => rates,
            Err(errors) => return errors,
        };
        for (gpu, (gflops, sums)) in facts.gpus.iter_mut().zip(measured) {
            let (rates, different) = match format {
                Format::Bf16 => (&mut gpu.rates.gemm_16bit_gflops, &mut gpu.gemm_16bit_sums),
                Format::Fp8 => (&mut gpu.rates.gemm_fp8_gflops, &mut gpu.gemm_fp8_sums),
            };
            (*rates, *different) = (gflops, sums);
        }
    }
    Vec::new()
}

/// Samples of the rate of products, and the different checksums that these had; nothing where the device
/// has none of the format.
fn sampled(
    device: &mut dyn Device,
    inputs: GemmInputs,
    format: Format,
    samples: u32,
) -> Result<(Vec<u64>, Vec<Word64>), DeviceError> {
    let mut work = TensorWork {
        inputs,
        format,
        most: format.most(),
        timed: 1,
        checked: CHECKED,
    };
    let (mut rates, mut sums) = (Vec::new(), Vec::new());
    for _ in 0..samples {
        let Some(run) = device.tensor_products(&work)? else {
            break;
        };
        // A rate of 1e9 a second is one in a nanosecond.
        let in_time = run.gflops as f64 * SAMPLE_NS as f64 / inputs.operations().max(1.0);
        work.timed = in_time.clamp(1.0, MOST_PRODUCTS) as u32;
        rates.push(run.gflops);
        for sum in run.checksums {
            if sums.len() < MOST_SUMS && !sums.contains(&sum) {
                sums.push(sum);
            }
        }
    }
    Ok((rates, sums))
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
