use proptest::prelude::*;

use super::*;
use crate::merkle::Tree;

const NONCE: Digest = Digest([11; 32]);
const SEED: Digest = Digest([12; 32]);

fn work(n: u32, k: u32) -> GemmWork {
    GemmWork {
        n,
        k,
        iterations: 1,
        opened_rows: 2,
    }
}

/// The product by its definition, entry by entry.
fn naive(inputs: &GemmInputs) -> Vec<Vec<i32>> {
    let a: Vec<Vec<i8>> = (0..inputs.n)
        .map(|row| {
            let mut entries = Vec::new();
            inputs.left_row(row, &mut entries);
            entries
        })
        .collect();
    let b: Vec<Vec<i8>> = (0..inputs.k)
        .map(|row| {
            let mut entries = Vec::new();
            inputs.right_row(row, &mut entries);
            entries
        })
        .collect();
    let entry = |i: usize, j: usize| {
        (0..inputs.k as usize)
            .map(|l| i32::from(a[i][l]) * i32::from(b[l][j]))
            .sum()
    };
    let n = inputs.n as usize;
    (0..n)
        .map(|i| (0..n).map(|j| entry(i, j)).collect())
        .collect()
}

struct Answer {
    root: Digest,
    rows: Vec<OpenedRow>,
    product: Vec<Word64>,
}

fn answer(c: &[Vec<i32>], vector: &[Element], chosen: &[u32]) -> Answer {
    let leaf = |row: u64| row_leaf(row as u32, &c[row as usize]);
    let tree = Tree::over(c.len() as u64, 1, leaf);
    let open = |row: u32| OpenedRow {
        row,
        values: c[row as usize].clone(),
        path: tree.path(u64::from(row)),
    };
    let times = |row: &Vec<i32>| row_times(row.iter().map(|&v| i64::from(v)), vector);
    Answer {
        root: tree.root(),
        rows: chosen.iter().map(|&row| open(row)).collect(),
        product: c.iter().map(|row| Word64(times(row).value())).collect(),
    }
}

fn check(inputs: &GemmInputs, answer: &Answer, chosen: &[u32]) -> Result<(), WrongProduct> {
    let vector = freivalds_vector(&SEED, 0, inputs.n);
    let Answer {
        root,
        rows,
        product,
    } = answer;
    check_product(
        inputs,
        &vector,
        chosen,
        OpenedProduct {
            root,
            rows,
            product,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_true_product_is_accepted_and_one_wrong_entry_anywhere_is_caught(
        n in 1_u32..12, k in 1_u32..14, gpu in 0_u32..8,
        at in any::<(u32, u32)>(), off in prop_oneof![-3..0, 1..4],
    ) {
        let inputs = GemmInputs::derive(&NONCE, gpu, &work(n, k));
        let vector = freivalds_vector(&SEED, 0, n);
        let mut c = naive(&inputs);
        let chosen = [at.0 % n];
        prop_assert_eq!(check(&inputs, &answer(&c, &vector, &chosen), &chosen), Ok(()));

        let (row, column) = (at.1 % n, at.0 % n);
        c[row as usize][column as usize] += off;
        let caught = check(&inputs, &answer(&c, &vector, &chosen), &chosen);
        let expected = if row == chosen[0] {
            WrongProduct::Entry { row, column }
        } else {
            WrongProduct::Row(row)
        };
        prop_assert_eq!(caught, Err(expected));
    }
}

#[test]
fn rows_and_lists_of_another_form_are_refused() {
    let inputs = GemmInputs::derive(&NONCE, 0, &work(5, 3));
    let vector = freivalds_vector(&SEED, 0, 5);
    let c = naive(&inputs);
    let good = || answer(&c, &vector, &[1, 3]);
    let refused = |change: fn(&mut Answer)| {
        let mut changed = good();
        change(&mut changed);
        check(&inputs, &changed, &[1, 3])
    };
    assert_eq!(check(&inputs, &good(), &[1, 3]), Ok(()));
    assert_eq!(check(&inputs, &good(), &[3, 1]), Err(WrongProduct::Form));
    assert_eq!(refused(|a| a.rows.truncate(1)), Err(WrongProduct::Form));
    assert_eq!(
        refused(|a| a.rows[0].values.truncate(4)),
        Err(WrongProduct::Form)
    );
    assert_eq!(refused(|a| a.product.truncate(4)), Err(WrongProduct::Form));
    assert_eq!(
        refused(|a| a.rows[1].values[0] += 1),
        Err(WrongProduct::NotCommitted(3))
    );
    assert_eq!(
        refused(|a| a.root = Digest([0; 32])),
        Err(WrongProduct::NotCommitted(1))
    );
    // The same residue written in another way is not the same answer.
    assert_eq!(
        refused(|a| a.product[2].0 += crate::field::P),
        Err(WrongProduct::Row(2))
    );
}

#[test]
fn entries_are_even_over_minus_eight_to_eight() {
    let inputs = GemmInputs::derive(&NONCE, 0, &work(1, 170_000));
    let mut entries = Vec::new();
    inputs.left_row(0, &mut entries);
    let mut counts = [0_u32; 17];
    entries
        .iter()
        .for_each(|&entry| counts[usize::try_from(entry + 8).expect("in range")] += 1);
    assert!(
        counts.iter().all(|&count| (9_500..10_500).contains(&count)),
        "{counts:?}"
    );
    assert_eq!((entry(0), entry(u32::MAX)), (-8, 8));
}

#[test]
fn sums_at_the_largest_inner_dimension_are_exact_in_single_precision() {
    let terms = std::iter::repeat_n(64_i32, 262_142).chain([63]);
    let exact: i32 = terms.clone().sum();
    let single: f32 = terms.fold(0.0, |sum, term| sum + term as f32);
    assert_eq!(single as i32, exact);
}

#[test]
fn the_checksum_notices_a_changed_and_a_moved_entry() {
    let product = [3, -4, 5, 0];
    let sum = checksum(&product);
    assert_ne!(sum, checksum(&[3, -4, 5, 1]));
    assert_ne!(sum, checksum(&[-4, 3, 5, 0]));
    assert_eq!(sum, checksum(&product));
}
