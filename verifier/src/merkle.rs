//! A BLAKE3 hash tree: a root commits to a list, and any entry can be opened later.
//!
//! Leaves and inner nodes are hashed under different prefixes, and a leaf carries its index, so
//! that neither a subtree nor another entry can stand in for a leaf. The last node of an odd
//! level moves up unhashed.

use market::verification::Digest;

/// The hash of the leaf at `index`.
#[must_use]
pub fn leaf(index: u64, content: &[u8]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[0]);
    hasher.update(&index.to_le_bytes());
    hasher.update(content);
    Digest(*hasher.finalize().as_bytes())
}

fn inner(left: &Digest, right: &Digest) -> Digest {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&[1]);
    hasher.update(&left.0);
    hasher.update(&right.0);
    Digest(*hasher.finalize().as_bytes())
}

/// A tree with all its levels, so that entries can be opened.
#[derive(Debug, Clone)]
pub struct Tree {
    levels: Vec<Vec<Digest>>,
}

impl Tree {
    /// The tree over leaves made by [`leaf`].
    #[must_use]
    pub fn over(leaves: Vec<Digest>) -> Self {
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
        Self { levels }
    }

    /// The root; of an empty tree, the hash of nothing.
    #[must_use]
    pub fn root(&self) -> Digest {
        let top = self.levels.last().and_then(|level| level.first());
        top.copied()
            .unwrap_or(Digest(*blake3::hash(&[]).as_bytes()))
    }

    /// The sibling hashes from the leaf at `index` to the root; empty beyond the last leaf.
    #[must_use]
    pub fn path(&self, index: u64) -> Vec<Digest> {
        let Ok(index) = usize::try_from(index) else {
            return Vec::new();
        };
        self.levels
            .iter()
            .enumerate()
            .filter_map(|(height, level)| level.get((index >> height) ^ 1).copied())
            .collect()
    }
}

/// Whether a leaf at `index` of `count` leads to the root by this path.
#[must_use]
pub fn leads_to(root: &Digest, leaf: Digest, index: u64, count: u64, path: &[Digest]) -> bool {
    if index >= count {
        return false;
    }
    let (mut at, mut width, mut hash) = (index, count, leaf);
    let mut siblings = path.iter();
    while width > 1 {
        if at ^ 1 < width {
            let Some(sibling) = siblings.next() else {
                return false;
            };
            hash = if at & 1 == 0 {
                inner(&hash, sibling)
            } else {
                inner(sibling, &hash)
            };
        }
        at /= 2;
        width = width.div_ceil(2);
    }
    siblings.next().is_none() && hash == *root
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn leaves(count: u64) -> Vec<Digest> {
        (0..count)
            .map(|index| leaf(index, &index.to_le_bytes()))
            .collect()
    }

    proptest! {
        #[test]
        fn every_leaf_leads_to_the_root_and_no_other_does(count in 1_u64..70, pick in any::<u64>()) {
            let tree = Tree::over(leaves(count));
            let index = pick % count;
            let path = tree.path(index);
            let content = leaf(index, &index.to_le_bytes());
            prop_assert!(leads_to(&tree.root(), content, index, count, &path));
            let other = leaf(index, b"another");
            prop_assert!(!leads_to(&tree.root(), other, index, count, &path));
            if count > 1 {
                let elsewhere = (index + 1) % count;
                prop_assert!(!leads_to(&tree.root(), content, elsewhere, count, &path));
            }
        }

        #[test]
        fn a_longer_or_shorter_path_leads_nowhere(count in 2_u64..70, pick in any::<u64>()) {
            let tree = Tree::over(leaves(count));
            let index = pick % count;
            let content = leaf(index, &index.to_le_bytes());
            let mut path = tree.path(index);
            path.push(Digest([0; 32]));
            prop_assert!(!leads_to(&tree.root(), content, index, count, &path));
            path.truncate(path.len() - 2);
            prop_assert!(!leads_to(&tree.root(), content, index, count, &path));
        }
    }

    #[test]
    fn an_inner_node_cannot_pass_as_a_leaf() {
        let tree = Tree::over(leaves(4));
        let below = tree.levels[1][0];
        assert!(!leads_to(&tree.root(), below, 0, 4, &tree.path(0)[1..]));
        assert!(!leads_to(&tree.root(), leaf(0, &[]), 0, 0, &[]));
    }
}
