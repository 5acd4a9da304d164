//! The products on the tensor units, in the order in which the agent's kernels store their inputs.

use verifier::tensor::{Format, entry};

use crate::kernels::Arguments;
use crate::script::Fault;
use crate::state::{State, TensorProduct};

/// How long a product of a load takes, for any size. Units: milliseconds.
const LOAD_MS: f64 = 0.2;
/// Rows and bytes of the tiles in which the inputs lie (`packed.cuh`).
const TILE_ROWS: u32 = 128;
const TILE_DEPTH: u32 = 128;
const CHUNK: u32 = 16;
/// The number of products after which a card counts as warm, for faults that need that.
const WARM: u32 = 5_000;
/// 0 to 4 as e4m3.
const E4M3: [u8; 5] = [0x00, 0x38, 0x40, 0x44, 0x48];

/// Where a byte of a matrix lies; `depth` is the bytes of a row.
fn packed_at(row: u32, byte: u32, depth: u32) -> usize {
    let tile =
        u64::from(row / TILE_ROWS) * u64::from(depth / TILE_DEPTH) + u64::from(byte / TILE_DEPTH);
    let chunk = (byte % TILE_DEPTH / CHUNK) ^ (row % 8);
    let within = row % TILE_ROWS * TILE_DEPTH + chunk * CHUNK + byte % CHUNK;
    (tile * u64::from(TILE_ROWS * TILE_DEPTH) + u64::from(within)) as usize
}

fn encoded(format: Format, value: i32) -> Vec<u8> {
    match format {
        Format::Bf16 => ((value as f32).to_bits() >> 16).to_le_bytes()[..2].to_vec(),
        Format::Fp8 => {
            let sign = if value < 0 { 0x80 } else { 0 };
            vec![E4M3[value.unsigned_abs() as usize] | sign]
        }
    }
}

fn decoded(format: Format, bytes: &[u8]) -> f32 {
    match format {
        Format::Bf16 => f32::from_bits(u32::from_le_bytes([0, 0, bytes[0], bytes[1]])),
        Format::Fp8 => {
            let (exponent, fraction) = (bytes[0] >> 3 & 15, f32::from(bytes[0] & 7) / 8.0);
            let size = match exponent {
                0 => fraction / 64.0,
                _ => (1.0 + fraction) * f32::from(exponent).exp2() / 128.0,
            };
            if bytes[0] & 0x80 == 0 { size } else { -size }
        }
    }
}

pub fn packed_inputs(state: &mut State, arguments: &Arguments) -> Option<()> {
    let addresses: [u64; 2] = [arguments.at(0), arguments.at(1)];
    let streams = [arguments.stream(2), arguments.stream(3)];
    let (n, k, depth): (u32, u32, u32) = (arguments.at(4), arguments.at(5), arguments.at(6));
    let format = Format::ALL[arguments.at::<u32>(7) as usize];
    let most = u8::try_from(arguments.at::<u32>(8)).ok()?;
    state.tensor = None;
    state.loads_at = (most > Format::Bf16.most()).then_some(addresses);
    if state.loads_at.is_some() {
        return Some(());
    }
    let entry_bytes = format.entry_bytes();
    let bytes = u64::from(n.next_multiple_of(2 * TILE_ROWS)) * u64::from(depth);
    // The left matrix is written as it is, the right one as its transpose.
    let matrices = addresses.into_iter().zip(streams);
    for ((address, stream), (width, is_left)) in matrices.zip([(k, true), (n, false)]) {
        let matrix = state.memory(address, bytes)?;
        stream.for_words(0, n as usize * k as usize, |index, word| {
            let (row, column) = (index as u32 / width, index as u32 % width);
            let (row, at) = if is_left {
                (row, column)
            } else {
                (column, row)
            };
            for (byte, value) in (0..).zip(encoded(format, entry(word, most))) {
                matrix[packed_at(row, at * entry_bytes + byte, depth)] = value;
            }
        });
    }
    Some(())
}

/// The rows of a matrix, as numbers.
fn rows(matrix: &[u8], n: u32, depth: u32, format: Format) -> Vec<Vec<f32>> {
    let bytes = format.entry_bytes();
    let number = |row: u32, at: u32| {
        let first = packed_at(row, at * bytes, depth);
        decoded(format, &matrix[first..first + bytes as usize])
    };
    let row = |row| (0..depth / bytes).map(|at| number(row, at)).collect();
    (0..n).map(row).collect()
}

pub fn gemm(state: &mut State, arguments: &Arguments, format: Format) -> Option<()> {
    let inputs_at: [u64; 2] = [arguments.at(0), arguments.at(1)];
    let (product, n, depth): (u64, u32, u32) = (arguments.at(2), arguments.at(3), arguments.at(4));
    state.tensor_products += 1;
    if state.loads_at == Some(inputs_at) {
        // The products of a load are only checked for changes.
        state.pass_product(LOAD_MS);
        let wrong = state.card().fault == Fault::FlipsUnderLoad && state.tensor_products > WARM;
        if state.card().fault == Fault::ForgetsUnderLoad && state.tensor_products == WARM + 1 {
            let held = state.filled_at?;
            state.memory(held, 1)?[0] ^= 1;
        }
        state.memory(product, 1)?[0] = u8::from(wrong);
        return Some(());
    }
    let rates = state.card().tensor_gflops;
    let gflops = match format {
        Format::Bf16 => rates.0,
        Format::Fp8 => rates.1,
    };
    let operations = 2.0 * f64::from(n) * f64::from(n) * f64::from(depth / format.entry_bytes());
    state.pass_ms(operations / gflops / 1e6);
    if state
        .tensor
        .as_ref()
        .is_none_or(|known| known.inputs_at != inputs_at)
    {
        let bytes = u64::from(n.next_multiple_of(2 * TILE_ROWS)) * u64::from(depth);
        let left = rows(state.memory(inputs_at[0], bytes)?, n, depth, format);
        let right = rows(state.memory(inputs_at[1], bytes)?, n, depth, format);
        let mut entries = Vec::with_capacity(n as usize * n as usize * 4);
        for a in &left {
            for b in &right {
                let sum: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
                entries.extend((sum as i32).to_le_bytes());
            }
        }
        state.tensor = Some(TensorProduct { inputs_at, entries });
    }
    let entries = state.tensor.as_ref()?.entries.clone();
    let wrong = match state.card().fault {
        Fault::Unrepeatable => state.tensor_products.is_multiple_of(7),
        Fault::FlipsTensor(every) => state.tensor_products.is_multiple_of(every),
        _ => false,
    };
    let written = state.memory(product, entries.len() as u64)?;
    written.copy_from_slice(&entries);
    written[0] ^= u8::from(wrong);
    Some(())
}
