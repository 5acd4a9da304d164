//! The service under load: the real binary, selling a simulated market, over a database of its own.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::{env, fs, process, thread};

use anyhow::{Context as _, Result, bail, ensure};
use tempfile::TempDir;

/// A running service. It ends when this is dropped.
pub(super) struct Service {
    broker: PathBuf,
    child: Child,
    address: String,
    database: Option<Database>,
    redis: Option<String>,
    dir: TempDir,
}

/// A database on a server, made for the run.
struct Database {
    server: String,
    name: String,
}

impl Service {
    /// Starts it: on a new database of the server that `TEST_DATABASE_URL` names, or else on the
    /// embedded one, and with the Redis that `TEST_REDIS_URL` names, or else none. Calls are not
    /// counted.
    pub(super) fn start(broker: PathBuf) -> Result<Self> {
        let database = env::var("TEST_DATABASE_URL").ok();
        let database = database.map(Database::create).transpose()?;
        let redis = env::var("TEST_REDIS_URL").ok();
        let dir = tempfile::tempdir()?;
        let mut command = Command::new(&broker);
        command
            .args(["serve", "--simulate", "--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        prepare(&mut command, &dir, database.as_ref());
        if let Some(redis) = &redis {
            command.env("REDIS_URL", redis);
        }
        let mut child = command
            .spawn()
            .with_context(|| format!("{} could not be started", broker.display()))?;
        let said = child.stderr.take().context("no stderr")?;
        let mut lines = BufReader::new(said).lines();
        let address = loop {
            let Some(line) = lines.next() else {
                bail!("the service ended before it served");
            };
            let line = line?;
            if let Some((_, rest)) = line.split_once("Serving at http://") {
                break rest.split(' ').next().unwrap_or_default().to_owned();
            }
            eprintln!("{line}");
        };
        // An unread pipe would block the service in the middle of a line.
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                if line.contains("WARN") || line.contains("ERROR") {
                    eprintln!("{line}");
                }
            }
        });
        Ok(Self {
            broker,
            child,
            address,
            database,
            redis,
            dir,
        })
    }

    /// Where it answers: host and port.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// The kind of its database.
    pub(super) fn database(&self) -> &'static str {
        match self.database {
            Some(_) => "postgresql",
            None => "sqlite",
        }
    }

    /// A key of a member of this tenant.
    pub(super) fn key(&self, tenant: &str) -> Result<String> {
        let mut command = Command::new(&self.broker);
        command.args(["token", "create", "--tenant", tenant]);
        prepare(&mut command, &self.dir, self.database.as_ref());
        let made = command.output()?;
        ensure!(
            made.status.success(),
            "no key was made: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        Ok(String::from_utf8(made.stdout)?.trim().to_owned())
    }

    /// The backend of its coordination state.
    pub(super) fn hot_state(&self) -> &'static str {
        match self.redis {
            Some(_) => "redis",
            None => "in_process",
        }
    }

    /// Its resident memory. Units: MiB.
    ///
    /// Errors: the system does not report it.
    pub(super) fn resident_mib(&self) -> Result<f64> {
        self.memory_mib("VmRSS:")
    }

    /// The most resident memory that it had since it began, as the system counted it. Units: MiB.
    ///
    /// Errors: the system does not report it.
    pub(super) fn most_resident_mib(&self) -> Result<f64> {
        self.memory_mib("VmHWM:")
    }

    fn memory_mib(&self, field: &str) -> Result<f64> {
        let path = format!("/proc/{}/status", self.child.id());
        let status = fs::read_to_string(&path).with_context(|| format!("{path} is not there"))?;
        let kib = status.lines().find_map(|line| {
            let kib = line.strip_prefix(field)?.trim().strip_suffix(" kB")?;
            kib.parse::<f64>().ok()
        });
        Ok(kib.with_context(|| format!("{path} has no field {field}"))? / 1024.0)
    }

    /// Stops it and checks its ledger.
    pub(super) fn stop_and_check_books(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        let mut command = Command::new(&self.broker);
        command.args(["ledger", "check"]).stdout(Stdio::null());
        prepare(&mut command, &self.dir, self.database.as_ref());
        let status = command.status()?;
        ensure!(status.success(), "the ledger does not balance");
        Ok(())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended before; the database can only be dropped after it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing of the maintainer's own environment reaches the service but the database of the run.
fn prepare(command: &mut Command, dir: &TempDir, database: Option<&Database>) {
    command
        .env_remove("DATABASE_URL")
        .env_remove("REDIS_URL")
        .env("BROKER__RATE_LIMITS__ENABLED", "false")
        .current_dir(dir.path())
        .arg("--data-dir")
        .arg(dir.path());
    if let Some(database) = database {
        command.env("DATABASE_URL", database.url());
        // A server's database needs its sealing key from outside: any will do for one run.
        command.env("BROKER__SECRETS__KEY", "7a".repeat(32));
    }
}

impl Database {
    fn create(server: String) -> Result<Self> {
        let name = format!("broker_load_{}", process::id());
        let database = Self { server, name };
        database.say("CREATE DATABASE")?;
        Ok(database)
    }

    fn url(&self) -> String {
        let (server, rest) = match self.server.split_once('?') {
            Some((server, rest)) => (server, format!("?{rest}")),
            None => (self.server.as_str(), String::new()),
        };
        // The name follows the last slash after the scheme, if there is one.
        let host = server.find("://").map_or(0, |at| at + 3);
        let end = server[host..]
            .find('/')
            .map_or(server.len(), |at| host + at);
        format!("{}/{}{rest}", &server[..end], self.name)
    }

    fn say(&self, what: &str) -> Result<()> {
        let status = Command::new("psql")
            .args(["--quiet", "--no-psqlrc", &self.server, "--command"])
            .arg(format!("{what} {}", self.name))
            .status()
            .context("psql could not be started; install PostgreSQL's client")?;
        ensure!(status.success(), "{what} was refused");
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if let Err(error) = self.say("DROP DATABASE") {
            eprintln!("{} is left behind: {error:#}", self.name);
        }
    }
}
