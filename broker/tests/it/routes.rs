//! The routes as the document lists them, for tests that walk all of them.

use std::fmt;

use broker::http::document;
use serde_json::Value;

/// One method of one path.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) is_public: bool,
    pub(crate) takes_body: bool,
    pub(crate) takes_parameters: bool,
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl Route {
    /// The path with parameters that can be read and name nothing.
    pub(crate) fn filled(&self) -> String {
        self.path
            .split('/')
            .map(|part| match part {
                "{n}" => "1".to_owned(),
                "{gpu}" => "H100-SXM".to_owned(),
                "{delivery}" => format!("whd_{}", "0".repeat(32)),
                "{offer}" => format!("off_{}", "0".repeat(32)),
                "{sha256}" => "0".repeat(64),
                "{id}" => format!("{}{}", self.prefix(), "0".repeat(32)),
                other => other.to_owned(),
            })
            .collect::<Vec<_>>()
            .join("/")
    }

    /// The path with parameters that cannot be read.
    pub(crate) fn filled_with_nonsense(&self) -> String {
        self.path
            .split('/')
            .map(|part| {
                if part.starts_with('{') {
                    "non%20sense"
                } else {
                    part
                }
            })
            .collect::<Vec<_>>()
            .join("/")
    }

    fn prefix(&self) -> &'static str {
        let prefixes = [
            ("/v1/offers", "off_"),
            ("/v1/plans", "pln_"),
            ("/v1/quotes", "quo_"),
            ("/v1/reservations", "rsv_"),
            ("/v1/ssh-keys", "ssh_"),
            ("/v1/api-keys", "key_"),
            ("/v1/verifications", "ver_"),
            ("/v1/attestations", "att_"),
            ("/v1/webhook-endpoints", "whe_"),
            ("/v1/budgets", "bud_"),
            ("/v1/commitments", "cmt_"),
            ("/v1/provider-accounts", "pac_"),
            ("/v1/providers", "x"),
        ];
        let found = prefixes
            .iter()
            .find(|(start, _)| self.path.starts_with(start));
        found.expect("a new kind of id is named here").1
    }
}

/// Every route.
pub(crate) fn all() -> Vec<Route> {
    let document = document();
    let paths = document.value()["paths"].as_object().expect("paths");
    let mut routes = Vec::new();
    for (path, item) in paths {
        for (method, operation) in item.as_object().expect("an item") {
            routes.push(Route {
                method: method.to_uppercase(),
                path: path.clone(),
                is_public: operation["security"] == serde_json::json!([{}]),
                takes_body: operation.get("requestBody").is_some(),
                takes_parameters: path.contains('{'),
            });
        }
    }
    assert!(routes.len() > 30, "the document lists all routes");
    routes
}

/// Every path with the methods that it takes.
pub(crate) fn paths() -> Vec<(String, Vec<String>)> {
    let document = document();
    let paths = document.value()["paths"].as_object().expect("paths");
    let methods = |item: &Value| {
        item.as_object()
            .expect("an item")
            .keys()
            .map(|m| m.to_uppercase())
            .collect()
    };
    paths
        .iter()
        .map(|(path, item)| (path.clone(), methods(item)))
        .collect()
}
