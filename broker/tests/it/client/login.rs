//! Logging in and out: the key is kept for its user alone and shown nowhere.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use market::identity::Role;

use super::{Ended, Shell};
use crate::service::Service;

fn mode(path: &Path) -> u32 {
    let metadata = std::fs::metadata(path).expect("it is there");
    metadata.permissions().mode() & 0o777
}

#[track_caller]
fn shows_no(key: &str, ended: &Ended) {
    let secret = &key[12..];
    assert!(
        !ended.stdout.contains(secret) && !ended.stderr.contains(secret),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_checks_the_key_keeps_it_for_its_user_alone_and_prints_it_nowhere() {
    let service = Service::start().await;
    let key = service.key("acme", Role::Member).await;
    let shell = Shell::new();
    let url = service.world.base_url();
    let login = format!("login --server {url}");
    let piped = shell
        .run_reading(&format!("{}\n", key.secret), &login)
        .await;
    assert_eq!(piped.status, Some(0), "{piped:?}");
    assert!(piped.stdout.contains("member"), "{piped:?}");
    shows_no(&key.secret, &piped);
    let file = shell.profiles();
    assert_eq!(
        (mode(&file), mode(file.parent().expect("a directory"))),
        (0o600, 0o700)
    );
    let kept = std::fs::read_to_string(&file).expect("profiles");
    assert!(kept.contains(&key.secret) && kept.contains(url), "{kept}");

    let who = shell.json("whoami").await;
    assert_eq!(who["role"], "member");
    assert_eq!(who["tenant"], key.tenant.to_string());
    assert_eq!(who["profile"], "default");
    for line in ["whoami", "reservations", "ssh-keys list", "offers"] {
        let ended = shell.run(line).await;
        assert_eq!(ended.status, Some(0), "{ended:?}");
        shows_no(&key.secret, &ended);
    }
    assert!(shell.told("logout").await.contains("default"));
    let after = shell.run("reservations").await;
    assert!(
        after.sentence(2).contains("broker login --server"),
        "{after:?}"
    );
    assert!(
        !std::fs::read_to_string(&file)
            .expect("profiles")
            .contains(&key.secret)
    );
    shell.run("logout").await.sentence(1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_may_be_kept_where_it_is_made_before_the_service_runs() {
    let shell = Shell::new();
    let make = "token create --tenant acme --data-dir data --login";
    let made = shell.run(&format!("{make} http://127.0.0.1:9")).await;
    assert_eq!(made.status, Some(0), "{made:?}");
    assert!(!made.stdout.contains("gpb_"), "it is not printed: {made:?}");
    let kept = std::fs::read_to_string(shell.profiles()).expect("profiles");
    assert!(
        kept.contains("\"gpb_") && kept.contains("http://127.0.0.1:9"),
        "{kept}"
    );
    assert_eq!(mode(&shell.profiles()), 0o600);
    // No key is made for a service that it may not travel to.
    let refused = shell
        .run(&format!("{make} http://broker.example.com"))
        .await;
    refused.sentence(2);
    let still = std::fs::read_to_string(shell.profiles()).expect("profiles");
    assert_eq!(still, kept);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_gives_way_to_another_key_by_force_alone_and_one_of_another_name_stands_beside_it()
 {
    let shell = Shell::new();
    let make = |tenant: &str, more: &str| {
        format!("token create --tenant {tenant} --data-dir data --login http://127.0.0.1:9 {more}")
    };
    let made = async |tenant, more| {
        let made = shell.run(&make(tenant, more)).await;
        assert_eq!(made.status, Some(0), "{made:?}");
        assert!(!made.stderr.contains("gpb_"), "{made:?}");
        made.stderr
    };
    let kept = || std::fs::read_to_string(shell.profiles()).expect("profiles");
    made("acme", "").await;
    let acme = kept();
    let tenant = acme.split('"').find(|word| word.starts_with("ten_"));
    let tenant = tenant.expect("its tenant is kept");
    for more in ["", "--profile default"] {
        let refused = shell.run(&make("other", more)).await;
        let why = refused.sentence(2);
        for said in [
            "profile default",
            "http://127.0.0.1:9",
            tenant,
            "--profile NAME",
            "--force",
        ] {
            assert!(why.contains(said), "{said}: {why}");
        }
        assert_eq!(kept(), acme, "and no key was made");
    }
    assert_eq!(made("acme", "--force").await, "", "the same tenant's");
    assert_eq!(made("other", "--profile other").await, "", "beside it");
    assert!(kept().contains(tenant), "{}", kept());
    assert_eq!(
        made("acme", "--profile default --force").await,
        "",
        "as before"
    );
    let told = made("other", "--force").await;
    for said in ["profile default", "http://127.0.0.1:9", tenant, "--profile"] {
        assert!(told.contains(said), "{said}: {told}");
    }
    assert!(!kept().contains(tenant), "{}", kept());
    let alone = "token create --tenant acme --data-dir data --profile other";
    let refused = shell.run(alone).await;
    assert_eq!(refused.status, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("--login"), "{refused:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn profiles_stand_beside_each_other_and_the_last_login_is_the_usual_one() {
    let service = Service::start().await;
    let member = service.key("acme", Role::Member).await;
    let finance = service.key("acme", Role::Finance).await;
    let shell = Shell::new();
    let url = service.world.base_url();
    let file = shell.write("key", &finance.secret);
    let login = |profile: &str| format!("login --server {url} --profile {profile}");
    shell
        .told(&format!("{} --key-file {file}", login("money")))
        .await;
    let by_environment = Shell {
        home: shell.home,
        environment: vec![("BROKER_KEY", member.secret.clone())],
    };
    by_environment.told(&login("work")).await;
    let mut shell = Shell {
        home: by_environment.home,
        environment: Vec::new(),
    };
    assert_eq!(shell.json("whoami").await["role"], "member");
    assert_eq!(
        shell.json("whoami --profile money").await["role"],
        "finance"
    );
    shell = shell.with("BROKER_PROFILE", "money");
    assert_eq!(shell.json("whoami").await["role"], "finance");
    assert_eq!(shell.json("whoami --profile work").await["role"], "member");
    let unknown = shell.run("whoami --profile moon").await;
    assert!(unknown.sentence(2).contains("money, work"), "{unknown:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_refused_or_would_travel_unencrypted_is_not_kept() {
    let service = Service::start().await;
    let shell = Shell::new();
    let url = service.world.base_url();
    let wrong = format!("gpb_{}", "c".repeat(43));
    let refused = shell
        .run_reading(&wrong, &format!("login --server {url}"))
        .await;
    assert!(
        refused.sentence(2).contains("(invalid_token, "),
        "{refused:?}"
    );
    shows_no(&wrong, &refused);
    for (server, told) in [
        ("http://broker.example", "--insecure-http"),
        ("http://192.0.2.1:8080", "--insecure-http"),
        ("broker.example", "https://HOST"),
        ("https://ada:canary@broker.example", "https://HOST"),
    ] {
        let refused = shell
            .run_reading(&wrong, &format!("login --server {server}"))
            .await;
        assert!(refused.sentence(2).contains(told), "{refused:?}");
        shows_no(&wrong, &refused);
        assert!(!refused.stderr.contains("canary"), "{refused:?}");
    }
    for nonsense in ["", "two words", "-----BEGIN KEY-----\nabc"] {
        let refused = shell
            .run_reading(nonsense, &format!("login --server {url}"))
            .await;
        assert!(refused.sentence(2).contains("holds no key"), "{refused:?}");
    }
    assert!(!shell.profiles().exists(), "nothing was kept");
    service.stop().await;
}
