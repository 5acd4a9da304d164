//! `broker report node`, from the agent's output to the machine that is replaced.

use serde_json::json;

use super::Shell;
use crate::access::fleet;
use crate::node_reports::{in_use, result};

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_reported_with_what_the_agent_printed() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let shell = Shell::of(&service, &key);
    let id = path.rsplit('/').next().expect("an id");
    let refused = shell.run(&format!("report node {id} 0")).await;
    assert_eq!(refused.status, Some(2), "{refused:?}");
    let text = shell.write("text", "GPU 0: fails");
    let refused = shell
        .run(&format!("report node {id} 0 --file {text}"))
        .await;
    let said = refused.sentence(2);
    assert!(
        said.contains("is no JSON") && said.contains("verifier run --json"),
        "{said}"
    );
    let refused = shell
        .run(&format!("report node {id} 7 --reason slow"))
        .await;
    assert!(
        refused.sentence(1).contains("none is number 7"),
        "{refused:?}"
    );

    let nodes = service.with(&key).get(&format!("{path}/nodes")).await;
    let signed = nodes.expect(200)["items"][0]["attestation_id"].clone();
    let signed = signed.as_str().expect("an id");
    let shown = shell.told(&format!("show {signed}")).await;
    for sign in [signed, "pass", "SIMULATED", "It does not prove:"] {
        assert!(shown.contains(sign), "{sign}: {shown}");
    }
    let signed = shell.json(&format!("show {signed}")).await;
    let signed = shell.write("signed.json", &signed.to_string());
    let refused = shell
        .run(&format!("report node {id} 0 --file {signed}"))
        .await;
    assert!(
        refused.sentence(2).contains("is a signed result"),
        "{refused:?}"
    );

    let told = shell
        .told(&format!("report node {id} 0 --reason slow"))
        .await;
    assert!(told.contains("shows no failure"), "{told}");
    let bad = result(&service, &key, &path, 3).await;
    let file = shell.write("result.json", &bad.to_string());
    let told = shell
        .told(&format!("report node {id} 0 --file {file}"))
        .await;
    for sign in [
        "nrp_",
        "fail",
        "mem.pattern",
        "given up and replaced",
        "broker watch",
    ] {
        assert!(told.contains(sign), "{sign}: {told}");
    }
    let again = shell
        .json(&format!("report node {id} 0 --file {file}"))
        .await;
    assert_eq!(again["follows"], json!("already"));
    service.stop().await;
}
