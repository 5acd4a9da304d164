//! What is run on a node that gets its agent over SSH, and what is said to it.
//!
//! The commands are the same for every node: whatever differs, the token among it, comes in by the
//! standard input, so that no process list shows it and no shell reads it as words of its own. The
//! agent's file follows the words. What is put on the node lies in one directory, which goes when
//! the agent ends, however it ends.

use market::ids::VerificationId;

use crate::address::{BrokerUrl, Token};
use crate::delivery::{Delivery, DeliveryError};

/// Starts the agent and leaves it running; done when it prints [`STARTED`]. Where it runs already,
/// it is left alone. Its input is [`start_input`], and the file after it.
///
/// The shell stays until the agent ends and then clears up; whoever called need not wait for it. Told
/// to end, it ends the agent. Its number may be another process's after a reboot, which is no agent.
pub const START: &str = r#"exec /bin/sh -c 'set -eu
umask 077
IFS= read -r VERIFIER_TOKEN
IFS= read -r broker
IFS= read -r verification
IFS= read -r host
IFS= read -r seconds
IFS= read -r sha256
IFS= read -r program
dir=$HOME/.gpu-broker-$verification
pid=$(cat "$dir/pid" 2>/dev/null || :)
if [ -n "$pid" ] && grep -q gpu-broker "/proc/$pid/cmdline" 2>/dev/null; then
  echo started
  exit 0
fi
clean() { rm -rf "$dir"; }
trap clean EXIT
agent=
trap "kill \$agent || :; exit 1" HUP INT TERM
clean
mkdir "$dir"
echo "$$" > "$dir/pid"
set -- verifier
if [ -n "$sha256" ]; then
  program=$dir/verifier
  set --
  cat > "$program"
  printf "%s  %s\n" "$sha256" "$program" | sha256sum -c - >/dev/null
  chmod 0700 "$program"
fi
export VERIFIER_TOKEN
echo started
exec </dev/null >/dev/null 2>&1
timeout "$seconds" "$program" "$@" run --broker "$broker" --verification "$verification" --host "$host" &
agent=$!
wait "$agent"
'"#;

/// What [`START`] prints once the agent is on its way.
pub const STARTED: &str = "started";

/// Ends the agent where it still runs, removes what [`START`] may have left, and the key with this mark
/// from the keys that are let in; done when it prints [`CLEARED`]. Its input is [`clear_input`].
///
/// The number of an agent's shell may be another process's by now, which is left alone.
pub const CLEAR: &str = r#"exec /bin/sh -c 'set -eu
umask 077
IFS= read -r verification
IFS= read -r mark
dir=$HOME/.gpu-broker-$verification
pid=$(cat "$dir/pid" 2>/dev/null || :)
runs() { [ -n "$pid" ] && grep -q gpu-broker "/proc/$pid/cmdline" 2>/dev/null; }
looks=0
while runs; do
  [ "$looks" -lt 20 ]
  looks=$((looks + 1))
  kill "$pid" 2>/dev/null || :
  sleep 0.1 2>/dev/null || sleep 1
done
rm -rf "$dir"
keys=$HOME/.ssh/authorized_keys
tidy() { rm -f "$keys.$mark"; }
trap tidy EXIT
if [ -f "$keys" ]; then
  cp -p "$keys" "$keys.$mark"
  grep -v -F "$mark" "$keys" > "$keys.$mark" || [ "$?" -eq 1 ]
  mv "$keys.$mark" "$keys"
fi
echo cleared
'"#;

/// What [`CLEAR`] prints at its end.
pub const CLEARED: &str = "cleared";

/// What a node is told with its agent.
#[derive(Debug, Clone)]
pub struct PushArgs<'a> {
    /// Where the node reaches the broker.
    pub broker: &'a BrokerUrl,
    /// The verification of the lease.
    pub verification_id: VerificationId,
    /// The one-time token.
    pub token: &'a Token,
    /// The address by which its provider knows the node.
    pub host: &'a str,
    /// How long the agent may run, in seconds.
    pub seconds: u32,
    /// How the agent comes onto the node.
    pub delivery: &'a Delivery,
}

/// The input of [`START`], which the agent's file follows where it is copied onto the node. It carries a
/// secret: it goes to the node and is not stored.
///
/// Errors: [`DeliveryError`].
pub fn start_input(args: &PushArgs<'_>) -> Result<Vec<u8>, DeliveryError> {
    let one_line = |text: &&str| !text.is_empty() && !text.contains(char::is_control);
    let host = Some(args.host)
        .filter(one_line)
        .ok_or(DeliveryError::Host)?;
    let (sha256, program) = match args.delivery {
        Delivery::Fetched { .. } if !args.broker.is_encrypted() => {
            return Err(DeliveryError::PlainHttp);
        }
        Delivery::Fetched { sha256 } => (sha256.to_string(), ""),
        Delivery::Installed { executable } => {
            let path = executable.to_str().filter(one_line);
            let absolute = path.filter(|_| executable.is_absolute());
            (String::new(), absolute.ok_or(DeliveryError::Path)?)
        }
    };
    let words = format!(
        "{}\n{}\n{}\n{host}\n{}\n{sha256}\n{program}\n",
        args.token.expose(),
        args.broker.as_str(),
        args.verification_id,
        args.seconds,
    );
    Ok(words.into_bytes())
}

/// The input of [`CLEAR`]: whose agent, and the mark in the comment of the key that started it.
#[must_use]
pub fn clear_input(verification_id: VerificationId, mark: &str) -> Vec<u8> {
    format!("{verification_id}\n{mark}\n").into_bytes()
}

#[cfg(test)]
mod tests;
