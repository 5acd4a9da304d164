//! Keeps production away from this machine, so that nothing simulated passes as real.
//!
//! A base URL that names a loopback address is refused when the connection is made; a name that
//! resolves to one is refused at every call.

use std::io;
use std::net::{IpAddr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::error::AdapterError;

/// Reads a base URL and refuses forbidden ones.
pub(super) fn check_base_url(text: &str, allow_loopback: bool) -> Result<Url, AdapterError> {
    let refuse = |why: &str| {
        Err(AdapterError::BadConnection(format!(
            "the base URL `{}` {why}",
            shown(text)
        )))
    };
    let Ok(url) = Url::parse(text) else {
        return refuse("is no URL; write it like `https://cloud.example.com/api/v1`");
    };
    let Some(host) = url.host_str() else {
        return refuse("names no host");
    };
    if !url.username().is_empty()
        || url.password().is_some()
        || url.query().is_some()
        || url.fragment().is_some()
    {
        return refuse("must hold no credential, query or fragment");
    }
    let loopback = is_loopback_name(host);
    if loopback && !allow_loopback {
        return refuse(
            "is on this machine; only a simulation may call it, so that nothing simulated passes as real",
        );
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if loopback => Ok(url),
        "http" => refuse("would send the credential unencrypted; use https"),
        _ => refuse("is neither http nor https"),
    }
}

/// A base URL without the parts that may be secret.
fn shown(text: &str) -> String {
    let after_user = text.rsplit('@').next().unwrap_or_default();
    let before_query = after_user.split(['?', '#']).next().unwrap_or_default();
    before_query.chars().take(100).collect()
}

/// Whether a host of a URL is this machine by its name alone.
pub(super) fn is_loopback_name(host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || host.ends_with(".localhost")
        || address.parse::<IpAddr>().is_ok_and(is_this_machine)
}

fn is_this_machine(address: IpAddr) -> bool {
    let address = address.to_canonical();
    address.is_loopback() || address.is_unspecified()
}

/// A resolver that returns no address of this machine.
#[derive(Debug)]
pub(super) struct RemoteOnly;

impl Resolve for RemoteOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let remote: Vec<SocketAddr> = found
                .filter(|address| !is_this_machine(address.ip()))
                .collect();
            if remote.is_empty() {
                let why = format!("`{}` resolves to this machine only", name.as_str());
                return Err(io::Error::other(why).into());
            }
            Ok(Box::new(remote.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn production_refuses_every_spelling_of_this_machine_and_says_why() {
        for url in [
            "http://127.0.0.1:8081/api/v1",
            "https://localhost/api",
            "https://LOCALHOST./api",
            "http://sim.localhost:1",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]/",
            "http://0.0.0.0:9000",
            "http://127.1:80",
            "http://2130706433/",
        ] {
            let error = check_base_url(url, false).expect_err(url).to_string();
            assert!(error.contains("simulation"), "{url}: {error}");
            assert!(check_base_url(url, true).is_ok(), "{url}");
        }
    }

    #[test]
    fn a_credential_never_leaves_unencrypted() {
        let error = check_base_url("http://cloud.example.com", true)
            .expect_err("plain")
            .to_string();
        assert!(error.contains("https"), "{error}");
    }

    #[test]
    fn a_refused_url_does_not_show_what_is_secret_in_it() {
        for url in [
            "https://user:hunter2@cloud.example.com/",
            "https://cloud.example.com/?key=hunter2",
        ] {
            let error = check_base_url(url, false).expect_err(url).to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_name_that_resolves_to_this_machine_is_refused_at_the_call() {
        let name = "localhost".parse::<Name>().expect("a name");
        assert!(RemoteOnly.resolve(name).await.is_err());
    }
}
