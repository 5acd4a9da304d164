//! Lists the compiled kernels, so that all of them are part of the agent.

#![forbid(unsafe_code)]

use std::path::Path;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=kernels/cubins");
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let folder = Path::new(&root).join("kernels/cubins");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .expect("the compiled kernels are part of the sources")
        .map(|entry| {
            let name = entry.expect("readable").file_name();
            name.into_string().expect("their names are plain")
        })
        .collect();
    names.sort();
    let row = |name: &String| {
        format!(
            "({:?}, include_bytes!({:?})),\n",
            name.trim_end_matches(".zst"),
            folder.join(name)
        )
    };
    let rows: String = names.iter().map(row).collect();
    let target = Path::new(&env::var("OUT_DIR").expect("cargo sets it")).join("images.rs");
    fs::write(target, format!("&[\n{rows}]\n")).expect("written");
}
