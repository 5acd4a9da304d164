//! Answers calls from recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::exchange::Exchange;
use super::{Call, Purpose, Reply};
use crate::error::AdapterError;

/// A recording that answers calls.
#[derive(Debug)]
pub(super) enum Replay {
    /// The main price answer alone.
    File {
        body: Vec<u8>,
        /// The path that was requested first.
        asked: Mutex<Option<String>>,
    },
    /// All calls.
    Directory {
        exchanges: HashMap<(String, String), Vec<Exchange>>,
        /// Bare bodies by the name of their file.
        bodies: HashMap<String, Vec<u8>>,
        /// How often each call was answered.
        answered: Mutex<HashMap<(String, String), usize>>,
    },
}

impl Replay {
    pub(super) fn open(path: &Path) -> Result<Self, AdapterError> {
        if path.is_dir() {
            return Self::open_directory(path);
        }
        let body = read(path)?;
        if let Ok(exchange) = serde_json::from_slice::<Exchange>(&body) {
            return Ok(Self::File {
                body: exchange.reply().body,
                asked: Mutex::default(),
            });
        }
        Ok(Self::File {
            body,
            asked: Mutex::default(),
        })
    }

    fn open_directory(directory: &Path) -> Result<Self, AdapterError> {
        let unreadable = |error| bad(format!("{}: {error}", directory.display()));
        let entries = std::fs::read_dir(directory).map_err(unreadable)?;
        let mut files: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|file| {
                file.extension()
                    .is_some_and(|extension| extension == "json")
            })
            .collect();
        files.sort();
        if files.is_empty() {
            return Err(bad(format!("{} holds no .json file", directory.display())));
        }
        let mut exchanges: HashMap<_, Vec<Exchange>> = HashMap::new();
        let mut bodies = HashMap::new();
        for file in files {
            let body = read(&file)?;
            if let Ok(exchange) = serde_json::from_slice::<Exchange>(&body) {
                exchanges
                    .entry((exchange.method.clone(), exchange.path.clone()))
                    .or_default()
                    .push(exchange);
            } else if let Some(name) = file.file_stem() {
                bodies.insert(name.to_string_lossy().into_owned(), body);
            }
        }
        Ok(Self::Directory {
            exchanges,
            bodies,
            answered: Mutex::default(),
        })
    }

    /// The recorded reply to a call.
    pub(super) fn answer(&self, call: &Call) -> Result<Reply, AdapterError> {
        let not_recorded = || bad(format!("it does not hold {} {}", call.method, call.path));
        match self {
            Self::File { body, asked } => {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                let first = asked.get_or_insert_with(|| call.path.clone());
                if *first != call.path || call.purpose != Purpose::Read {
                    return Err(not_recorded());
                }
                Ok(Reply {
                    status: 200,
                    retry_after: None,
                    body: body.clone(),
                })
            }
            Self::Directory {
                exchanges,
                bodies,
                answered,
            } => {
                let key = (call.method.to_owned(), call.path.clone());
                if let Some(recorded) = exchanges.get(&key) {
                    let mut answered = answered.lock().unwrap_or_else(PoisonError::into_inner);
                    let count = answered.entry(key).or_default();
                    let exchange = &recorded[(*count).min(recorded.len() - 1)];
                    *count += 1;
                    return Ok(exchange.reply());
                }
                let body = bodies
                    .get(&name_of(&call.path))
                    .filter(|_| call.purpose == Purpose::Read);
                let body = body.ok_or_else(not_recorded)?.clone();
                Ok(Reply {
                    status: 200,
                    retry_after: None,
                    body,
                })
            }
        }
    }
}

/// The name of the file that holds the bare body of a path.
fn name_of(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    path.trim_matches('/').replace('/', "-")
}

fn read(path: &Path) -> Result<Vec<u8>, AdapterError> {
    std::fs::read(path).map_err(|error| bad(format!("{}: {error}", path.display())))
}

const fn bad(why: String) -> AdapterError {
    AdapterError::BadRecording(why)
}

#[cfg(test)]
mod tests {
    use super::super::Http;
    use super::*;
    use crate::Refusal;

    fn write(directory: &Path, name: &str, text: &str) {
        std::fs::write(directory.join(name), text).expect("a file");
    }

    fn refusal(_: &super::super::Answer) -> Refusal {
        Refusal::Request
    }

    #[tokio::test]
    async fn a_file_answers_the_first_path_asked_and_no_other() {
        let directory = tempfile::tempdir().expect("a directory");
        write(directory.path(), "prices.json", r#"{"data": 7}"#);
        let http = Http::replay(directory.path().join("prices.json")).expect("a recording");
        for _ in 0..2 {
            let prices: serde_json::Value = http
                .get("/prices")
                .await
                .and_then(|a| a.read(refusal))
                .expect("prices");
            assert_eq!(prices["data"], 7);
        }
        let error = http.get("/regions").await.expect_err("not recorded");
        assert!(matches!(error, AdapterError::BadRecording(_)), "{error}");
    }

    #[tokio::test]
    async fn a_directory_answers_one_call_in_the_order_of_its_files() {
        let directory = tempfile::tempdir().expect("a directory");
        for (name, word) in [("01.json", "booting"), ("02.json", "active")] {
            let exchange = format!(
                r#"{{"method": "GET", "path": "/i/1", "status": 200, "body": ["{word}"]}}"#
            );
            write(directory.path(), name, &exchange);
        }
        write(directory.path(), "some-list.json", "[1, 2]");
        let http = Http::replay(directory.path()).expect("a recording");
        for word in ["booting", "active", "active"] {
            let status: [String; 1] = http
                .get("/i/1")
                .await
                .and_then(|a| a.read(refusal))
                .expect("a status");
            assert_eq!(status, [word]);
        }
        let list: Vec<u8> = http
            .get("/some/list?limit=5")
            .await
            .and_then(|a| a.read(refusal))
            .expect("a list");
        assert_eq!(list, [1, 2]);
        assert!(http.get("/some/other").await.is_err());
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = Http::replay("/nonexistent/prices.json")
            .expect_err("absent")
            .to_string();
        assert!(error.contains("/nonexistent/prices.json"), "{error}");
    }
}
