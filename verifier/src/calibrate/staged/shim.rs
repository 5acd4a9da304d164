//! The library that lies, compiled where it is used.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SOURCE: &str = include_str!("shim.c");

/// Compiles it into a folder, unless it is there, and gives its file.
///
/// Errors: why there is none, in words.
pub fn build(folder: &Path) -> Result<PathBuf, String> {
    let library = std::path::absolute(folder.join("shim.so")).map_err(|why| why.to_string())?;
    if library.exists() {
        return Ok(library);
    }
    let mut compiler = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-x", "c", "-", "-ldl", "-o"])
        .arg(&library)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|why| format!("no C compiler (cc) makes the library here: {why}"))?;
    let mut input = compiler.stdin.take().ok_or("cc takes no source")?;
    let written = input.write_all(SOURCE.as_bytes());
    drop(input);
    let output = compiler.wait_with_output().map_err(|why| why.to_string())?;
    if written.is_ok() && output.status.success() {
        Ok(library)
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("cc does not make the library: {}", said.trim()))
    }
}
