//! A real SSH server in the place of a node: OpenSSH on a free port of this machine, with a host key,
//! a configuration and a home of its own.

use std::env;
use std::fs;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::json;
use tempfile::TempDir;

use super::tap::ServerPlace;
use crate::eventually::PATIENCE;

/// Where Debian keeps it, which no user's path has.
const PLACES: [&str; 3] = ["/usr/sbin/sshd", "/usr/local/sbin/sshd", "/sbin/sshd"];

/// A running server. It ends with the value, and every connection with it.
pub(crate) struct Sshd {
    program: PathBuf,
    home: TempDir,
    port: u16,
    server: Mutex<Option<Child>>,
}

impl Sshd {
    /// A fresh server from the installed binary; `None`, with a printed notice, where there is none.
    pub(crate) fn private() -> Option<Self> {
        let Some(program) = PLACES.map(PathBuf::from).into_iter().find(|at| at.exists()) else {
            let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
            assert!(!required, "REQUIRE_SERVICES=1, but there is no sshd");
            // Not a print macro: those of a passing test are kept from the reader.
            let _ = writeln!(std::io::stderr(), "skipped: needs sshd");
            return None;
        };
        // Without it a server that root starts does not; the package makes it at each boot.
        let _ = fs::create_dir_all("/run/sshd");
        let home = tempfile::tempdir().expect("a home");
        fs::create_dir(home.path().join(".ssh")).expect("a folder");
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = free.local_addr().expect("its number").port();
        drop(free);
        let made = Self {
            program,
            home,
            port,
            server: Mutex::new(None),
        };
        made.describe_node();
        made.new_host_key();
        made.start();
        Some(made)
    }

    /// The home of the user who logs in.
    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Where it is, for the tap.
    pub(crate) fn place(&self) -> ServerPlace {
        let user = Command::new("id").arg("-un").output().expect("a user");
        ServerPlace {
            port: self.port,
            user: String::from_utf8(user.stdout)
                .expect("a name")
                .trim()
                .to_owned(),
            authorized_keys: self.authorized_keys(),
        }
    }

    /// The keys that it accepts.
    pub(crate) fn authorized_keys(&self) -> PathBuf {
        self.home().join(".ssh/authorized_keys")
    }

    /// Its host key, as a kind and its key.
    pub(crate) fn host_key(&self) -> String {
        let line = fs::read_to_string(self.home().join("host_key.pub")).expect("a key");
        line.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    /// Ends it and starts another at the same port, like a rebuilt machine.
    pub(crate) fn make_anew(&self) {
        self.end();
        self.new_host_key();
        self.start();
    }

    /// Restarts as a machine on which every login runs this command, even if it asks for another.
    pub(crate) fn answer_all_with(&self, command: &str) {
        self.end();
        self.start_with(&format!("ForceCommand {command}\n"));
    }

    /// Takes the description of the node away: the agent cannot begin.
    pub(crate) fn forget_node(&self) {
        fs::remove_file(self.home().join("node.json")).expect("it was there");
    }

    /// Describes a node with one A10, as the simulated provider sells it.
    fn describe_node(&self) {
        let node = json!({
            "schema": "simulated-node-1", "node_index": 0, "host": "127.0.0.1", "gpu": "A10",
            "gpus": 1, "memory_mib": 23_028, "vcpus": 30, "memory_gib": 200,
            "uuids": ["GPU-0a10c0de-0000-4000-8000-000000000001"],
            "driver": "570.000.00-simulated", "internode": "none",
        });
        fs::write(self.home().join("node.json"), node.to_string()).expect("written");
    }

    fn new_host_key(&self) {
        let key = self.home().join("host_key");
        for old in [key.clone(), key.with_extension("pub")] {
            let _ = fs::remove_file(old);
        }
        let mut keygen = Command::new("ssh-keygen");
        keygen
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(key);
        assert!(keygen.status().expect("ssh-keygen").success());
    }

    fn start(&self) {
        self.start_with("");
    }

    /// As [`Self::start`], with more in its configuration.
    fn start_with(&self, more: &str) {
        let home = self.home().display().to_string();
        let configuration = format!(
            "ListenAddress 127.0.0.1:{}\nHostKey {home}/host_key\nPidFile none\nUsePAM no\n\
             StrictModes no\nAuthorizedKeysFile {home}/.ssh/authorized_keys\nPermitRootLogin yes\n\
             PasswordAuthentication no\nSetEnv HOME={home} SIMULATED_NODE={home}/node.json\n{more}",
            self.port
        );
        let file = self.home().join("sshd_config");
        fs::write(&file, configuration).expect("written");
        let log = fs::File::create(self.home().join("log")).expect("a log");
        let mut command = Command::new(&self.program);
        command.args(["-D", "-e", "-f"]).arg(file);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        let server = command.spawn().expect("it starts");
        *self.server.lock().expect("not poisoned") = Some(server);
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.home().join("log"));
        panic!("sshd does not listen: {log:?}");
    }

    fn end(&self) {
        if let Some(mut server) = self.server.lock().expect("not poisoned").take() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.end();
    }
}
