//! Whether a service can run with a configuration: at startup it refuses one that would sell nothing, or
//! trust everybody.

use super::{Config, ConfigError};

impl Config {
    /// Whether a service can run with it.
    ///
    /// Errors: [`ConfigError::Unfit`], [`ConfigError::Levels`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let unfit = |key, is: String, instead| Err(ConfigError::Unfit { key, is, instead });
        let (sales, verifier, reach) = (&self.sales, &self.verifier, &self.reach);
        for (key, value, instead) in [
            (
                "sales.quote_seconds",
                sales.quote_seconds,
                "every quote would lapse at once: give it 1 or more, or leave it out for 600",
            ),
            (
                "sales.hold_seconds",
                sales.hold_seconds,
                "every hold would lapse at once: give it 1 or more, or leave it out for 900",
            ),
            (
                "sales.leases_per_reservation",
                sales.leases_per_reservation,
                "nothing could be reserved: give it 1 or more, or leave it out for 64",
            ),
            (
                "verifier.boot_seconds",
                verifier.boot_seconds,
                "every machine would be given up at once: give it 1 or more, or leave it out for 2700",
            ),
            (
                "verifier.verify_seconds",
                verifier.verify_seconds,
                "every machine would be given up at once: give it 1 or more, or leave it out for 600",
            ),
            (
                "reach.probe_seconds",
                reach.probe_seconds,
                "nodes would be probed without a pause: give it 1 or more, or leave it out for 60",
            ),
            (
                "reach.timeout_seconds",
                reach.timeout_seconds,
                "no node could answer: give it 1 or more, or leave it out for 10",
            ),
        ] {
            if value == 0 {
                return unfit(key, "0".to_owned(), instead);
            }
        }
        if let Some(net) = self
            .server
            .trusted_proxies
            .iter()
            .find(|net| net.prefix_len() == 0)
        {
            return unfit(
                "server.trusted_proxies",
                net.to_string(),
                "any caller could claim any address as its own: list the networks of your own proxies",
            );
        }
        if let Some(url) = self
            .server
            .public_url
            .as_deref()
            .filter(|url| !is_address(url))
        {
            return unfit(
                "server.public_url",
                format!("`{url}`"),
                "nodes and tenants could not reach the service: give an address such as `https://broker.example.com`",
            );
        }
        self.verifier.check()
    }
}

/// Whether a text is an address that paths can follow: without a user, a query or a fragment.
fn is_address(text: &str) -> bool {
    let url = reqwest::Url::parse(text).ok();
    url.is_some_and(|url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn what_would_sell_nothing_or_believe_everybody_is_refused_with_what_to_do() {
        let usual = || Config::embedded(Path::new("somewhere")).expect("defaults");
        usual().check().expect("the defaults are fit");
        type Change = fn(&mut Config, &str);
        let proxy: Change = |config, net| {
            config.server.trusted_proxies = vec![net.parse().expect("a network")];
        };
        let public: Change = |config, url| config.server.public_url = Some(url.to_owned());
        let zero = |change: fn(&mut Config) -> &mut u32| {
            let mut config = usual();
            *change(&mut config) = 0;
            config.check()
        };
        let with = |change: Change, value: &str| {
            let mut config = usual();
            change(&mut config, value);
            config.check()
        };
        for (key, refused) in [
            (
                "sales.hold_seconds",
                zero(|all| &mut all.sales.hold_seconds),
            ),
            (
                "sales.quote_seconds",
                zero(|all| &mut all.sales.quote_seconds),
            ),
            (
                "sales.leases_per_reservation",
                zero(|all| &mut all.sales.leases_per_reservation),
            ),
            (
                "verifier.boot_seconds",
                zero(|all| &mut all.verifier.boot_seconds),
            ),
            (
                "verifier.verify_seconds",
                zero(|all| &mut all.verifier.verify_seconds),
            ),
            (
                "reach.probe_seconds",
                zero(|all| &mut all.reach.probe_seconds),
            ),
            (
                "reach.timeout_seconds",
                zero(|all| &mut all.reach.timeout_seconds),
            ),
            ("server.trusted_proxies", with(proxy, "0.0.0.0/0")),
            ("server.trusted_proxies", with(proxy, "::/0")),
            ("server.public_url", with(public, "broker.example.com")),
            ("server.public_url", with(public, "")),
            (
                "server.public_url",
                with(public, "ftp://broker.example.com"),
            ),
            (
                "server.public_url",
                with(public, "https://broker.example.com/?a=b"),
            ),
        ] {
            let words = refused.expect_err(key).to_string();
            assert!(words.starts_with(&format!("`{key}` is ")), "{words}");
            assert!(
                words.contains("give ") || words.contains("list "),
                "{words}"
            );
        }
        with(proxy, "10.0.0.0/8").expect("a network of ours");
        with(public, "https://broker.example.com:8443/api").expect("an address");
        with(public, "http://127.0.0.1:8080").expect("this machine");
    }
}
