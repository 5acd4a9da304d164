//! The load balancer before the replicas. It knows only requests: each goes to the next replica that serves,
//! regardless of the replica that took the one before.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::web::{self, Bytes};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};
use reqwest::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};

use super::replica::{Address, Replica};
use crate::eventually::PATIENCE;

/// Where nodes prove themselves.
pub(super) const STEPS: &str = "/v1/verifications/";
/// The largest message of a node. Units: bytes.
const LARGEST: usize = 16 << 20;

pub(super) struct Balancer {
    pub(super) url: String,
    shared: Arc<Mutex<Shared>>,
    server: ServerHandle,
}

#[derive(Default)]
struct Shared {
    behind: Vec<Address>,
    turns: [usize; 2],
    /// The replica that each request reached, and its path.
    passed_on: Vec<(SocketAddr, String)>,
}

impl Shared {
    /// The replicas that serve, starting with the next one. The steps of nodes rotate separately: rotated
    /// among all requests, the replica for a conversation's next step would be random.
    fn in_turn(&mut self, path: &str) -> Vec<SocketAddr> {
        let address = |one: &Address| *one.lock().expect("sound");
        let mut up: Vec<_> = self.behind.iter().filter_map(address).collect();
        if !up.is_empty() {
            let turn = &mut self.turns[usize::from(path.starts_with(STEPS))];
            let first = *turn % up.len();
            up.rotate_left(first);
            *turn += 1;
        }
        up
    }
}

impl Balancer {
    pub(super) fn start() -> Self {
        let shared = Arc::<Mutex<Shared>>::default();
        let data = web::Data::from(Arc::clone(&shared));
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(PATIENCE)
            .build();
        let client = web::Data::new(client.expect("a client"));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(data.clone())
                .app_data(client.clone())
                .app_data(web::PayloadConfig::new(LARGEST))
                .default_service(web::to(pass_on))
        })
        .workers(1)
        .disable_signals()
        .bind("127.0.0.1:0")
        .expect("a port");
        let url = format!("http://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        tokio::spawn(server);
        Self {
            url,
            shared,
            server: handle,
        }
    }

    /// Sets the replicas behind it from now on.
    pub(super) fn stand_before(&self, replicas: &[Replica]) {
        self.shared.lock().expect("sound").behind = replicas.iter().map(Replica::address).collect();
    }

    /// The replicas that took requests for paths that begin so.
    pub(super) fn who_took(&self, prefix: &str) -> Vec<SocketAddr> {
        let shared = self.shared.lock().expect("sound");
        let of = shared.passed_on.iter();
        of.filter(|(_, path)| path.starts_with(prefix))
            .map(|(address, _)| *address)
            .collect()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        drop(self.server.stop(false));
    }
}

/// Hands a request to the first replica that takes it; one that dies in the middle is a bad gateway.
async fn pass_on(
    request: HttpRequest,
    body: Bytes,
    client: web::Data<reqwest::Client>,
    shared: web::Data<Mutex<Shared>>,
) -> HttpResponse {
    let up = shared.lock().expect("sound").in_turn(request.path());
    for address in up {
        let url = format!("http://{address}{}", request.uri());
        let method = request.method().as_str().parse().expect("a method");
        let mut onward = client.request(method, url).body(body.clone());
        for (name, value) in request.headers() {
            let name = name.as_str();
            if name != HOST && name != CONTENT_LENGTH && name != CONNECTION {
                onward = onward.header(name, value.as_bytes());
            }
        }
        match onward.send().await {
            Err(error) if error.is_connect() => {}
            Err(error) => return HttpResponse::BadGateway().body(error.to_string()),
            Ok(answer) => {
                let passed = (address, request.path().to_owned());
                shared.lock().expect("sound").passed_on.push(passed);
                let status = StatusCode::from_u16(answer.status().as_u16()).expect("a status");
                let mut back = HttpResponse::build(status);
                for (name, value) in answer.headers() {
                    if name != CONTENT_LENGTH && name != TRANSFER_ENCODING && name != CONNECTION {
                        back.append_header((name.as_str(), value.as_bytes()));
                    }
                }
                return back.streaming(answer.bytes_stream());
            }
        }
    }
    HttpResponse::ServiceUnavailable().body("no replica serves")
}
