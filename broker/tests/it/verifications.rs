//! `POST /v1/verifications/{id}/steps/{n}`: who may not speak.

use market::identity::Role;
use serde_json::json;

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
            .refused(400, "invalid_parameter");
    }
    service.stop().await;
}
