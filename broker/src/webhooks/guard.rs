//! Where webhooks may go: to public addresses alone, so that no tenant reaches through us into a
//! network that trusts us.
//!
//! A URL is checked when it is given. A name is looked up anew for every attempt, all that it
//! resolves to is checked, and the connection goes to just these addresses. In simulation this
//! machine may be called too, without encryption if need be.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// The longest URL. Units: bytes.
pub const MAX_URL: usize = 2_000;

/// Why nothing is sent to a URL. It does not show the URL, which may hold a secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// It cannot be used as it is written.
    #[error("the URL {0}")]
    Url(&'static str),
    /// It leads to an address that is not public.
    #[error("the URL leads to {address}, {kind}; only public addresses are called")]
    Address {
        /// The address.
        address: IpAddr,
        /// What kind of address that is.
        kind: &'static str,
    },
}

/// Reads the URL of an endpoint and refuses what must not be called.
///
/// Errors: [`Refused`].
pub fn check_url(text: &str, simulation: bool) -> Result<Url, Refused> {
    let refuse = |why| Err(Refused::Url(why));
    if text.len() > MAX_URL {
        return refuse("is longer than 2000 bytes");
    }
    // The parser would leave them out, and what is kept would be another text than what is called.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse("must hold no space and no control character");
    }
    let Ok(url) = Url::parse(text) else {
        return refuse("cannot be read; write it like `https://example.com/hooks`");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must hold no user and no password; the signature tells who sends");
    }
    if url.fragment().is_some() {
        return refuse("must hold no fragment, which is never sent");
    }
    let Some(host) = url.host_str() else {
        return refuse("names no host");
    };
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    let literal = host.trim_start_matches('[').trim_end_matches(']').parse();
    let mut here = host == "localhost" || host.ends_with(".localhost");
    if let Ok(address) = literal {
        check_address(address, simulation)?;
        here = address.is_loopback();
    } else if here && !simulation {
        return refuse("names this machine; only public hosts are called");
    }
    match url.scheme() {
        "https" => Ok(url),
        "http" if here && simulation => Ok(url),
        "http" => refuse("must begin with https, so that nobody reads along"),
        _ => refuse("must begin with https"),
    }
}

/// Refuses an address that is not public.
///
/// Errors: [`Refused::Address`].
pub fn check_address(address: IpAddr, simulation: bool) -> Result<(), Refused> {
    if simulation && address.is_loopback() {
        return Ok(());
    }
    let kind = match address {
        IpAddr::V4(address) => special_v4(address),
        IpAddr::V6(address) => special_v6(address),
    };
    match kind {
        None => Ok(()),
        Some(kind) => Err(Refused::Address { address, kind }),
    }
}

/// What an IPv4 address is that is not public.
///
/// Source: IANA IPv4 Special-Purpose Address Registry, all that is not globally reachable.
fn special_v4(address: Ipv4Addr) -> Option<&'static str> {
    match address.octets() {
        [0, ..] => Some("which is of this network"),
        [127, ..] => Some("which is this machine"),
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => Some("which is private"),
        [100, 64..=127, ..] => Some("which is shared by a carrier's customers"),
        [169, 254, ..] => Some("which is link-local"),
        [192, 0, 0, _] | [192, 88, 99, _] => Some("which is reserved for protocols"),
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] => Some("which is an example"),
        [198, 18..=19, ..] => Some("which is for benchmarks"),
        [224..=239, ..] => Some("which is multicast"),
        [240..=255, ..] => Some("which is reserved"),
        _ => None,
    }
}

/// What an IPv6 address is that is not public: all but global unicast, and of that what leads
/// elsewhere.
///
/// Source: IANA IPv6 Special-Purpose Address Registry.
fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    match address.segments() {
        [0, 0, 0, 0, 0, 0xffff, ..] => Some("which is an IPv4 address in disguise"),
        [0, 0, 0, 0, 0, 0, 0, 0 | 1] => Some("which is this machine"),
        [0xfc00..=0xfdff, ..] => Some("which is private"),
        [0xfe80..=0xfebf, ..] => Some("which is link-local"),
        [0xff00..=0xffff, ..] => Some("which is multicast"),
        [0x2001, 0..=0x01ff, ..] => Some("which is reserved for protocols"),
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("which is an example"),
        [0x2002, ..] => Some("which is an IPv4 address in disguise"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("which is not public"),
    }
}

/// Looks a name up.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of a host.
    ///
    /// Errors: those of the look-up.
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The look-up of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let found = tokio::net::lookup_host((host, 0)).await?;
        Ok(found.map(|address| address.ip()).collect())
    }
}

/// A resolver that answers public addresses alone.
pub(super) struct Guarded {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) simulation: bool,
}

impl fmt::Debug for Guarded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").finish_non_exhaustive()
    }
}

impl Resolve for Guarded {
    fn resolve(&self, name: Name) -> Resolving {
        let (lookup, simulation) = (Arc::clone(&self.lookup), self.simulation);
        Box::pin(async move {
            let found = lookup.addresses(name.as_str()).await?;
            // One that is not public speaks against all: the name is not what it seems.
            for address in &found {
                check_address(*address, simulation)?;
            }
            if found.is_empty() {
                return Err(io::Error::other("the name has no address").into());
            }
            // The port of the URL is put in by the connector.
            let addresses = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
