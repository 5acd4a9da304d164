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

/// The addresses of the adapters of the fabric, by their order; where none of them has one, the
/// usual address of the host.
///
/// `nics` are the adapters, `usual` is the address by which the provider knows the node.
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

/// The IPv4 addresses of the interfaces that are up, by name; IPv6 needs a scope to be reached.
fn interfaces() -> Vec<(String, IpAddr)> {
    let Ok(all) = getifaddrs() else {
        return Vec::new();
    };
    let up = all.filter(|interface| interface.flags.contains(InterfaceFlags::IFF_UP));
    let address = |address: SockaddrStorage| Some(IpAddr::V4(address.as_sockaddr_in()?.ip()));
    up.filter_map(|interface| Some((interface.interface_name, address(interface.address?)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_adapter_goes_by_the_address_of_its_interface_and_else_the_host_does() {
        let root = tempfile::tempdir().expect("a folder");
        let usual = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7));
        let nics = ["mlx5_0".to_owned(), "mlx5_1".to_owned()];
        let host = [("host".to_owned(), usual)];
        assert_eq!(rails_of(root.path(), &nics, usual), host);
        // The one interface that every machine has.
        let folder = root
            .path()
            .join("sys/class/infiniband/mlx5_1/device/net/lo");
        fs::create_dir_all(folder).expect("made");
        let rails = rails_of(root.path(), &nics, usual);
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        assert_eq!(rails, [("mlx5_1".to_owned(), loopback)]);
    }
}
