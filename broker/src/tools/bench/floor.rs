//! The floor: a bare server with one worker that gives one answer.

use std::net::{SocketAddr, TcpListener};
use std::str::FromStr as _;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpResponse, HttpServer};

use super::load::Answer;

/// The answer to every request: status, headers, body.
type Fixed = (StatusCode, Vec<(HeaderName, HeaderValue)>, Bytes);

/// A running floor.
pub(super) struct Floor {
    pub(super) address: SocketAddr,
    handle: ServerHandle,
}

/// Serves one answer to every request.
pub(super) fn serve(answer: Answer) -> anyhow::Result<Floor> {
    let status = StatusCode::from_u16(answer.status)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let headers = answer.headers.iter().map(|(name, value)| {
        let value = HeaderValue::from_str(value)?;
        Ok((HeaderName::from_str(name)?, value))
    });
    let headers = headers.collect::<anyhow::Result<_>>()?;
    let answer: web::Data<Fixed> = web::Data::new((status, headers, Bytes::from(answer.body)));
    let server = HttpServer::new(move || {
        App::new()
            .app_data(web::Data::clone(&answer))
            .default_service(web::to(give))
    })
    .workers(1)
    .disable_signals()
    .listen(listener)?
    .run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(Floor { address, handle })
}

/// The request is read to its end, as any server must.
async fn give(answer: web::Data<Fixed>, _: Bytes) -> HttpResponse {
    let (status, headers, body) = &**answer;
    let mut response = HttpResponse::build(*status);
    for (name, value) in headers {
        response.insert_header((name.clone(), value.clone()));
    }
    response.body(body.clone())
}

impl Floor {
    pub(super) async fn stop(self) {
        self.handle.stop(false).await;
    }
}
