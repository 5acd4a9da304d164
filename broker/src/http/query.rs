//! The query of a call that is about a tenant.

use std::future::{Ready, ready};
use std::ops::Deref;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest, web};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::error::ApiError;

/// The query of a call without `tenant`: the tenant was settled with the caller.
#[derive(Debug)]
pub(crate) struct Query<T>(T);

impl<T> Deref for Query<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: DeserializeOwned> FromRequest for Query<T> {
    type Error = actix_web::Error;
    type Future = Ready<Result<Self, actix_web::Error>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let is_own = |part: &&str| part.split('=').next() != Some("tenant");
        let own: Vec<&str> = request.query_string().split('&').filter(is_own).collect();
        let query = web::Query::<T>::from_query(&own.join("&"));
        let query = query.map(|query| Self(query.into_inner()));
        ready(query.map_err(|error| unreadable("query", &error)))
    }
}

/// The query of a call that takes none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoParameters {}

/// The refusal of a parameter that cannot be read.
pub(super) fn unreadable(place: &str, error: &dyn std::fmt::Display) -> actix_web::Error {
    ApiError::invalid_parameter(format!("the {place} cannot be read: {error}")).into()
}

#[cfg(test)]
mod tests {
    use actix_web::test::TestRequest;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        limit: Option<u32>,
        tenant_name: Option<String>,
    }

    fn read<T: DeserializeOwned>(query: &str) -> Result<Query<T>, actix_web::Error> {
        let request = TestRequest::with_uri(&format!("/v1/projects{query}")).to_http_request();
        Query::from_request(&request, &mut Payload::None).into_inner()
    }

    #[test]
    fn the_tenant_is_taken_out_and_nothing_else() {
        let asked: Query<Asked> =
            read("?tenant=ten_1&limit=3&tenant_name=a%26tenant").expect("it fits");
        assert_eq!(
            (asked.limit, asked.tenant_name.as_deref()),
            (Some(3), Some("a&tenant"))
        );
        read::<NoParameters>("").expect("nothing");
        read::<NoParameters>("?tenant=ten_1").expect("nothing of its own");
    }

    #[test]
    fn what_does_not_belong_is_refused() {
        for query in ["?colour=red", "?limit=few", "?tenants=ten_1"] {
            read::<Asked>(query).expect_err(query);
        }
        read::<NoParameters>("?limit=3").expect_err("it takes none");
    }
}
