//! The agent's kernels, by name, with the reference arithmetic.

use std::ffi::c_void;

use market::verification::Pattern;
use verifier::field::Element;
use verifier::gemm::{GemmInputs, checksum, row_sum};
use verifier::memory::{Contents, block_digest};
use verifier::prf::Stream;
use verifier::tensor::Format;

use crate::script::Fault;
use crate::state::{State, state};
use crate::tensor;

const UNKNOWN_KERNEL: u32 = 500;
const ECC_UNCORRECTABLE: u32 = 214;
const ILLEGAL_ADDRESS: u32 = 700;
const NO_DEVICE: u32 = 100;
const UNKNOWN: u32 = 999;

/// A kernel's arguments.
pub struct Arguments(*mut *mut c_void);

impl Arguments {
    /// The argument at a position.
    pub fn at<T: Copy>(&self, place: usize) -> T {
        // SAFETY: the agent passes each kernel's arguments in number and size, as it would a real
        // driver, which could not check them either.
        unsafe { *(*self.0.add(place)).cast::<T>() }
    }

    pub fn stream(&self, place: usize) -> Stream {
        Stream::from_parameters(self.at(place))
    }

    fn contents(&self, place: usize) -> Contents {
        let patterns = [
            Pattern::Prf,
            Pattern::Complement,
            Pattern::Address,
            Pattern::Slow,
            Pattern::WalkingOne,
            Pattern::WalkingZero,
        ];
        Contents {
            stream: self.stream(place),
            pattern: patterns[self.at::<u32>(place + 1) as usize],
        }
    }
}

/// Waits until the process is killed.
pub fn hang() -> ! {
    loop {
        std::thread::park();
    }
}

/// Runs a kernel. Gives the driver's answer.
pub fn run(function: usize, arguments: *mut *mut c_void) -> u32 {
    let mut state = state();
    let Some(name) = state.functions.get(function).cloned() else {
        return UNKNOWN_KERNEL;
    };
    match state.card().fault.clone() {
        Fault::HangsIn(kernel) if kernel == name => {
            drop(state);
            hang();
        }
        Fault::LostIn(kernel) if kernel == name => state.gone = Some(UNKNOWN),
        Fault::UncorrectedIn(kernel) if kernel == name => state.gone = Some(ECC_UNCORRECTABLE),
        Fault::WithdrawnIn(kernel) if kernel == name => state.gone = Some(NO_DEVICE),
        _ => {}
    }
    if let Some(answer) = state.gone {
        return answer;
    }
    state.worked = true;
    let arguments = Arguments(arguments);
    let done = match name.as_str() {
        "memory_fill" => fill(&mut state, &arguments),
        "memory_compare" => compare(&mut state, &arguments),
        "memory_invert" => invert(&mut state, &arguments),
        "memory_digest" => digest(&mut state, &arguments),
        "stream_copy" => stream_copy(&mut state, &arguments),
        "stream_triad" => stream_triad(&mut state, &arguments),
        "stream_read" => stream_read(&mut state, &arguments),
        "ring_add" => ring_add(&mut state, &arguments),
        "gemm_inputs" => gemm_inputs(&mut state, &arguments),
        "gemm_exact" | "gemm_exact_back" => gemm_exact(&mut state, &arguments),
        "packed_inputs" => tensor::packed_inputs(&mut state, &arguments),
        "gemm_bf16" | "gemm_bf16_groups" => tensor::gemm(&mut state, &arguments, Format::Bf16),
        "gemm_fp8" | "gemm_fp8_groups" => tensor::gemm(&mut state, &arguments, Format::Fp8),
        "product_checksum" => product_checksum(&mut state, &arguments),
        "product_rows" => product_rows(&mut state, &arguments),
        _ => return UNKNOWN_KERNEL,
    };
    done.map_or(ILLEGAL_ADDRESS, |()| 0)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word))
        .collect()
}

fn add_to(state: &mut State, address: u64, more: u64) -> Option<()> {
    let bytes = state.memory(address, 8)?;
    let sum = u64::from_le_bytes(bytes.try_into().ok()?).wrapping_add(more);
    bytes.copy_from_slice(&sum.to_le_bytes());
    Some(())
}

/// Advances the time by that of making, or comparing, this many bytes of a pattern.
fn make(state: &mut State, pattern: Pattern, bytes: u64) {
    let card = state.card();
    let (bytes, rate) = match pattern {
        Pattern::Slow => (bytes * u64::from(card.stands_for), card.slow_fill_mb_per_s),
        _ => (bytes * u64::from(card.stands_for), card.copy_mb_per_s),
    };
    state.move_bytes(bytes, rate);
}

fn fill(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (address, blocks): (u64, u64) = (arguments.at(0), arguments.at(1));
    let contents = arguments.contents(2);
    let fault = state.card().fault.clone();
    state.filled_with = Some(contents);
    state.filled_at = Some(address);
    let all = blocks as usize * 4;
    let count = match fault {
        Fault::SkipsMemory => 0,
        Fault::HalvesMemory | Fault::Regenerates => all / 2,
        _ => all,
    };
    make(state, contents.pattern, count as u64 * 4);
    let memory = state.memory(address, blocks * 16)?;
    contents.for_words(0, count, |index, word| {
        memory[4 * index..4 * index + 4].copy_from_slice(&word.to_le_bytes());
    });
    if let Fault::FlipsBits(flips) = fault {
        let stride = count / (flips as usize + 1);
        for flip in 1..=flips as usize {
            memory[4 * flip * stride] ^= 1;
        }
    }
    Some(())
}

fn compare(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (address, blocks): (u64, u64) = (arguments.at(0), arguments.at(1));
    let contents = arguments.contents(2);
    let found: u64 = arguments.at(5);
    make(state, contents.pattern, blocks * 16);
    let fault = &state.card().fault;
    if matches!(
        fault,
        Fault::SkipsMemory | Fault::HalvesMemory | Fault::Regenerates
    ) {
        return Some(());
    }
    let is = words(state.memory(address, blocks * 16)?);
    let (mut bad, mut lowest) = (0_u64, u64::MAX);
    contents.for_words(0, is.len(), |index, word| {
        if is[index] != word {
            bad += 1;
            lowest = lowest.min(index as u64);
        }
    });
    add_to(state, found, bad)?;
    let known = state.memory(found + 8, 8)?;
    let lowest = lowest.min(u64::from_le_bytes(known.try_into().ok()?));
    known.copy_from_slice(&lowest.to_le_bytes());
    Some(())
}

fn invert(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (address, blocks): (u64, u64) = (arguments.at(0), arguments.at(1));
    compare(state, arguments)?;
    for byte in state.memory(address, blocks * 16)? {
        *byte = !*byte;
    }
    Some(())
}

fn digest(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (address, blocks): (u64, u64) = (arguments.at(0), arguments.at(1));
    let vectors: u32 = arguments.at(2);
    let point = Element::from_canonical(arguments.at(3))?;
    let digests: u64 = arguments.at(5);
    let block_bytes = u64::from(vectors) * 16;
    let missing = state
        .filled_with
        .filter(|_| state.card().fault == Fault::Regenerates);
    make(state, Pattern::Prf, blocks * block_bytes);
    for block in 0..blocks {
        let contents = match missing.filter(|_| block >= blocks / 2) {
            Some(contents) => {
                make(state, contents.pattern, block_bytes);
                let mut made = Vec::new();
                let first = block * block_bytes / 4;
                contents.for_words(first, block_bytes as usize / 4, |_, word| made.push(word));
                made
            }
            None => words(state.memory(address + block * block_bytes, block_bytes)?),
        };
        let sum = block_digest(contents, point).0;
        state
            .memory(digests + 8 * block, 8)?
            .copy_from_slice(&sum.to_le_bytes());
    }
    Some(())
}

/// How many of this many vectors a kernel processes.
fn gone_through(state: &State, kernel: &str, vectors: u64) -> u64 {
    match &state.card().fault {
        Fault::Halves(kernels) if kernel.starts_with(kernels) => vectors / 2,
        _ => vectors,
    }
}

fn stream_copy(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (to, from): (u64, u64) = (arguments.at(0), arguments.at(1));
    let vectors = gone_through(state, "stream_copy", arguments.at(2));
    state.fetch_bytes(from, vectors * 16);
    let bytes = state.memory(from, vectors * 16)?.to_vec();
    state.memory(to, vectors * 16)?.copy_from_slice(&bytes);
    Some(())
}

fn stream_triad(state: &mut State, arguments: &Arguments) -> Option<()> {
    let addresses: [u64; 3] = [arguments.at(0), arguments.at(1), arguments.at(2)];
    let scale: u32 = arguments.at(3);
    let vectors = gone_through(state, "stream_triad", arguments.at(4));
    state.stream_bytes(vectors * 48);
    let a = words(state.memory(addresses[1], vectors * 16)?);
    let b = words(state.memory(addresses[2], vectors * 16)?);
    let sum = a.into_iter().zip(b);
    let sum = sum.flat_map(|(a, b)| a.wrapping_add(scale.wrapping_mul(b)).to_le_bytes());
    let sum: Vec<u8> = sum.collect();
    state
        .memory(addresses[0], vectors * 16)?
        .copy_from_slice(&sum);
    Some(())
}

fn stream_read(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (from, sum): (u64, u64) = (arguments.at(0), arguments.at(3));
    let vectors = gone_through(state, "stream_read", arguments.at(1));
    state.stream_bytes(vectors * 16);
    let all = words(state.memory(from, vectors * 16)?);
    let more = all.into_iter().map(u64::from).sum();
    add_to(state, sum, more)
}

fn ring_add(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (to, from, vectors): (u64, u64, u64) = (arguments.at(0), arguments.at(1), arguments.at(2));
    let from_another = state.fetch_bytes(from, vectors * 16);
    let theirs = words(state.memory(from, vectors * 16)?);
    let mine = words(state.memory(to, vectors * 16)?);
    let sums = mine.into_iter().zip(theirs);
    let mut sums: Vec<u8> = sums
        .flat_map(|(mine, theirs)| mine.wrapping_add(theirs).to_le_bytes())
        .collect();
    if from_another && state.card().fault == Fault::AddsWrongly {
        *sums.last_mut()? ^= 1;
    }
    state.memory(to, vectors * 16)?.copy_from_slice(&sums);
    Some(())
}

fn gemm_inputs(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (left, right): (u64, u64) = (arguments.at(0), arguments.at(1));
    let inputs = GemmInputs {
        left: arguments.stream(2),
        right: arguments.stream(3),
        n: arguments.at(4),
        k: arguments.at(5),
    };
    let pitch = u64::from(arguments.at::<u32>(6));
    let bytes = u64::from(inputs.n) * pitch;
    state.product_at = None;
    let mut row_entries = Vec::new();
    for row in 0..inputs.n {
        inputs.left_row(row, &mut row_entries);
        let target = state.memory(left + u64::from(row) * pitch, pitch)?;
        for (byte, entry) in target.iter_mut().zip(&row_entries) {
            *byte = entry.cast_unsigned();
        }
    }
    for row in 0..inputs.k {
        inputs.right_row(row, &mut row_entries);
        let target = state.memory(right, bytes)?;
        for (column, entry) in row_entries.iter().enumerate() {
            target[column * pitch as usize + row as usize] = entry.cast_unsigned();
        }
    }
    Some(())
}

fn gemm_exact(state: &mut State, arguments: &Arguments) -> Option<()> {
    let addresses: [u64; 3] = [arguments.at(0), arguments.at(1), arguments.at(2)];
    let (n, pitch): (u32, u32) = (arguments.at(3), arguments.at(4));
    let (rows, pitch) = (u64::from(n), u64::from(pitch));
    state.products += 1;
    let product_ms = state.card().product_ms;
    state.pass_product(product_ms);
    if state.product_at == Some(addresses) {
        return spoil(state, addresses[2], false);
    }
    let left = state.memory(addresses[0], rows * pitch)?.to_vec();
    if state.card().fault == Fault::SkipsChain && state.is_skipped(&left) {
        return Some(());
    }
    let right = state.memory(addresses[1], rows * pitch)?.to_vec();
    let mut product = Vec::with_capacity(n as usize * n as usize * 4);
    let summed = match state.card().fault {
        Fault::SkipsProducts => 0,
        Fault::HalvesProducts => pitch as usize / 2,
        _ => pitch as usize,
    };
    for a in left.chunks(pitch as usize) {
        for b in right.chunks(pitch as usize) {
            let terms = a.iter().zip(b).take(summed);
            let sum: i32 = terms
                .map(|(a, b)| i32::from(a.cast_signed()) * i32::from(b.cast_signed()))
                .sum();
            product.extend(sum.to_le_bytes());
        }
    }
    state
        .memory(addresses[2], rows * rows * 4)?
        .copy_from_slice(&product);
    // The same inputs give the same product: it is not computed again.
    state.product_at = Some(addresses);
    spoil(state, addresses[2], true)
}

/// Makes a product wrong, where the fault requires it.
fn spoil(state: &mut State, product: u64, is_new: bool) -> Option<()> {
    let wrong = match state.card().fault {
        Fault::WrongEntry => is_new,
        Fault::Unrepeatable => state.products == 2,
        _ => false,
    };
    if wrong {
        state.memory(product, 1)?[0] ^= 1;
    }
    Some(())
}

fn product_checksum(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (product, entries, sum): (u64, u64, u64) =
        (arguments.at(0), arguments.at(1), arguments.at(2));
    let entries = words(state.memory(product, entries * 4)?);
    let entries: Vec<i32> = entries.into_iter().map(u32::cast_signed).collect();
    add_to(state, sum, checksum(&entries).0)
}

fn product_rows(state: &mut State, arguments: &Arguments) -> Option<()> {
    let (product, n, sums): (u64, u32, u64) = (arguments.at(0), arguments.at(1), arguments.at(2));
    let row_bytes = u64::from(n) * 4;
    for row in 0..n {
        let values = words(state.memory(product + u64::from(row) * row_bytes, row_bytes)?);
        let values: Vec<i32> = values.into_iter().map(u32::cast_signed).collect();
        add_to(state, sums + 8 * u64::from(row), row_sum(row, &values).0)?;
    }
    Some(())
}
