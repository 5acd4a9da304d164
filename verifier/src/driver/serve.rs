//! The process of one GPU: it serves one request after the other until its agent ends. Each request has one
//! answer. Requests for links and for the vendor's library report each rate separately, with no final answer.

use std::io::{self, Read, Write};

use market::verification::{CollectiveRate, TroubleKind, Word64};
use serde::Serialize;

use super::Driver;
use super::wire::{Frame, LastWords, Request};
use crate::device::{Device, DeviceError, shortened};
use crate::probe;
use crate::probe::links::LinkRates;
use crate::probe::memory::HashedMemory;

/// Sends the reason why this process must end, in place of the expected answer.
///
/// Errors: those of writing.
pub fn say_last_words(why: &str, answers: &mut impl Write) -> io::Result<()> {
    let crashed = shortened(why);
    Frame::of(&LastWords { crashed }, Vec::new())?.write(answers)
}

/// Serves requests until they end.
///
/// Errors: those of reading or writing; a GPU's errors are answers.
pub fn serve(
    driver: &mut dyn Driver,
    requests: &mut impl Read,
    answers: &mut impl Write,
) -> io::Result<()> {
    let mut device: Option<Box<dyn Device>> = None;
    let mut proved = None;
    loop {
        let frame = match Frame::read(requests) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            frame => frame?,
        };
        let answer = match serde_json::from_slice(&frame.head)? {
            Request::Survey => Frame::of(&driver.survey(), Vec::new())?,
            Request::Open { gpu, root } => {
                let opened = driver.open(gpu, &root).map(|(opened, claim)| {
                    device = Some(opened);
                    claim
                });
                Frame::of(&opened, Vec::new())?
            }
            Request::Links(work, lasts) => {
                let mut tell = |rates| {
                    let told: Result<LinkRates, DeviceError> = Ok(rates);
                    // A reader that is gone is noticed at the end.
                    let _ = Frame::of(&told, Vec::new()).and_then(|told| told.write(answers));
                };
                let done = driver.links(&work, lasts, &mut tell);
                Frame::of(&done.map(|()| LinkRates::default()), Vec::new())?
            }
            Request::Library(work, lasts) => {
                let mut tell = |rate| {
                    let told: Result<Option<CollectiveRate>, DeviceError> = Ok(Some(rate));
                    // As above.
                    let _ = Frame::of(&told, Vec::new()).and_then(|told| told.write(answers));
                };
                let done = driver.library(&work, lasts, &mut tell);
                Frame::of(&done.map(|()| None::<CollectiveRate>), Vec::new())?
            }
            Request::NcclVersion => Frame::of(&driver.nccl_version(), Vec::new())?,
            Request::NcclId => Frame::of(&driver.nccl_id(), Vec::new())?,
            Request::NcclSum(sum) => Frame::of(&driver.nccl_sum(&sum), Vec::new())?,
            request => match &mut device {
                Some(device) => work(device.as_mut(), &mut proved, &request)?,
                None => Frame::of(&Err::<(), _>(not_open()), Vec::new())?,
            },
        };
        answer.write(answers)?;
    }
}

fn not_open() -> DeviceError {
    DeviceError {
        gpu: 0,
        kind: TroubleKind::Driver,
        what: "it was not opened".to_owned(),
    }
}

fn work(
    device: &mut dyn Device,
    proved: &mut Option<HashedMemory>,
    request: &Request,
) -> io::Result<Frame> {
    fn plain<T: Serialize>(result: &Result<T, DeviceError>) -> io::Result<Frame> {
        Frame::of(result, Vec::new())
    }
    match request {
        Request::Survey
        | Request::Open { .. }
        | Request::Links(..)
        | Request::Library(..)
        | Request::NcclVersion
        | Request::NcclId
        | Request::NcclSum(_) => plain(&Err::<(), _>(not_open())),
        Request::Multiply(inputs) => plain(&device.multiply(inputs)),
        Request::RowSums => with_body(device.row_sums(), |sum| sum.0.to_le_bytes()),
        Request::ReadRows(rows) => {
            let rows = device.read_rows(rows).map(|rows| rows.concat());
            with_body(rows, |entry| entry.to_le_bytes())
        }
        Request::Allocatable => plain(&device.allocatable_mib()),
        Request::Fill { contents, bytes } => plain(&device.fill(contents, *bytes)),
        Request::Compare(contents) => plain(&device.compare(contents)),
        Request::Invert { contents, down } => plain(&device.invert(contents, *down)),
        Request::Digests { block_bytes, key } => {
            let digests = device.digest_blocks(*block_bytes, key);
            with_body(digests, |digest: Word64| digest.0.to_le_bytes())
        }
        Request::Prove {
            block_bytes,
            key,
            threads,
        } => {
            let hashed = probe::memory::hash(device, *block_bytes, key, *threads);
            plain(&hashed.map(|hashed| proved.insert(hashed).root()))
        }
        Request::OpenBlocks(blocks) => {
            let opened = proved.as_ref().map(|hashed| hashed.open(blocks));
            plain(&opened.ok_or_else(not_open))
        }
        Request::RoomForStreams => plain(&device.room_for_streams()),
        Request::Copy { sample } => plain(&device.copy_mb_per_s(*sample)),
        Request::Rate { rate, sample } => plain(&device.rate_mb_per_s(*rate, *sample)),
        Request::Tensor(work) => plain(&device.tensor_products(work)),
        Request::Burn(work) => plain(&device.burn(work)),
        Request::Observe => plain(&device.observe()),
        Request::Xids => plain(&device.xids()),
        Request::Release => plain(&device.release()),
    }
}

fn with_body<T, const N: usize>(
    result: Result<Vec<T>, DeviceError>,
    bytes: impl Fn(T) -> [u8; N],
) -> io::Result<Frame> {
    match result {
        Ok(values) => {
            // Digests of all memory are tens of megabytes, and the agent waits for them.
            let mut body = Vec::with_capacity(values.len() * N);
            for value in values {
                body.extend_from_slice(&bytes(value));
            }
            Frame::of(&Ok::<(), DeviceError>(()), body)
        }
        Err(error) => Frame::of(&Err::<(), _>(error), Vec::new()),
    }
}
