//! Waiting in real time for other processes and threads. No test waits without a bound.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long anything may take before a test gives it up: far longer than on a busy machine, so that a test
/// fails by it only where something never happens.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// The message for something that was given up.
pub fn given_up(what: &str) -> String {
    let seconds = PATIENCE.as_secs();
    format!("{what} does not come about within {seconds} s: never, or not on so slow a machine")
}

/// Runs a command that reads nothing to its end, as [`Command::output`] does.
#[track_caller]
pub fn output_of(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let words: Vec<_> = command.get_args().collect();
    let what = format!("the end of {:?} {words:?}", command.get_program());
    ended(&what, command.spawn().expect("started"))
}

/// Waits for the end of a process and kills one that does not end.
#[track_caller]
pub fn ended(what: &str, child: Child) -> Output {
    let id = child.id();
    let (sender, ends) = mpsc::channel();
    thread::spawn(move || {
        // The receiver may have given up waiting.
        let _ = sender.send(child.wait_with_output());
    });
    match ends.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("it ends"),
        Err(_) => {
            let _ = Command::new("kill")
                .args(["-KILL", &id.to_string()])
                .status();
            panic!("{}", given_up(what));
        }
    }
}
