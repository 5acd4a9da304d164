use std::future::pending;
use std::sync::Arc;

use futures_util::future::join_all;
use russh::keys::ssh_key::private::Ed25519Keypair;
use russh::server::{Auth, ChannelOpenHandle, Config, Handler, Msg, VerifiedPublicKey, run_stream};
use russh::{Channel, ChannelId, Error, MethodKind, MethodSet};
use tokio::net::TcpListener;

use super::*;

/// The command run on a node, and the word that it prints when done.
const COMMAND: &str = "do it";
const WORD: &str = "done";
/// The time allowed for a node that never finishes: long enough to log in to it while others are logged in
/// to. A command that ends by itself gets much longer than it takes.
const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(30);

/// How a node answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Manner {
    /// It prints these words and ends with this exit status.
    Says(&'static str, u32),
    /// It prints the word, and something else for ever.
    NeverStops,
    /// It prints this on its output, for ever.
    Floods(&'static str),
    /// It prints this among its errors, for ever.
    Complains(&'static str),
    /// It takes the command and prints nothing.
    Hangs,
    /// As that, and does not read the command's input.
    IsDeaf,
    /// It opens nothing that a command could run in.
    OpensNothing,
    /// It never answers whether it accepts the key.
    NeverLetsIn,
    /// It lets the key in as far as another step.
    WantsMore,
}

struct Node(Manner);

impl Handler for Node {
    type Error = Error;

    async fn auth_publickey(&mut self, _: &str, _: VerifiedPublicKey<'_>) -> Result<Auth, Error> {
        match self.0 {
            Manner::NeverLetsIn => pending().await,
            Manner::WantsMore => Ok(Auth::Reject {
                proceed_with_methods: Some(MethodSet::from([MethodKind::Password].as_slice())),
                partial_success: true,
            }),
            _ => Ok(Auth::Accept),
        }
    }

    async fn channel_open_session(
        &mut self,
        _: Channel<Msg>,
        reply: ChannelOpenHandle,
        _: &mut russh::server::Session,
    ) -> Result<(), Error> {
        match self.0 {
            Manner::OpensNothing => pending().await,
            _ => reply.accept().await,
        }
        Ok(())
    }

    async fn exec_request(
        &mut self,
        channel: ChannelId,
        _: &[u8],
        session: &mut russh::server::Session,
    ) -> Result<(), Error> {
        session.channel_success(channel)?;
        let (manner, caller) = (self.0, session.handle());
        tokio::spawn(async move {
            match manner {
                Manner::Says(words, status) => {
                    let _ = caller.data(channel, words).await;
                    let _ = caller.exit_status_request(channel, status).await;
                    let _ = caller.eof(channel).await;
                    let _ = caller.close(channel).await;
                }
                Manner::NeverStops => {
                    let _ = caller.data(channel, "done\n").await;
                    while caller.data(channel, "and on\n").await.is_ok() {}
                }
                Manner::Floods(words) => while caller.data(channel, words).await.is_ok() {},
                Manner::Complains(words) => {
                    while caller.extended_data(channel, 1, words).await.is_ok() {}
                }
                _ => pending().await,
            }
        });
        Ok(())
    }
}

/// The outcome of a command on such a node within this time. Waits until the connection to the node is
/// closed.
async fn told(manner: Manner, patience: Duration) -> Result<(), LoginFailure> {
    let server = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = server.local_addr().expect("an address");
    let key = |seed| PrivateKey::from(Ed25519Keypair::from_seed(&[seed; 32]));
    let window_size = match manner {
        Manner::IsDeaf => 0,
        _ => 1 << 20,
    };
    let config = Config {
        keys: vec![key(1)],
        auth_rejection_time: Duration::ZERO,
        window_size,
        ..Config::default()
    };
    let serving = tokio::spawn(async move {
        let (stream, _) = server.accept().await.expect("a caller");
        let session = run_stream(Arc::new(config), stream, Node(manner)).await;
        // However it ends: it does.
        let _ = session.expect("a session").await;
    });
    let node = ProviderNode {
        host: address.ip().to_string(),
        port: address.port(),
        user: "ubuntu".into(),
        private_address: None,
    };
    let session = Session::open(&node, None, true, LONG).await;
    let session = session.expect("a connection");
    let input: [&[u8]; 2] = [b"words\n", &[7; 100_000]];
    let key = Arc::new(key(2));
    let done = session.run(&node.user, key, COMMAND, &input, WORD, patience);
    let done = done.await;
    if matches!(manner, Manner::NeverLetsIn | Manner::OpensNothing) {
        // This server of ours hears nothing at all in the meantime.
        serving.abort();
    } else {
        let hung_up = timeout(Duration::from_secs(20), serving).await;
        hung_up.expect("it is hung up on").expect("no panic");
    }
    done
}

#[tokio::test]
async fn whoever_says_the_word_is_believed_whatever_else_it_does() {
    for manner in [
        Manner::Says("done\n", 0),
        // The agent's own call reports the rest.
        Manner::Says("done\n", 1),
        Manner::Says("Welcome!\n\ndone\n", 0),
        Manner::NeverStops,
    ] {
        assert_eq!(told(manner, LONG).await, Ok(()), "{manner:?}");
    }
}

#[tokio::test]
async fn whoever_says_something_else_or_ends_without_the_word_has_not_done_it() {
    for manner in [
        Manner::Says("", 0),
        Manner::Says("done", 0),
        Manner::Says("done and more\n", 0),
        Manner::Says("not done\ndone", 0),
        Manner::Floods("undone\n"),
    ] {
        let told = told(manner, LONG).await;
        assert_eq!(told, Err(LoginFailure::NotDone), "{manner:?}");
    }
}

#[tokio::test]
async fn a_line_without_end_is_not_heard_to_its_end() {
    let told = told(Manner::Floods("donedonedonedone"), LONG).await;
    assert_eq!(told, Err(LoginFailure::NotDone));
}

#[tokio::test]
async fn whoever_keeps_us_waiting_is_left_when_our_patience_ends_and_is_named_for_it() {
    let manners = [
        (Manner::Hangs, LoginFailure::NotDone),
        (Manner::IsDeaf, LoginFailure::NotDone),
        (Manner::OpensNothing, LoginFailure::NotDone),
        (Manner::Complains("no\n"), LoginFailure::NotDone),
        (Manner::NeverLetsIn, LoginFailure::NoAnswer),
    ];
    let began = Instant::now();
    let all = manners.map(|(manner, failure)| async move {
        assert_eq!(told(manner, SHORT).await, Err(failure), "{manner:?}");
    });
    join_all(all).await;
    // A second more to say goodbye, and for a busy machine.
    assert!(began.elapsed() < LONG);
}

#[tokio::test]
async fn a_key_that_is_let_in_by_half_is_refused() {
    let told = told(Manner::WantsMore, LONG).await;
    assert_eq!(told, Err(LoginFailure::KeyRefused));
}

#[tokio::test]
async fn many_that_hang_at_once_take_no_longer_than_one() {
    let began = Instant::now();
    let all = (0..16).map(|_| told(Manner::Hangs, SHORT));
    for told in join_all(all).await {
        assert_eq!(told, Err(LoginFailure::NotDone));
    }
    assert!(began.elapsed() < LONG);
}
