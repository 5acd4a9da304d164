//! The finished OpenAPI document, as it is served and as handlers look things up in it.

use serde_json::Value;

/// The finished document.
#[derive(Debug)]
pub struct Document {
    value: Value,
    text: String,
}

impl Document {
    /// The document with this content, whose names are in order.
    pub(super) fn new(value: Value) -> Self {
        let text = format!("{value:#}\n");
        Self { value, text }
    }

    /// The document as JSON text, indented, its names in order.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The document.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The id of the operation behind a method and the pattern of a path.
    pub(super) fn operation(&self, method: &str, pattern: &str) -> Option<&str> {
        self.value["paths"][pattern][method.to_lowercase()]["operationId"].as_str()
    }

    /// Every path with its methods.
    pub(super) fn paths(&self) -> impl Iterator<Item = (&str, Vec<String>)> {
        self.value["paths"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(path, item)| {
                let methods = item
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(method, _)| method.to_uppercase());
                (path.as_str(), methods.collect())
            })
    }
}
