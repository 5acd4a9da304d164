//! `broker recheck`: the script that runs on a node, and its withdrawal.

use super::Shell;
use crate::access::fleet;
use crate::node_reports::in_use;

#[tokio::test(flavor = "multi_thread")]
async fn the_script_is_printed_alone_and_can_be_taken_back() {
    let (service, key, path) = in_use(&fleet(1)).await;
    let shell = Shell::of(&service, &key);
    let id = path.rsplit('/').next().expect("an id");
    let ended = shell.run(&format!("recheck {id} 0")).await;
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.stdout.starts_with("#!/bin/sh\n"), "{ended:?}");
    assert!(ended.stdout.contains("VERIFIER_TOKEN='rt_"), "{ended:?}");
    assert!(
        ended.stderr.contains("at most every 600 seconds"),
        "{ended:?}"
    );
    let told = shell.told(&format!("recheck {id} 0 --stop")).await;
    assert!(told.contains("not rechecked any more"), "{told}");
    let refused = shell.run(&format!("recheck {id} 0 --stop")).await;
    assert!(refused.sentence(1).contains("no such token"), "{refused:?}");
    let refused = shell.run(&format!("recheck {id} 4")).await;
    assert!(
        refused.sentence(1).contains("none is number 4"),
        "{refused:?}"
    );
    service.stop().await;
}
