//! `broker agent`: prints the commands that download the agent to a node in use, so that its tenant can check
//! it.

use clap::Args;
use market::verification::Digest;
use verifier::delivery::fetch_script;

use super::connection::ServiceArgs;
use super::route::Route;
use super::sheet::{items, text};
use crate::cli::client::session::Session;
use crate::terminal::aside::note;
use crate::terminal::ending::Ending;
use crate::terminal::text::print_line;

/// Prints the commands that download the agent to a node, as the file `verifier` in the current
/// directory. They hold no secret.
#[derive(Debug, Args)]
#[command(
    after_help = "Example: broker agent | ssh ubuntu@203.0.113.7 sh\nOn the node: ./verifier run --json > result.json\nThen: broker report node rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718 3 --file result.json"
)]
pub(in crate::cli) struct AgentArgs {
    #[command(flatten)]
    service: ServiceArgs,
}

pub(super) async fn run(args: AgentArgs) -> Result<(), Ending> {
    let session = Session::open(&args.service)?;
    let listed = session.api.send(Route::ListAgents.all()).await?;
    session.show(&listed, |listed| {
        let Some(agent) = items(listed, "items").first() else {
            return Err(Ending::No(
                "this service has no agent file: none is configured (verifier.agent_path), or its nodes are \
                 simulated, and `broker verifier run --simulated-node FILE` plays one"
                    .to_owned(),
            ));
        };
        let sha256: Digest = text(agent, "/sha256").parse()?;
        note("run these commands on the node, with x86-64 Linux; then `./verifier run`");
        Ok(print_line(&fetch_script(&text(agent, "/url"), sha256))?)
    })
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use sha2::{Digest as _, Sha256};

    use super::*;

    /// Runs the commands in a directory, with a `curl` that copies a file. Returns whether an agent is there.
    fn fetch(served: &str, claimed: &str) -> bool {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("served"), served).expect("written");
        let sha256 = Digest(Sha256::digest(claimed).into());
        let script = fetch_script("https://it's a $(broker).example", sha256);
        let curl = "curl() { [ \"$url\" = \"https://it's a \\$(broker).example\" ] && cp served verifier.part; }\n";
        let mut shell = Command::new("/bin/sh");
        let shell = shell.current_dir(folder.path()).arg("-c");
        let ran = shell.arg(format!("{curl}{script}")).output();
        let fetched = folder.path().join("verifier").exists();
        assert_eq!(ran.expect("a shell").status.success(), fetched);
        fetched
    }

    #[test]
    fn only_the_agent_of_the_right_hash_is_kept() {
        assert!(fetch("agent", "agent"));
        assert!(!fetch("evil", "agent"));
    }
}
