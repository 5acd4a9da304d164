//! Libraries that the loader puts before a program's own, in every program: by its variables, or by its file.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The variables that name libraries for the loader to load first, and libraries that audit it.
/// Source: ld.so(8).
const VARIABLES: [&str; 2] = ["LD_PRELOAD", "LD_AUDIT"];
/// The file that names them for all programs of a system, under the root, and for this process's own.
const FILE: &str = "etc/ld.so.preload";
/// The environment with which this process was started, under the root: a library that is loaded first can
/// remove itself from the current environment, but not from this file.
const STARTED_WITH: &str = "proc/self/environ";
/// The most libraries in a report, and the most characters of each.
const MOST: usize = 64;
const LONGEST: usize = 256;

/// The libraries, by their names: each once, with invalid text made readable.
#[must_use]
pub fn libraries(root: &Path) -> Vec<String> {
    let now = VARIABLES.map(|name| std::env::var_os(name).unwrap_or_default());
    let file = |name: &str| fs::read(root.join(name)).unwrap_or_default();
    let started_with = file(STARTED_WITH);
    let values = now.iter().map(|value| value.as_bytes());
    // In a container that shows its host's files elsewhere, its own file applies to its programs.
    let (of_file, own) = (file(FILE), fs::read(Path::new("/").join(FILE)));
    let own = own.unwrap_or_default();
    let told = values
        .chain(set(&started_with))
        .chain([of_file.as_slice(), own.as_slice()])
        .flat_map(names);
    let mut all = Vec::new();
    for name in told {
        if all.len() < MOST && !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// The values of the variables among `NAME=value`, each ended by a zero.
fn set(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    let is_named = |entry: &[u8]| {
        let at = entry.iter().position(|byte| *byte == b'=')?;
        let (name, value) = (&entry[..at], at + 1);
        let is_one = VARIABLES.iter().any(|known| known.as_bytes() == name);
        is_one.then_some(value)
    };
    environment
        .split(|byte| *byte == 0)
        .filter_map(move |entry| Some(&entry[is_named(entry)?..]))
}

fn names(list: &[u8]) -> impl Iterator<Item = String> {
    let ends = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let names = list.split(ends).filter(|name| !name.is_empty());
    names.map(|name| {
        String::from_utf8_lossy(name)
            .chars()
            .take(LONGEST)
            .collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(started_with: &[u8], file: &[u8]) -> Vec<String> {
        let root = tempfile::tempdir().expect("a folder");
        for (name, content) in [(STARTED_WITH, started_with), (FILE, file)] {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, content).expect("written");
        }
        libraries(root.path())
    }

    #[test]
    fn what_is_loaded_into_every_program_is_named_once() {
        assert_eq!(told(b"", b""), Vec::<String>::new());
        assert_eq!(
            told(b"A=b\0LD_PRELOAD=/a.so:/b.so /a.so\0", b"/c.so\n/b.so\n"),
            ["/a.so", "/b.so", "/c.so"]
        );
        assert_eq!(told(b"LD_AUDIT=/watch.so\0", b""), ["/watch.so"]);
        assert_eq!(
            told(b"OLD_PRELOAD=/a.so\0LD_PRELOADED=/b.so\0LD_PRELOAD", b"\n"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn names_that_are_no_text_are_named_all_the_same() {
        assert_eq!(
            told(b"LD_PRELOAD=/\xff.so\0", b"/\xfe.so"),
            ["/\u{fffd}.so"]
        );
    }

    #[test]
    fn the_list_stays_short() {
        let many: Vec<String> = (0..100).map(|number| format!("/{number}.so")).collect();
        assert_eq!(told(b"", many.join("\n").as_bytes()).len(), MOST);
        assert_eq!(told(b"", &[b'a'; 5_000]), ["a".repeat(LONGEST)]);
    }
}
