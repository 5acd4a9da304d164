//! `broker ssh-keys`: the public SSH keys to install on machines.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use market::ids::SshKeyId;
use serde_json::{Value, json};

use super::api::{Call, OnceArgs};
use super::connection::ServiceArgs;
use super::identity;
use super::route::Route;
use super::sheet::{age, cell, items, print_sheet, print_table, text, time};
use crate::cli::client::session::Session;
use crate::cli::input::read_text;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;
use crate::terminal::text::{print_answer, print_text};

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum SshKeysCommand {
    /// Lists the keys, newest first.
    List(ListArgs),
    /// Adds a public key.
    Add(AddArgs),
    /// Deletes a key; machines that already have it keep it.
    Delete(DeleteArgs),
}

/// Lists the keys, newest first.
#[derive(Debug, Args)]
pub(in crate::cli) struct ListArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

/// Adds a public key: Ed25519, ECDSA, RSA of 2048 bits or more, or a security key.
#[derive(Debug, Args)]
#[command(after_help = "Example: broker ssh-keys add ~/.ssh/id_ed25519.pub")]
pub(in crate::cli) struct AddArgs {
    /// The public half, as `ssh-keygen` writes it; `-` reads it from standard input.
    #[arg(value_name = "FILE.pub")]
    file: PathBuf,
    /// A name for the key; by default, its comment.
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    once: OnceArgs,
    #[command(flatten)]
    service: ServiceArgs,
}

/// Deletes a key; machines that already have it keep it.
#[derive(Debug, Args)]
pub(in crate::cli) struct DeleteArgs {
    /// The key.
    #[arg(value_name = "ID")]
    id: SshKeyId,
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(command: SshKeysCommand) -> Result<(), Ending> {
    match command {
        SshKeysCommand::List(args) => list(args).await,
        SshKeysCommand::Add(args) => add(args).await,
        SshKeysCommand::Delete(args) => delete(args).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let keys = session
        .api
        .list(Route::ListSshKeys.all().into(), true)
        .await?;
    session.show(&keys, |keys| {
        let keys = items(keys, "items");
        if keys.is_empty() {
            return Ok(print_text(
                "There are none. `broker ssh-keys add FILE.pub` adds one.",
            )?);
        }
        let now = SystemClock.now();
        let rows = keys.iter().map(|key| {
            vec![
                cell(key, "/id"),
                cell(key, "/name"),
                cell(key, "/fingerprint"),
                age(time(key, "/created_at"), now),
            ]
        });
        print_table(&["id", "name", "fingerprint", "added"], rows)
    })
}

async fn add(args: AddArgs) -> Result<(), Ending> {
    let line = read_public_key(&args.file)?;
    let name = args.name.unwrap_or_else(|| usual_name(&line, &args.file));
    let session = Session::open(&args.service)?;
    let call = Call::from(Route::AddSshKey.all())
        .body(json!({ "name": name, "public_key": line }))
        .once(args.once.key());
    let added = session.api.send(call).await?;
    identity::remember(&args.file);
    session.show(&added, print_key)
}

fn print_key(key: &Value) -> Result<(), Ending> {
    print_sheet(&[
        ("SSH key", text(key, "/id")),
        ("name", text(key, "/name")),
        ("fingerprint", text(key, "/fingerprint")),
    ])
}

async fn delete(args: DeleteArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    session.api.text(Route::DeleteSshKey.of(&args.id)).await?;
    let told = if session.json {
        json!({ "id": args.id, "deleted": true }).to_string()
    } else {
        format!(
            "Deleted {}. Machines that already have it keep it.",
            args.id
        )
    };
    Ok(print_answer(&told, session.json)?)
}

/// Reads a public key. A private key is refused before anything is sent.
fn read_public_key(file: &Path) -> Result<String, Ending> {
    let shown = file.display();
    let text = read_text("the SSH key", file)?;
    if text.contains("PRIVATE KEY") {
        return Err(Ending::wrong_input(format!(
            "{shown} is a private key, which nobody else may have; give the file that ends in .pub"
        )));
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    match (lines.next(), lines.next()) {
        (Some(line), None) => Ok(line.to_owned()),
        _ => Err(Ending::wrong_input(format!(
            "{shown} must hold one public key in one line"
        ))),
    }
}

/// The comment of the key, or else the name of its file.
fn usual_name(line: &str, file: &Path) -> String {
    let comment = line
        .split_whitespace()
        .skip(2)
        .collect::<Vec<_>>()
        .join(" ");
    let stem = file
        .file_stem()
        .map(|stem| stem.to_string_lossy().into_owned());
    let name = if comment.is_empty() {
        stem.filter(|stem| stem != "-")
            .unwrap_or_else(|| "command line".to_owned())
    } else {
        comment
    };
    name.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_called_by_its_comment_or_its_file() {
        let named = |line: &str| usual_name(line, Path::new("/home/ada/.ssh/id_ed25519.pub"));
        assert_eq!(named("ssh-ed25519 AAAA ada@laptop"), "ada@laptop");
        assert_eq!(named("ssh-ed25519 AAAA"), "id_ed25519");
        assert_eq!(
            usual_name("ssh-ed25519 AAAA", Path::new("-")),
            "command line"
        );
    }

    #[test]
    fn a_private_key_or_several_keys_are_not_sent() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("key");
        for bad in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n",
            "",
            "ssh-rsa A\nssh-rsa B\n",
        ] {
            std::fs::write(&file, bad).expect("written");
            let refused = format!("{:?}", read_public_key(&file).expect_err("refused"));
            assert!(!refused.contains("AAAA"), "{refused}");
        }
        std::fs::write(&file, "\nssh-ed25519 AAAA x\n").expect("written");
        assert_eq!(read_public_key(&file).expect("a key"), "ssh-ed25519 AAAA x");
    }
}
