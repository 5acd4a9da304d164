//! The addresses at which a node's siblings reach it.

use std::fs;
use std::net::IpAddr;
use std::path::Path;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::host::RDMA_FOLDER;
use market::verification::MOST_RAILS;

/// The name of the host's usual address.
pub(super) const HOST: &str = "host";

/// The addresses of the fabric's adapters, by their order; the usual address of the host where none of them
/// has one.
///
/// `nics` are the adapters, `usual` is the node's address at its provider.
#[must_use]
pub fn rails_of(root: &Path, nics: &[String], usual: IpAddr) -> Vec<(String, IpAddr)> {
    let known = interfaces();
    let mut rails = Vec::new();
    for nic in nics {
        let devices = root.join(RDMA_FOLDER).join(nic).join("device/net");
        let names = fs::read_dir(devices).into_iter().flatten().flatten();
        let mut names: Vec<String> = names
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        let address = names
            .iter()
            .find_map(|name| known.iter().find(|(interface, _)| interface == name));
        rails.extend(address.map(|(_, address)| (nic.clone(), *address)));
    }
    rails.truncate(MOST_RAILS);
    if rails.is_empty() {
        rails.push((HOST.to_owned(), usual));
    }
    rails
}

/// The interfaces that have these addresses, by name.
pub(super) fn interfaces_of(addresses: &[(String, IpAddr)]) -> Vec<String> {
    let has = |(_, address): &(String, IpAddr)| addresses.iter().any(|(_, known)| known == address);
    let mut names: Vec<String> = interfaces()
        .into_iter()
        .filter(has)
        .map(|(name, _)| name)
        .collect();
    names.sort();
    names.dedup();
    names
}

/// The addresses of the interfaces that are up, by name, those of IPv4 first. IPv6 addresses that need a
/// scope are left out.
fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(all) = getifaddrs() else {
        return Vec::new();
    };
    let up = all.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let mut known: Vec<(String, IpAddr)> = up
        .filter_map(|interface| {
            let address = reachable(&interface.address?)?;
            Some((interface.interface_name, address))
        })
        .collect();
    known.sort_by_key(|(_, address)| address.is_ipv6());
    known
}

fn reachable(address: &SockaddrStorage) -> Option<IpAddr> {
    if let Some(address) = address.as_sockaddr_in() {
        return Some(IpAddr::V4(address.ip()));
    }
    let address = address.as_sockaddr_in6()?.ip();
    (!address.is_unicast_link_local()).then_some(IpAddr::V6(address))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddrV6};

    use super::*;

    #[test]
    fn an_address_of_either_family_will_do_unless_it_needs_a_scope() {
        let of = |ip: &str| {
            let address: IpAddr = ip.parse().expect("an address");
            let stored = match address {
                IpAddr::V4(ip) => SockaddrStorage::from(std::net::SocketAddrV4::new(ip, 0)),
                IpAddr::V6(ip) => SockaddrStorage::from(SocketAddrV6::new(ip, 0, 0, 0)),
            };
            reachable(&stored) == Some(address)
        };
        assert!(of("10.0.0.7") && of("fd00::7") && of("2001:db8::7"));
        assert!(!of("fe80::7"));
    }

    #[test]
    fn an_adapter_goes_by_the_address_of_its_interface_and_else_the_host_does() {
        let root = tempfile::tempdir().expect("a folder");
        let usual = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        let nics = ["mlx5_0".to_owned(), "mlx5_1".to_owned()];
        let host = [("host".to_owned(), usual)];
        assert_eq!(rails_of(root.path(), &nics, usual), host);
        // The one interface of every machine.
        let folder = root
            .path()
            .join("sys/class/infiniband/mlx5_1/device/net/lo");
        fs::create_dir_all(folder).expect("made");
        let rails = rails_of(root.path(), &nics, usual);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(rails, [("mlx5_1".to_owned(), loopback)]);
        assert_eq!(interfaces_of(&rails), ["lo"]);
        assert!(interfaces_of(&[("host".to_owned(), Ipv4Addr::BROADCAST.into())]).is_empty());
    }
}
