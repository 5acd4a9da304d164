//! Where calls for tenants may go: to public addresses alone, so that no tenant reaches through us into a
//! network that trusts us.
//!
//! A URL is checked when it is given. Every attempt resolves the name again, checks all addresses that it
//! resolves to, and connects only to these. In simulation this machine may be called too, without encryption
//! if need be.

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
    /// It leads to an address that is not public, which is not named: a name of our own network may
    /// have led there, and its address is not for those outside to learn.
    #[error("the URL leads to an address that is not public; only public addresses are called")]
    NotPublic,
}

/// Reads the URL of an endpoint and refuses forbidden addresses.
///
/// Errors: [`Refused`].
pub fn check_url(text: &str, simulation: bool) -> Result<Url, Refused> {
    let refuse = |why| Err(Refused::Url(why));
    if text.len() > MAX_URL {
        return refuse("is longer than 2000 bytes");
    }
    // The parser would leave them out, and the stored text would differ from the called one.
    if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return refuse("must hold no space and no control character");
    }
    let Ok(url) = Url::parse(text) else {
        return refuse("cannot be read; write it like `https://example.com/hooks`");
    };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must hold no user and no password; the signature identifies the sender");
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
        "http" => refuse("must begin with https, so that nobody else can read the messages"),
        _ => refuse("must begin with https"),
    }
}

/// Refuses an address that is not public.
///
/// Errors: [`Refused::NotPublic`].
pub fn check_address(address: IpAddr, simulation: bool) -> Result<(), Refused> {
    let special = match address {
        IpAddr::V4(address) => is_special_v4(address),
        IpAddr::V6(address) => is_special_v6(address),
    };
    if special && !(simulation && address.is_loopback()) {
        return Err(Refused::NotPublic);
    }
    Ok(())
}

/// Whether an IPv4 address is not public.
///
/// Source: IANA IPv4 Special-Purpose Address Registry, all that is not globally reachable.
fn is_special_v4(address: Ipv4Addr) -> bool {
    matches!(
        address.octets(),
        // This network, this machine.
        [0 | 127, ..]
            // Private.
            | [10, ..] | [172, 16..=31, ..] | [192, 168, ..]
            // Shared by a carrier's customers.
            | [100, 64..=127, ..]
            // Link-local.
            | [169, 254, ..]
            // For protocols.
            | [192, 0, 0, _] | [192, 88, 99, _]
            // Examples, benchmarks.
            | [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..]
            // Multicast, reserved.
            | [224..=255, ..]
    )
}

/// Whether an IPv6 address is not public: all but global unicast, and of that the ranges that lead elsewhere.
///
/// Source: IANA IPv6 Special-Purpose Address Registry.
fn is_special_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // For protocols.
        [0x2001, 0..=0x01ff, ..] => true,
        // Examples.
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => true,
        // An IPv4 address in disguise.
        [0x2002, ..] => true,
        [0x2000..=0x3fff, ..] => false,
        _ => true,
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
pub(crate) struct Guarded {
    pub(crate) lookup: Arc<dyn Lookup>,
    pub(crate) simulation: bool,
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
            // One address that is not public counts against all: the name is suspect.
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
