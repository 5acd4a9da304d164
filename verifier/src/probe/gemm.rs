//! The exact products: a chain of them, committed to, then opened as the broker chooses; and the rates of
//! products on the tensor units.

use std::time::Instant;

use market::verification::{
    ChosenRow, Digest, GemmCommitment, GemmWork, LinkBefore, NodeFacts, OpenedRow,
    VerificationOrder, Word64,
};

use crate::device::{Device, DeviceError, Node};
use crate::gemm::{Chain, GemmInputs, freivalds_vector, row_times, tree_over, tree_over_chain};
use crate::merkle::Tree;
use crate::tensor::{Format, TensorWork};

/// About how long the products of one sample take, not counting the first, and as long again the untimed
/// products before them; and the most products in a sample. Units: nanoseconds.
pub const SAMPLE_NS: u64 = 100_000_000;
const MOST_PRODUCTS: f64 = 100.0;
/// How many more products are checked for each sample.
pub const CHECKED: u32 = 1;
/// How many rows of a product are read at once: all of them are a quarter of a gigabyte for each GPU.
const BAND: u32 = 256;
/// The most different checksums of a GPU in a report.
const MOST_SUMS: usize = 8;

/// The committed products of one GPU.
#[derive(Debug, Clone)]
pub struct CommittedChain {
    /// The roots of all of them, in their order.
    roots: Vec<Digest>,
    /// The checksum of the first after each iteration.
    checksums: Vec<Word64>,
    /// How long all but the first took, with their trees. Units: microseconds.
    us: u64,
}

/// The openings of one GPU's products.
#[derive(Debug)]
pub struct OpenedChain {
    /// The chosen rows, from the repeated computation of their products.
    pub rows: Vec<OpenedRow>,
    /// The first product times the vector.
    pub product: Vec<Word64>,
}

/// Computes the first product as often as ordered, then the chain of products that follow from it, and
/// commits to all of them.
///
/// Errors: [`DeviceError`] when the device does not compute.
pub fn commit(
    device: &mut dyn Device,
    nonce: &Digest,
    gpu: u32,
    work: &GemmWork,
) -> Result<CommittedChain, DeviceError> {
    let products = Chain::derive(nonce, gpu, work);
    let first = products.after(None);
    let checksums = (0..work.iterations)
        .map(|_| device.multiply(&first))
        .collect::<Result<Vec<Word64>, DeviceError>>()?;
    let mut roots = vec![tree_over(&device.row_sums()?).root()];
    let began = Instant::now();
    for _ in 1..work.links {
        let tree = compute(device, &products.after(roots.last()))?;
        roots.push(tree.root());
    }
    Ok(CommittedChain {
        roots,
        checksums,
        us: began.elapsed().as_micros() as u64,
    })
}

impl CommittedChain {
    /// The commitment, sent before the broker chooses.
    #[must_use]
    pub fn commitment(&self) -> GemmCommitment {
        GemmCommitment {
            chain: tree_over_chain(&self.roots).root(),
            checksums: self.checksums.clone(),
        }
    }

    /// How long all but the first took, with their trees. Units: microseconds.
    #[must_use]
    pub const fn us(&self) -> u64 {
        self.us
    }

    /// The checksum of the first product after each iteration.
    #[must_use]
    pub fn checksums(&self) -> &[Word64] {
        &self.checksums
    }
}

/// Computes a product, and gives the tree over its rows.
fn compute(device: &mut dyn Device, inputs: &GemmInputs) -> Result<Tree, DeviceError> {
    device.multiply(inputs)?;
    Ok(tree_over(&device.row_sums()?))
}

/// Recomputes the products to be opened, since only the roots were kept: the chosen rows, and the first
/// product times the vector that the broker drew.
///
/// A product that differs from its first computation is opened as it is now, and its root then does not
/// match.
/// Errors: [`DeviceError`] when the device does not compute.
pub fn open(
    device: &mut dyn Device,
    (nonce, gpu, work): (&Digest, u32, &GemmWork),
    committed: &CommittedChain,
    (seed, chosen): (&Digest, &[ChosenRow]),
) -> Result<OpenedChain, DeviceError> {
    let products = Chain::derive(nonce, gpu, work);
    let chain = tree_over_chain(&committed.roots);
    let mut rows = Vec::new();
    for of_one in chosen.chunk_by(|one, other| one.link == other.link) {
        let link = of_one[0].link;
        // A choice of a product that does not exist gets no answer.
        let Some(roots) = committed.roots.get(..link as usize) else {
            continue;
        };
        let before = roots.last().map(|root| LinkBefore {
            root: *root,
            path: chain.path(u64::from(link) - 1),
        });
        let tree = compute(device, &products.after(roots.last()))?;
        let numbers: Vec<u32> = of_one.iter().map(|at| at.row).collect();
        let read = device.read_rows(&numbers)?;
        rows.extend(of_one.iter().zip(read).map(|(at, values)| OpenedRow {
            at: *at,
            values,
            path: tree.path(u64::from(at.row)),
            link_path: chain.path(u64::from(link)),
            before: before.clone(),
        }));
    }
    device.multiply(&products.after(None))?;
    let vector = freivalds_vector(seed, gpu, work.n);
    let times = |row: &Vec<i32>| row_times(row.iter().map(|&v| i64::from(v)), &vector);
    let mut product = Vec::new();
    for first in (0..work.n).step_by(BAND as usize) {
        let band: Vec<u32> = (first..work.n.min(first + BAND)).collect();
        let read = device.read_rows(&band)?;
        product.extend(read.iter().map(|row| Word64(times(row).value())));
    }
    Ok(OpenedChain { rows, product })
}

/// Measures the rates of products on the tensor units, on all GPUs at once, where the agent has suitable
/// kernels. It checks the results, for each GPU's own inputs and in one sample for inputs that all GPUs
/// share. Gives the GPUs that did not finish.
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
            let own = sampled(device, inputs, format, samples)?;
            let common = GemmInputs::common(nonce, &order.gemm);
            let (_, common) = sampled(device, common, format, samples.min(1))?;
            Ok((own, common.first().copied()))
        });
        let measured = match measured {
            Ok(rates) => rates,
            Err(errors) => return errors,
        };
        for (gpu, ((gflops, sums), common)) in facts.gpus.iter_mut().zip(measured) {
            let (rates, different, of_all) = match format {
                Format::Bf16 => (
                    &mut gpu.rates.gemm_16bit_gflops,
                    &mut gpu.gemm_16bit_sums,
                    &mut gpu.gemm_16bit_common_sum,
                ),
                Format::Fp8 => (
                    &mut gpu.rates.gemm_fp8_gflops,
                    &mut gpu.gemm_fp8_sums,
                    &mut gpu.gemm_fp8_common_sum,
                ),
            };
            (*rates, *different, *of_all) = (gflops, sums, common);
        }
    }
    Vec::new()
}

/// Samples of the rate of products, and their different checksums; none where the device has no units for the
/// format.
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
        // A rate of 1e9 a second is one a nanosecond.
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
