//! The frames between the agent and the process of a GPU: a JSON head and raw bytes.

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

use market::verification::{Digest, NcclSum};
use serde::{Deserialize, Serialize};

use crate::device::Rate;
use crate::gemm::GemmInputs;
use crate::memory::Contents;
use crate::probe::burn::BurnWork;
use crate::probe::links::{LibraryWork, LinkWork};
use crate::tensor::TensorWork;

/// The longest head that is read. Units: bytes.
const LONGEST_HEAD: u32 = 1 << 20;
/// The longest body that is read: the largest product. Units: bytes.
const LONGEST_BODY: u64 = 4 << 30;

/// A request to the process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Request {
    Survey,
    Open {
        gpu: u32,
        root: PathBuf,
    },
    Multiply(GemmInputs),
    RowSums,
    ReadRows(Vec<u32>),
    Allocatable,
    Fill {
        contents: Contents,
        bytes: u64,
    },
    Compare(Contents),
    Invert {
        contents: Contents,
        down: bool,
    },
    Digests {
        block_bytes: u32,
        key: Digest,
    },
    Prove {
        block_bytes: u32,
        key: Digest,
        threads: usize,
    },
    OpenBlocks(Vec<u64>),
    RoomForStreams,
    Copy {
        sample: u32,
    },
    Rate {
        rate: Rate,
        sample: u32,
    },
    Tensor(TensorWork),
    Burn(BurnWork),
    Observe,
    Xids,
    Release,
    Links(LinkWork, Duration),
    Library(LibraryWork, Duration),
    NcclVersion,
    NcclId,
    NcclSum(NcclSum),
}

/// A process's last message, in place of an answer, when it must end.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LastWords {
    pub crashed: String,
}

/// A JSON head and a body of data that does not suit JSON.
#[derive(Debug)]
pub(super) struct Frame {
    pub head: Vec<u8>,
    pub body: Vec<u8>,
}

impl Frame {
    pub(super) fn of(head: &impl Serialize, body: Vec<u8>) -> io::Result<Self> {
        let head = serde_json::to_vec(head)?;
        Ok(Self { head, body })
    }

    pub(super) fn write(&self, to: &mut impl Write) -> io::Result<()> {
        // Heads are kilobytes, some hundred at the most.
        to.write_all(&(self.head.len() as u32).to_le_bytes())?;
        to.write_all(&(self.body.len() as u64).to_le_bytes())?;
        to.write_all(&self.head)?;
        to.write_all(&self.body)?;
        to.flush()
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let (mut head_length, mut body_length) = ([0; 4], [0; 8]);
        from.read_exact(&mut head_length)?;
        from.read_exact(&mut body_length)?;
        let (head, body) = (
            u32::from_le_bytes(head_length),
            u64::from_le_bytes(body_length),
        );
        if head > LONGEST_HEAD || body > LONGEST_BODY {
            return Err(io::Error::other("a frame is too long"));
        }
        let mut read = |length: u64| -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            let got = from.by_ref().take(length).read_to_end(&mut bytes)?;
            if got as u64 == length {
                Ok(bytes)
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        };
        Ok(Self {
            head: read(u64::from(head))?,
            body: read(body)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_comes_out_as_it_went_in_and_a_cut_one_does_not() {
        let frame = Frame::of(&Request::Copy { sample: 3 }, vec![1, 2, 3]).expect("a frame");
        let mut bytes = Vec::new();
        frame.write(&mut bytes).expect("written");
        let read = Frame::read(&mut bytes.as_slice()).expect("a frame");
        assert_eq!((read.head, read.body), (frame.head, frame.body));
        for length in [0, 5, 13, bytes.len() - 1] {
            assert!(Frame::read(&mut &bytes[..length]).is_err(), "{length}");
        }
        bytes[3] = 0xff;
        assert!(Frame::read(&mut bytes.as_slice()).is_err());
    }
}
