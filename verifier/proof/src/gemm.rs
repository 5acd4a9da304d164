//! The exact integer products C = A B: their chain, their inputs, their checksums and the broker's check.
//!
//! Entries of A and B are integers in [-8, 8], so every sum of products stays below 2^24 for
//! k <= 262,143 and single-precision accumulation is exact: a GPU, this CPU and the broker get
//! the same bits. The broker checks without computing C: C r = A (B r) mod 2^61 - 1 for a vector r
//! drawn after the agent committed to C (Freivalds), and some rows of C, which it computes itself.
//!
//! C r exposes a faulty GPU with an honest host. A host that lies can compute it from A (B r) without any C:
//! only the opened rows prevent that, which were committed to before they were chosen.
//!
//! Products are chained: A of each follows from the root over the rows of the one before, so that none can
//! begin before that is complete, and a GPU works through them for seconds by the broker's clock. The broker
//! draws the products whose rows are opened.

use market::verification::{ChosenRow, Digest, GemmWork, OpenedRow, Word64};
use serde::{Deserialize, Serialize};

use crate::field::Element;
use crate::merkle::{self, Tree};
use crate::prf::{Purpose, Stream, mix};

/// The inputs of one GPU's product.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct GemmInputs {
    /// Rows and columns of C.
    pub n: u32,
    /// The inner dimension.
    pub k: u32,
    /// The stream of A.
    pub left: Stream,
    /// The stream of B.
    pub right: Stream,
}

/// The products of one GPU, each following from the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    nonce: Digest,
    gpu: u32,
    first: GemmInputs,
}

impl Chain {
    /// The chain of one GPU, which begins with the nonce.
    #[must_use]
    pub fn derive(nonce: &Digest, gpu: u32, work: &GemmWork) -> Self {
        Self {
            nonce: *nonce,
            gpu,
            first: GemmInputs::derive(nonce, gpu, work),
        }
    }

    /// The inputs of the first product, or of the one after that whose rows have this root: another A, the
    /// same B.
    #[must_use]
    pub fn after(&self, root: Option<&Digest>) -> GemmInputs {
        let Some(root) = root else {
            return self.first;
        };
        let left = Stream::derive_after(&self.nonce, Purpose::GemmLeft, self.gpu, root);
        GemmInputs { left, ..self.first }
    }
}

impl GemmInputs {
    /// The inputs of the first product of one GPU, derived from the nonce.
    #[must_use]
    pub fn derive(nonce: &Digest, gpu: u32, work: &GemmWork) -> Self {
        Self {
            n: work.n,
            k: work.k,
            left: Stream::derive(nonce, Purpose::GemmLeft, gpu),
            right: Stream::derive(nonce, Purpose::GemmRight, gpu),
        }
    }

    /// The inputs derived from the nonce for all GPUs of a node: as those of a GPU number that none has.
    #[must_use]
    pub fn common(nonce: &Digest, work: &GemmWork) -> Self {
        Self::derive(nonce, u32::MAX, work)
    }

    /// The operations of the product, a multiplication and an addition being two.
    #[must_use]
    pub fn operations(&self) -> f64 {
        2.0 * f64::from(self.n) * f64::from(self.n) * f64::from(self.k)
    }

    /// Row `row` of A: k entries.
    pub fn left_row(&self, row: u32, entries: &mut Vec<i8>) {
        fill_entries(&self.left, row, self.k, entries);
    }

    /// Row `row` of B: n entries.
    pub fn right_row(&self, row: u32, entries: &mut Vec<i8>) {
        fill_entries(&self.right, row, self.n, entries);
    }

    /// The product, row by row: n times n entries.
    #[must_use]
    pub fn product(&self) -> Vec<i32> {
        let n = self.n as usize;
        let mut product = vec![0; n * n];
        let left: Vec<Vec<i8>> = (0..self.n)
            .map(|row| {
                let mut entries = Vec::new();
                self.left_row(row, &mut entries);
                entries
            })
            .collect();
        let mut right = Vec::new();
        for l in 0..self.k {
            self.right_row(l, &mut right);
            for (row, left) in product.chunks_mut(n).zip(&left) {
                let a = i32::from(left[l as usize]);
                for (sum, &b) in row.iter_mut().zip(&right) {
                    *sum += a * i32::from(b);
                }
            }
        }
        product
    }
}

fn fill_entries(stream: &Stream, row: u32, width: u32, entries: &mut Vec<i8>) {
    entries.clear();
    entries.resize(width as usize, 0);
    let start = u64::from(row) * u64::from(width);
    stream.for_words(start, width as usize, |index, word| {
        entries[index] = entry(word)
    });
}

/// An entry in [-8, 8], evenly, from the high bits of a word.
fn entry(word: u32) -> i8 {
    ((u64::from(word) * 17) >> 32) as i8 - 8
}

/// The order-independent checksum of C: the wrapping sum of every entry mixed with its index.
#[must_use]
pub fn checksum(product: &[i32]) -> Word64 {
    checksum_from(0, product)
}

/// The contribution of a row's entries to the checksum of their product.
#[must_use]
pub fn row_sum(row: u32, values: &[i32]) -> Word64 {
    checksum_from(u64::from(row) * values.len() as u64, values)
}

fn checksum_from(first: u64, values: &[i32]) -> Word64 {
    let sum = (first..).zip(values).fold(0_u64, |sum, (index, &value)| {
        sum.wrapping_add(mix(index << 32 | u64::from(value as u32)))
    });
    Word64(sum)
}

/// The tree over the checksums of the rows of C.
///
/// Wrong rows can be made with the right row's checksum, or any other. So opened rows are compared with the
/// right row, entry by entry, and the right row's checksum is computed only from its entries.
#[must_use]
pub fn tree_over(row_sums: &[Word64]) -> Tree {
    let leaf = |row: u64| row_leaf(row, row_sums[row as usize]);
    Tree::over(row_sums.len() as u64, 1, leaf)
}

fn row_leaf(row: u64, sum: Word64) -> Digest {
    merkle::leaf(row, &sum.0.to_le_bytes())
}

/// The tree over the roots of a chain's products.
#[must_use]
pub fn tree_over_chain(roots: &[Digest]) -> Tree {
    let leaf = |link: u64| merkle::leaf(link, &roots[link as usize].0);
    Tree::over(roots.len() as u64, 1, leaf)
}

/// The vector r of one GPU: n elements.
#[must_use]
pub fn freivalds_vector(seed: &Digest, gpu: u32, n: u32) -> Vec<Element> {
    let stream = Stream::derive(seed, Purpose::Freivalds, gpu);
    let mut words = Vec::with_capacity(2 * n as usize);
    stream.for_words(0, 2 * n as usize, |_, word| words.push(u64::from(word)));
    words
        .chunks_exact(2)
        .map(|pair| Element::new(pair[0] | pair[1] << 32))
        .collect()
}

/// A row of small integers times a vector, mod 2^61 - 1.
///
/// Shape: at most 2^32 entries, so that the sum of 32-bit times 61-bit products fits 128 bits.
pub fn row_times(row: impl IntoIterator<Item = i64>, vector: &[Element]) -> Element {
    let terms = row.into_iter().zip(vector);
    let sum = terms.map(|(value, element)| i128::from(value) * i128::from(element.value()));
    Element::from_i128(sum.sum())
}

/// The error in a committed product.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WrongProduct {
    /// Rows other than the chosen ones, or lists of another length.
    #[error("the openings do not have the requested form")]
    Form,
    /// A row, or the product before it, that is not in the committed tree.
    #[error("row {} of product {} is not in the committed tree", .0.row, .0.link)]
    NotCommitted(ChosenRow),
    /// A row with a wrong entry.
    #[error("row {} of product {} has a wrong entry in column {column}", .at.row, .at.link)]
    Entry {
        /// The row.
        at: ChosenRow,
        /// The first wrong column.
        column: u32,
    },
    /// A wrong element of C r: some entry of that row of the first product is wrong.
    #[error("row {0} of the first product is wrong")]
    Row(u32),
}

/// The agent's commitment and its later openings.
#[derive(Debug, Clone, Copy)]
pub struct OpenedProduct<'a> {
    /// The committed root of the chain.
    pub root: &'a Digest,
    /// The opened rows.
    pub rows: &'a [OpenedRow],
    /// C r of the first product as the agent computed it.
    pub product: &'a [Word64],
}

/// Checks products against their inputs; computes only the opened rows of them.
///
/// Every element of C r of the first product is checked: a wrong one passes with a chance of 2^-61. If a
/// share f of all rows of a chain was never computed, m opened rows miss that with a chance of (1 - f)^m.
/// Work: k n small multiplications for B r, which all products share, and for each opened row, and as many
/// for A (B r) of the first; nothing of size n^2 is held.
/// Errors: [`WrongProduct`] names the first error found.
pub fn check_products(
    (chain, links): (&Chain, u32),
    vector: &[Element],
    chosen: &[ChosenRow],
    opened: OpenedProduct<'_>,
) -> Result<(), WrongProduct> {
    let inputs = &chain.first;
    check_form((inputs, links), chosen, opened)?;

    let mut rows: Vec<TrueRow> = opened
        .rows
        .iter()
        .map(|row| TrueRow::of(chain, row))
        .collect();
    let mut entries = Vec::new();
    let inner: Vec<Element> = (0..inputs.k)
        .map(|l| {
            inputs.right_row(l, &mut entries);
            rows.iter_mut().for_each(|row| row.add(l, &entries));
            row_times(entries.iter().map(|&b| i64::from(b)), vector)
        })
        .collect();
    for (row, should) in opened.rows.iter().zip(&rows) {
        let mut columns = (0_u32..).zip(row.values.iter().zip(&should.sums));
        if let Some((column, _)) = columns.find(|(_, (got, want))| got != want) {
            return Err(WrongProduct::Entry { at: row.at, column });
        }
    }
    for (row, got) in (0..inputs.n).zip(opened.product) {
        inputs.left_row(row, &mut entries);
        let should = row_times(entries.iter().map(|&a| i64::from(a)), &inner);
        if Element::from_canonical(got.0) != Some(should) {
            return Err(WrongProduct::Row(row));
        }
    }
    Ok(())
}

/// The right row of a product, once all rows of B have been added.
struct TrueRow {
    left: Vec<i8>,
    sums: Vec<i32>,
}

impl TrueRow {
    fn of(chain: &Chain, row: &OpenedRow) -> Self {
        let inputs = chain.after(row.before.as_ref().map(|before| &before.root));
        let mut left = Vec::new();
        inputs.left_row(row.at.row, &mut left);
        let sums = vec![0; inputs.n as usize];
        Self { left, sums }
    }

    fn add(&mut self, l: u32, right: &[i8]) {
        let a = i32::from(self.left[l as usize]);
        for (sum, &b) in self.sums.iter_mut().zip(right) {
            *sum += a * i32::from(b);
        }
    }
}

fn check_form(
    (inputs, links): (&GemmInputs, u32),
    chosen: &[ChosenRow],
    opened: OpenedProduct<'_>,
) -> Result<(), WrongProduct> {
    let n = inputs.n as usize;
    let asked = chosen.iter().copied();
    let as_chosen = opened.rows.iter().map(|row| row.at).eq(asked);
    let full = opened.rows.iter().all(|row| row.values.len() == n);
    if !as_chosen || !full || opened.product.len() != n {
        return Err(WrongProduct::Form);
    }
    let rows = opened.rows.iter();
    let mut missing = rows.filter(|row| !is_committed(row, opened.root, (inputs.n, links)));
    match missing.next() {
        Some(row) => Err(WrongProduct::NotCommitted(row.at)),
        None => Ok(()),
    }
}

/// Whether a row, and the product before it, lead to the root of its chain of this many products of n rows.
fn is_committed(row: &OpenedRow, chain: &Digest, (n, links): (u32, u32)) -> bool {
    let ChosenRow { link, row: number } = row.at;
    let leaf = row_leaf(u64::from(number), row_sum(number, &row.values));
    let root = merkle::root_above(leaf, u64::from(number), u64::from(n), &row.path);
    let leads = |link: u32, root: &Digest, path: &[Digest]| {
        let leaf = merkle::leaf(u64::from(link), &root.0);
        merkle::leads_to(chain, leaf, u64::from(link), u64::from(links), path)
    };
    let follows = match (link.checked_sub(1), &row.before) {
        (Some(before), Some(said)) => leads(before, &said.root, &said.path),
        (None, None) => true,
        _ => false,
    };
    follows && root.is_some_and(|root| leads(link, &root, &row.link_path))
}

#[cfg(test)]
mod tests;
