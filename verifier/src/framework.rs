//! Copies within memory by a framework that is installed: the peer of the kernels' own.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::child;

/// What an interpreter is given: it prints one [`FrameworkRun`].
const SCRIPT: &str = include_str!("framework_copy.py");
/// What is copied at once, at most. Units: bytes.
const COPIED: u64 = 4 << 30;
/// How long it may take: the first use of a framework on a cold machine takes most of a minute.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a framework made of copies within memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum FrameworkRun {
    /// The machine has none.
    NotInstalled,
    /// It did not do it.
    Failed {
        /// Why, in its words.
        why: String,
    },
    /// It did.
    Measured {
        /// Its name and version.
        framework: String,
        /// Each sample. Units: 1e6 bytes per second, read plus written.
        mb_per_s: Vec<u64>,
    },
}

impl FrameworkRun {
    /// Why it has no rate, where it has none.
    #[must_use]
    pub fn why_not(&self) -> Option<String> {
        match self {
            Self::NotInstalled => Some("none is installed (torch)".to_owned()),
            Self::Failed { why } => Some(format!("it failed: {why}")),
            Self::Measured { .. } => None,
        }
    }
}

/// Has the framework copy so many bytes within the memory of one GPU for each sample, or 4 GiB where that is
/// less, by its own clock and in a process of its own.
#[must_use]
pub fn copies(uuid: &str, bytes: u64, samples: u32) -> FrameworkRun {
    let failed = |why: &str| FrameworkRun::Failed {
        why: why.to_owned(),
    };
    let bytes = COPIED.min(bytes);
    let started = Command::new("python3")
        .args(["-c", SCRIPT])
        .args([bytes.to_string(), samples.to_string()])
        .arg(std::process::id().to_string())
        .env("CUDA_VISIBLE_DEVICES", uuid)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return FrameworkRun::NotInstalled,
        Err(error) => return failed(&error.to_string()),
    };
    let printed = child::printed(&mut child, Instant::now() + PATIENCE);
    child::end(&mut child);
    match printed {
        None => failed("it did not end in time"),
        Some(text) => serde_json::from_str(text.trim()).unwrap_or_else(|_| failed("it crashed")),
    }
}
