//! A small server on loopback with the broker's protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};

use market::verification::Step;
use verifier::agent::Transport;
use verifier::local::LocalBroker;

use crate::eventually::{PATIENCE, given_up};

/// The token of every conversation.
pub const TOKEN: &str = "vt_0123456789abcdef";

/// One request, as far as tests read it.
pub struct Request {
    pub line: String,
    pub authorization: String,
    pub body: String,
}

/// Status, further headers, body.
pub type Response = (u16, &'static str, String);

fn read_request(stream: &TcpStream) -> Request {
    let mut reader = BufReader::new(stream);
    let mut read_line = || {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        line.trim_end().to_owned()
    };
    let line = read_line();
    let (mut length, mut authorization) = (0, String::new());
    loop {
        let header = read_line();
        let Some((name, value)) = header.split_once(": ") else {
            break;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse().expect("a length"),
            "authorization" => authorization = value.to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("a body");
    Request {
        line,
        authorization,
        body: String::from_utf8(body).expect("utf-8"),
    }
}

/// A server that accepts this many requests and then ends.
pub struct Serving(Receiver<()>);

impl Serving {
    /// Waits until it has answered all of them.
    #[track_caller]
    pub fn ends(self) {
        match self.0.recv_timeout(PATIENCE) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("a request that could not be answered"),
            Err(RecvTimeoutError::Timeout) => panic!("{}", given_up("the last request")),
        }
    }
}

/// Serves `count` requests on a port of its own, then ends.
pub fn serve(
    count: usize,
    mut answer: impl FnMut(Request) -> Response + Send + 'static,
) -> (String, Serving) {
    let (sender, ends) = channel();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for _ in 0..count {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (status, headers, body) = answer(read_request(&stream));
            let length = body.len();
            write!(
                stream,
                "HTTP/1.1 {status} x\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
            )
            .expect("written");
        }
        // The receiver may have given up waiting.
        let _ = sender.send(());
    });
    (url, Serving(ends))
}

pub fn problem(code: &str) -> String {
    format!(r#"{{"code":"{code}","title":"T","detail":"The detail.","status":409}}"#)
}

impl Request {
    /// The step that it is for.
    pub fn step(&self) -> Step {
        let mut parts = self.line.split(['/', ' ']);
        let number = parts.find_map(|part| part.parse().ok());
        Step::from_number(number.expect("a step")).expect("a step")
    }
}

/// Answers a step as the broker would.
pub fn answer(broker: &mut LocalBroker, request: &Request) -> Response {
    match broker.send(request.step(), &request.body) {
        Ok(body) => (200, "", body),
        Err(refusal) => (409, "", problem(&refusal.to_string())),
    }
}
