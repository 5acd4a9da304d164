//! Every way to write an address that must not be called.

use super::*;

#[test]
fn every_spelling_of_an_address_that_is_not_public_is_refused() {
    for host in [
        "0.0.0.0",
        "0.1.2.3",
        "10.1.2.3",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.1",
        "0x7f.1",
        "0177.0.0.1",
        "2130706433",
        "127.0.0.1.",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.8",
        "192.0.2.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[::ffff:8.8.8.8]",
        "[::ffff:127.0.0.1]",
        "[::8.8.8.8]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::1]",
        "[100::1]",
        "[2001::1]",
        "[2001:db8::1]",
        "[2002:7f00:1::]",
        "[3fff::1]",
        "[5f00::1]",
        "[fc00::1]",
        "[fd12:3456::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[ff02::1]",
    ] {
        let url = format!("https://{host}/hooks");
        let refusal = check_url(&url, false).expect_err(&url);
        assert_eq!(refusal, Refused::NotPublic, "{url}");
    }
    for host in ["localhost", "LOCALHOST.", "a.localhost", "a.localhost."] {
        assert!(
            check_url(&format!("https://{host}/"), false).is_err(),
            "{host}"
        );
    }
}

#[test]
fn public_hosts_are_called_by_https_alone() {
    for host in [
        "example.com",
        "hooks.example.com:8443",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.0.1",
        "172.32.0.1",
        "[2606:4700::1111]",
        "[2001:4860:4860::8888]",
    ] {
        assert!(
            check_url(&format!("https://{host}/a?b=c"), false).is_ok(),
            "{host}"
        );
        for simulation in [false, true] {
            assert!(
                check_url(&format!("http://{host}/"), simulation).is_err(),
                "{host}"
            );
        }
    }
    for bad in [
        "",
        "hooks",
        "ftp://example.com/",
        "file:///etc/passwd",
        "https://user@example.com/",
        "https://user:hunter2@example.com/",
        "https://example.com/#part",
        "https://example.com/\u{0}",
        " https://example.com/",
        "https://exa\nmple.com/",
    ] {
        let refusal = check_url(bad, true).expect_err(bad);
        assert!(!refusal.to_string().contains("hunter2"), "{refusal}");
    }
    let long = format!("https://example.com/{}", "a".repeat(MAX_URL));
    assert!(check_url(&long, false).is_err());
}

#[test]
fn a_simulation_may_call_this_machine_and_still_no_private_network() {
    for url in [
        "http://127.0.0.1:9000/hooks",
        "http://localhost:9000/",
        "http://[::1]:9000/",
        "http://receiver.localhost/",
        "https://localhost/",
    ] {
        assert!(check_url(url, true).is_ok(), "{url}");
        assert!(check_url(url, false).is_err(), "{url}");
    }
    for url in [
        "http://10.0.0.1/",
        "https://192.168.0.1/",
        "http://0.0.0.0/",
    ] {
        assert!(check_url(url, true).is_err(), "{url}");
    }
}

/// Sends the given answer.
struct Says(Vec<IpAddr>);

#[async_trait]
impl Lookup for Says {
    async fn addresses(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(self.0.clone())
    }
}

async fn resolved(addresses: &[&str], simulation: bool) -> bool {
    let addresses = addresses
        .iter()
        .map(|text| text.parse().expect("an address"));
    let guarded = Guarded {
        lookup: Arc::new(Says(addresses.collect())),
        simulation,
    };
    let name = "hooks.example.com".parse::<Name>().expect("a name");
    guarded.resolve(name).await.is_ok()
}

#[tokio::test]
async fn a_name_is_called_only_when_all_that_it_resolves_to_is_public() {
    assert!(resolved(&["8.8.8.8", "2606:4700::1111"], false).await);
    assert!(!resolved(&["10.0.0.1"], false).await);
    assert!(!resolved(&["8.8.8.8", "169.254.169.254"], false).await);
    assert!(!resolved(&["::ffff:10.0.0.1"], false).await);
    assert!(!resolved(&["127.0.0.1"], false).await);
    assert!(resolved(&["127.0.0.1"], true).await);
    assert!(!resolved(&["10.0.0.1"], true).await);
    assert!(!resolved(&[], false).await);
}
