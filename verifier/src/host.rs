//! What a node says of itself beside its GPUs: its SSH host keys and its network adapters.
//!
//! Both are claims. The host keys are worth as much as the conversation that carries them: it runs
//! under the one-time credential of the lease, and the report that repeats them is signed. No
//! device reads them from here yet: the one for real cards is to.

use std::fs;
use std::path::Path;

/// Where an SSH server keeps its host keys.
pub const SSH_FOLDER: &str = "/etc/ssh";
/// Where Linux lists its adapters for RDMA.
pub const RDMA_FOLDER: &str = "/sys/class/infiniband";

/// The public host keys in this folder, without their comments, in the order of their files; none
/// where the server has not made them yet.
#[must_use]
pub fn ssh_host_keys(folder: &Path) -> Vec<String> {
    let is_key = |name: &&String| name.starts_with("ssh_host_") && name.ends_with("_key.pub");
    let read = |name: String| {
        let text = fs::read_to_string(folder.join(name)).ok()?;
        let mut words = text.split_whitespace();
        Some(format!("{} {}", words.next()?, words.next()?))
    };
    let names = names_in(folder);
    names
        .iter()
        .filter(is_key)
        .cloned()
        .filter_map(read)
        .collect()
}

/// The adapters that this folder lists, by name: `mlx5_2` before `mlx5_10`.
#[must_use]
pub fn nics(folder: &Path) -> Vec<String> {
    let mut names = names_in(folder);
    names.sort_by_key(|name| {
        let (kind, number) = name.rsplit_once('_').unwrap_or((name, ""));
        (kind.to_owned(), number.parse::<u32>().unwrap_or(0))
    });
    names
}

/// The names of what lies in a folder, sorted; none where it cannot be read.
fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_keys_are_read_without_comments_and_private_halves_are_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).expect("written");
        };
        write("ssh_host_rsa_key.pub", "ssh-rsa BBBB root@node\n");
        write("ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA root@node\n");
        write("ssh_host_ed25519_key", "PRIVATE");
        write("ssh_host_ecdsa_key.pub", "\n");
        write("sshd_config", "Port 22");
        assert_eq!(
            ssh_host_keys(folder.path()),
            ["ssh-ed25519 AAAA", "ssh-rsa BBBB"]
        );
        assert!(ssh_host_keys(&folder.path().join("nowhere")).is_empty());
    }

    #[test]
    fn adapters_are_ordered_by_their_numbers() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["mlx5_10", "mlx5_2", "mlx5_0"] {
            fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        assert_eq!(nics(folder.path()), ["mlx5_0", "mlx5_2", "mlx5_10"]);
    }
}
