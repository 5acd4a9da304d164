//! The table of all calls that the client makes. A test checks that the service documents each of
//! them.

use std::fmt::Display;

macro_rules! routes {
    ($($name:ident, $method:literal, $path:literal;)+) => {
        /// One method of one path.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Route {
            $(#[doc = concat!("`", $method, " ", $path, "`")] $name,)+
        }

        impl Route {
            /// Every call.
            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),+];

            /// The HTTP method.
            pub(super) const fn method(self) -> &'static str {
                match self { $(Self::$name => $method,)+ }
            }

            /// The path as it is documented.
            const fn template(self) -> &'static str {
                match self { $(Self::$name => $path,)+ }
            }
        }
    };
}

routes! {
    ListOffers, "GET", "/v1/offers";
    ShowOffer, "GET", "/v1/offers/{id}";
    MakePlan, "POST", "/v1/plans";
    ShowPlan, "GET", "/v1/plans/{id}";
    MakeQuote, "POST", "/v1/quotes";
    ShowQuote, "GET", "/v1/quotes/{id}";
    PlaceReservation, "POST", "/v1/reservations";
    ListReservations, "GET", "/v1/reservations";
    ShowReservation, "GET", "/v1/reservations/{id}";
    ConfirmReservation, "POST", "/v1/reservations/{id}/confirm";
    ConfirmReservations, "POST", "/v1/reservations/confirm";
    CancelReservation, "POST", "/v1/reservations/{id}/cancel";
    ReleaseReservation, "POST", "/v1/reservations/{id}/release";
    ExtendReservation, "POST", "/v1/reservations/{id}/extend";
    ReservationNodes, "GET", "/v1/reservations/{id}/nodes";
    ReportNode, "POST", "/v1/reservations/{id}/nodes/{n}/report";
    RecheckNode, "POST", "/v1/reservations/{id}/nodes/{n}/recheck";
    StopRechecks, "DELETE", "/v1/reservations/{id}/nodes/{n}/recheck";
    ShowAttestation, "GET", "/v1/attestations/{id}";
    ListAgents, "GET", "/v1/agents";
    ReservationAccess, "GET", "/v1/reservations/{id}/access";
    ReservationEvents, "GET", "/v1/reservations/{id}/events";
    CostReport, "GET", "/v1/reports/costs";
    CancelledOrders, "GET", "/v1/reports/cancelled-orders";
    ListSshKeys, "GET", "/v1/ssh-keys";
    AddSshKey, "POST", "/v1/ssh-keys";
    DeleteSshKey, "DELETE", "/v1/ssh-keys/{id}";
    ListCommitments, "GET", "/v1/commitments";
    AddCommitment, "POST", "/v1/commitments";
    RemoveCommitment, "DELETE", "/v1/commitments/{id}";
    ListProjects, "GET", "/v1/projects";
    MakeProject, "POST", "/v1/projects";
    TradeToken, "POST", "/v1/tokens";
}

impl Route {
    /// The path for one thing. Our ids have no characters that a path must escape.
    pub(super) fn of(self, id: &impl Display) -> Target {
        Target {
            route: self,
            path: self.template().replace("{id}", &id.to_string()),
        }
    }

    /// The path of a route without an id.
    pub(super) fn all(self) -> Target {
        Target {
            route: self,
            path: self.template().to_owned(),
        }
    }
}

/// A route with its path filled in.
#[derive(Debug, Clone)]
pub(super) struct Target {
    /// Which route.
    pub(super) route: Route,
    /// The path, from `/v1` on.
    pub(super) path: String,
}

impl Target {
    /// The path for one node of the thing.
    pub(super) fn node(self, number: u32) -> Self {
        let path = self.path.replace("{n}", &number.to_string());
        Self { path, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::document;

    #[test]
    fn every_call_of_the_client_is_documented_by_the_service() {
        let document = document();
        for route in Route::ALL {
            let path = &document.value()["paths"][route.template()];
            let operation = &path[route.method().to_lowercase()];
            assert!(operation.is_object(), "{route:?} is not served");
        }
    }
}
