//! Libraries of the vendor beside the driver: looked for by name when they are wanted; nothing is built against
//! them.

use std::ffi::c_int;

use libloading::{Library, Symbol};

const SUCCESS: c_int = 0;

/// Loads the first library of these names that exists.
pub(super) fn first(names: &[&'static str]) -> Option<(&'static str, Library)> {
    names.iter().find_map(|name| {
        // SAFETY: it is the vendor's library, whose start-up code the node's owner installed to be run.
        let library = unsafe { Library::new(*name) }.ok()?;
        Some((*name, library))
    })
}

pub(super) fn symbol<'a, T>(library: &'a Library, name: &str) -> Result<Symbol<'a, T>, String> {
    // SAFETY: the types that are asked for are those of the functions' documentation.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| format!("the library has no {name}"))
}

pub(super) fn done(call: &str, answer: c_int) -> Result<(), String> {
    match answer {
        SUCCESS => Ok(()),
        status => Err(format!("{call} answered {status}")),
    }
}
