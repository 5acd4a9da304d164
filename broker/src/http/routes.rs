//! Every route. What is not in this table does not exist; what is in it is documented, because the
//! OpenAPI document is collected from it.

use utoipa_actix_web::service_config::ServiceConfig;

use super::{
    agents, api_keys, attestations, gpus, offers, plans, plumbing, providers, quotes, reports,
    reservations, ssh_keys, tokens, verifications,
};

/// The table.
pub(super) fn routes(table: &mut ServiceConfig<'_>) {
    table
        // For machines that run or read the service.
        .service(plumbing::healthz)
        .service(plumbing::readyz)
        .service(plumbing::openapi_json)
        .service(plumbing::jwks)
        // Supply, readable without login.
        .service(gpus::list_gpus)
        .service(gpus::gpu_index)
        .service(offers::list_offers)
        .service(offers::show_offer)
        .service(offers::offer_history)
        .service(providers::list_providers)
        // From a demand to a reservation.
        .service(plans::make_plan)
        .service(plans::show_plan)
        .service(quotes::make_quote)
        .service(quotes::show_quote)
        .service(reservations::place_reservation)
        .service(reservations::list_reservations)
        .service(reservations::show_reservation)
        .service(reservations::relabel_reservation)
        .service(reservations::confirm_reservation)
        .service(reservations::cancel_reservation)
        .service(reservations::release_reservation)
        .service(reservations::extend_reservation)
        .service(reservations::reservation_nodes)
        .service(reservations::reservation_access)
        // Proof.
        .service(verifications::take_step)
        .service(attestations::show_attestation)
        .service(agents::agent_file)
        // Money.
        .service(reports::cost_report)
        // Who may call.
        .service(ssh_keys::list_ssh_keys)
        .service(ssh_keys::add_ssh_key)
        .service(ssh_keys::delete_ssh_key)
        .service(tokens::trade_token)
        .service(api_keys::list_api_keys)
        .service(api_keys::make_api_key)
        .service(api_keys::revoke_api_key);
}
