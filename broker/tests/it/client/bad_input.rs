//! Wrong input ends with 2 before anything is asked for; an answer of no ends with 1.

use market::identity::Role;

use super::Shell;
use crate::service::{Service, hold, ssh_key};

#[tokio::test(flavor = "multi_thread")]
async fn wrong_input_is_refused_with_two_and_nothing_on_stdout() {
    let shell = Shell::new()
        .with("BROKER_URL", "http://127.0.0.1:1")
        .with("BROKER_KEY", "gpb_canary");
    let id = "rsv_019a3f0e1c7b7d40b2a1c3d4e5f60718";
    let key = shell.write("id", "-----BEGIN OPENSSH PRIVATE KEY-----\n");
    let lines = [
        "offers --gpu X9000".to_owned(),
        "offers --country Mars".to_owned(),
        "offers --limit 0".to_owned(),
        "offers --limit 5 --all".to_owned(),
        "offers --sort colour".to_owned(),
        "offers --max-usd-per-gpu-hour cheap".to_owned(),
        "plan".to_owned(),
        "plan --gpu H100 --count 0".to_owned(),
        "plan --gpu H100 --hours -1".to_owned(),
        "plan --demand nowhere.json".to_owned(),
        "plan --demand nowhere.json --gpu H100".to_owned(),
        "quote".to_owned(),
        "quote pln_short".to_owned(),
        "quote --gpu H100 --candidate 0".to_owned(),
        "quote --gpu H100 --candidate 1 --pair 1".to_owned(),
        "quote --gpu H100 --start soon".to_owned(),
        "quote --demand nowhere.json --start 2026-12-24T18:00:00Z".to_owned(),
        "quote pln_019a3f0e1c7b7d40b2a1c3d4e5f60718 --start 2026-12-24T18:00:00Z".to_owned(),
        "reserve".to_owned(),
        "reserve --quote quo_short".to_owned(),
        "reserve --gpu H100 --follows quo_019a".to_owned(),
        "reserve --gpu H100 --tag plain".to_owned(),
        "reserve --gpu H100 --watch".to_owned(),
        "reserve --gpu H100 --idempotency-key \u{e9}".to_owned(),
        "show".to_owned(),
        "show ../../x".to_owned(),
        "show off_1".to_owned(),
        "confirm".to_owned(),
        "confirm rsv_XYZ".to_owned(),
        format!("confirm{}", format!(" {id}").repeat(11)),
        format!("extend {id}"),
        format!("extend {id} --hours 0"),
        format!("extend {id} --hours 1 --until 2026-12-24T18:00:00Z"),
        format!("extend {id} --until tomorrow"),
        format!("watch {id} --until forever"),
        format!("access {id} --hostfile --ssh-config"),
        format!("access {id} --hostfile --json"),
        "ssh-keys add nowhere.pub".to_owned(),
        format!("ssh-keys add {key}"),
        "ssh-keys delete key_1".to_owned(),
        "report".to_owned(),
        "report costs --csv --json".to_owned(),
        "report costs --from yesterday".to_owned(),
        "completions tcsh".to_owned(),
        "reservations --server ftp://h".to_owned(),
        "reservations --server http://192.0.2.1".to_owned(),
        "reservations --key-file nowhere".to_owned(),
        "reservations --profile ../x".to_owned(),
        "reservations --tenant acme".to_owned(),
    ];
    for line in lines {
        let ended = shell.run(&line).await;
        assert_eq!(ended.status, Some(2), "{line}: {ended:?}");
        assert_eq!(ended.stdout, "", "{line}");
        assert!(!ended.stderr.contains("canary"), "{line}: {ended:?}");
    }
    let demand = shell.write("demand.json", "{\"kind\":");
    let broken = shell.run(&format!("plan --demand {demand}")).await;
    assert!(broken.sentence(2).contains("is not JSON"), "{broken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_no_is_one_sentence_with_what_to_do_next_and_ends_with_one() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(&service, &key);
    let strange = "019a3f0e1c7b7d40b2a1c3d4e5f60718";
    let no_key = shell.run("reserve --gpu A10").await;
    assert!(
        no_key.sentence(1).contains("broker ssh-keys add"),
        "{no_key:?}"
    );
    ssh_key(&service, &key).await;
    for (line, told) in [
        ("plan --gpu A10 --count 16", "widen"),
        ("quote --gpu A10 --count 16", "widen"),
        ("reserve --gpu A10 --count 16", "(nothing_matches, "),
        ("offers --gpu A10 --min-gpus 1024", "filters"),
        (&format!("show rsv_{strange}"), "(not_found, "),
        (&format!("show quo_{strange}"), "(not_found, "),
        (&format!("confirm {strange}"), "(not_found, "),
        ("show rsv_ffff", "broker reservations"),
        (&format!("ssh-keys delete ssh_{strange}"), "(not_found, "),
    ] {
        let ended = shell.run(line).await;
        assert!(ended.sentence(1).contains(told), "{line}: {ended:?}");
    }
    let held = hold(&service, &key).await;
    let early = shell.run(&format!("access {held}")).await;
    assert!(early.sentence(1).contains("(not_handed_off, "), "{early:?}");
    shell.told(&format!("cancel {held}")).await;
    let again = shell.run(&format!("confirm {held}")).await;
    assert!(again.sentence(1).contains("(wrong_state, "), "{again:?}");

    let finance = Shell::of(&service, &service.key("acme", Role::Finance).await);
    let forbidden = finance.run("reserve --gpu A10").await;
    assert!(
        forbidden.sentence(1).contains("broker whoami"),
        "{forbidden:?}"
    );
    let unknown = shell.run("report costs --group-by colour").await;
    assert!(
        unknown.sentence(2).contains("(invalid_parameter, "),
        "{unknown:?}"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_id_may_be_cut_as_long_as_it_names_one_reservation() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::of(&service, &key);
    let (first, second) = (hold(&service, &key).await, hold(&service, &key).await);
    let same = first
        .bytes()
        .zip(second.bytes())
        .take_while(|(a, b)| a == b)
        .count();
    let both = shell.run(&format!("show {}", &first[..same])).await;
    let told = both.sentence(2);
    assert!(told.contains(&first) && told.contains(&second), "{told}");
    let one = shell.json(&format!("show {}", &first[..=same])).await;
    assert_eq!(one["id"], first);
    let bare = shell.json(&format!("show {}", &second[4..=same])).await;
    assert_eq!(bare["id"], second);
    service.stop().await;
}
