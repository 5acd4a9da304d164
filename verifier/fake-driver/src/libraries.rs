//! The parts of `libcublasLt.so` that the agent calls. Products take time but are not computed: nobody reads
//! them.

use std::ffi::{c_int, c_void};

use crate::state::state;

const SUCCESS: c_int = 0;
/// Not a status of the library: it ends the process that calls it.
const CRASHES: c_int = -1;
const INVALID_VALUE: c_int = 7;
const NOT_SUPPORTED: c_int = 15;

/// 12.9.1, in the library's form.
const MATRICES_VERSION: usize = 120_901;

const REAL_16BF: c_int = 14;
const REAL_8F_E4M3: c_int = 28;

/// Algorithms for a product, each described in this many words, the first of which is its number. The
/// preferred one is not the fastest.
const WAYS: c_int = 3;
const WAY_WORDS: usize = 12;
const FASTEST: u64 = 1;
const SLOWER: f64 = 1.25;

/// The attribute that enables fast sums of 8-bit products. Without it they are as slow as the other
/// algorithms.
const FAST_ACCUMULATION: c_int = 25;
/// The attributes of an algorithm and the size of each: its number, and its use of several processors.
const ALGORITHM: (c_int, usize) = (0, 4);
const CLUSTER: (c_int, usize) = (8, 2);
const CLUSTER_SHAPE: u16 = 3;

/// A product as the agent describes it.
#[derive(Default)]
struct Product {
    is_fast: bool,
}

/// A matrix as the agent describes it.
struct Layout {
    format: c_int,
    rows: u64,
    columns: u64,
}

impl Layout {
    const fn bytes(&self) -> u64 {
        let entry = match self.format {
            REAL_16BF => 2,
            REAL_8F_E4M3 => 1,
            _ => 4,
        };
        self.rows * self.columns * entry
    }
}

fn give<T>(target: *mut T, value: T) -> c_int {
    // SAFETY: the agent passes the address of a variable of this type.
    unsafe { target.write(value) };
    SUCCESS
}

/// The object behind one of our handles.
fn layout<'a>(handle: *mut c_void) -> &'a Layout {
    // SAFETY: the agent passes a layout that was made here, and none is ever freed.
    unsafe { &*handle.cast::<Layout>() }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    MATRICES_VERSION
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtCreate(handle: *mut *mut c_void) -> c_int {
    match state().script.library {
        SUCCESS => give(handle, std::ptr::without_provenance_mut(1)),
        CRASHES => std::process::abort(),
        answer => answer,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescCreate(
    product: *mut *mut c_void,
    _compute: c_int,
    _scale: c_int,
) -> c_int {
    give(product, Box::into_raw(Box::<Product>::default()).cast())
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescSetAttribute(
    product: *mut c_void,
    attribute: c_int,
    value: *const c_void,
    bytes: usize,
) -> c_int {
    if attribute == FAST_ACCUMULATION {
        if bytes != 1 || !state().script.sums_fast {
            return INVALID_VALUE;
        }
        // SAFETY: the agent passes a product that was made here, and a value of one byte.
        unsafe { (*product.cast::<Product>()).is_fast = *value.cast::<i8>() == 1 };
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut *mut c_void,
    format: c_int,
    rows: u64,
    columns: u64,
    _apart: i64,
) -> c_int {
    let made = Box::new(Layout {
        format,
        rows,
        columns,
    });
    give(layout, Box::into_raw(made).cast())
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut *mut c_void) -> c_int {
    give(preference, std::ptr::without_provenance_mut(3))
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    _preference: *mut c_void,
    _attribute: c_int,
    _value: *const c_void,
    _bytes: usize,
) -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    _handle: *mut c_void,
    _product: *mut c_void,
    left: *mut c_void,
    _right: *mut c_void,
    _before: *mut c_void,
    _to: *mut c_void,
    _preference: *mut c_void,
    wanted: c_int,
    chosen: *mut [u64; WAY_WORDS],
    count: *mut c_int,
) -> c_int {
    // The first 8-bit tensor units are those of 8.9.
    if layout(left).format == REAL_8F_E4M3 && state().card().capability < (8, 9) {
        return NOT_SUPPORTED;
    }
    let ways = WAYS.min(wanted);
    for way in 0..ways {
        // SAFETY: the agent passes room for as many ways as it wants.
        unsafe { (*chosen.add(way as usize))[0] = way as u64 };
    }
    give(count, ways)
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: *const u64,
    attribute: c_int,
    value: *mut c_void,
    bytes: usize,
    _written: *mut usize,
) -> c_int {
    match (attribute, bytes) {
        // SAFETY: the agent passes one of the ways that it was given.
        ALGORITHM => give(value.cast::<u32>(), unsafe { *algorithm } as u32),
        CLUSTER => give(value.cast::<u16>(), CLUSTER_SHAPE),
        _ => INVALID_VALUE,
    }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmul(
    _handle: *mut c_void,
    product: *mut c_void,
    _alpha: *const f32,
    left: u64,
    left_layout: *mut c_void,
    right: u64,
    right_layout: *mut c_void,
    _beta: *const f32,
    _before: u64,
    _before_layout: *mut c_void,
    to: u64,
    to_layout: *mut c_void,
    algorithm: *const u64,
    _workspace: u64,
    _workspace_bytes: usize,
    _stream: *mut c_void,
) -> c_int {
    let (a, b, c) = (layout(left_layout), layout(right_layout), layout(to_layout));
    let mut state = state();
    for (address, matrix) in [(left, a), (right, b), (to, c)] {
        // A product of nothing would be faster than one of numbers.
        let there = state.memory(address, matrix.bytes());
        let empty = there.is_none_or(|there| matrix.format != 0 && there.iter().all(|b| *b == 0));
        if empty {
            return INVALID_VALUE;
        }
    }
    let rates = state.card().library_gflops;
    let gflops = if a.format == REAL_8F_E4M3 {
        rates.1
    } else {
        rates.0
    };
    let operations = 2.0 * a.rows as f64 * a.columns as f64 * b.columns as f64;
    // SAFETY: the agent passes one of the ways that it was given.
    let way = unsafe { *algorithm };
    // SAFETY: the agent passes a product that was made here.
    let is_fast = a.format != REAL_8F_E4M3 || unsafe { (*product.cast::<Product>()).is_fast };
    let slower = [way != FASTEST, !is_fast].map(|slow| if slow { SLOWER } else { 1.0 });
    let slower: f64 = slower.iter().product();
    state.pass_ms(slower * operations / gflops / 1e6);
    SUCCESS
}
