//! Addresses of the machine itself.

use std::net::IpAddr;

/// Whether an address is one of the machine itself that calls it.
pub(crate) fn is_loopback(url: &str) -> bool {
    let Ok(url) = reqwest::Url::parse(url) else {
        return false;
    };
    let Some(host) = url.host_str() else {
        return false;
    };
    let name = host.trim_end_matches('.');
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost"
        || name.ends_with(".localhost")
        || address.is_ok_and(|address| {
            let address = address.to_canonical();
            address.is_loopback() || address.is_unspecified()
        })
}
