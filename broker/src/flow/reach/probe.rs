//! One look at a node: who answers at its SSH port, as proved by the key exchange.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::client::{Config, Handle, Handler, connect_stream};
use russh::keys::{PublicKey, PublicKeyOrCertificate};
use russh::{Disconnect, Error, Preferred};
use store::reach::{Probe, ProbeFailure};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::line_of;
use crate::platform::address_guard::check_address;

/// The result of a probe: the key that a node showed, compared with its known keys.
pub(super) fn compare(known: &[PublicKey], shown: &PublicKey) -> Probe {
    if known.is_empty() {
        Probe::Reached {
            first_contact_key: Some(line_of(shown)),
        }
    } else if known.iter().any(|key| key.key_data() == shown.key_data()) {
        Probe::Reached {
            first_contact_key: None,
        }
    } else {
        Probe::Failed(ProbeFailure::OtherKey)
    }
}

/// The host key that the server at this address has proved to hold, within `patience`.
///
/// A provider states its nodes' addresses, and could send us into a network that trusts us: we call nothing
/// but public addresses, and in simulation this machine.
pub(super) async fn host_key(
    host: &str,
    port: u16,
    known: &[PublicKey],
    simulation: bool,
    patience: Duration,
) -> Result<PublicKey, ProbeFailure> {
    let look = async {
        let addresses = look_up(host, port, simulation).await?;
        exchange_keys(&addresses, known)
            .await
            .ok_or(ProbeFailure::NoAnswer)
    };
    timeout(patience, look)
        .await
        .unwrap_or(Err(ProbeFailure::NoAnswer))
}

pub(super) async fn look_up(
    host: &str,
    port: u16,
    simulation: bool,
) -> Result<Vec<SocketAddr>, ProbeFailure> {
    let found = lookup_host((host, port)).await;
    let found: Vec<_> = found.map_err(|_| ProbeFailure::NoAnswer)?.collect();
    // One address that is not public counts against all: the name is suspect.
    let public = |address: &SocketAddr| check_address(address.ip(), simulation).is_ok();
    if found.iter().all(public) {
        Ok(found)
    } else {
        Err(ProbeFailure::NotPublic)
    }
}

async fn exchange_keys(addresses: &[SocketAddr], known: &[PublicKey]) -> Option<PublicKey> {
    let shown = Shown::default();
    let (session, _cut) = connect(addresses, known, shown.clone()).await?;
    // It matters to nobody whether the node hears that we leave.
    let _ = session.disconnect(Disconnect::ByApplication, "", "").await;
    shown.take()
}

/// A connection over which the other side has proved to hold a key, which is kept in `shown`; and the handle
/// that cuts it.
pub(super) async fn connect(
    addresses: &[SocketAddr],
    known: &[PublicKey],
    shown: Shown,
) -> Option<(Handle<Shown>, Cut)> {
    let stream = TcpStream::connect(addresses).await.ok()?;
    let (stream, cut) = cut_on_drop(stream).ok()?;
    let session = connect_stream(Arc::new(asking_for(known)), stream, shown);
    Some((session.await.ok()?, cut))
}

/// Cuts a connection when it is dropped.
///
/// The library continues a session by itself. It notices neither that its handle is gone nor that it should
/// end, as long as the other side keeps it at the key exchange or at full buffers. Every probe of such a node
/// would leave a connection behind for good.
pub(super) struct Cut(std::net::TcpStream);

impl Drop for Cut {
    fn drop(&mut self) {
        // It may have been closed already.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn cut_on_drop(stream: TcpStream) -> io::Result<(TcpStream, Cut)> {
    let stream = stream.into_std()?;
    let cut = Cut(stream.try_clone()?);
    Ok((TcpStream::from_std(stream)?, cut))
}

/// A node has keys of several kinds and shows one of the kind that is asked for first. We ask for a known one
/// first, so that a key of another kind does not count as a changed key.
fn asking_for(known: &[PublicKey]) -> Config {
    let usual = Preferred::default();
    let known_kinds: Vec<_> = known.iter().map(PublicKey::algorithm).collect();
    let (mut kinds, others): (Vec<_>, Vec<_>) = usual
        .key
        .iter()
        .cloned()
        .partition(|kind| known_kinds.contains(kind));
    kinds.extend(others);
    Config {
        preferred: Preferred {
            key: kinds.into(),
            ..usual
        },
        ..Config::default()
    }
}

/// The key that the other side showed. It is kept when the key exchange has succeeded, and with it
/// the proof that the other side holds the private half.
#[derive(Clone, Default)]
pub(super) struct Shown {
    kept: Arc<Mutex<Option<PublicKey>>>,
    only: Vec<PublicKey>,
}

impl Shown {
    /// Continues with these keys alone; with none of them, with every key.
    pub(super) fn only(keys: &[PublicKey]) -> Self {
        Self {
            only: keys.to_vec(),
            ..Self::default()
        }
    }

    pub(super) fn allows(&self, key: &PublicKey) -> bool {
        let same = |known: &PublicKey| known.key_data() == key.key_data();
        self.only.is_empty() || self.only.iter().any(same)
    }

    pub(super) fn take(&self) -> Option<PublicKey> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.take()
    }
}

impl Handler for Shown {
    type Error = Error;

    async fn check_server_key(&mut self, shown: &PublicKeyOrCertificate) -> Result<bool, Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(self.only.is_empty());
        };
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        *kept = Some(key.clone());
        Ok(self.allows(key))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const ONE: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIL/jvLoaH32TkoT3REDQJN2Kns8sKpmipKlobgQsB0mt";
    const OTHER: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn key(line: &str) -> PublicKey {
        PublicKey::from_openssh(line).expect("a key")
    }

    #[test]
    fn a_known_key_is_the_node_and_another_is_not_and_the_first_is_kept() {
        let reached = |first: Option<&str>| Probe::Reached {
            first_contact_key: first.map(str::to_owned),
        };
        assert_eq!(compare(&[], &key(ONE)), reached(Some(ONE)));
        assert_eq!(compare(&[key(OTHER), key(ONE)], &key(ONE)), reached(None));
        assert_eq!(
            compare(&[key(OTHER)], &key(ONE)),
            Probe::Failed(ProbeFailure::OtherKey)
        );
    }

    /// The peer of a well-behaved server on this machine.
    async fn looked_at(serve: impl AsyncFn(&mut TcpStream)) -> Result<PublicKey, ProbeFailure> {
        let server = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = server.local_addr().expect("an address").port();
        let patience = Duration::from_millis(300);
        let looking = host_key("127.0.0.1", port, &[], true, patience);
        let serving = async {
            let (mut stream, _) = server.accept().await.expect("a caller");
            serve(&mut stream).await;
            // It is hung up on, though it never ends anything itself.
            let mut heard = Vec::new();
            // A connection that is cut in the middle of our message reads as an error.
            let _ = stream.read_to_end(&mut heard).await;
        };
        let serving = timeout(Duration::from_secs(60), serving);
        let (found, served) = tokio::join!(looking, serving);
        served.expect("an end");
        found
    }

    #[tokio::test]
    async fn whoever_never_comes_to_a_key_is_hung_up_on_when_our_patience_ends() {
        let silent = looked_at(async |_| {}).await;
        let named_alone = looked_at(async |stream| {
            let _ = stream.write_all(b"SSH-2.0-slow\r\n").await;
        });
        // Words that mean nothing are no reason to continue.
        let talkative = looked_at(async |stream| {
            let ignored = [0, 0, 0, 12, 6, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            let _ = stream.write_all(b"SSH-2.0-slow\r\n").await;
            while stream.write_all(&ignored).await.is_ok() {
                tokio::task::yield_now().await;
            }
        });
        let endless =
            looked_at(async |stream| while stream.write_all(&[b'a'; 4096]).await.is_ok() {});
        for found in [silent, named_alone.await, talkative.await, endless.await] {
            assert_eq!(found, Err(ProbeFailure::NoAnswer));
        }
    }

    #[tokio::test]
    async fn no_private_address_is_called_and_this_machine_in_simulation_alone() {
        let patience = Duration::from_secs(5);
        for (host, simulation) in [
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("10.0.0.1", true),
            ("169.254.169.254", true),
            ("::1", false),
        ] {
            let found = host_key(host, 9, &[], simulation, patience).await;
            assert_eq!(found, Err(ProbeFailure::NotPublic), "{host}");
        }
        let nobody = host_key("127.0.0.1", 9, &[], true, patience).await;
        assert_eq!(nobody, Err(ProbeFailure::NoAnswer));
    }
}
