//! How long the tree over the blocks of a GPU's memory takes: `tree BLOCKS THREADS`.

#![forbid(unsafe_code)]

use std::time::Instant;

use market::verification::Word64;
use verifier::memory;

fn main() {
    let numbers = std::env::args()
        .skip(1)
        .map(|text| text.parse::<usize>().ok());
    let numbers: Option<Vec<usize>> = numbers.collect();
    let Some([blocks, threads]) = numbers.as_deref() else {
        eprintln!("usage: tree BLOCKS THREADS");
        std::process::exit(2);
    };
    let digests: Vec<Word64> = (0..*blocks as u64).map(Word64).collect();
    let began = Instant::now();
    let root = memory::tree(&digests, *threads).root();
    println!("{root}: {} ms", began.elapsed().as_millis());
}
