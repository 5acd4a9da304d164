//! One SSH connection to a pretend node.

use std::sync::Arc;
use std::time::Duration;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, Error};

use super::Manner;

/// What a node says to whoever asks for a shell.
const NO_SHELL: &str = "This is a pretend node: it answers `hostname`, `nvidia-smi -L`, `nvidia-smi dmon -c N`, `echo` and `true`.\r\n";
/// The most looks at the load that are taken, a second each.
const MOST_LOOKS: u32 = 60;

pub(super) struct Session {
    manner: Arc<Manner>,
}

impl Session {
    pub(super) const fn of(manner: Arc<Manner>) -> Self {
        Self { manner }
    }

    fn lets_in(&self, user: &str, key: &PublicKey) -> bool {
        let same = |known: &PublicKey| known.key_data() == key.key_data();
        user == self.manner.user && self.manner.authorized.iter().any(same)
    }

    fn answer(&self, user: &str, key: &PublicKey) -> Auth {
        if self.lets_in(user, key) {
            Auth::Accept
        } else {
            Auth::reject()
        }
    }
}

/// What a command prints, and its exit status.
fn run(manner: &Manner, command: &str) -> (String, u32) {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["hostname"] => (format!("{}\n", manner.host_name), 0),
        ["nvidia-smi", "-L"] => (manner.gpu_list.clone(), 0),
        ["nvidia-smi", "dmon", "-c", _] if looks(command) > 0 => {
            (idle_load(&manner.gpu_list, looks(command)), 0)
        }
        ["echo", rest @ ..] => (format!("{}\n", rest.join(" ")), 0),
        ["true"] => (String::new(), 0),
        _ => (
            format!("a pretend node does not know `{command}`; {NO_SHELL}"),
            127,
        ),
    }
}

/// How many looks at the load a command asks for.
fn looks(command: &str) -> u32 {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["nvidia-smi", "dmon", "-c", looks] => looks.parse().unwrap_or(0).min(MOST_LOOKS),
        _ => 0,
    }
}

/// What `nvidia-smi dmon` prints of GPUs that do nothing: so many looks at each.
fn idle_load(gpu_list: &str, looks: u32) -> String {
    let gpus = gpu_list.lines().count();
    let row = |gpu| format!("{gpu:>5} {:>5} {:>5}\n", 70, 0);
    let rows = (0..looks).flat_map(|_| (0..gpus).map(row));
    "# gpu   pwr    sm\n# Idx     W     %\n".to_owned() + &rows.collect::<String>()
}

/// Sends an answer whole and ends the channel.
fn finish(
    session: &mut russh::server::Session,
    channel: ChannelId,
    (said, status): (String, u32),
) -> Result<(), Error> {
    session.channel_success(channel)?;
    session.data(channel, said.into_bytes())?;
    session.exit_status_request(channel, status)?;
    session.eof(channel)?;
    session.close(channel)
}

impl Handler for Session {
    type Error = Error;

    async fn auth_publickey_offered(
        &mut self,
        user: &str,
        offer: PublicKeyOffer<'_>,
    ) -> Result<Auth, Error> {
        Ok(self.answer(user, offer.public_key))
    }

    async fn auth_publickey(
        &mut self,
        user: &str,
        key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Error> {
        Ok(self.answer(user, key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut russh::server::Session,
    ) -> Result<(), Error> {
        reply.accept().await;
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        command: &[u8],
        session: &mut russh::server::Session,
    ) -> Result<(), Error> {
        let command = String::from_utf8_lossy(command);
        let said = run(&self.manner, &command);
        // A look takes a second, as on a real one.
        tokio::time::sleep(Duration::from_secs(looks(&command).into())).await;
        finish(session, channel, said)
    }

    async fn shell_request(
        &mut self,
        channel: ChannelId,
        session: &mut russh::server::Session,
    ) -> Result<(), Error> {
        finish(session, channel, (NO_SHELL.to_owned(), 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_answered_or_refused_and_never_run() {
        let manner = Manner {
            user: "ubuntu".into(),
            authorized: Vec::new(),
            host_name: "node-7".into(),
            gpu_list: "GPU 0: H100-SXM (UUID: GPU-1)\n".into(),
        };
        assert_eq!(run(&manner, "hostname"), ("node-7\n".into(), 0));
        assert_eq!(run(&manner, "nvidia-smi -L"), (manner.gpu_list.clone(), 0));
        assert_eq!(run(&manner, "echo  a b; id"), ("a b; id\n".into(), 0));
        assert_eq!(run(&manner, "id").1, 127);
        let (load, status) = run(&manner, "nvidia-smi dmon -c 2");
        assert_eq!((load.lines().count(), status), (4, 0), "{load}");
        for none in ["0", "-1", "x"] {
            assert_eq!(run(&manner, &format!("nvidia-smi dmon -c {none}")).1, 127);
        }
        assert_eq!(looks("nvidia-smi dmon -c 4000000000"), MOST_LOOKS);
    }
}
