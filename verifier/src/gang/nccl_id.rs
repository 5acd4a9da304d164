//! The address in the id by which the GPUs of several nodes find each other. Only NCCL writes and reads the
//! id, so its form is known from the library's source alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use market::verification::{NcclId, Rail};

/// As the system numbers them: `AF_INET` and `AF_INET6` of Linux.
const IPV4: u16 = 2;
const IPV6: u16 = 10;
/// Where the address begins. Units: bytes.
const ADDRESS_AT: usize = 8;
/// The first port on which an unprivileged process may listen.
const FIRST_PORT: u16 = 1_024;

/// The id's address and port; none where it has another form.
///
/// Source: NCCL, src/include/bootstrap.h, `ncclBootstrapHandle`: a `uint64_t magic`, then
/// `union ncclSocketAddress`, which src/include/socket.h makes of `sockaddr_in` and `sockaddr_in6`.
fn leads_to(id: &NcclId) -> Option<(IpAddr, u16)> {
    let address = &id.0[ADDRESS_AT..];
    let family = u16::from_le_bytes(*address.first_chunk()?);
    let port = u16::from_be_bytes(*address[2..].first_chunk()?);
    let ip = match family {
        IPV4 => IpAddr::V4(Ipv4Addr::from(*address[4..].first_chunk::<4>()?)),
        // After the flow information.
        IPV6 => IpAddr::V6(Ipv6Addr::from(*address[8..].first_chunk::<16>()?)),
        _ => return None,
    };
    Some((ip.to_canonical(), port))
}

/// Whether it leads to a node with these rails, and not to a service of another machine.
pub(super) fn leads_to_one_of(id: &NcclId, rails: &[Rail]) -> bool {
    let is_at = |rail: &Rail, ip: IpAddr| {
        let address = rail.address.parse::<SocketAddr>();
        address.is_ok_and(|address| address.ip().to_canonical() == ip)
    };
    leads_to(id)
        .is_some_and(|(ip, port)| port >= FIRST_PORT && rails.iter().any(|rail| is_at(rail, ip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(parts: &[&[u8]]) -> NcclId {
        let mut bytes = [parts.concat(), vec![0; 128]].concat();
        bytes.truncate(128);
        NcclId(bytes.try_into().expect("128 bytes"))
    }

    #[test]
    fn an_id_is_read_in_the_form_that_the_library_gives_it() {
        let magic = [0xA5; 8];
        let v4 = id(&[&magic, &[2, 0, 0x9C, 0x40, 10, 0, 0, 9]]);
        let expected = (IpAddr::from([10, 0, 0, 9]), 40_000);
        assert_eq!(leads_to(&v4), Some(expected));
        let ip: Ipv6Addr = "fd00::9".parse().expect("an address");
        let v6 = id(&[&magic, &[10, 0, 0x9C, 0x40], &[1; 4], &ip.octets()]);
        assert_eq!(leads_to(&v6), Some((ip.into(), 40_000)));
        // Another family, and the address without the bytes before it.
        for other in [[1, 0], [0, 2]] {
            assert_eq!(leads_to(&id(&[&magic, &other, &[0x9C, 0x40]])), None);
        }
        assert_eq!(leads_to(&id(&[&[2, 0, 0x9C, 0x40, 10, 0, 0, 9]])), None);
    }

    #[test]
    fn it_leads_to_an_address_of_the_node_and_to_no_port_of_the_system() {
        let rails = ["10.0.0.9:50000", "[fd00::9]:50000"].map(|address| Rail {
            name: "mlx5_0".to_owned(),
            address: address.to_owned(),
        });
        let v4 = |ip: [u8; 4], port: u16| {
            let id = id(&[&[0; 8], &[2, 0], &port.to_be_bytes(), &ip]);
            leads_to_one_of(&id, &rails)
        };
        assert!(v4([10, 0, 0, 9], 1_024) && v4([10, 0, 0, 9], 65_535));
        assert!(!v4([10, 0, 0, 9], 1_023) && !v4([10, 0, 0, 9], 0));
        assert!(!v4([10, 0, 0, 8], 40_000) && !v4([127, 0, 0, 1], 40_000));
        let v6 = |ip: &str| {
            let ip: Ipv6Addr = ip.parse().expect("an address");
            let id = id(&[&[0; 8], &[10, 0, 0x9C, 0x40], &[0; 4], &ip.octets()]);
            leads_to_one_of(&id, &rails)
        };
        assert!(v6("fd00::9") && v6("::ffff:10.0.0.9") && !v6("fd00::8"));
    }
}
