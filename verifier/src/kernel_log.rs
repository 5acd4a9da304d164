//! The errors (XID) that NVIDIA's driver wrote into the kernel's log since the machine started.
//!
//! As far back as the kernel keeps them, and of all GPUs that it has: a container may see the log of the
//! whole machine, or none. The bus address tells which GPU an error belongs to.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use market::verification::LoggedXid;
use nix::libc;

/// The kernel's log, within the machine's root: each reading gives one record.
const LOG: &str = "dev/kmsg";
/// More than the longest record: a longer one is refused. Units: bytes.
const RECORD: usize = 16 << 10;
/// The most that is read, which also limits the time: kernels keep some hundred KiB, or a few MiB on large
/// machines.
const MOST_BYTES: usize = 16 << 20;
const MOST_TIME: Duration = Duration::from_secs(1);
/// The most errors in a report.
const MOST_XIDS: usize = 256;
/// The error with which the driver reports the recovery action that a GPU needs from now on.
pub const NEEDS: u32 = 154;
/// The most characters of that action in a report.
const MOST_WORDS: usize = 64;
/// Priorities below this belong to the kernel: programs may write into the log, too.
const KERNELS_OWN: u32 = 8;

/// The contents of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Log {
    /// The errors, each of a GPU once, in the order of the log; recovery actions at their last occurrence.
    pub xids: Vec<LoggedXid>,
    /// The number of its last record.
    pub last: u64,
}

/// The errors in the log of the machine whose files are under a root, after the record of a number; none
/// where it cannot be read to its end.
#[must_use]
pub fn xids(root: &Path, after: Option<u64>) -> Option<Log> {
    let log = read(&root.join(LOG)).ok()?;
    let mut found = Log {
        xids: Vec::new(),
        last: after.unwrap_or(0),
    };
    for (number, message) in String::from_utf8_lossy(&log).lines().filter_map(record) {
        found.last = found.last.max(number);
        let error = xid(message).filter(|_| after.is_none_or(|after| number > after));
        let Some(error) = error else {
            continue;
        };
        // Of a GPU's recovery actions, the last one holds.
        let is_said_again = |known: &LoggedXid| error.xid == NEEDS && *known == error;
        found.xids.retain(|known| !is_said_again(known));
        if found.xids.len() < MOST_XIDS && !found.xids.contains(&error) {
            found.xids.push(error);
        }
    }
    Some(found)
}

/// All that the log holds now; it never waits for more.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut open = OpenOptions::new();
    let mut file = open.read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    let until = Instant::now() + MOST_TIME;
    let (mut log, mut record) = (Vec::new(), vec![0; RECORD]);
    while log.len() < MOST_BYTES && Instant::now() < until {
        match file.read(&mut record) {
            Ok(0) => return Ok(log),
            Ok(bytes) => log.extend_from_slice(&record[..bytes]),
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return Ok(log),
                // Records that were overwritten before they were read: reading goes on after them.
                ErrorKind::BrokenPipe | ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
    Err(io::Error::other("it does not end"))
}

/// `6,1234,5678,-;message` of the kernel itself: the record's number and the message. Lines that belong to
/// the record before begin with a space.
fn record(line: &str) -> Option<(u64, &str)> {
    let (head, message) = line.split_once(';')?;
    let mut fields = head.split(',');
    let priority: u32 = fields.next()?.parse().ok()?;
    let number = fields.next()?.parse().ok()?;
    (priority < KERNELS_OWN).then_some((number, message))
}

/// `NVRM: Xid (PCI:0000:01:00): 79, pid=1234, GPU has fallen off the bus.`, or after the number of [`NEEDS`]
/// `GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`.
fn xid(message: &str) -> Option<LoggedXid> {
    let (place, said) = message.strip_prefix("NVRM: Xid (PCI:")?.split_once("): ")?;
    let is_place = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let number = said.split(|c: char| !c.is_ascii_digit()).next()?;
    let xid = number.parse().ok()?;
    let needs = said.rsplit_once(" to ").filter(|_| xid == NEEDS);
    (place.len() <= 16 && place.chars().all(is_place)).then(|| LoggedXid {
        bus_id: place.to_owned(),
        xid,
        action: needs.map(|(_, words)| words.trim().chars().take(MOST_WORDS).collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(log: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(root.path().join("dev")).expect("made");
        std::fs::write(root.path().join(LOG), log).expect("written");
        root
    }

    fn told(log: Option<Log>) -> (Vec<(String, u32)>, u64) {
        let log = log.expect("it can be read");
        let xids = log.xids.into_iter().map(|error| (error.bus_id, error.xid));
        (xids.collect(), log.last)
    }

    const EARLIER: &str = "6,0,0,-;Linux version 6.1\n\
        3,7,100,-;NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.\n \
        SUBSYSTEM=pci\n\
        3,8,200,-;NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n\
        12,9,300,-;NVRM: Xid (PCI:0000:02:00): 48, a program wrote this\n\
        4,10,400,c;NVRM: GPU at PCI:0000:02:00: GPU-0\n";

    #[test]
    fn errors_of_the_driver_are_read_once_each_and_those_of_programs_are_none() {
        let root = root(EARLIER.as_bytes());
        let one = vec![("0000:01:00".to_owned(), 79)];
        assert_eq!(told(xids(root.path(), None)), (one, 10));
    }

    #[test]
    fn of_what_a_gpu_needs_the_last_is_told_last_though_it_was_said_before() {
        let needs = |number: u32, words: &str| {
            format!(
                "3,{number},1,-;NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) \
                 to {words}\n"
            )
        };
        let said = ["0x0 (None)", "0x1 (GPU Reset Required)", "0x0 (None)"];
        let log: String = (1..)
            .zip(said)
            .map(|(number, words)| needs(number, words))
            .collect();
        let root = root(log.as_bytes());
        let log = xids(root.path(), None).expect("it can be read");
        let words: Vec<_> = log
            .xids
            .iter()
            .filter_map(|error| error.action.as_deref())
            .collect();
        assert_eq!(words, ["0x1 (GPU Reset Required)", "0x0 (None)"]);
    }

    #[test]
    fn what_came_later_is_told_apart_by_the_number_of_its_record() {
        let later = "3,11,500,-;NVRM: Xid (PCI:000a:c1:00): 119, pid=5, Timeout\n";
        let root = root([EARLIER, later].concat().as_bytes());
        let one = vec![("000a:c1:00".to_owned(), 119)];
        assert_eq!(told(xids(root.path(), Some(10))), (one, 11));
        assert_eq!(told(xids(root.path(), Some(11))), (Vec::new(), 11));
    }

    #[test]
    fn what_a_gpu_needs_is_told_in_the_drivers_words_and_each_change_once() {
        let log = "3,7,100,-;NVRM: Xid (PCI:0000:01:00): 119, pid=5, Timeout to wait for GSP\n\
            3,8,100,-;NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset \
            Required)\n\
            3,9,200,-;NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to \
            0x0 (None)\n\
            3,10,300,-;NVRM: Xid (PCI:0000:01:00): 154, pid=5\n";
        let log = xids(root(log.as_bytes()).path(), None).expect("it can be read");
        let told = log
            .xids
            .iter()
            .map(|error| (error.xid, error.action.as_deref()));
        let expected = [
            (119, None),
            (NEEDS, Some("0x1 (GPU Reset Required)")),
            (NEEDS, Some("0x0 (None)")),
            (NEEDS, None),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_log_that_is_hidden_or_does_not_end_is_not_read() {
        let hidden = tempfile::tempdir().expect("a folder");
        assert_eq!(xids(hidden.path(), None), None);
        assert_eq!(xids(root(&vec![b'x'; MOST_BYTES]).path(), None), None);
        assert_eq!(told(xids(root(b"").path(), None)), (Vec::new(), 0));
    }
}
