//! `broker access`: how to connect to the nodes of a reservation.

use std::fs;
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use market::ids::ReservationId;
use serde_json::{Value, json};

use super::connection::ServiceArgs;
use super::identity::{Identities, identities, stands_for_itself};
use super::reservations::{find, parse_reservation};
use super::route::Route;
use super::sheet::{NOTHING, cell, items, print_table, text};
use crate::cli::client::session::Session;
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;
use crate::terminal::text::{clean, print_line, print_next, shell_word};

/// Shows how to connect to the nodes of a reservation.
///
/// Exit status: 0 there are nodes, 1 nothing is handed off, 2 wrong input.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("configuration").args(["ssh_dir", "ssh_config"]),
    after_help = "Examples:\n  broker access rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718\n  broker access rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --ssh-dir nodes\n  broker access rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --ssh-config >> ~/.ssh/config\n  broker access rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --known-hosts > ~/.ssh/known_hosts.gpb-e5f60718\n  broker access rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 --hostfile > hosts"
)]
pub(in crate::cli) struct AccessArgs {
    /// The reservation: its id, or the start of the id.
    #[arg(value_name = "ID", value_parser = parse_reservation)]
    id: String,
    /// Writes `config` and `known_hosts` into this directory, for `ssh -F DIR/config`; creates the
    /// directory if it does not exist.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["ssh_config", "known_hosts", "hostfile", "torchrun"])]
    ssh_dir: Option<PathBuf>,
    /// Prints an entry for `~/.ssh/config` for each node.
    #[arg(long, conflicts_with_all = ["known_hosts", "hostfile", "torchrun", "json"])]
    ssh_config: bool,
    /// Prints the known-hosts file that those entries name.
    #[arg(long, conflicts_with_all = ["hostfile", "torchrun", "json"])]
    known_hosts: bool,
    /// Prints the host file for `mpirun`.
    #[arg(long, conflicts_with_all = ["torchrun", "json"])]
    hostfile: bool,
    /// Prints the `torchrun` command of each node, one a line.
    #[arg(long, conflicts_with = "json")]
    torchrun: bool,
    /// With --ssh-dir or --ssh-config: the private key to log in with. By default, those of the tenant's
    /// keys that were added from this machine or are in `~/.ssh`.
    #[arg(long, value_name = "FILE", requires = "configuration")]
    identity: Option<PathBuf>,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: AccessArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let id = find(&session.api, &args.id).await?;
    let access = session.api.send(Route::ReservationAccess.of(&id)).await?;
    if args.ssh_dir.is_some() || args.ssh_config {
        let identities = identities(&session, args.identity.as_deref()).await?;
        let Some(folder) = &args.ssh_dir else {
            let known_hosts = format!("~/.ssh/known_hosts.{}", alias(id));
            let hosts = ssh_hosts(&access.value, id)?;
            let entries = ssh_config(&hosts, id, &known_hosts, &identities);
            note_where_no_key_is_known(&identities);
            return Ok(print_line(entries.trim_end())?);
        };
        return write_ssh_dir(&session, &access.value, id, folder, &identities);
    }
    let lines = |field: &str| file_lines(&access.value, field);
    let file = match &args {
        AccessArgs { hostfile: true, .. } => Some(lines("hostfile")),
        AccessArgs {
            known_hosts: true, ..
        } => Some(lines("known_hosts")),
        AccessArgs { torchrun: true, .. } => {
            let commands = access.value["torchrun"]["commands"].as_array();
            let commands = commands.into_iter().flatten().filter_map(Value::as_str);
            Some(commands.map(clean).collect())
        }
        _ => None,
    };
    if let Some(lines) = file {
        return lines
            .into_iter()
            .try_for_each(|line| Ok(print_line(&line)?));
    }
    session.show(&access, print_access)
}

fn print_access(access: &Value) -> Result<(), Ending> {
    let rows = items(access, "nodes").iter().map(|node| {
        vec![
            cell(node, "/node"),
            ssh_command(node),
            cell(node, "/private_address"),
            cell(node, "/gpus"),
            cell(node, "/host_keys/0/fingerprint"),
            cell(node, "/last_reachable_at"),
        ]
    });
    let head = [
        "node",
        "reach it by",
        "private address",
        "GPUs",
        "host key",
        "last reached",
    ];
    print_table(&head, rows)
}

/// Warns if a configuration names no private key.
fn note_where_no_key_is_known(identities: &Identities) {
    if !identities.has_private {
        note(
            "no private key of this tenant's SSH keys is on this machine; ssh tries the keys that it finds, \
             and --identity FILE names one",
        );
    }
}

/// A file of the reply, line by line.
fn file_lines(access: &Value, field: &str) -> Vec<String> {
    let file = access[field].as_str().unwrap_or_default();
    file.lines().map(clean).collect()
}

/// The first line of a file that this command wrote, and so may overwrite.
const OURS: &str = "# Written by `broker access`";

/// Writes the files that `ssh` needs to identify the nodes.
///
/// Errors: wrong input if the directory cannot hold them. Files of others are never overwritten.
fn write_ssh_dir(
    session: &Session,
    access: &Value,
    id: ReservationId,
    folder: &Path,
    identities: &Identities,
) -> Result<(), Ending> {
    let refuse = |why: String| {
        let shown = folder.display();
        Ending::wrong_input(format!(
            "{shown} cannot hold the files for ssh: {why}; give another directory"
        ))
    };
    let folder = std::path::absolute(folder).map_err(|error| refuse(error.to_string()))?;
    let [config, known_hosts] = ["config", "known_hosts"].map(|name| folder.join(name));
    for file in [&config, &known_hosts] {
        match fs::read_to_string(file) {
            Ok(text) if text.starts_with(OURS) => {}
            Ok(_) => return Err(refuse(format!("there is a {} already", file.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(refuse(error.to_string())),
        }
    }
    if !stands_for_itself(&known_hosts) {
        return Err(refuse("ssh cannot read its path".to_owned()));
    }
    let quoted = format!("\"{}\"", known_hosts.display());
    let head = format!("{OURS} for {id}.\n");
    let nodes = ssh_hosts(access, id)?;
    let entries = ssh_config(&nodes, id, &quoted, identities);
    let hosts: String = file_lines(access, "known_hosts")
        .iter()
        .map(|line| format!("{line}\n"))
        .collect();
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&config, format!("{head}{entries}")))
        .and_then(|()| fs::write(&known_hosts, format!("{head}{hosts}")))
        .map_err(|error| refuse(error.to_string()))?;
    if session.json {
        let written = json!({ "config": config, "known_hosts": known_hosts });
        return Ok(print_line(&written.to_string())?);
    }
    note_where_no_key_is_known(identities);
    if let Some(first) = nodes.first() {
        let config = shell_word(&config.display().to_string());
        print_next(&format!("ssh -F {config} {}-{}", alias(id), first.node))?;
    }
    Ok(())
}

/// The name of the reservation in a configuration of ssh: the end of its id.
fn alias(id: ReservationId) -> String {
    let id = id.to_string();
    let tail = id.len().saturating_sub(8);
    format!("gpb-{}", id.get(tail..).unwrap_or_default())
}

/// A node in a configuration of ssh. Each part is one word in one line.
#[derive(Debug)]
struct SshHost {
    node: u32,
    host: String,
    port: NonZeroU16,
    user: String,
    /// Whether its host key is known.
    has_key: bool,
}

impl SshHost {
    /// Reads a node of the reply; `None` for one that does not fit in one line of the file.
    fn parse(node: &Value) -> Option<Self> {
        let word = |pointer: &str| {
            let word = text(node, pointer);
            let is_plain = |c: char| c.is_ascii_alphanumeric() || ".:-_[]".contains(c);
            (!word.is_empty() && word.chars().all(is_plain)).then_some(word)
        };
        let port = u16::try_from(node["port"].as_u64()?).ok()?;
        Some(Self {
            node: node["node"].as_u64()?.try_into().ok()?,
            host: word("/host")?,
            port: NonZeroU16::new(port)?,
            user: word("/user")?,
            has_key: !items(node, "host_keys").is_empty(),
        })
    }
}

/// The command that logs in to a node, for a shell; nothing where the reply has anything but plain words.
fn ssh_command(node: &Value) -> String {
    SshHost::parse(node).map_or_else(
        || NOTHING.to_owned(),
        |SshHost {
             user, host, port, ..
         }| format!("ssh -p {port} {user}@{host}"),
    )
}

/// The nodes of the reply.
///
/// Errors: the answer is no if a node cannot be written in a configuration of ssh.
fn ssh_hosts(access: &Value, id: ReservationId) -> Result<Vec<SshHost>, Ending> {
    let host = |node: &Value| {
        SshHost::parse(node).ok_or_else(|| {
            Ending::No(format!(
                "node {} has an address that an SSH configuration cannot hold; \
                 `broker access {id} --json` shows it",
                text(node, "/node")
            ))
        })
    };
    items(access, "nodes").iter().map(host).collect()
}

/// An entry for each node, named after reservation and node, with the host keys in `known_hosts` and these
/// keys. If any of them is private, ssh offers no others.
fn ssh_config(
    hosts: &[SshHost],
    id: ReservationId,
    known_hosts: &str,
    identities: &Identities,
) -> String {
    let alias = alias(id);
    let mut entries = String::new();
    for host in hosts {
        // As the service writes it: an unknown host key is accepted once.
        let strict = match host.has_key {
            true => "yes",
            false => "accept-new",
        };
        entries.push_str(&format!(
            "Host {alias}-{}\n    HostName {}\n    Port {}\n    User {}\n    \
             UserKnownHostsFile {known_hosts}\n    \
             StrictHostKeyChecking {strict}\n",
            host.node, host.host, host.port, host.user,
        ));
        for file in &identities.files {
            entries.push_str(&format!("    IdentityFile \"{}\"\n", file.display()));
        }
        if identities.has_private {
            entries.push_str("    IdentitiesOnly yes\n");
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id() -> ReservationId {
        let id = "rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718".parse();
        id.expect("an id")
    }

    fn access(fields: &Value) -> Value {
        let mut node = json!({
            "node": 0, "host": "198.51.100.7", "port": 2222, "user": "ubuntu", "host_keys": [{}],
        });
        let all = node.as_object_mut().expect("fields");
        all.extend(fields.as_object().expect("fields").clone());
        json!({ "reservation_id": "x *", "nodes": [node] })
    }

    #[test]
    fn each_node_gets_an_entry_that_ssh_understands() {
        let hosts = ssh_hosts(&access(&json!({})), id()).expect("hosts");
        let entry = |files: &[&str], has_private| {
            let files = files.iter().map(PathBuf::from).collect();
            let identities = Identities { files, has_private };
            let known_hosts = "~/.ssh/known_hosts.gpb-e5f60718";
            ssh_config(&hosts, id(), known_hosts, &identities)
        };
        let usual = "Host gpb-e5f60718-0\n    HostName 198.51.100.7\n    Port 2222\n    User ubuntu\n    \
             UserKnownHostsFile ~/.ssh/known_hosts.gpb-e5f60718\n    StrictHostKeyChecking yes\n";
        assert_eq!(entry(&[], false), usual);
        assert_eq!(
            entry(&["/home/ada/my key"], true),
            format!("{usual}    IdentityFile \"/home/ada/my key\"\n    IdentitiesOnly yes\n")
        );
        // The private half may be in an agent or missing: ssh tries its other keys.
        assert_eq!(
            entry(&["/home/ada/key.pub"], false),
            format!("{usual}    IdentityFile \"/home/ada/key.pub\"\n")
        );
    }

    #[test]
    fn no_field_of_a_node_can_smuggle_anything_into_the_configuration_or_the_command() {
        for (field, hostile) in [
            ("host", json!("a\n    ProxyCommand evil")),
            ("host", json!("a ProxyCommand")),
            ("host", json!("")),
            ("host", json!("$(x)")),
            ("user", json!("a b")),
            ("node", json!("0 *")),
            ("node", json!(-1)),
            ("node", json!(1.5)),
            ("node", json!(4_294_967_296_u64)),
            ("port", json!("22\n    ProxyCommand evil")),
            ("port", json!(0)),
            ("port", json!(65_536)),
            ("port", Value::Null),
        ] {
            let reply = access(&json!({ field: hostile }));
            let hosts = ssh_hosts(&reply, id());
            assert!(hosts.is_err(), "{field}: {hosts:?}");
            assert_eq!(ssh_command(&reply["nodes"][0]), NOTHING, "{field}");
        }
    }
}
