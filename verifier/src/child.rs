//! A program started in a process group of its own: its output and its end.

use std::io::Read;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The most that is read of its output. Units: bytes.
const LONGEST: u64 = 1 << 20;
/// The pause between two checks for its end.
const PAUSE: Duration = Duration::from_millis(20);

/// Its output until it ended; none if it did not end in time. Its exit status is ignored: a
/// failed diagnostic test makes it non-zero too.
pub(crate) fn printed(child: &mut Child, deadline: Instant) -> Option<String> {
    let output = child.stdout.take()?;
    let (sender, text) = mpsc::channel();
    // The thread ends with the process, or when the process is killed.
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let read = output.take(LONGEST).read_to_end(&mut bytes);
        sender.send(read.map(|_| String::from_utf8_lossy(&bytes).into_owned()))
    });
    let left = deadline.saturating_duration_since(Instant::now());
    let text = text.recv_timeout(left).ok()?.ok()?;
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return Some(text),
            _ if Instant::now() >= deadline => return None,
            _ => std::thread::sleep(PAUSE),
        }
    }
}

/// Kills it with all processes that it started.
pub(crate) fn end(child: &mut Child) {
    // A process id is positive and fits.
    let group = Pid::from_raw(child.id() as i32);
    // The group may be gone already; a child that has ended is reaped.
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}
