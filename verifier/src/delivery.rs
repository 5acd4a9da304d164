//! The script by which a node starts its agent at first boot. Nodes that run none get their agent
//! by [`crate::push`].
//!
//! All parts of the script use an alphabet without shell metacharacters, or are quoted. The token is passed
//! in the environment, where other users of the node do not see it in a process list.

use std::path::PathBuf;

use market::ids::VerificationId;
use market::verification::Digest;

use crate::address::{BrokerUrl, Token};
use crate::reference::NodeDescription;

/// The environment variable that carries the token.
pub const TOKEN_VARIABLE: &str = "VERIFIER_TOKEN";

/// How the agent is installed on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// Fetched from the broker, or copied by it over SSH, and checked against its SHA-256.
    Fetched {
        /// The hash under which the broker serves it.
        sha256: Digest,
    },
    /// Already there, as for simulated nodes: `EXECUTABLE verifier run`.
    Installed {
        /// The broker's executable.
        executable: PathBuf,
    },
}

/// Why no script can be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// A path that cannot stand in a script.
    #[error("the agent's path must be absolute and plain UTF-8 text")]
    Path,
    /// The agent would be fetched over an unencrypted connection.
    #[error("a real node fetches its agent over https; the broker's address is plain http")]
    PlainHttp,
    /// An address that is not one line of text.
    #[error("the node's address is not one line of text")]
    Host,
}

/// The parts of a start-up script.
#[derive(Debug, Clone)]
pub struct ScriptArgs<'a> {
    /// Where the node reaches the broker.
    pub broker: &'a BrokerUrl,
    /// The verification of the lease.
    pub verification_id: VerificationId,
    /// The one-time token.
    pub token: &'a Token,
    /// How the agent is installed on the node.
    pub delivery: &'a Delivery,
}

/// The script for `/bin/sh`. It carries a secret: it is handed to the provider and not stored.
///
/// Errors: [`DeliveryError`].
pub fn startup_script(args: &ScriptArgs<'_>) -> Result<String, DeliveryError> {
    script(args, "")
}

/// How long a re-check retries a broker that does not answer. Units: seconds.
const RECHECK_PATIENCE: u32 = 60;

/// The script that re-checks a node in use, any number of times; `host` is the node's address at its
/// provider. It carries a secret: it is handed to the tenant and not stored.
///
/// With `pretended` it simulates that node wherever it runs, unless `SIMULATED_NODE` names another one.
/// Errors: [`DeliveryError`].
pub fn recheck_script(
    args: &ScriptArgs<'_>,
    host: &str,
    pretended: Option<&NodeDescription>,
) -> Result<String, DeliveryError> {
    if host.contains(char::is_control) {
        return Err(DeliveryError::Host);
    }
    let host = quoted(host);
    let mut more = format!(" --host {host} --patience-seconds {RECHECK_PATIENCE}");
    if let Some(node) = pretended {
        // Its JSON is one line, which a quoted here-document leaves as it is.
        let json = serde_json::json!(node);
        more += &format!(
            " --simulated-node \"${{SIMULATED_NODE:-/dev/fd/3}}\" 3<<'NODE'\n{json}\nNODE"
        );
    }
    script(args, &more)
}

fn script(args: &ScriptArgs<'_>, more: &str) -> Result<String, DeliveryError> {
    let ScriptArgs {
        broker,
        verification_id,
        token,
        delivery,
    } = args;
    let (broker_url, token) = (broker.as_str(), token.expose());
    let run = format!("run --broker '{broker_url}' --verification '{verification_id}'{more}");
    let head = format!("#!/bin/sh\nset -eu\n{TOKEN_VARIABLE}='{token}'\nexport {TOKEN_VARIABLE}\n");
    match delivery {
        Delivery::Installed { executable } => {
            let legal = |path: &&str| executable.is_absolute() && !path.contains(char::is_control);
            let path = executable
                .to_str()
                .filter(legal)
                .ok_or(DeliveryError::Path)?;
            Ok(format!("{head}exec {} verifier {run}\n", quoted(path)))
        }
        Delivery::Fetched { .. } if !broker.is_encrypted() => Err(DeliveryError::PlainHttp),
        Delivery::Fetched { sha256 } => {
            let url = format!("{broker_url}/v1/agents/{sha256}");
            let fetch = fetch(&url, *sha256, "$dir/verifier");
            Ok(format!("{head}{PRIVATE}{fetch}\"$dir/verifier\" {run}\n"))
        }
    }
}

/// A private directory, removed when the script ends, where files may be executed. Where cloud-init keeps the
/// script itself, it is removed too, for its token.
const PRIVATE: &str = r#"umask 077
dir=
clean() {
  rm -rf "$dir"
  case $0 in /var/lib/cloud/*) rm -f "$0" ;; esac
}
trap clean EXIT
for base in "${TMPDIR:-/tmp}" /var/tmp "${HOME:-/root}" /run /dev/shm; do
  dir=$(mktemp -d "$base/gpu-broker.XXXXXX" 2>/dev/null) || continue
  printf '#!/bin/sh\n' > "$dir/runs" && chmod 0700 "$dir/runs" && "$dir/runs" 2>/dev/null && break
  rm -rf "$dir"
  dir=
done
if [ -z "$dir" ]; then
  echo "there is no folder in which a file can be written and run" >&2
  exit 1
fi
"#;

/// The shell lines that fetch the agent into a file of its folder. A file with another hash is removed.
#[must_use]
pub fn fetch_script(url: &str, sha256: Digest) -> String {
    let fetch = fetch(url, sha256, "verifier.part");
    format!("set -eu\n{fetch}mv verifier.part verifier")
}

/// Fetches the agent into a file, whose name stands in double quotes, and checks its hash. A machine that has
/// just started may have no network yet: it tries for two minutes, with tools that every image has.
fn fetch(url: &str, sha256: Digest, file: &str) -> String {
    const FETCH: &str = r#"url=@URL@
get() {
  if command -v curl >/dev/null 2>&1; then
    curl --fail --silent --show-error --connect-timeout 20 --output "@FILE@" "$url"
  elif command -v wget >/dev/null 2>&1; then
    wget --quiet --output-document="@FILE@" "$url"
  else
    python3 -c 'import sys, urllib.request as web; web.urlretrieve(*sys.argv[1:])' "$url" "@FILE@"
  fi
}
pause=1
until get; do
  if [ "$pause" -gt 64 ]; then
    echo "the agent could not be fetched by curl, wget or python3" >&2
    exit 1
  fi
  sleep "$pause"
  pause=$((pause * 2))
done
printf '%s  %s\n' '@SHA256@' "@FILE@" | sha256sum -c - >/dev/null
chmod 0700 "@FILE@"
"#;
    let fetch = FETCH.replace("@FILE@", file);
    let fetch = fetch.replace("@SHA256@", &sha256.to_string());
    fetch.replace("@URL@", &quoted(url))
}

/// A text as one word of a POSIX shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use uuid::Uuid;

    use super::*;

    const TOKEN: &str = "vt_0123456789abcdef";

    fn script(broker: &str, delivery: &Delivery) -> Result<String, DeliveryError> {
        startup_script(&ScriptArgs {
            broker: &broker.parse().expect("an address"),
            verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
            token: &TOKEN.parse().expect("a token"),
            delivery,
        })
    }

    fn installed(path: &str) -> Result<String, DeliveryError> {
        script(
            "http://127.0.0.1:8080",
            &Delivery::Installed {
                executable: path.into(),
            },
        )
    }

    /// Runs a script with an empty environment; gives its status and what it printed.
    fn run(script: &str) -> (bool, String) {
        let mut shell = Command::new("/bin/sh");
        let output = shell
            .env_clear()
            .arg("-c")
            .arg(script)
            .output()
            .expect("a shell");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    #[test]
    fn an_installed_agent_gets_its_arguments_and_the_token_by_environment() {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = folder.path().join("it's a $(false) `broker`");
        std::fs::write(&agent, "#!/bin/sh\necho \"$@\"; echo \"$VERIFIER_TOKEN\"\n")
            .expect("written");
        let status = Command::new("chmod")
            .arg("700")
            .arg(&agent)
            .status()
            .expect("chmod");
        assert!(status.success());
        let (succeeded, said) = run(&installed(agent.to_str().expect("utf-8")).expect("a script"));
        let id = VerificationId::from_uuid(Uuid::from_u128(1));
        let expected =
            format!("verifier run --broker http://127.0.0.1:8080 --verification {id}\n{TOKEN}\n");
        assert!(succeeded);
        assert_eq!(said, expected);
    }

    #[test]
    fn a_recheck_says_by_which_address_its_node_is_known() {
        let delivery = Delivery::Installed {
            executable: "/bin/echo".into(),
        };
        let args = ScriptArgs {
            broker: &"http://127.0.0.1:8080".parse().expect("an address"),
            verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
            token: &TOKEN.parse().expect("a token"),
            delivery: &delivery,
        };
        let script = recheck_script(&args, "10.0.0.1'; reboot", None).expect("a script");
        let (succeeded, said) = run(&script);
        assert!(succeeded);
        let end = "--host 10.0.0.1'; reboot --patience-seconds 60\n";
        assert!(said.ends_with(end), "{said}");
        let two_lines = recheck_script(&args, "10.0.0.1\nreboot", None);
        assert_eq!(two_lines, Err(DeliveryError::Host));
    }

    #[test]
    fn a_recheck_of_a_pretended_node_brings_the_node_along() {
        let folder = tempfile::tempdir().expect("a folder");
        let agent = folder.path().join("agent");
        // It prints the file that its last argument names, the description of the node.
        std::fs::write(&agent, "#!/bin/sh\nfor last; do :; done\ncat \"$last\"\n")
            .expect("written");
        let mut mode = std::fs::metadata(&agent).expect("a file").permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o700);
        std::fs::set_permissions(&agent, mode).expect("set");
        let args = ScriptArgs {
            broker: &"http://127.0.0.1:8080".parse().expect("an address"),
            verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
            token: &TOKEN.parse().expect("a token"),
            delivery: &Delivery::Installed { executable: agent },
        };
        let host = "10.0.0.1'\"$(reboot)`reboot`\\".to_owned();
        let gpu = "H100-SXM".parse().expect("a GPU");
        let sold = crate::order::expected_node(gpu, 2);
        let uuids = vec!["GPU-1".to_owned(), "GPU-2".to_owned()];
        let node = NodeDescription::as_sold(&sold, host, uuids);
        let script = recheck_script(&args, "10.0.0.1", Some(&node)).expect("a script");
        let path = "PATH=/usr/bin:/bin\n";
        let (succeeded, said) = run(&format!("{path}{script}"));
        assert!(succeeded, "{script}");
        assert_eq!(NodeDescription::parse(&said).expect("a description"), node);
        let other = format!(
            "{path}SIMULATED_NODE={}\n{script}",
            folder.path().join("agent").display()
        );
        assert!(
            run(&other).1.starts_with("#!/bin/sh"),
            "another one is named"
        );
    }

    #[test]
    fn the_token_is_no_argument_of_any_command() {
        let sha256 = Digest([1; 32]);
        let fetched = script("https://broker.example", &Delivery::Fetched { sha256 });
        for script in [installed("/opt/broker"), fetched] {
            let script = script.expect("a script");
            let lines: Vec<&str> = script.lines().filter(|line| line.contains(TOKEN)).collect();
            assert_eq!(lines, [format!("VERIFIER_TOKEN='{TOKEN}'")]);
        }
    }

    #[test]
    fn a_fetched_agent_is_checked_before_it_runs() {
        let sha256 = Digest([0xab; 32]);
        let script = script("https://broker.example", &Delivery::Fetched { sha256 });
        let script = script.expect("a script");
        let at = |word: &str| {
            script
                .find(word)
                .unwrap_or_else(|| panic!("{word} in {script}"))
        };
        assert!(script.contains(&format!("https://broker.example/v1/agents/{sha256}")));
        assert!(at("curl --fail") < at("sha256sum -c"));
        assert!(at("sha256sum -c") < at("\"$dir/verifier\" run"));
        assert!(!script.contains('@'), "{script}");
    }

    /// Runs the fetched script against a directory of stand-ins for curl and the agent.
    fn play_fetched(served: &str, claimed: &str) -> (bool, String) {
        use sha2::{Digest as _, Sha256};
        let folder = tempfile::tempdir().expect("a folder");
        let served_file = folder.path().join("served");
        std::fs::write(&served_file, served).expect("written");
        let sha256 = Digest(Sha256::digest(claimed).into());
        let script = script("https://broker.example", &Delivery::Fetched { sha256 });
        let curl = format!(
            "curl() {{ for to; do [ \"$was\" = --output ] && break; was=$to; done; cp '{}' \"$to\"; }}\nwas=\nPATH=/usr/bin:/bin\n",
            served_file.display()
        );
        run(&script
            .expect("a script")
            .replacen("set -eu\n", &format!("set -eu\n{curl}"), 1))
    }

    #[test]
    fn the_agent_is_fetched_by_what_the_machine_has_and_tried_for_again() {
        use sha2::{Digest as _, Sha256};
        let agent = "#!/bin/sh\necho agent\n";
        for (tool, to) in [("curl", "$7"), ("wget", "${2#*=}"), ("python3", "$4")] {
            let folder = tempfile::tempdir().expect("a folder");
            let at = |name: &str| folder.path().join(name).display().to_string();
            std::fs::write(at("served"), agent).expect("written");
            // The name does not resolve at first; the stand-in skips the wait.
            let stand_in = format!(
                "PATH=/usr/bin:/bin\nTMPDIR='{folder}'\n\
                 command() {{ [ \"$2\" = {tool} ]; }}\n\
                 sleep() {{ echo \"$1\" >> '{slept}'; }}\n\
                 {tool}() {{ [ -s '{slept}' ] && cp '{served}' \"{to}\"; }}\n",
                folder = folder.path().display(),
                slept = at("slept"),
                served = at("served"),
            );
            let sha256 = Digest(Sha256::digest(agent).into());
            let script = script("https://broker.example", &Delivery::Fetched { sha256 });
            let script = script.expect("a script");
            let said = run(&script.replacen("set -eu\n", &format!("set -eu\n{stand_in}"), 1));
            assert_eq!(said, (true, "agent\n".to_owned()), "{tool}");
            let slept = std::fs::read_to_string(at("slept")).expect("it waited");
            assert_eq!(slept, "1\n", "{tool}");
            let mut left: Vec<_> = std::fs::read_dir(folder.path())
                .expect("a folder")
                .collect();
            assert_eq!(left.len(), 2, "{left:?}");
            left.clear();
        }
    }

    #[test]
    fn a_folder_in_which_nothing_may_be_run_is_passed_over() {
        use sha2::{Digest as _, Sha256};
        let agent = "#!/bin/sh\necho \"$0\"\n";
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("served"), agent).expect("written");
        for name in ["tmp", "home"] {
            std::fs::create_dir(at(name)).expect("a folder");
        }
        let stand_in = format!(
            "PATH=/usr/bin:/bin\nTMPDIR='{tmp}'\nHOME='{home}'\n\
             chmod() {{ case $2 in \"$TMPDIR\"/*) ;; *) command chmod \"$@\" ;; esac }}\n\
             mktemp() {{ case $2 in /var/tmp/*) return 1 ;; *) command mktemp \"$@\" ;; esac }}\n\
             curl() {{ cp '{served}' \"$7\"; }}\n",
            tmp = at("tmp"),
            home = at("home"),
            served = at("served"),
        );
        let sha256 = Digest(Sha256::digest(agent).into());
        let script = script("https://broker.example", &Delivery::Fetched { sha256 });
        let script = script.expect("a script");
        let (succeeded, said) =
            run(&script.replacen("set -eu\n", &format!("set -eu\n{stand_in}"), 1));
        let left = std::fs::read_dir(at("tmp")).expect("a folder").count();
        assert_eq!(left, 0);
        assert!(
            succeeded && said.starts_with(&at("home/gpu-broker.")),
            "{said}"
        );
    }

    #[test]
    fn the_fetched_script_runs_the_right_agent_and_refuses_another() {
        let agent = "#!/bin/sh\necho agent \"$1\"\n";
        assert_eq!(play_fetched(agent, agent), (true, "agent run\n".to_owned()));
        assert_eq!(
            play_fetched("#!/bin/sh\necho evil\n", agent),
            (false, String::new())
        );
    }

    #[test]
    fn a_real_node_does_not_fetch_over_plain_http() {
        let delivery = Delivery::Fetched {
            sha256: Digest([1; 32]),
        };
        assert_eq!(
            script("http://127.0.0.1:8080", &delivery),
            Err(DeliveryError::PlainHttp)
        );
    }

    #[test]
    fn paths_that_cannot_stand_in_a_script_are_refused() {
        for bad in ["broker", "./broker", "/opt/bro\nker", ""] {
            assert_eq!(installed(bad), Err(DeliveryError::Path), "{bad:?}");
        }
    }
}
