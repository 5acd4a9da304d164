//! The virtual time of each card, by this process. It is written out beside the script, so that a test that
//! started the agent can tell how long its GPUs would have worked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The most time that passes before it is written out again. Units: milliseconds.
const UNWRITTEN_MS: f64 = 50.0;

/// The clocks of the cards.
pub struct Clocks {
    file: PathBuf,
    /// Units: milliseconds.
    by_card: BTreeMap<usize, f64>,
    unwritten_ms: f64,
}

impl Clocks {
    /// Those of this process on the machine whose script this is.
    pub fn beside(script: &Path) -> Self {
        let folder = script.with_file_name("clocks");
        fs::create_dir_all(&folder).expect("a folder for the clocks");
        Self {
            file: folder.join(std::process::id().to_string()),
            by_card: BTreeMap::new(),
            unwritten_ms: 0.0,
        }
    }

    /// Lets time pass on a card.
    pub fn pass_ms(&mut self, card: usize, ms: f64) {
        *self.by_card.entry(card).or_default() += ms;
        self.unwritten_ms += ms;
        if self.unwritten_ms >= UNWRITTEN_MS {
            self.unwritten_ms = 0.0;
            let json = serde_json::to_vec(&self.by_card).expect("json");
            let half = self.file.with_extension("half");
            fs::write(&half, json).expect("written");
            fs::rename(half, &self.file).expect("renamed");
        }
    }

    pub fn now_ms(&self, card: usize) -> f64 {
        self.by_card.get(&card).copied().unwrap_or(0.0)
    }
}
