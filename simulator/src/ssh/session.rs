//! One SSH connection to a pretend node.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use russh::keys::PublicKey;
use russh::server::{Auth, ChannelOpenHandle, Handler, Msg, PublicKeyOffer, VerifiedPublicKey};
use russh::{Channel, ChannelId, Error};

use super::{Manner, SshListener};

/// The answer to a client that asks for a shell.
const NO_SHELL: &str = "This is a pretend node: it answers `hostname`, `nvidia-smi -L`, `nvidia-smi dmon -c N`, `echo` and `true`.\r\n";
/// Channels of one connection on which no command runs yet.
const MOST_CHANNELS: usize = 8;
/// The most readings of the load, a second each.
const MOST_LOOKS: u32 = 60;

pub(super) struct Session {
    house: Arc<(SshListener, Manner)>,
    has_shell: bool,
    /// Channels without a command yet, of clients with a shell.
    channels: HashMap<ChannelId, Channel<Msg>>,
}

/// The rights of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Right {
    None,
    Questions,
    Shell,
}

impl Session {
    pub(super) fn of(house: Arc<(SshListener, Manner)>) -> Self {
        Self {
            house,
            has_shell: false,
            channels: HashMap::new(),
        }
    }

    /// The file is read each time: a client with a shell may remove keys from it.
    fn right_of(&self, user: &str, key: &PublicKey) -> Right {
        let door = &self.house.0;
        if user != door.user {
            return Right::None;
        }
        let lines = fs::read_to_string(&door.keys).unwrap_or_default();
        right_in(&lines, &door.mark, key)
    }

    fn answer(&self, user: &str, key: &PublicKey) -> Auth {
        match self.right_of(user, key) {
            Right::None => Auth::reject(),
            Right::Questions | Right::Shell => Auth::Accept,
        }
    }
}

/// The rights of a key, by the lines of the file of accepted keys.
fn right_in(lines: &str, mark: &str, key: &PublicKey) -> Right {
    let of_key = |line: &&str| {
        let known = PublicKey::from_openssh(line);
        known.is_ok_and(|known| known.key_data() == key.key_data())
    };
    let has_mark = |line: &str| !mark.is_empty() && line.split(' ').nth(2) == Some(mark);
    match lines.lines().find(of_key) {
        None => Right::None,
        Some(line) if has_mark(line) => Right::Shell,
        Some(_) => Right::Questions,
    }
}

/// The output and exit status of a command of a client without a shell.
fn answer_to(manner: &Manner, command: &str) -> (String, u32) {
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

/// How many readings of the load a command asks for.
fn looks(command: &str) -> u32 {
    let words: Vec<&str> = command.split_whitespace().collect();
    match words.as_slice() {
        ["nvidia-smi", "dmon", "-c", looks] => looks.parse().unwrap_or(0).min(MOST_LOOKS),
        _ => 0,
    }
}

/// The output of `nvidia-smi dmon` for idle GPUs: this many readings of each.
fn idle_load(gpu_list: &str, looks: u32) -> String {
    let gpus = gpu_list.lines().count();
    let row = |gpu| format!("{gpu:>5} {:>5} {:>5}\n", 70, 0);
    let rows = (0..looks).flat_map(|_| (0..gpus).map(row));
    "# gpu   pwr    sm\n# Idx     W     %\n".to_owned() + &rows.collect::<String>()
}

/// Sends a complete answer and ends the channel.
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
        self.has_shell = self.right_of(user, key.public_key) == Right::Shell;
        Ok(self.answer(user, key.public_key))
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut russh::server::Session,
    ) -> Result<(), Error> {
        if self.has_shell && self.channels.len() < MOST_CHANNELS {
            self.channels.insert(channel.id(), channel);
        }
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
        if let Some(opened) = self.channels.remove(&channel) {
            session.channel_success(channel)?;
            let (shell, command) = (self.house.0.shell.clone(), command.into_owned());
            let caller = session.handle();
            // It continues when the caller hangs up, as it would on a real node.
            tokio::spawn(async move {
                let (status, _line) = shell.run(&command, opened.into_stream()).await;
                // The caller may be gone by now.
                let _ = caller.exit_status_request(channel, status).await;
                let _ = caller.eof(channel).await;
                let _ = caller.close(channel).await;
            });
            return Ok(());
        }
        let said = answer_to(&self.house.1, &command);
        // A reading takes a second, as on a real one.
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
    fn without_a_shell_a_command_is_answered_or_refused_and_never_run() {
        let manner = Manner {
            host_name: "node-7".into(),
            gpu_list: "GPU 0: H100-SXM (UUID: GPU-1)\n".into(),
        };
        assert_eq!(answer_to(&manner, "hostname"), ("node-7\n".into(), 0));
        assert_eq!(
            answer_to(&manner, "nvidia-smi -L"),
            (manner.gpu_list.clone(), 0)
        );
        assert_eq!(answer_to(&manner, "echo  a b; id"), ("a b; id\n".into(), 0));
        assert_eq!(answer_to(&manner, "id").1, 127);
        let (load, status) = answer_to(&manner, "nvidia-smi dmon -c 2");
        assert_eq!((load.lines().count(), status), (4, 0), "{load}");
        for none in ["0", "-1", "x"] {
            assert_eq!(
                answer_to(&manner, &format!("nvidia-smi dmon -c {none}")).1,
                127
            );
        }
        assert_eq!(looks("nvidia-smi dmon -c 4000000000"), MOST_LOOKS);
    }

    #[test]
    fn only_the_key_with_the_mark_of_the_order_gets_a_shell() {
        const OURS: &str =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt";
        const OTHER: &str =
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
        let key = |line| PublicKey::from_openssh(line).expect("a key");
        let lines = format!("{OTHER} laptop\n{OURS} gpub-1\n");
        assert_eq!(right_in(&lines, "gpub-1", &key(OURS)), Right::Shell);
        assert_eq!(right_in(&lines, "gpub-1", &key(OTHER)), Right::Questions);
        assert_eq!(right_in(&lines, "gpub-2", &key(OURS)), Right::Questions);
        assert_eq!(right_in(OTHER, "", &key(OTHER)), Right::Questions);
        assert_eq!(right_in(OTHER, "gpub-1", &key(OURS)), Right::None);
    }
}
