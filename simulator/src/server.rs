//! HTTP on loopback: opening a port, and closing a connection without an answer.

use std::any::Any;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use actix_web::dev::{Extensions, ServerHandle};
use actix_web::web::{Data, PayloadConfig, ServiceConfig};
use actix_web::{App, HttpRequest, HttpServer, rt};

use crate::SimulatorError;
use crate::state::State;

/// A start-up script may be a mebibyte before JSON escapes it.
const MAX_BODY_BYTES: usize = 8 << 20;

/// One running server.
pub(crate) struct Listener {
    pub(crate) origin: String,
    handle: ServerHandle,
}

impl Listener {
    /// Opens a free port. Must be called within a Tokio runtime.
    pub(crate) fn open(
        state: &Arc<State>,
        routes: impl Fn(&mut ServiceConfig) + Clone + Send + 'static,
    ) -> Result<Self, SimulatorError> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(SimulatorError::Listen)?;
        let address = listener.local_addr().map_err(SimulatorError::Listen)?;
        let state = Data::from(Arc::clone(state));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(state.clone())
                .app_data(PayloadConfig::new(MAX_BODY_BYTES))
                .configure(routes.clone())
        })
        .workers(1)
        .disable_signals()
        .on_connect(keep_hold)
        .listen(listener)
        .map_err(SimulatorError::Listen)?
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self {
            origin: format!("http://{address}"),
            handle,
        })
    }

    /// Closes the port and every connection to it.
    pub(crate) fn close(&self) -> impl Future<Output = ()> + use<> {
        self.handle.stop(false)
    }
}

/// A second handle on the connection, which can close it without an answer.
struct Connection(TcpStream);

fn keep_hold(stream: &dyn Any, extensions: &mut Extensions) {
    let Some(stream) = stream.downcast_ref::<rt::net::TcpStream>() else {
        return;
    };
    if let Ok(handle) = stream.as_fd().try_clone_to_owned() {
        extensions.insert(Connection(TcpStream::from(handle)));
    }
}

/// Closes the connection of a request, so that no later answer is sent.
pub(crate) fn cut(request: &HttpRequest) {
    if let Some(connection) = request.conn_data::<Connection>() {
        // An error means that the other side was faster.
        let _ = connection.0.shutdown(Shutdown::Both);
    }
}
