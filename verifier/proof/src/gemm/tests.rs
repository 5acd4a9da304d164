use market::verification::LinkBefore;
use proptest::prelude::*;

use super::*;

const NONCE: Digest = Digest([11; 32]);
const SEED: Digest = Digest([12; 32]);

fn work(n: u32, k: u32) -> GemmWork {
    GemmWork {
        n,
        k,
        links: LINKS,
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

const LINKS: u32 = 3;

struct Answer {
    roots: Vec<Digest>,
    root: Digest,
    rows: Vec<OpenedRow>,
    product: Vec<Word64>,
}

const fn at(link: u32, row: u32) -> ChosenRow {
    ChosenRow { link, row }
}

/// A chain as its agent computes it; `change` alters each product, and `commit` its root before the next one
/// follows from it.
fn answer(
    chain: &Chain,
    chosen: &[ChosenRow],
    change: impl Fn(u32, &mut Vec<Vec<i32>>),
    commit: impl Fn(u32, Digest) -> Digest,
) -> Answer {
    let vector = freivalds_vector(&SEED, 0, chain.first.n);
    let (mut roots, mut rows, mut product) = (Vec::new(), Vec::new(), Vec::new());
    for link in 0..LINKS {
        let mut c = naive(&chain.after(roots.last()));
        change(link, &mut c);
        let sums = (0..).zip(&c).map(|(row, values)| row_sum(row, values));
        let tree = tree_over(&sums.collect::<Vec<_>>());
        let open = |at: &ChosenRow| OpenedRow {
            at: *at,
            values: c[at.row as usize].clone(),
            path: tree.path(u64::from(at.row)),
            link_path: Vec::new(),
            before: None,
        };
        rows.extend(chosen.iter().filter(|at| at.link == link).map(open));
        roots.push(commit(link, tree.root()));
        if link == 0 {
            let times = |row: &Vec<i32>| row_times(row.iter().map(|&v| i64::from(v)), &vector);
            product = c.iter().map(|row| Word64(times(row).value())).collect();
        }
    }
    let tree = tree_over_chain(&roots);
    for row in &mut rows {
        let link = u64::from(row.at.link);
        row.link_path = tree.path(link);
        row.before = link.checked_sub(1).map(|before| LinkBefore {
            root: roots[before as usize],
            path: tree.path(before),
        });
    }
    Answer {
        root: tree.root(),
        roots,
        rows,
        product,
    }
}

fn honest(chain: &Chain, chosen: &[ChosenRow]) -> Answer {
    answer(chain, chosen, |_, _| (), |_, root| root)
}

fn check(chain: &Chain, answer: &Answer, chosen: &[ChosenRow]) -> Result<(), WrongProduct> {
    let vector = freivalds_vector(&SEED, 0, chain.first.n);
    let opened = OpenedProduct {
        root: &answer.root,
        rows: &answer.rows,
        product: &answer.product,
    };
    check_products((chain, LINKS), &vector, chosen, opened)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_true_chain_is_accepted_and_a_wrong_entry_is_caught_where_the_broker_looks(
        n in 1_u32..12, k in 1_u32..14, gpu in 0_u32..8, link in 0..LINKS,
        drawn in any::<(u32, u32)>(), off in prop_oneof![-3..0, 1..4],
    ) {
        let chain = Chain::derive(&NONCE, gpu, &work(n, k));
        let chosen = [at(link, drawn.0 % n)];
        let good = honest(&chain, &chosen);
        // The vector is that of the first GPU, for any GPU here.
        prop_assert_eq!(check(&chain, &good, &chosen), Ok(()));

        let (row, column) = (drawn.1 % n, drawn.0 % n);
        let err = |this, c: &mut Vec<Vec<i32>>| {
            if this == link {
                c[row as usize][column as usize] += off;
            }
        };
        let bad = answer(&chain, &chosen, err, |_, root| root);
        let caught = check(&chain, &bad, &chosen);
        let expected = match (row == chosen[0].row, link) {
            (true, _) => Err(WrongProduct::Entry { at: chosen[0], column }),
            (false, 0) => Err(WrongProduct::Row(row)),
            // Of the others the broker sees only the opened rows.
            (false, _) => Ok(()),
        };
        prop_assert_eq!(caught, expected);
    }
}

#[test]
fn what_follows_a_wrong_product_is_another_chain() {
    let chain = Chain::derive(&NONCE, 0, &work(5, 3));
    let good = honest(&chain, &[]);
    let err = |link, c: &mut Vec<Vec<i32>>| c[2][2] += i32::from(link == 1);
    let bad = answer(&chain, &[], err, |_, root| root);
    assert_eq!(good.roots[0], bad.roots[0]);
    assert_ne!(good.roots[1], bad.roots[1]);
    assert_ne!(good.roots[2], bad.roots[2]);
    let inputs: Vec<GemmInputs> = [None, good.roots.first(), good.roots.get(1)]
        .map(|root| chain.after(root))
        .into();
    assert_ne!(inputs[0].left, inputs[1].left);
    assert_ne!(inputs[1].left, inputs[2].left);
    let right: Vec<Stream> = inputs.iter().map(|inputs| inputs.right).collect();
    assert_eq!(right, [right[0]; 3], "all have the same B");
}

/// An agent that invents roots computes only the rows requested later.
#[test]
fn a_product_that_was_made_up_before_the_choice_is_not_in_its_tree() {
    let chain = Chain::derive(&NONCE, 0, &work(5, 3));
    let chosen = [at(1, 4)];
    let made_up = |of: u32| {
        let commit = move |link, root| if link == of { Digest([9; 32]) } else { root };
        answer(&chain, &chosen, |_, _| (), commit)
    };
    let not_committed = Err(WrongProduct::NotCommitted(chosen[0]));
    assert_eq!(check(&chain, &made_up(1), &chosen), not_committed);
    // A product computed rightly from an invented root is right: the invented product itself is not.
    assert_eq!(check(&chain, &made_up(0), &chosen), Ok(()));
    // Nor is a right product accepted where it follows from another root than the committed one.
    let mut other = honest(&chain, &chosen);
    let before = other.rows[0].before.as_mut().expect("a product before");
    before.root = Digest([9; 32]);
    assert_eq!(check(&chain, &other, &chosen), not_committed);
    other.rows[0].before = None;
    assert_eq!(check(&chain, &other, &chosen), not_committed);
}

/// For an invented row, the agent already knows the vector by which it is multiplied, and can give it any
/// checksum. Here the vector shows nothing, and the row leads to the committed root.
#[test]
fn a_row_that_was_made_to_fit_is_held_against_the_true_one() {
    let chain = Chain::derive(&NONCE, 0, &work(5, 3));
    let chosen = [at(1, 4)];
    let make_up = |link, c: &mut Vec<Vec<i32>>| {
        if link == 1 {
            c[4] = vec![1, 2, 3, 4, 5];
        }
    };
    let mut made_up = answer(&chain, &chosen, make_up, |_, root| root);
    made_up.product.fill(Word64(0));
    let opened = OpenedProduct {
        root: &made_up.root,
        rows: &made_up.rows,
        product: &made_up.product,
    };
    let caught = check_products((&chain, LINKS), &[Element::new(0); 5], &chosen, opened);
    assert!(
        matches!(caught, Err(WrongProduct::Entry { at, .. }) if at == chosen[0]),
        "{caught:?}"
    );
}

#[test]
fn rows_and_lists_of_another_form_are_refused() {
    let chain = Chain::derive(&NONCE, 0, &work(5, 3));
    let chosen = [at(0, 1), at(2, 3)];
    let good = || honest(&chain, &chosen);
    let refused = |change: fn(&mut Answer)| {
        let mut changed = good();
        change(&mut changed);
        check(&chain, &changed, &chosen)
    };
    assert_eq!(check(&chain, &good(), &chosen), Ok(()));
    let others = [at(0, 1), at(1, 3)];
    assert_eq!(check(&chain, &good(), &others), Err(WrongProduct::Form));
    assert_eq!(refused(|a| a.rows.truncate(1)), Err(WrongProduct::Form));
    assert_eq!(
        refused(|a| a.rows[0].values.truncate(4)),
        Err(WrongProduct::Form)
    );
    assert_eq!(refused(|a| a.product.truncate(4)), Err(WrongProduct::Form));
    assert_eq!(
        refused(|a| a.rows[1].values[0] += 1),
        Err(WrongProduct::NotCommitted(at(2, 3)))
    );
    assert_eq!(
        refused(|a| a.root = Digest([0; 32])),
        Err(WrongProduct::NotCommitted(at(0, 1)))
    );
    let last = Err(WrongProduct::NotCommitted(at(2, 3)));
    assert_eq!(refused(|a| a.rows[1].link_path.clear()), last);
    assert_eq!(refused(|a| a.rows[0].before = a.rows[1].before.clone()), {
        Err(WrongProduct::NotCommitted(at(0, 1)))
    });
    // A chain that is shorter, or longer, has another tree.
    let chain_of = |links| {
        let vector = freivalds_vector(&SEED, 0, 5);
        let answer = good();
        let opened = OpenedProduct {
            root: &answer.root,
            rows: &answer.rows,
            product: &answer.product,
        };
        check_products((&chain, links), &vector, &chosen, opened)
    };
    let first = Err(WrongProduct::NotCommitted(at(0, 1)));
    assert_eq!(chain_of(2), first);
    assert_eq!(chain_of(5), first);
    // The same residue written in another way is not the same answer.
    assert_eq!(
        refused(|a| a.product[2].0 += crate::field::P),
        Err(WrongProduct::Row(2))
    );
}

#[test]
fn the_sums_of_its_rows_make_the_checksum_of_a_product() {
    let c = naive(&GemmInputs::derive(&NONCE, 0, &work(7, 5)));
    let rows = (0..).zip(&c).map(|(row, values)| row_sum(row, values).0);
    assert_eq!(
        Word64(rows.fold(0, u64::wrapping_add)),
        checksum(&c.concat())
    );
    assert_ne!(row_sum(0, &c[0]), row_sum(1, &c[0]));
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
