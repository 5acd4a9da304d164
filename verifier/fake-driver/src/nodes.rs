//! How the processes of several nodes sum together. All connect on loopback to the process that made the id,
//! which adds their words and sends each the sum, at the rate of the slowest.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// The id by which they find each other, in the library's own form: 8 arbitrary bytes and the listening
/// address as the system writes it.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Id([u8; 128]);

const MAGIC: [u8; 8] = *b"together";
const BETWEEN_NAMES: &str = "\n";
/// How the system begins an address of that kind.
const IPV4: [u8; 2] = 2_u16.to_le_bytes();

/// Listens for the others until as many GPUs have joined as the first one announces.
pub fn open() -> io::Result<Id> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut id = Id([0; 128]);
    let port = listener.local_addr()?.port();
    let loopback = Ipv4Addr::LOCALHOST.octets();
    let form = [&MAGIC[..], &IPV4, &port.to_be_bytes(), &loopback].concat();
    id.0[..form.len()].copy_from_slice(&form);
    // The thread ends with the process, or when one of the others disconnects.
    std::thread::spawn(move || lead(&listener));
    Ok(id)
}

fn lead(listener: &TcpListener) -> io::Result<()> {
    let mut nodes = Vec::new();
    let mut names = Vec::new();
    let mut came = 0;
    loop {
        let (mut stream, _) = listener.accept()?;
        let (ranks, here) = (read_number(&mut stream)?, read_number(&mut stream)?);
        names.push(read_text(&mut stream)?);
        nodes.push(stream);
        came += here;
        if came >= ranks {
            break;
        }
    }
    for node in &mut nodes {
        node.write_all(&came.to_le_bytes())?;
        write_text(node, &names.join(BETWEEN_NAMES))?;
    }
    loop {
        let mut rate = f64::INFINITY;
        let mut sums: Vec<u32> = Vec::new();
        for node in &mut nodes {
            let (its_rate, words) = read_words(node)?;
            rate = rate.min(its_rate);
            sums.resize(words.len(), 0);
            for (sum, word) in sums.iter_mut().zip(words) {
                *sum = sum.wrapping_add(word);
            }
        }
        for node in &mut nodes {
            write_words(node, rate, &sums)?;
        }
    }
}

/// The processes of other nodes, through the one that leads them.
pub struct Others {
    ranks: u32,
    /// The names of all nodes.
    names: Vec<String>,
    leader: TcpStream,
}

impl Others {
    /// Joins as the node of this name with its GPUs, out of this many in all, and waits until all have
    /// joined.
    pub fn join(id: &Id, (ranks, here): (u32, u32), name: &str) -> io::Result<Self> {
        let port = u16::from_be_bytes([id.0[10], id.0[11]]);
        let mut leader = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        leader.set_nodelay(true)?;
        leader.write_all(&[ranks.to_le_bytes(), here.to_le_bytes()].concat())?;
        write_text(&mut leader, name)?;
        let came = read_number(&mut leader)?;
        let names = read_text(&mut leader)?;
        let names = names.split(BETWEEN_NAMES).map(str::to_owned).collect();
        match came == ranks {
            true => Ok(Self {
                ranks,
                names,
                leader,
            }),
            false => Err(io::Error::other("their number is not the announced one")),
        }
    }

    /// Whether a node of this name is among them.
    pub fn has(&self, name: &str) -> bool {
        self.names.iter().any(|other| other == name)
    }

    /// How many GPUs all have.
    pub fn ranks(&self) -> u64 {
        self.ranks.into()
    }

    /// Sums with the others, and gives the rate of the slowest.
    pub fn sum(&mut self, words: &mut [u32], rate: f64) -> io::Result<f64> {
        write_words(&mut self.leader, rate, words)?;
        let (rate, sums) = read_words(&mut self.leader)?;
        if sums.len() != words.len() {
            return Err(io::Error::other("the others sum more or less"));
        }
        words.copy_from_slice(&sums);
        Ok(rate)
    }
}

fn read_number(from: &mut TcpStream) -> io::Result<u32> {
    let mut number = [0; 4];
    from.read_exact(&mut number)?;
    Ok(u32::from_le_bytes(number))
}

fn read_text(from: &mut TcpStream) -> io::Result<String> {
    let mut text = vec![0; read_number(from)? as usize];
    from.read_exact(&mut text)?;
    String::from_utf8(text).map_err(io::Error::other)
}

fn write_text(to: &mut TcpStream, text: &str) -> io::Result<()> {
    // Names are short enough.
    let length = (text.len() as u32).to_le_bytes();
    to.write_all(&[&length[..], text.as_bytes()].concat())
}

fn write_words(to: &mut TcpStream, rate: f64, words: &[u32]) -> io::Result<()> {
    // Tests sum no more words than this holds.
    let count = words.len() as u32;
    let mut bytes = [&rate.to_le_bytes()[..], &count.to_le_bytes()].concat();
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    to.write_all(&bytes)
}

fn read_words(from: &mut TcpStream) -> io::Result<(f64, Vec<u32>)> {
    let mut rate = [0; 8];
    from.read_exact(&mut rate)?;
    let count = read_number(from)?;
    let mut bytes = vec![0; count as usize * 4];
    from.read_exact(&mut bytes)?;
    let words = bytes
        .as_chunks()
        .0
        .iter()
        .map(|word| u32::from_le_bytes(*word));
    Ok((f64::from_le_bytes(rate), words.collect()))
}
