//! Logging in to a node that still proves itself, by the key that went with its order, and running
//! one command there.

use std::sync::Arc;
use std::time::Duration;

use market::order::ProviderNode;
use russh::client::Handle;
use russh::keys::{PrivateKey, PrivateKeyWithHashAlg, PublicKey};
use russh::{ChannelMsg, Disconnect};
use store::reach::ProbeFailure;
use tokio::time::{Instant, timeout, timeout_at};

use super::probe::{Cut, Shown, connect, look_up};

/// How much of a command's output is read. Units: bytes.
const MOST_OUTPUT: usize = 4096;

/// Why a node did not carry out a command. The message begins with a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginFailure {
    /// Nobody answers, not in time, or not as an SSH server does.
    #[error("no_answer: nobody answers at its SSH port")]
    NoAnswer,
    /// The server has another host key than the node had at first contact.
    #[error("other_key: it shows another host key than at first contact")]
    OtherKey,
    /// Its address is not public, so that it is not called at all.
    #[error("not_public: its address is not public")]
    NotPublic,
    /// It rejects the key that was sent with its order.
    #[error("key_refused: it rejects the key that was sent with its order")]
    KeyRefused,
    /// The command did not print its word.
    #[error("not_done: it does not carry out the command")]
    NotDone,
}

impl From<ProbeFailure> for LoginFailure {
    fn from(failure: ProbeFailure) -> Self {
        match failure {
            ProbeFailure::NoAnswer => Self::NoAnswer,
            ProbeFailure::OtherKey => Self::OtherKey,
            ProbeFailure::NotPublic => Self::NotPublic,
        }
    }
}

/// A connection to a node whose host key is known. Nobody has logged in yet.
pub(crate) struct Session {
    handle: Handle<Shown>,
    host_key: PublicKey,
    _cut: Cut,
}

impl Session {
    /// Connects to a node within `patience`. One that shows another host key than `known`, where one
    /// is known, hears nothing further.
    ///
    /// Errors: [`LoginFailure`].
    pub(crate) async fn open(
        node: &ProviderNode,
        known: Option<&PublicKey>,
        simulation: bool,
        patience: Duration,
    ) -> Result<Self, LoginFailure> {
        let known: Vec<PublicKey> = known.into_iter().cloned().collect();
        let shown = Shown::only(&known);
        let opened = async {
            let addresses = look_up(&node.host, node.port, simulation).await?;
            let connected = connect(&addresses, &known, shown.clone()).await;
            connected.ok_or(LoginFailure::NoAnswer)
        };
        let opened = timeout(patience, opened).await;
        match (opened.unwrap_or(Err(LoginFailure::NoAnswer)), shown.take()) {
            (Ok((handle, cut)), Some(host_key)) => Ok(Self {
                handle,
                host_key,
                _cut: cut,
            }),
            (_, Some(other)) if !shown.allows(&other) => Err(LoginFailure::OtherKey),
            (Err(failure), _) => Err(failure),
            (Ok(_), None) => Err(LoginFailure::NoAnswer),
        }
    }

    /// The host key that the node has proved to hold.
    pub(crate) const fn host_key(&self) -> &PublicKey {
        &self.host_key
    }

    /// Logs in, runs a command with this input, sent in parts, and waits for its first line to be `word`. The
    /// command may keep running after this returns.
    ///
    /// Errors: [`LoginFailure`]; when `patience` ends, [`LoginFailure::NoAnswer`] before the login succeeded,
    /// and [`LoginFailure::NotDone`] after.
    pub(crate) async fn run(
        mut self,
        user: &str,
        key: Arc<PrivateKey>,
        command: &str,
        input: &[&[u8]],
        word: &str,
        patience: Duration,
    ) -> Result<(), LoginFailure> {
        let end = Instant::now() + patience;
        let mut done = timeout_at(end, self.log_in(user, key)).await;
        if let Ok(Ok(())) = done {
            let told = timeout_at(end, self.command(command, input, word)).await;
            done = Ok(told.ok().flatten().ok_or(LoginFailure::NotDone));
        }
        let bye = self.handle.disconnect(Disconnect::ByApplication, "", "");
        // It matters to nobody whether the node hears that we leave.
        let _ = timeout(Duration::from_secs(1), bye).await;
        done.unwrap_or(Err(LoginFailure::NoAnswer))
    }

    async fn log_in(&mut self, user: &str, key: Arc<PrivateKey>) -> Result<(), LoginFailure> {
        let key = PrivateKeyWithHashAlg::new(key, None);
        let answer = self.handle.authenticate_publickey(user, key).await;
        match answer.map_err(|_| LoginFailure::NoAnswer)?.success() {
            true => Ok(()),
            false => Err(LoginFailure::KeyRefused),
        }
    }

    async fn command(&self, command: &str, input: &[&[u8]], word: &str) -> Option<()> {
        let mut channel = self.handle.channel_open_session().await.ok()?;
        channel.exec(true, command).await.ok()?;
        for part in input {
            channel.data(*part).await.ok()?;
        }
        channel.eof().await.ok()?;
        let mut said = Vec::new();
        while let Some(message) = channel.wait().await {
            if let ChannelMsg::Data { data } = message {
                said.extend_from_slice(&data);
            }
            // The machine's greeting may come first, in lines of its own.
            let ended = said.iter().rposition(|byte| *byte == b'\n');
            let mut lines = said[..ended.unwrap_or(0)].split(|byte| *byte == b'\n');
            if lines.any(|line| line == word.as_bytes()) {
                return Some(());
            }
            if said.len() > MOST_OUTPUT {
                return None;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
