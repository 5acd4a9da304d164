//! Addresses of nodes as providers write them.
//!
//! They reach the tenant's host file and SSH command line, so only valid addresses are accepted.

use std::net::IpAddr;

use market::order::ProviderNode;

/// The longest name of a host (RFC 1035, section 2.3.4). Units: bytes.
const LONGEST_NAME: usize = 253;

/// The SSH port, where a provider gives no other.
const SSH_PORT: u16 = 22;

/// A node once its addresses are valid: until then it is not up. `user` logs in over SSH.
pub(super) fn node(
    user: &str,
    public: Option<String>,
    private: Option<String>,
    port: Option<u16>,
) -> Option<ProviderNode> {
    let host = public.filter(|text| is_address(text))?;
    let private_address = private.filter(|text| !text.is_empty());
    if private_address
        .as_deref()
        .is_some_and(|text| !is_address(text))
    {
        return None;
    }
    Some(ProviderNode {
        host,
        port: port.filter(|port| *port > 0).unwrap_or(SSH_PORT),
        user: user.to_owned(),
        private_address,
    })
}

/// Whether a text is an IP address or the plain name of a host.
fn is_address(text: &str) -> bool {
    if let Ok(address) = text.parse::<IpAddr>() {
        return !address.is_unspecified();
    }
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && label.bytes().all(plain)
    };
    // A text that ends in digits can only be an IPv4 address, and this one is invalid.
    let ends_in_a_name = |text: &str| {
        text.rsplit('.')
            .next()
            .is_some_and(|label| label.bytes().any(|byte| byte.is_ascii_alphabetic()))
    };
    text.len() <= LONGEST_NAME && text.split('.').all(is_label) && ends_in_a_name(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_plain_addresses_or_is_not_up_yet() {
        let up = |public: &str, private: Option<&str>| {
            node(
                "ubuntu",
                Some(public.to_owned()),
                private.map(str::to_owned),
                None,
            )
        };
        for good in ["198.51.100.7", "2001:db8::7", "node-1.example.com", "node1"] {
            let node = up(good, Some("10.0.0.7")).expect(good);
            assert_eq!(node.host, good);
            assert_eq!(node.private_address.as_deref(), Some("10.0.0.7"));
            assert!(up("198.51.100.7", Some(good)).is_some(), "{good}");
        }
        let long = "x".repeat(254);
        for bad in [
            "",
            "0.0.0.0",
            "::",
            "198.51.100.7\nevil slots=8",
            "198.51.100.7 slots=64",
            "198.51.100.256",
            "-oProxyCommand=id",
            "node..example.com",
            "node_1",
            "n\u{f6}de",
            "$(id)",
            &long,
        ] {
            assert_eq!(up(bad, None), None, "{bad}");
            if !bad.is_empty() {
                assert_eq!(up("198.51.100.7", Some(bad)), None, "{bad}");
            }
        }
        let no_private = up("198.51.100.7", Some("")).expect("a node");
        assert_eq!(no_private.private_address, None);
        assert_eq!(
            node("ubuntu", None, Some("10.0.0.7".to_owned()), None),
            None
        );
        let port_of = |port| {
            let node = node("ubuntu", Some("node1".to_owned()), None, port);
            node.expect("a node").port
        };
        assert_eq!([None, Some(0), Some(40_022)].map(port_of), [22, 22, 40_022]);
    }
}
