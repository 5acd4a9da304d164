//! A program that was started in a process group of its own: what it prints, and its end.

use std::io::Read;
use std::process::Child;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The most that is read of what it prints. Units: bytes.
const LONGEST: u64 = 1 << 20;
/// How long between two looks at whether it ended.
const PAUSE: Duration = Duration::from_millis(20);

/// What it printed until it ended; nothing where it did not by then. How it ended does not matter: it
/// ends in failure where a test failed.
pub(crate) fn printed(child: &mut Child, deadline: Instant) -> Option<String> {
    let output = child.stdout.take()?;
    let (sender, text) = mpsc::channel();
    // It ends with the process, or when that is ended.
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

/// Ends it with all that it started.
pub(crate) fn end(child: &mut Child) {
    // A process id is positive and fits.
    let group = Pid::from_raw(child.id() as i32);
    // A group that is gone is what is wanted, and a child that has ended is waited for.
    let _ = killpg(group, Signal::SIGKILL);
    let _ = child.wait();
}
