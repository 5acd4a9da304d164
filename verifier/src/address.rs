//! Where the broker is, and the token by which a node may speak to it.
//!
//! Both use an alphabet without shell or header metacharacters, so they can stand unquoted in a start-up
//! script and in a request.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Why an address or a token was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccess {
    /// Not an address that an agent may connect to.
    #[error(
        "a broker's address is https://host[:port][/path], or http:// on this very machine; \
         it has no user, query or fragment"
    )]
    Url,
    /// Not a token.
    #[error("a verification token is 16 to 256 letters, digits, `.`, `_` and `-`")]
    Token,
}

/// Where the broker is: `https`, or `http` on this machine (for simulation only).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerUrl {
    text: String,
    encrypted: bool,
}

impl BrokerUrl {
    /// The address without a trailing slash. It contains nothing that a shell would interpret.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub const fn is_encrypted(&self) -> bool {
        self.encrypted
    }
}

impl FromStr for BrokerUrl {
    type Err = InvalidAccess;

    fn from_str(text: &str) -> Result<Self, InvalidAccess> {
        let text = text.trim_end_matches('/');
        let (encrypted, rest) = match (text.strip_prefix("https://"), text.strip_prefix("http://"))
        {
            (Some(rest), _) => (true, rest),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err(InvalidAccess::Url),
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let host = host_of(authority).ok_or(InvalidAccess::Url)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"/._~-".contains(&b);
        let climbs = path.split('/').any(|segment| segment == "..");
        if climbs || !path.bytes().all(plain) || !(encrypted || is_this_machine(host)) {
            return Err(InvalidAccess::Url);
        }
        Ok(Self {
            text: text.to_owned(),
            encrypted,
        })
    }
}

/// The host of `host[:port]` or `[v6][:port]`, when both parts are well formed.
fn host_of(authority: &str) -> Option<&str> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<std::net::Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let end = authority.find(':').unwrap_or(authority.len());
            let (host, port) = authority.split_at(end);
            let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-');
            if host.is_empty() || host.len() > 253 || !host.bytes().all(legal) {
                return None;
            }
            (host, port)
        }
    };
    let digits = match port.strip_prefix(':') {
        None => return port.is_empty().then_some(host),
        Some(digits) => digits,
    };
    let number = digits
        .bytes()
        .all(|b| b.is_ascii_digit())
        .then(|| digits.parse::<u16>().ok())?;
    number.filter(|port| *port > 0).map(|_| host)
}

fn is_this_machine(host: &str) -> bool {
    host == "localhost"
        || host
            .parse::<IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// A one-time token. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// The secret itself, for the one header and the one script that carry it. It contains nothing that a
    /// shell would interpret.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(***)")
    }
}

impl FromStr for Token {
    type Err = InvalidAccess;

    fn from_str(text: &str) -> Result<Self, InvalidAccess> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if (16..=256).contains(&text.len()) && text.bytes().all(legal) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidAccess::Token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_an_agent_talks_to() {
        for good in [
            "https://broker.example",
            "https://broker.example:8443/gpu/",
            "https://[2001:db8::1]:443",
            "http://127.0.0.1:8080",
            "http://localhost:1",
            "http://[::1]:8080",
        ] {
            let url: BrokerUrl = good.parse().expect(good);
            assert_eq!(url.as_str(), good.trim_end_matches('/'));
            assert_eq!(url.is_encrypted(), good.starts_with("https"));
        }
    }

    #[test]
    fn addresses_that_an_agent_refuses() {
        for bad in [
            "",
            "https://",
            "ftp://broker.example",
            "http://broker.example",
            "http://10.0.0.1:8080",
            "http://127.0.0.1.example.com",
            "https://user:secret@broker.example",
            "https://broker.example:0",
            "https://broker.example:99999",
            "https://broker.example:+80",
            "https://broker.example?x=1",
            "https://broker.example/#a",
            "https://broker.example/a/../b",
            "https://broker.example/a%2fb",
            "https://broker.example/$(reboot)",
            "https://broker.example/'; reboot; '",
            "https://broker.example\nreboot",
            "https://brök.example",
            "https://[::1",
            "https://[::1]x",
        ] {
            assert_eq!(bad.parse::<BrokerUrl>(), Err(InvalidAccess::Url), "{bad}");
        }
    }

    #[test]
    fn a_token_is_plain_and_is_not_printed() {
        let token: Token = "vt_0123456789abcdef".parse().expect("a token");
        assert_eq!(format!("{token:?}"), "Token(***)");
        for bad in [
            "short",
            "0123456789abcde'f",
            "0123456789 abcdef",
            "0123456789abcdef\n",
        ] {
            assert!(bad.parse::<Token>().is_err(), "{bad:?}");
        }
        assert!("a".repeat(257).parse::<Token>().is_err());
    }
}
