//! The commands that run on a node that gets its agent over SSH, and their input.
//!
//! The commands are the same for every node. Everything that differs, including the token, is passed by
//! standard input, so that no process list shows it and no shell interprets it. The agent's file follows
//! these words. All files on the node lie in one directory, which is removed however the agent ends.

use market::ids::VerificationId;

use crate::address::{BrokerUrl, Token};
use crate::delivery::{Delivery, DeliveryError};

/// Starts the agent and leaves it running; done when it prints [`STARTED`]. An agent that runs already is
/// left alone. Its input is [`start_input`], and the file after it.
///
/// The shell stays until the agent ends and then cleans up; the caller need not wait for it. When the shell
/// is terminated, it terminates the agent. After a reboot its process number may belong to another process,
/// which is not an agent.
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

/// The output of [`START`] once the agent is started.
pub const STARTED: &str = "started";

/// Terminates the agent where it still runs, removes files that [`START`] may have left, removes the key
/// with this mark from the authorized keys, and adds those of the tenant that are not among them: some providers
/// install one key alone. Done when it prints [`CLEARED`]. Its input is [`clear_input`].
///
/// The process number of an agent's shell may belong to another process by now, which is left alone.
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
  while IFS= read -r key; do
    grep -q -x -F -e "$key" "$keys.$mark" || printf "%s\n" "$key" >> "$keys.$mark"
  done
  mv "$keys.$mark" "$keys"
fi
echo cleared
'"#;

/// The output of [`CLEAR`] at its end.
pub const CLEARED: &str = "cleared";

/// The data that a node gets with its agent.
#[derive(Debug, Clone)]
pub struct PushArgs<'a> {
    /// Where the node reaches the broker.
    pub broker: &'a BrokerUrl,
    /// The verification of the lease.
    pub verification_id: VerificationId,
    /// The one-time token.
    pub token: &'a Token,
    /// The node's address at its provider.
    pub host: &'a str,
    /// How long the agent may run, in seconds.
    pub seconds: u32,
    /// How the agent is installed on the node.
    pub delivery: &'a Delivery,
}

/// The input of [`START`]; the agent's file follows it where that is copied onto the node. It carries a
/// secret: it is sent to the node and not stored.
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

/// The input of [`CLEAR`]: the agent's verification, the mark in the comment of the key that started it, and
/// the tenant's public keys, each on one line.
#[must_use]
pub fn clear_input(verification_id: VerificationId, mark: &str, keys: &[String]) -> Vec<u8> {
    let mut words = format!("{verification_id}\n{mark}\n");
    for key in keys.iter().filter(|key| !key.contains(char::is_control)) {
        words.push_str(key);
        words.push('\n');
    }
    words.into_bytes()
}

#[cfg(test)]
mod tests;
