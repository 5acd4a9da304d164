//! The demands of a handler on its caller, by the type of its argument: a right, and whether it accepts a key
//! that works in some projects only, or is bound to one provider.

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

/// Whether a handler accepts keys limited to projects or to a single provider.
pub(crate) trait Breadth: 'static {
    /// Whether a key may call that works in some projects only.
    const IN_PROJECTS: bool;
    /// Whether a key may call that is bound to one provider.
    const OF_PROVIDER: bool;
}

/// The handler is about the tenant as a whole: a key that works in some projects only, or is bound to
/// one provider, is refused, also where nobody thought of it.
#[derive(Debug)]
pub(crate) enum WholeTenant {}

/// The handler shows and touches nothing outside the caller's [`Principal::reach`].
#[derive(Debug)]
pub(crate) enum InProjects {}

/// The handler is about providers, which are in no project, and shows a key that is bound to one
/// nothing of the others ([`Principal::grant`]).
#[derive(Debug)]
pub(crate) enum OfProviders {}

impl Breadth for WholeTenant {
    const IN_PROJECTS: bool = false;
    const OF_PROVIDER: bool = false;
}

impl Breadth for InProjects {
    const IN_PROJECTS: bool = true;
    const OF_PROVIDER: bool = false;
}

impl Breadth for OfProviders {
    const IN_PROJECTS: bool = true;
    const OF_PROVIDER: bool = true;
}

/// A caller who has the right `R`, to be used as broadly as `B` allows.
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
            if !B::OF_PROVIDER && principal.grant.provider.is_some() {
                return Err(ApiError::access_denied(
                    "the key is bound to one provider, and this is not of it alone; use another key",
                ));
            }
            Ok(Self {
                principal,
                right: PhantomData,
            })
        })
    }
}
