//! Requests that no route takes: an unknown path, or a known one with another method.

use std::collections::HashSet;
use std::sync::Arc;

use actix_web::dev::ResourceDef;
use actix_web::{HttpRequest, HttpResponse, web};

use super::document::Document;
use super::error::ApiError;

/// The known paths.
#[derive(Debug)]
pub(super) struct KnownPaths {
    /// Each with its methods.
    patterns: Vec<(ResourceDef, String)>,
    /// Those that have no parameters.
    written_out: HashSet<Arc<str>>,
}

impl KnownPaths {
    /// The paths of the document.
    pub(super) fn of(document: &Document) -> Self {
        let known = document
            .paths()
            .map(|(path, methods)| (ResourceDef::new(path), methods.join(", ")));
        let paths = document.paths().map(|(path, _)| path);
        Self {
            patterns: known.collect(),
            written_out: paths
                .filter(|path| !path.contains('{'))
                .map(Arc::from)
                .collect(),
        }
    }

    /// A path that is a known one as it stands, which is found without a look at the others.
    pub(super) fn written_out(&self, path: &str) -> Option<Arc<str>> {
        self.written_out.get(path).cloned()
    }

    fn methods_of(&self, path: &str) -> Option<&str> {
        let mut patterns = self.patterns.iter();
        let known = patterns.find(|(pattern, _)| pattern.is_match(path));
        known.map(|(_, methods)| methods.as_str())
    }
}

/// Answers 405 with `Allow` for a known path, 404 otherwise.
pub(super) async fn unrouted(
    request: HttpRequest,
    known: web::Data<KnownPaths>,
) -> Result<HttpResponse, ApiError> {
    match known.methods_of(request.path()) {
        Some(methods) => Err(ApiError::method_not_allowed(format!(
            "{} is not taken here; use {methods}",
            request.method()
        ))
        .with_allow(methods.to_owned())),
        None => Err(ApiError::route_not_found(
            "there is nothing at this path; GET /openapi.json lists every route",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_path_names_its_methods_and_an_unknown_one_none() {
        let known = KnownPaths::of(&crate::http::document());
        assert_eq!(known.methods_of("/v1/ssh-keys"), Some("GET, POST"));
        assert_eq!(
            known.methods_of("/v1/reservations/anything"),
            Some("GET, PATCH")
        );
        for unknown in [
            "/",
            "/v1",
            "/v1/ssh-keys/",
            "/v1/reservations/a/b",
            "/V1/ssh-keys",
        ] {
            assert_eq!(known.methods_of(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn only_a_path_without_parameters_is_known_as_it_stands() {
        let known = KnownPaths::of(&crate::http::document());
        assert_eq!(known.written_out("/v1/plans").as_deref(), Some("/v1/plans"));
        for other in ["/v1/plans/", "/v1/plans/{id}", "/v1/plans/pln_1", "/v1"] {
            assert_eq!(known.written_out(other), None, "{other}");
        }
    }
}
