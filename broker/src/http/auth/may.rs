//! What a handler asks of its caller, by the type of its argument: a right, and whether a key will do
//! that works in some projects only.

use std::future::Future;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpRequest};
use market::identity::Projects;

use super::{Principal, identify};
use crate::http::access::{Right, allow};
use crate::http::error::ApiError;

/// What a handler has to do with projects.
pub(crate) trait Breadth: 'static {
    /// Whether a key may call that works in some projects only.
    const IN_PROJECTS: bool;
}

/// The handler is about the tenant as a whole: a key that works in some projects only is refused,
/// also where nobody thought of it.
#[derive(Debug)]
pub(crate) enum WholeTenant {}

/// The handler shows and touches nothing outside the caller's [`Principal::reach`].
#[derive(Debug)]
pub(crate) enum InProjects {}

impl Breadth for WholeTenant {
    const IN_PROJECTS: bool = false;
}

impl Breadth for InProjects {
    const IN_PROJECTS: bool = true;
}

/// A caller who has the right `R`, to be used as broadly as `B` says.
#[derive(Debug)]
pub(crate) struct May<R, B = WholeTenant> {
    principal: Arc<Principal>,
    right: PhantomData<(R, B)>,
}

impl<R, B> Deref for May<R, B> {
    type Target = Principal;

    fn deref(&self) -> &Principal {
        &self.principal
    }
}

impl<R: Right, B: Breadth> FromRequest for May<R, B> {
    type Error = ApiError;
    type Future = Pin<Box<dyn Future<Output = Result<Self, ApiError>>>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let principal = identify(&request).await?;
            allow(&principal.grant, R::FAMILY, R::SCOPE)?;
            if !B::IN_PROJECTS && principal.grant.projects != Projects::All {
                return Err(ApiError::access_denied(
                    "this is of the tenant as a whole, and the key works in some of its projects only; use another key",
                ));
            }
            Ok(Self {
                principal,
                right: PhantomData,
            })
        })
    }
}
