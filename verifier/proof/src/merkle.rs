//! A BLAKE3 hash tree: a root commits to a list, and any entry can be opened later.
//!
//! Leaves and inner nodes are hashed under different prefixes, and a leaf carries its index, so
//! that neither a subtree nor another entry can stand in for a leaf. The last node of an odd
//! level moves up unhashed.

use market::verification::Digest;

/// The longest leaf that is hashed in one piece. Units: bytes.
const SHORT: usize = 160;

/// The hash of the leaf at `index`.
#[must_use]
pub fn leaf(index: u64, content: &[u8]) -> Digest {
    // The set-up of a hasher takes longer than a hash of a few blocks.
    const HEAD: usize = 9;
    let mut short = [0; SHORT];
    short[1..HEAD].copy_from_slice(&index.to_le_bytes());
    if let Some(room) = short.get_mut(HEAD..HEAD + content.len()) {
        room.copy_from_slice(content);
        return hash(&short[..HEAD + content.len()]);
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(&short[..HEAD]);
    hasher.update(content);
    Digest(*hasher.finalize().as_bytes())
}

fn inner(left: &Digest, right: &Digest) -> Digest {
    let mut both = [1; 65];
    both[1..33].copy_from_slice(&left.0);
    both[33..].copy_from_slice(&right.0);
    hash(&both)
}

fn hash(bytes: &[u8]) -> Digest {
    Digest(*blake3::hash(bytes).as_bytes())
}

/// How many leaves each subtree but the last has: a power of two, and enough work for a thread.
const SUBTREE: u64 = 1 << 14;

/// The hashes from the leaves up to one root.
type Levels = Vec<Vec<Digest>>;

/// A tree with all its levels, so that entries can be opened.
#[derive(Debug, Clone)]
pub struct Tree {
    /// Each over [`SUBTREE`] leaves, the last one over the remainder.
    subtrees: Vec<Levels>,
    /// Over the roots of the subtrees.
    top: Levels,
    count: u64,
}

impl Tree {
    /// The tree over this many leaves made by [`leaf`], by at most this many threads.
    #[must_use]
    pub fn over(count: u64, threads: usize, leaf: impl Fn(u64) -> Digest + Sync) -> Self {
        let leaf = &leaf;
        let subtree = move |number: u64| {
            let first = number * SUBTREE;
            levels((first..count.min(first + SUBTREE)).map(leaf).collect())
        };
        let numbers: Vec<u64> = (0..count.div_ceil(SUBTREE)).collect();
        let each = numbers.len().div_ceil(threads.max(1)).max(1);
        let subtrees: Vec<Levels> = match numbers.len() <= each {
            true => numbers.into_iter().map(subtree).collect(),
            false => std::thread::scope(|scope| {
                let running: Vec<_> = numbers
                    .chunks(each)
                    .map(|some| {
                        let make = move || some.iter().map(|at| subtree(*at)).collect::<Vec<_>>();
                        scope.spawn(make)
                    })
                    .collect();
                let made = running.into_iter().map(|thread| {
                    let made = thread.join();
                    made.unwrap_or_else(|crash| std::panic::resume_unwind(crash))
                });
                made.flatten().collect()
            }),
        };
        let roots = subtrees.iter().filter_map(root_of).collect();
        Self {
            subtrees,
            top: levels(roots),
            count,
        }
    }

    /// The root; of an empty tree, the hash of nothing.
    #[must_use]
    pub fn root(&self) -> Digest {
        root_of(&self.top).unwrap_or_else(|| hash(&[]))
    }

    /// The sibling hashes from the leaf at `index` to the root; empty beyond the last leaf.
    #[must_use]
    pub fn path(&self, index: u64) -> Vec<Digest> {
        if index >= self.count {
            return Vec::new();
        }
        let number = index / SUBTREE;
        let below = usize::try_from(number).ok();
        let below = below.and_then(|number| self.subtrees.get(number));
        let below = below
            .into_iter()
            .flat_map(|of| siblings(of, index % SUBTREE));
        below.chain(siblings(&self.top, number)).collect()
    }
}

/// All levels over some leaves.
fn levels(leaves: Vec<Digest>) -> Levels {
    let mut levels = vec![leaves];
    while let Some(last) = levels.last().filter(|level| level.len() > 1) {
        let next = last
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => inner(left, right),
                rest => rest[0],
            })
            .collect();
        levels.push(next);
    }
    levels
}

fn root_of(levels: &Levels) -> Option<Digest> {
    levels.last().and_then(|level| level.first()).copied()
}

/// The sibling hashes from a node of the lowest level upwards.
fn siblings(levels: &Levels, index: u64) -> impl Iterator<Item = Digest> {
    levels
        .iter()
        .enumerate()
        .filter_map(move |(height, level)| {
            let sibling = usize::try_from((index >> height) ^ 1).ok()?;
            level.get(sibling).copied()
        })
}

/// Whether a leaf at `index` of `count` leads to the root by this path.
#[must_use]
pub fn leads_to(root: &Digest, leaf: Digest, index: u64, count: u64, path: &[Digest]) -> bool {
    root_above(leaf, index, count, path).is_some_and(|above| above == *root)
}

/// The root to which a leaf at `index` of `count` leads by this path; none where that has another length.
#[must_use]
pub fn root_above(leaf: Digest, index: u64, count: u64, path: &[Digest]) -> Option<Digest> {
    if index >= count {
        return None;
    }
    let (mut at, mut width, mut hash) = (index, count, leaf);
    let mut siblings = path.iter();
    while width > 1 {
        if at ^ 1 < width {
            let sibling = siblings.next()?;
            hash = if at & 1 == 0 {
                inner(&hash, sibling)
            } else {
                inner(sibling, &hash)
            };
        }
        at /= 2;
        width = width.div_ceil(2);
    }
    siblings.next().is_none().then_some(hash)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn index_leaf(index: u64) -> Digest {
        leaf(index, &index.to_le_bytes())
    }

    fn tree(count: u64) -> Tree {
        Tree::over(count, 1, index_leaf)
    }

    proptest! {
        #[test]
        fn every_leaf_leads_to_the_root_and_no_other_does(count in 1_u64..70, pick in any::<u64>()) {
            let tree = tree(count);
            let index = pick % count;
            let path = tree.path(index);
            let content = index_leaf(index);
            prop_assert!(leads_to(&tree.root(), content, index, count, &path));
            let other = leaf(index, b"another");
            prop_assert!(!leads_to(&tree.root(), other, index, count, &path));
            if count > 1 {
                let elsewhere = (index + 1) % count;
                prop_assert!(!leads_to(&tree.root(), content, elsewhere, count, &path));
            }
            prop_assert!(tree.path(count + pick % 70).is_empty());
        }

        #[test]
        fn a_longer_or_shorter_path_leads_nowhere(count in 2_u64..70, pick in any::<u64>()) {
            let tree = tree(count);
            let index = pick % count;
            let content = index_leaf(index);
            let mut path = tree.path(index);
            path.push(Digest([0; 32]));
            prop_assert!(!leads_to(&tree.root(), content, index, count, &path));
            path.truncate(path.len() - 2);
            prop_assert!(!leads_to(&tree.root(), content, index, count, &path));
        }

        #[test]
        fn a_leaf_is_the_hash_of_its_prefix_its_index_and_its_content(
            index in any::<u64>(), content in prop::collection::vec(any::<u8>(), 0..130),
        ) {
            let bytes = [&[0], &index.to_le_bytes()[..], &content].concat();
            prop_assert_eq!(leaf(index, &content), of(&bytes));
        }
    }

    fn of(bytes: &[u8]) -> Digest {
        let mut hasher = blake3::Hasher::new();
        hasher.update(bytes);
        Digest(*hasher.finalize().as_bytes())
    }

    /// The root as the head of this file defines it.
    fn defined_root(mut level: Vec<Digest>) -> Digest {
        while level.len() > 1 {
            let pairs = level.chunks(2).map(|pair| match pair {
                [left, right] => of(&[&[1], &left.0[..], &right.0].concat()),
                rest => rest[0],
            });
            level = pairs.collect();
        }
        level[0]
    }

    #[test]
    fn however_many_threads_make_it_the_tree_is_the_same() {
        let ragged = 3 * SUBTREE + 5;
        for count in [1, SUBTREE - 1, SUBTREE, SUBTREE + 1, 2 * SUBTREE, ragged] {
            let root = defined_root((0..count).map(index_leaf).collect());
            for threads in [0, 1, 2, 3, 8] {
                let tree = Tree::over(count, threads, index_leaf);
                assert_eq!(tree.root(), root, "{count} leaves by {threads} threads");
                for index in [0, count / 2, count - 1] {
                    let path = tree.path(index);
                    assert!(leads_to(&root, index_leaf(index), index, count, &path));
                }
            }
        }
    }

    #[test]
    fn an_inner_node_cannot_pass_as_a_leaf() {
        let tree = tree(4);
        let below = tree.subtrees[0][1][0];
        assert!(!leads_to(&tree.root(), below, 0, 4, &tree.path(0)[1..]));
        assert!(!leads_to(&tree.root(), leaf(0, &[]), 0, 0, &[]));
    }
}
