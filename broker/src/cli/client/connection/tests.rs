use std::collections::BTreeMap;

use secrecy::ExposeSecret as _;

use super::*;

fn profiles() -> Profiles {
    let profile = |server: &str, key: &str, insecure_http| Profile {
        server: server.into(),
        key: key.into(),
        insecure_http,
        tenant: None,
    };
    Profiles {
        default: Some("here".into()),
        profiles: BTreeMap::from([
            (
                "here".into(),
                profile("http://127.0.0.1:1", "here-key", false),
            ),
            (
                "far".into(),
                profile("https://far.example/", "far-key", false),
            ),
            (
                "plain".into(),
                profile("http://plain.example", "plain-key", true),
            ),
        ]),
        ssh_keys: BTreeMap::new(),
    }
}

fn environment(url: Option<&str>, profile: Option<&str>, key: Option<&str>) -> Environment {
    Environment {
        url: url.map(str::to_owned),
        profile: profile.map(str::to_owned),
        key: key.map(SecretString::from),
    }
}

fn args(server: Option<&str>, profile: Option<&str>) -> ServiceArgs {
    ServiceArgs {
        server: server.map(str::to_owned),
        profile: profile.map(str::to_owned),
        ..ServiceArgs::default()
    }
}

fn settled(args: &ServiceArgs, environment: &Environment) -> (String, Option<String>) {
    let found = connect(args, environment, &profiles()).expect("a connection");
    let key = found.key.map(|key| key.expose_secret().to_owned());
    (found.server.to_string(), key)
}

#[test]
fn flags_come_before_the_environment_and_that_before_the_profile() {
    let nothing = environment(None, None, None);
    let all = environment(Some("https://env.example"), None, Some("env-key"));
    let told = |server: &str, key: &str| (server.to_owned(), Some(key.to_owned()));
    assert_eq!(
        settled(&args(None, None), &nothing),
        told("http://127.0.0.1:1", "here-key")
    );
    assert_eq!(
        settled(&args(None, None), &all),
        told("https://env.example", "env-key")
    );
    assert_eq!(
        settled(&args(None, Some("far")), &all),
        told("https://far.example", "far-key")
    );
    let by_profile = environment(None, Some("far"), None);
    assert_eq!(
        settled(&args(None, None), &by_profile),
        told("https://far.example", "far-key")
    );
    let flag = args(Some("https://flag.example"), None);
    assert_eq!(
        settled(&flag, &all),
        told("https://flag.example", "env-key")
    );
}

#[test]
fn the_key_of_a_profile_goes_to_no_other_service() {
    let nothing = environment(None, None, None);
    for other in [
        args(Some("https://evil.example"), None),
        args(Some("https://evil.example"), Some("far")),
    ] {
        assert_eq!(settled(&other, &nothing).1, None);
    }
    let same = args(Some("https://far.example"), Some("far"));
    assert_eq!(settled(&same, &nothing).1.as_deref(), Some("far-key"));
    let by_url = environment(Some("https://evil.example"), None, None);
    assert_eq!(settled(&args(None, None), &by_url).1, None);
}

#[test]
fn a_key_travels_unencrypted_only_on_this_host_or_by_agreement() {
    let nothing = environment(None, None, None);
    let refused = |server: &str| connect(&args(Some(server), None), &nothing, &profiles()).is_err();
    assert!(refused("http://far.example") && refused("http://10.0.0.5:8080"));
    assert!(refused("http://127.0.0.1.example") && refused("http://localhost.example"));
    for fine in [
        "https://far.example",
        "http://127.0.0.1:8080",
        "http://[::1]:8080",
        "http://localhost:1",
    ] {
        assert!(!refused(fine), "{fine}");
    }
    let agreed = ServiceArgs {
        insecure_http: true,
        ..args(Some("http://far.example"), None)
    };
    connect(&agreed, &nothing, &profiles()).expect("agreed to");
    let kept = settled(&args(None, Some("plain")), &nothing);
    assert_eq!(
        kept.1.as_deref(),
        Some("plain-key"),
        "the profile remembers the agreement"
    );
}

#[test]
fn an_address_that_cannot_be_is_refused_without_quoting_a_password() {
    for bad in [
        "far.example",
        "ftp://far.example",
        "https://u:canary@far.example",
        "https://far.example?key=canary",
        "",
    ] {
        let refused = format!("{:?}", Address::parse(bad).expect_err(bad));
        assert!(
            refused.contains("https://HOST") && !refused.contains("canary"),
            "{refused}"
        );
    }
    let with_path = Address::parse("https://far.example/broker/").expect("an address");
    assert_eq!(with_path.as_str(), "https://far.example/broker");
}

#[test]
fn an_unknown_profile_or_no_service_at_all_says_how_to_log_in() {
    let nothing = environment(None, None, None);
    let unknown = connect(&args(None, Some("moon")), &nothing, &profiles());
    let said = format!("{:?}", unknown.expect_err("unknown"));
    assert!(
        said.contains("far, here, plain") && said.contains("--profile moon"),
        "{said}"
    );
    let none = connect(&args(None, None), &nothing, &Profiles::default());
    assert!(format!("{:?}", none.expect_err("none")).contains("broker login"));
}

#[test]
fn what_is_no_key_is_refused_and_not_quoted() {
    for bad in ["", " \n", "two words", "canary\u{e9}", &"x".repeat(5_000)] {
        let refused = format!("{:?}", check_key(bad, "BROKER_KEY").expect_err("refused"));
        assert!(
            refused.contains("BROKER_KEY") && !refused.contains("canary"),
            "{refused}"
        );
    }
    assert_eq!(
        check_key(" gpb_x\n", "f").expect("a key").expose_secret(),
        "gpb_x"
    );
}
