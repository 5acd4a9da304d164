//! The structure of a crate: which files import each other in a circle, and which imports between its
//! rooms point back up.
//!
//! An edge leads from a file to the file that defines an item that it names, re-exports resolved.

mod modules;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use modules::Modules;

/// The imports of a crate's files.
pub(crate) struct Imports {
    /// Every file, below the folder of the crate's sources.
    files: Vec<PathBuf>,
    /// From which file to which, by their places in `files`, and by which names.
    edges: BTreeMap<(usize, usize), BTreeSet<String>>,
}

impl Imports {
    /// Reads those of the crate whose root file this is.
    ///
    /// Errors: a file cannot be read, or is not Rust.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let modules = Modules::read(root)?;
        let mut edges: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (index, module) in modules.all.iter().enumerate() {
            for path in &module.paths {
                for target in modules.files_of(index, path) {
                    if target != module.file {
                        let names = edges.entry((module.file, target)).or_default();
                        names.extend(path.last().cloned());
                    }
                }
            }
        }
        Ok(Self {
            files: modules.files,
            edges,
        })
    }

    /// The groups of files in which each imports each other, over however many; largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<&Path>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len())
            .map(|from| self.reached(from))
            .collect();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut circles = Vec::new();
        for from in 0..self.files.len() {
            if seen.contains(&from) {
                continue;
            }
            let both = |to: &usize| reach[*to].contains(&from);
            let circle: Vec<usize> = reach[from].iter().copied().filter(both).collect();
            seen.extend(&circle);
            if circle.len() > 1 {
                circles.push(circle.iter().map(|file| &*self.files[*file]).collect());
            }
        }
        circles.sort_by_key(|circle: &Vec<&Path>| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for ((_, to), _) in self.edges.range((file, 0)..(file + 1, 0)) {
                if reached.insert(*to) {
                    open.push(*to);
                }
            }
        }
        reached
    }

    /// The edges between files of which `rank` puts the second above the first; a file without a rank has
    /// no edges.
    pub(crate) fn upward(&self, rank: impl Fn(&Path) -> Option<usize>) -> Vec<(&Path, &Path)> {
        let edges = self.edges.keys();
        let paths = edges.map(|(from, to)| (&*self.files[*from], &*self.files[*to]));
        paths
            .filter(|(from, to)| rank(from).zip(rank(to)).is_some_and(|(from, to)| to > from))
            .collect()
    }
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Path, &Path, String)> {
        let edges = self.edges.iter();
        edges.map(|((from, to), names)| (&*self.files[*from], &*self.files[*to], names.iter().cloned().collect::<Vec<_>>().join(",")))
    }
}
