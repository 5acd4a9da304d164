//! How a command ends.

use std::net::TcpListener;

use crate::platform::start_error::StartError;

/// How a command ends without success.
#[derive(Debug)]
pub(crate) enum Ending {
    /// The answer is no: exit status 1.
    No(String),
    /// The input is wrong: exit status 2.
    WrongInput(String),
    /// An internal failure: exit status 1, with its causes.
    Broken(anyhow::Error),
}

impl<E: Into<anyhow::Error>> From<E> for Ending {
    fn from(error: E) -> Self {
        Self::Broken(error.into())
    }
}

impl Ending {
    /// An ending for unusable input.
    pub(crate) fn wrong_input(why: impl std::fmt::Display) -> Self {
        Self::WrongInput(why.to_string())
    }

    /// An ending for an unusable configuration or database.
    pub(crate) fn cannot_start(error: StartError) -> Self {
        Self::WrongInput(crate::chain(&error))
    }
}

/// Opens the service's listening socket.
pub(crate) fn listen_at(address: &str) -> Result<TcpListener, Ending> {
    TcpListener::bind(address).map_err(|error| {
        let why =
            format!("cannot listen at {address}: {error}; give another ADDRESS:PORT with --listen");
        Ending::WrongInput(why)
    })
}

/// Runs a command that calls the database or the network.
pub(crate) fn block_on<T>(work: impl Future<Output = Result<T, Ending>>) -> Result<T, Ending> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}
