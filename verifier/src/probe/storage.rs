//! How fast the node's storage is read and written sequentially, where a rate was promised.
//!
//! Data has reached the device before its time is taken, and is read past the system's page cache. The file
//! has no name once it is open, so it disappears with the agent however the agent ends. Storage that is
//! really memory is not measured, nor is a folder that cannot be written to.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use market::verification::{Level, NodeFacts, StorageFacts, StoragePromise, VerificationOrder};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::libc;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};

use crate::device::Node;
use crate::gang::word;
use crate::threads::on_each;

/// The size of one write or read. Units: bytes.
const BLOCK: usize = 4 << 20;
/// The alignment of direct access. Units: bytes.
const ALIGNED: usize = 4_096;
/// How many threads keep the device busy; each has its own part of the file.
const THREADS: u64 = 4;
/// How long a promised rate is measured. Units: seconds.
const SECONDS: u64 = 2;
/// The least and the most that is written. Units: bytes.
const LEAST_BYTES: u64 = 256 << 20;
const MOST_BYTES: u64 = 8 << 30;
/// The share of the free space that the file may take.
const SHARE_OF_FREE: u64 = 4;
/// How long it may take, and the least time with which it is started.
const MOST: Duration = Duration::from_secs(20);
const LEAST: Duration = Duration::from_secs(4);
/// A file system in memory, beside `tmpfs`. Source: linux/magic.h.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// The storage to measure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageWork {
    /// The folders to try, in this order.
    pub folders: Vec<PathBuf>,
    /// The most that is written and read, bytes.
    pub bytes: u64,
}

impl StorageWork {
    /// The work for a promise: in the agent's folder, where a script put it, otherwise in the folder for
    /// temporary files.
    #[must_use]
    pub fn of(promise: &StoragePromise) -> Self {
        let rates = [promise.read_bytes_per_s, promise.write_bytes_per_s];
        let fastest = rates.into_iter().flatten().max().unwrap_or(0);
        let agent = std::env::current_exe().ok();
        let beside = agent.and_then(|file| Some(file.parent()?.to_owned()));
        let usual = [PathBuf::from("/var/tmp"), std::env::temp_dir()];
        Self {
            folders: beside.into_iter().chain(usual).collect(),
            bytes: fastest
                .saturating_mul(SECONDS)
                .clamp(LEAST_BYTES, MOST_BYTES),
        }
    }
}

/// How long a level measures storage at most, of the time left; none where that is too little.
#[must_use]
pub fn lasts(level: Level, left: Duration) -> Option<Duration> {
    let lasts = (left / 2).min(MOST);
    (level != Level::Quick && lasts >= LEAST).then_some(lasts)
}

/// Measures the promised rates and adds them to the facts. Skipped at level `quick`, where nothing was
/// promised, where it cannot be done, or where the time left is too short.
pub fn measure(node: &mut Node, facts: &mut NodeFacts, order: &VerificationOrder, left: Duration) {
    let Some(promise) = &order.expected.storage else {
        return;
    };
    let Some(lasts) = lasts(order.level, left) else {
        return;
    };
    let until = Instant::now() + lasts;
    if let Some(surroundings) = &mut node.surroundings {
        facts.storage = surroundings.storage(&StorageWork::of(promise), until);
    }
}

/// The rates of the storage by the deadline; none where no folder can be measured.
#[must_use]
pub fn measured(work: &StorageWork, deadline: Instant) -> Option<StorageFacts> {
    let (sender, facts) = mpsc::channel();
    let work = work.clone();
    // A device that hangs blocks only its own thread.
    std::thread::spawn(move || {
        let measured = work
            .folders
            .iter()
            .find_map(|folder| in_folder(folder, work.bytes, deadline).ok());
        sender.send(measured)
    });
    let left = deadline.saturating_duration_since(Instant::now());
    facts.recv_timeout(left).ok()?
}

fn in_folder(folder: &Path, most: u64, deadline: Instant) -> io::Result<StorageFacts> {
    let began = Instant::now();
    let half = began + deadline.saturating_duration_since(began) / 2;
    let (file, direct) = unnamed(folder)?;
    let system = fstatfs(&file)?;
    if [TMPFS_MAGIC, RAMFS_MAGIC].contains(&system.filesystem_type()) {
        return Err(io::Error::other("it is memory"));
    }
    let free = system
        .blocks_available()
        .saturating_mul(u64::try_from(system.block_size()).unwrap_or(0));
    let blocks = most.min(free / SHARE_OF_FREE) / BLOCK as u64;
    let stretch = blocks / THREADS;
    if stretch == 0 {
        return Err(io::Error::other("there is no room"));
    }
    let own = |thread: u64| thread * stretch * BLOCK as u64;
    let started = Instant::now();
    let written = on_each(0..THREADS, |thread| {
        let (mut memory, at) = aligned();
        let block = &mut memory[at..at + BLOCK];
        for (chunk, number) in block.chunks_mut(8).zip(0..) {
            chunk.copy_from_slice(&word(number ^ (thread << 32)).to_le_bytes());
        }
        let mut done = 0;
        while done < stretch && Instant::now() < half {
            // No two pages are alike, so that deduplication saves nothing.
            for page in block.chunks_mut(ALIGNED) {
                page[..8].copy_from_slice(&word(done ^ (thread << 48)).to_le_bytes());
                page[8..16].copy_from_slice(&(done + 1).to_le_bytes());
            }
            file.write_all_at(block, own(thread) + done * BLOCK as u64)?;
            done += 1;
        }
        Ok(done)
    })?;
    file.sync_all()?;
    let bytes = written.iter().sum::<u64>() * BLOCK as u64;
    let write_mb_per_s = rate(bytes, started.elapsed());
    if !direct {
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    let started = Instant::now();
    let read = on_each(0..THREADS, |thread| {
        let (mut memory, at) = aligned();
        let block = &mut memory[at..at + BLOCK];
        let mut done = 0;
        while done < written[thread as usize] && Instant::now() < deadline {
            file.read_exact_at(block, own(thread) + done * BLOCK as u64)?;
            let stamp = block[8..16].iter().copied().eq((done + 1).to_le_bytes());
            if !stamp {
                return Err(io::Error::other("it holds something else than was written"));
            }
            done += 1;
        }
        Ok(done)
    })?;
    let read = read.iter().sum::<u64>() * BLOCK as u64;
    Ok(StorageFacts {
        direct,
        bytes,
        read_mb_per_s: rate(read, started.elapsed()),
        write_mb_per_s,
    })
}

/// A file without a name, past the system's page cache where the file system supports that.
fn unnamed(folder: &Path) -> io::Result<(File, bool)> {
    let path = folder.join(format!(".verifier-storage-{}", std::process::id()));
    let open = |flags| {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create_new(true).mode(0o600);
        open.custom_flags(flags).open(&path)
    };
    let opened = match open(libc::O_DIRECT) {
        Ok(file) => Ok((file, true)),
        // Some file systems create the file and then refuse to open it this way.
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            let _ = std::fs::remove_file(&path);
            Ok((open(0)?, false))
        }
        Err(error) => Err(error),
    };
    if opened.is_ok() {
        std::fs::remove_file(&path)?;
    }
    opened
}

/// Memory with room for a block, and the offset of an aligned one in it.
fn aligned() -> (Vec<u8>, usize) {
    let memory = vec![0; BLOCK + ALIGNED];
    let at = memory.as_ptr().align_offset(ALIGNED);
    (memory, at.min(ALIGNED))
}

/// 1e6 bytes per second.
fn rate(bytes: u64, took: Duration) -> u64 {
    (bytes as f64 / took.as_secs_f64().max(1e-9) / 1e6) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(folder: &Path, bytes: u64) -> StorageWork {
        StorageWork {
            folders: vec![folder.to_owned()],
            bytes,
        }
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// A folder on a disk, where this machine has one: beside the sources.
    fn folder() -> tempfile::TempDir {
        tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a folder")
    }

    #[test]
    fn storage_is_written_and_read_and_nothing_of_it_is_left() {
        let folder = folder();
        let Some(facts) = measured(&work(folder.path(), 64 << 20), soon()) else {
            println!("skipped: needs storage that is no memory, with 256 MiB free");
            return;
        };
        assert_eq!(facts.bytes, 64 << 20);
        assert!(
            facts.read_mb_per_s > 0 && facts.write_mb_per_s > 0,
            "{facts:?}"
        );
        let left = std::fs::read_dir(folder.path()).expect("read").count();
        assert_eq!(left, 0);
    }

    #[test]
    fn memory_and_folders_of_others_are_no_storage() {
        let nowhere = folder().path().join("nowhere");
        assert_eq!(measured(&work(&nowhere, 64 << 20), soon()), None);
        let memory = Path::new("/dev/shm");
        if !memory.is_dir() {
            println!("skipped in part: needs /dev/shm");
            return;
        }
        assert_eq!(measured(&work(memory, 64 << 20), soon()), None);
    }

    #[test]
    fn nothing_is_measured_beyond_the_deadline() {
        let folder = folder();
        assert_eq!(
            measured(&work(folder.path(), 64 << 20), Instant::now()),
            None
        );
    }

    #[test]
    fn a_promise_is_measured_for_seconds_and_within_bounds() {
        let bytes = |rate| {
            StorageWork::of(&StoragePromise {
                read_bytes_per_s: Some(rate),
                write_bytes_per_s: None,
            })
            .bytes
        };
        assert_eq!(bytes(1_000_000_000), 2_000_000_000);
        assert_eq!(bytes(1), LEAST_BYTES);
        assert_eq!(bytes(u64::MAX), MOST_BYTES);
    }
}
