use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use market::verification::Digest;
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::*;

const TOKEN: &str = "vt_0123456789abcdef";
const MARK: &str = "gpb-00000000000000000000000000000001";
/// How long anything here may take: far longer than it takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// An agent that records its arguments, token and command line, and then ends as `end` says.
fn agent(end: &str) -> String {
    format!(
        "#!/bin/sh\necho \"$@\" > \"$HOME/arguments\"\necho \"$VERIFIER_TOKEN\" > \"$HOME/token\"\n\
         tr '\\0' ' ' < /proc/$$/cmdline > \"$HOME/cmdline\"\n{end}\n"
    )
}

fn sha256(text: &str) -> Digest {
    Digest(Sha256::digest(text).into())
}

fn id() -> VerificationId {
    VerificationId::from_uuid(Uuid::from_u128(1))
}

fn input(file: &str, delivery: &Delivery, host: &str) -> Result<Vec<u8>, DeliveryError> {
    input_for(60, file, delivery, host)
}

fn input_for(
    seconds: u32,
    file: &str,
    delivery: &Delivery,
    host: &str,
) -> Result<Vec<u8>, DeliveryError> {
    let words = start_input(&PushArgs {
        broker: &"https://broker.example".parse().expect("an address"),
        verification_id: id(),
        token: &TOKEN.parse().expect("a token"),
        host,
        seconds,
        delivery,
    })?;
    Ok([&words, file.as_bytes()].concat())
}

/// Runs a command as an SSH server does: by the shell of the user, in its home.
fn spawn(home: &Path, command: &str) -> Child {
    let mut shell = Command::new("/bin/sh");
    shell.env_clear().env("HOME", home).current_dir(home);
    shell
        .env("PATH", "/usr/bin:/bin")
        .args(["-c", command])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    shell.spawn().expect("a shell")
}

/// As [`spawn`], with this input, until it ends.
fn run(home: &Path, command: &str, input: &[u8]) -> Output {
    let mut child = spawn(home, command);
    let mut stdin = child.stdin.take().expect("an input");
    // A command that ends early does not read to the end.
    let _ = stdin.write_all(input);
    drop(stdin);
    let id = child.id();
    let (sender, ends) = mpsc::channel();
    thread::spawn(move || sender.send(child.wait_with_output()));
    let Ok(output) = ends.recv_timeout(PATIENCE) else {
        kill(id);
        panic!("`{command}` does not end");
    };
    output.expect("an end")
}

fn kill(id: u32) {
    let _ = Command::new("kill")
        .args(["-KILL", &id.to_string()])
        .status();
}

/// Waits for the end of a process.
fn ends(mut process: Child) {
    let began = Instant::now();
    while process.try_wait().expect("an answer").is_none() {
        if began.elapsed() > PATIENCE {
            kill(process.id());
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn names(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home).expect("a directory");
    let name = |entry: std::io::Result<fs::DirEntry>| entry.expect("an entry").file_name();
    let mut names: Vec<_> = entries
        .map(|entry| name(entry).to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn read(home: &Path, name: &str) -> String {
    fs::read_to_string(home.join(name)).unwrap_or_default()
}

#[test]
fn a_copied_agent_runs_with_its_words_and_leaves_nothing_however_it_ends() {
    for end in ["exit 0", "exit 7", "kill -9 $$"] {
        let home = tempfile::tempdir().expect("a home");
        let file = agent(end);
        let copied = Delivery::Fetched {
            sha256: sha256(&file),
        };
        let said = input(&file, &copied, "198.51.100.7").expect("an input");
        let output = run(home.path(), START, &said);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.stdout, b"started\n", "{end}: {errors}");
        let arguments = format!(
            "run --broker https://broker.example --verification {} --host 198.51.100.7\n",
            id()
        );
        assert_eq!(read(home.path(), "arguments"), arguments);
        assert_eq!(read(home.path(), "token"), format!("{TOKEN}\n"));
        assert!(!read(home.path(), "cmdline").contains(TOKEN));
        assert_eq!(names(home.path()), ["arguments", "cmdline", "token"]);
    }
}

/// Starts an agent that does not end by itself, and gives its shell and the agent's own number.
fn start_endless(home: &Path, seconds: u32) -> (Child, String) {
    let file = agent("echo $$ > \"$HOME/number\"; exec sleep 1000");
    let copied = Delivery::Fetched {
        sha256: sha256(&file),
    };
    let said = input_for(seconds, &file, &copied, "198.51.100.7");
    let mut shell = spawn(home, START);
    let mut stdin = shell.stdin.take().expect("an input");
    stdin
        .write_all(&said.expect("an input"))
        .expect("it listens");
    drop(stdin);
    let number = || Some(read(home, "number")).filter(|number| number.ends_with('\n'));
    let began = Instant::now();
    let number = loop {
        if let Some(number) = number() {
            break number;
        }
        assert!(
            began.elapsed() < PATIENCE,
            "no agent, or one whose time is over before a slow machine begins"
        );
        thread::sleep(Duration::from_millis(5));
    };
    (shell, number.trim().to_owned())
}

fn runs(number: &str) -> bool {
    Path::new("/proc").join(number).join("cmdline").exists()
}

#[test]
fn an_agent_that_does_not_end_is_ended_when_its_time_is_over_and_leaves_nothing() {
    let home = tempfile::tempdir().expect("a home");
    let (shell, number) = start_endless(home.path(), 3);
    ends(shell);
    assert!(!runs(&number));
    let left = ["arguments", "cmdline", "number", "token"];
    assert_eq!(names(home.path()), left);
}

#[test]
fn clearing_ends_an_agent_that_still_runs() {
    let home = tempfile::tempdir().expect("a home");
    let (shell, number) = start_endless(home.path(), 1000);
    assert!(runs(&number));
    // Its shell is reaped at once, as by the server that started it.
    let waited = thread::spawn(move || ends(shell));
    let output = run(home.path(), CLEAR, &clear_input(id(), MARK, &[]));
    assert_eq!(output.stdout, b"cleared\n");
    waited.join().expect("no panic");
    assert!(!runs(&number));
    let left = ["arguments", "cmdline", "number", "token"];
    assert_eq!(names(home.path()), left);
}

#[test]
fn clearing_leaves_a_process_alone_that_came_by_the_number_of_an_agent() {
    let home = tempfile::tempdir().expect("a home");
    let dir = home.path().join(format!(".gpu-broker-{}", id()));
    fs::create_dir(&dir).expect("a directory");
    let mut other = Command::new("sleep").arg("1000").spawn().expect("it runs");
    fs::write(dir.join("pid"), other.id().to_string()).expect("written");
    let output = run(home.path(), CLEAR, &clear_input(id(), MARK, &[]));
    assert_eq!(output.stdout, b"cleared\n");
    assert!(other.try_wait().expect("an answer").is_none(), "it runs on");
    other.kill().expect("it ends");
    other.wait().expect("an end");
    assert!(names(home.path()).is_empty(), "{:?}", names(home.path()));
}

#[test]
fn another_file_than_the_pinned_one_never_runs_and_does_not_stay() {
    let home = tempfile::tempdir().expect("a home");
    let pinned = Delivery::Fetched {
        sha256: sha256(&agent("exit 0")),
    };
    let said = input(&agent("exit 1"), &pinned, "198.51.100.7").expect("an input");
    let output = run(home.path(), START, &said);
    assert!(!output.status.success());
    assert!(output.stdout.is_empty());
    assert!(names(home.path()).is_empty(), "{:?}", names(home.path()));
}

#[test]
fn an_agent_that_runs_is_not_started_twice() {
    let home = tempfile::tempdir().expect("a home");
    let (shell, number) = start_endless(home.path(), 1000);
    let file = agent("exit 0");
    let copied = Delivery::Fetched {
        sha256: sha256(&file),
    };
    let said = input(&file, &copied, "198.51.100.7").expect("an input");
    let before = read(home.path(), "arguments");
    assert_eq!(run(home.path(), START, &said).stdout, b"started\n");
    assert!(runs(&number), "the first one runs on");
    assert_eq!(read(home.path(), "arguments"), before);
    let waited = thread::spawn(move || ends(shell));
    let output = run(home.path(), CLEAR, &clear_input(id(), MARK, &[]));
    assert_eq!(output.stdout, b"cleared\n");
    waited.join().expect("no panic");
}

#[test]
fn an_agent_whose_number_is_nobodys_or_anothers_is_started_anew() {
    let mut other = Command::new("sleep").arg("1000").spawn().expect("it runs");
    // No process has the first number: it is beyond Linux's maximum.
    for number in ["4194305".to_owned(), other.id().to_string()] {
        let home = tempfile::tempdir().expect("a home");
        let dir = home.path().join(format!(".gpu-broker-{}", id()));
        fs::create_dir(&dir).expect("a directory");
        fs::write(dir.join("pid"), &number).expect("written");
        let file = agent("exit 0");
        let copied = Delivery::Fetched {
            sha256: sha256(&file),
        };
        let said = input(&file, &copied, "198.51.100.7").expect("an input");
        assert_eq!(run(home.path(), START, &said).stdout, b"started\n");
        assert!(
            read(home.path(), "arguments").starts_with("run "),
            "{number}"
        );
        assert!(!dir.exists());
    }
    assert!(other.try_wait().expect("an answer").is_none(), "it runs on");
    other.kill().expect("it ends");
    other.wait().expect("an end");
}

#[test]
fn an_installed_agent_is_run_where_it_lies() {
    let home = tempfile::tempdir().expect("a home");
    let program = home.path().join("it's a $(false) `broker`");
    fs::write(&program, agent("exit 0")).expect("written");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).expect("executable");
    let installed = Delivery::Installed {
        executable: program,
    };
    let said = input("not copied", &installed, "198.51.100.7").expect("an input");
    assert_eq!(run(home.path(), START, &said).stdout, b"started\n");
    assert!(read(home.path(), "arguments").starts_with("verifier run --broker "));
}

#[test]
fn the_commands_hold_no_word_of_a_node_and_one_quotation() {
    for command in [START, CLEAR] {
        assert_eq!(command.matches('\'').count(), 2, "{command}");
    }
    for bad in ["", "a\nb"] {
        let installed = Delivery::Installed {
            executable: "/opt/broker".into(),
        };
        assert_eq!(input("", &installed, bad), Err(DeliveryError::Host));
    }
}

#[test]
fn clearing_takes_out_the_marked_key_alone_and_keeps_the_files_mode() {
    let home = tempfile::tempdir().expect("a home");
    let ssh = home.path().join(".ssh");
    fs::create_dir_all(home.path().join(format!(".gpu-broker-{}", id()))).expect("a directory");
    fs::create_dir(&ssh).expect("a directory");
    let keys = ssh.join("authorized_keys");
    let tenant = "ssh-ed25519 AAAA laptop\n";
    fs::write(&keys, format!("{tenant}ssh-ed25519 BBBB {MARK}\n")).expect("written");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o640)).expect("a mode");
    for _ in 0..2 {
        let output = run(home.path(), CLEAR, &clear_input(id(), MARK, &[]));
        assert_eq!(output.stdout, b"cleared\n");
        assert_eq!(fs::read_to_string(&keys).expect("keys"), tenant);
    }
    let mode = fs::metadata(&keys).expect("keys").permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert_eq!(names(&ssh), ["authorized_keys"]);
    assert_eq!(names(home.path()), [".ssh"]);
    // The tenant's keys that a provider did not install are added, each once.
    let two = [
        "ssh-ed25519 AAAA laptop".to_owned(),
        "ssh-ed25519 CCCC desk".to_owned(),
    ];
    for _ in 0..2 {
        run(home.path(), CLEAR, &clear_input(id(), MARK, &two));
        let kept = fs::read_to_string(&keys).expect("keys");
        assert_eq!(kept, format!("{tenant}ssh-ed25519 CCCC desk\n"));
    }
    // The last key is removed too.
    fs::write(&keys, format!("ssh-ed25519 BBBB {MARK}\n")).expect("written");
    run(home.path(), CLEAR, &clear_input(id(), MARK, &[]));
    assert_eq!(fs::read_to_string(&keys).expect("keys"), "");
}
