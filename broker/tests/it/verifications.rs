//! `POST /v1/verifications/{id}/steps/{n}`: who may not speak.

use std::time::Duration;

use market::identity::Role;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn a_step_needs_the_token_of_its_verification_and_no_key_stands_in_for_it() {
    let service = Service::start().await;
    let admin = service.key("acme", Role::Admin).await;
    let path = format!("/v1/verifications/ver_{}/steps/1", "0".repeat(32));
    let commit = json!({ "protocol": 1 });
    service
        .anyone()
        .post(&path, &commit)
        .await
        .refused(401, "token_missing");
    for credential in [admin.secret.as_str(), "vt_0123456789abcdef0123456789abcdef"] {
        let answer = service.bearer(credential).post(&path, &commit).await;
        answer.refused(401, "invalid_token");
        assert!(!answer.text.contains(credential));
    }
    for step in ["0", "6", "255"] {
        let path = format!("/v1/verifications/ver_{}/steps/{step}", "0".repeat(32));
        service
            .with(&admin)
            .post(&path, &commit)
            .await
            .refused(401, "invalid_token");
    }
    for step in ["256", "-1", "one"] {
        let path = format!("/v1/verifications/ver_{}/steps/{step}", "0".repeat(32));
        service
            .with(&admin)
            .post(&path, &commit)
            .await
            .refused(422, "invalid_parameter");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_is_refused_before_the_body_is_read() {
    let service = Service::start().await;
    let address = service
        .world
        .base_url()
        .trim_start_matches("http://")
        .to_owned();
    for step in 1..=5 {
        let mut stream = TcpStream::connect(&address).await.expect("a connection");
        let head = format!(
            "POST /v1/verifications/ver_{}/steps/{step} HTTP/1.1\r\nhost: broker\r\n\
             authorization: Bearer vt_0123456789abcdef0123456789abcdef\r\n\
             content-type: application/json\r\ncontent-length: 8000000\r\n\r\n",
            "0".repeat(32)
        );
        // The body never comes.
        stream.write_all(head.as_bytes()).await.expect("sent");
        let mut answer = [0; 12];
        let answered = stream.read_exact(&mut answer);
        tokio::time::timeout(Duration::from_secs(25), answered)
            .await
            .expect("an answer before the body")
            .expect("an answer");
        assert_eq!(&answer, b"HTTP/1.1 401");
    }
    service.stop().await;
}
