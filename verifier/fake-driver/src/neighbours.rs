//! Other processes on the same card: each leaves a file beside the script, and holds a lock on it as long as
//! it lives.

use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A process's use of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// Which card.
    pub gpu: usize,
    /// Memory that it holds. Units: bytes.
    pub bytes: u64,
    /// How much of the time it streams through memory. Units: thousandths.
    pub streams_permille: u32,
}

impl Use {
    /// Always of the same length, so that nobody reads halves of two.
    fn line(self) -> String {
        format!(
            "{:4} {:20} {:4}\n",
            self.gpu, self.bytes, self.streams_permille
        )
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        Some(Self {
            gpu: words.next()?.parse().ok()?,
            bytes: words.next()?.parse().ok()?,
            streams_permille: words.next()?.parse().ok()?,
        })
    }
}

/// This process among the others.
pub struct Neighbours {
    folder: PathBuf,
    own: Option<(PathBuf, File)>,
}

impl Neighbours {
    /// The neighbours on the machine of this script.
    pub fn of(script: &Path) -> Self {
        let folder = script.with_file_name("neighbours");
        Self { folder, own: None }
    }

    /// Publishes this process's use to the others.
    pub fn tell(&mut self, does: Use) {
        let (_, file) = self.own.get_or_insert_with(|| {
            fs::create_dir_all(&self.folder).expect("a folder for the neighbours");
            let path = self.folder.join(std::process::id().to_string());
            let file = File::create(&path).expect("a file of its own");
            file.lock().expect("nobody else's");
            (path, file)
        });
        file.write_all_at(does.line().as_bytes(), 0)
            .expect("written");
    }

    /// The use of a card by the others.
    pub fn on(&self, gpu: usize) -> Vec<Use> {
        let files = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let others = files.map(|file| file.path());
        let mine = self.own.as_ref().map(|(path, _)| path);
        let others = others.filter(|path| Some(path) != mine);
        let uses = others.filter_map(|path| {
            let mut file = File::open(path).ok()?;
            // Only ended processes release their lock.
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => {}
                _ => return None,
            }
            let mut line = String::new();
            file.read_to_string(&mut line).ok()?;
            Use::parse(&line)
        });
        uses.filter(|does| does.gpu == gpu).collect()
    }
}
