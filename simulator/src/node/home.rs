//! The homes of nodes, and the programs that all nodes have.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::Key;
use crate::hardware::Hardware;

/// The file with a node's hardware description.
pub(super) const HARDWARE: &str = "simulated-node.json";

/// The `timeout` of a node. It opens no process group of its own, so that the command ends with its machine;
/// every process of a node has a deadline anyway. The command's errors are passed on even if it redirects
/// them, as long as something reads them.
const TIMEOUT: &str = "#!/bin/sh
if { true >&3; } 2>/dev/null; then exec 2>&3; fi
echo \"has $1 seconds\" >&2
shift
exec \"$@\"
";

/// Where the homes of all nodes are.
pub(super) struct Workspace {
    folder: TempDir,
    /// The search path of nodes for programs.
    pub(super) search_path: OsString,
}

impl Workspace {
    pub(super) fn make() -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("simulator-").tempdir()?;
        let programs = folder.path().join("bin");
        fs::create_dir(&programs)?;
        let timeout = programs.join("timeout");
        fs::write(&timeout, TIMEOUT)?;
        fs::set_permissions(&timeout, Permissions::from_mode(0o755))?;
        let mut search_path = programs.into_os_string();
        if let Some(of_host) = std::env::var_os("PATH") {
            search_path.push(":");
            search_path.push(of_host);
        }
        Ok(Self {
            folder,
            search_path,
        })
    }

    pub(super) fn home_of(&self, (machine, index): &Key) -> PathBuf {
        self.folder.path().join(format!("{machine}-{index}"))
    }
}

/// Creates a home; returns it, and the file of the keys that its SSH server accepts.
pub(super) fn make_home(home: PathBuf, keys: &[String]) -> io::Result<(PathBuf, PathBuf)> {
    let folder = home.join(".ssh");
    fs::create_dir_all(&folder)?;
    let file = folder.join("authorized_keys");
    let lines: String = keys.iter().map(|key| format!("{key}\n")).collect();
    fs::write(&file, lines)?;
    Ok((home, file))
}

/// Writes a node's hardware description into its home.
pub(super) fn write_hardware(home: &Path, hardware: &Hardware) -> io::Result<()> {
    let text = serde_json::to_string_pretty(hardware).map_err(io::Error::other)?;
    fs::write(home.join(HARDWARE), text)
}
