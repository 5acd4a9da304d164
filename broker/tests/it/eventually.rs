//! Conditions that come true in real time: in other processes and threads, and in tasks that no test can step
//! through. Every wait for one has a bound.

use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

/// How long anything may take before a test gives it up: far longer than on a busy machine, so that a test
/// fails by it only where something never comes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The message about a wait that was given up.
fn given_up(what: &str) -> String {
    let seconds = PATIENCE.as_secs();
    format!("{what} does not come about within {seconds} s: never, or not on so slow a machine")
}

/// Asks in real time until it is so.
pub(crate) async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let asked = async {
        while !is_so().await {
            sleep(Duration::from_millis(10)).await;
        }
    };
    in_time(what, asked).await;
}

/// Waits for a condition that comes true by itself.
pub(crate) async fn in_time<T>(what: &str, comes: impl Future<Output = T>) -> T {
    match timeout(PATIENCE, comes).await {
        Ok(came) => came,
        Err(_) => panic!("{}", given_up(what)),
    }
}

/// Does something in a thread of its own.
///
/// A test that fails meanwhile still ends: unlike the threads of the runtime, nobody waits for this one.
pub(crate) fn beside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, done) = oneshot::channel();
    thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(work());
    });
    done
}

/// Runs a command that reads nothing to its end, as [`Command::output`] does.
#[track_caller]
pub(crate) fn output_of(command: &mut Command) -> Output {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let words: Vec<_> = command.get_args().collect();
    let what = format!("the end of {:?} {words:?}", command.get_program());
    ended(&what, command.spawn().expect("the command starts"))
}

/// Waits for the end of a process and kills one that does not end.
#[track_caller]
pub(crate) fn ended(what: &str, child: Child) -> Output {
    let id = child.id();
    let (sender, ends) = mpsc::channel();
    thread::spawn(move || {
        // Nobody may wait for it any more.
        let _ = sender.send(child.wait_with_output());
    });
    match ends.recv_timeout(PATIENCE) {
        Ok(output) => output.expect("the command runs"),
        Err(_) => {
            let _ = Command::new("kill")
                .args(["-KILL", &id.to_string()])
                .status();
            panic!("{}", given_up(what));
        }
    }
}
