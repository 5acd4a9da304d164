//! The command line, from outside: the real binary as a child process, in an empty directory and
//! with a clean environment.

mod attestation;
mod bench;
mod books;
mod catalogue;
mod commands;
mod data_dir;
mod demo;
mod facts;
mod full_disk;
mod hybrid;
mod keys;
mod lists;
mod matching;
mod own;
mod predict;
mod providers;
mod real_lists;
mod record;
mod serve;

use std::ffi::OsStr;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::eventually::{ended, output_of};

/// An empty directory to run commands in.
struct Place(TempDir);

/// How a command ended.
#[derive(Debug)]
struct Ended {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    /// Writes a file and gives its path.
    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The command, not started yet. Of the environment only the search path is left.
    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_broker"));
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        command
    }

    /// Runs the command to its end.
    fn broker<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Ended {
        Ended::of(output_of(&mut self.command(args)))
    }

    /// Runs the command to its end with a text on its standard input.
    fn broker_reading<S: AsRef<OsStr>>(
        &self,
        text: &str,
        args: impl IntoIterator<Item = S>,
    ) -> Ended {
        let mut command = self.command(args);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("the command starts");
        let mut stdin = child.stdin.take().expect("standard input");
        stdin.write_all(text.as_bytes()).expect("the text is taken");
        drop(stdin);
        Ended::of(ended("the end of the command", child))
    }
}

impl Ended {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Self {
            status: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The one line of JSON that a command printed.
    #[track_caller]
    fn json(&self, status: i32) -> Value {
        assert_eq!(self.status, Some(status), "{self:?}");
        let mut lines = self.stdout.lines();
        let (line, rest) = (lines.next().expect("a line"), lines.next());
        assert_eq!(rest, None, "more than one line");
        serde_json::from_str(line).expect("JSON")
    }

    /// Checks that the input was refused in one sentence on stderr, and gives it.
    #[track_caller]
    fn refused(&self) -> &str {
        assert_eq!(self.status, Some(2), "{self:?}");
        assert_eq!(self.stdout, "", "{self:?}");
        let sentence = self.stderr.trim_end();
        assert!(
            sentence.starts_with("error: ") && !sentence.contains('\n'),
            "{sentence}"
        );
        sentence
    }
}

/// The names of an object's fields.
fn fields(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .expect("an object")
        .keys()
        .map(String::as_str)
        .collect()
}

/// The header of a price list.
const HEADER: &str = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,\
    price_usd_hour,spot_usd_hour,region,zone";

/// The fields of the one offer JSON, in order.
const OFFER_FIELDS: [&str; 23] = [
    "availability",
    "disk_gib",
    "extras",
    "gpu",
    "gpus",
    "internode",
    "memory_gib",
    "nodes",
    "observed_at",
    "offer_id",
    "operator",
    "orderable",
    "place",
    "price_usd_gpu_hour",
    "price_usd_hour",
    "provider",
    "raw_gpu_name",
    "sku",
    "stock",
    "tenancy",
    "tenure",
    "terms",
    "vcpus",
];
