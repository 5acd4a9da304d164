//! Every route. A route outside this table does not exist. Every route in it is documented, because the
//! OpenAPI document is collected from it.

use actix_web::dev::HttpServiceFactory;
use utoipa_actix_web::OpenApiFactory;
use utoipa_actix_web::service_config::ServiceConfig;

use super::{
    agents, api_keys, attestations, audit, balance, budgets, cancelled_orders, commitments,
    credits, docs, events, gpus, members, metrics, offers, plans, plumbing, projects,
    provider_accounts, providers, quotes, reports, required_tags, reservations, spending_limits,
    ssh_keys, tokens, verifications, webhook_endpoints,
};

/// Puts the table in place. The router tries one route after the other, a path that is written out by
/// comparing it, one with parameters by a regular expression: so those written out come first.
pub(super) fn routes(config: &mut ServiceConfig<'_>) {
    for with_parameters in [false, true] {
        table(&mut Part {
            config,
            with_parameters,
        });
    }
}

/// The routes of the table whose path has parameters, or those whose path has none.
struct Part<'part, 'config> {
    config: &'part mut ServiceConfig<'config>,
    with_parameters: bool,
}

impl Part<'_, '_> {
    /// Puts a route in place where it is of this part.
    fn service(&mut self, route: impl HttpServiceFactory + OpenApiFactory + 'static) -> &mut Self {
        let has_parameters = route.paths().paths.keys().any(|path| path.contains('{'));
        if has_parameters == self.with_parameters {
            self.config.service(route);
        }
        self
    }
}

/// The table.
fn table(part: &mut Part<'_, '_>) {
    part
        // For machines that run or read the service.
        .service(plumbing::healthz)
        .service(plumbing::readyz)
        .service(metrics::show_metrics)
        .service(plumbing::openapi_json)
        .service(docs::docs)
        .service(plumbing::jwks)
        // Supply, readable without login.
        .service(gpus::list_gpus)
        .service(gpus::gpu_index)
        .service(offers::list_offers)
        .service(offers::show_offer)
        .service(offers::offer_history)
        .service(providers::list_providers)
        .service(providers::show_provider)
        .service(providers::add_provider)
        .service(providers::change_provider)
        .service(providers::check_provider)
        .service(providers::show_quarantine)
        .service(providers::quarantine_provider)
        .service(providers::end_quarantine)
        // The tenants' own capacity.
        .service(commitments::list_commitments)
        .service(commitments::add_commitment)
        .service(commitments::show_commitment)
        .service(commitments::delete_commitment)
        .service(provider_accounts::list_provider_accounts)
        .service(provider_accounts::add_provider_account)
        .service(provider_accounts::show_provider_account)
        .service(provider_accounts::delete_provider_account)
        // From a demand to a reservation.
        .service(plans::make_plan)
        .service(plans::show_plan)
        .service(plans::show_plan_offer)
        .service(quotes::make_quote)
        .service(quotes::show_quote)
        .service(reservations::confirm_reservations)
        .service(reservations::place_reservation)
        .service(reservations::list_reservations)
        .service(reservations::show_reservation)
        .service(reservations::relabel_reservation)
        .service(reservations::confirm_reservation)
        .service(reservations::cancel_reservation)
        .service(reservations::release_reservation)
        .service(reservations::extend_reservation)
        .service(reservations::reservation_nodes)
        .service(reservations::report_node)
        .service(reservations::node_reports)
        .service(reservations::recheck_node)
        .service(reservations::stop_rechecks)
        .service(reservations::reservation_access)
        // Events.
        .service(events::list_events)
        .service(events::reservation_events)
        .service(webhook_endpoints::list_webhook_endpoints)
        .service(webhook_endpoints::add_webhook_endpoint)
        .service(webhook_endpoints::show_webhook_endpoint)
        .service(webhook_endpoints::change_webhook_endpoint)
        .service(webhook_endpoints::delete_webhook_endpoint)
        .service(webhook_endpoints::rotate_webhook_secret)
        .service(webhook_endpoints::test_webhook_endpoint)
        .service(webhook_endpoints::list_webhook_deliveries)
        .service(webhook_endpoints::redeliver_webhook)
        // Proof.
        .service(verifications::take_step)
        .service(verifications::measure_together)
        .service(attestations::show_attestation)
        .service(agents::list_agents)
        .service(agents::agent_file)
        // Money.
        .service(reports::cost_report)
        .service(cancelled_orders::cancelled_orders)
        .service(credits::list_credits)
        .service(credits::grant_credit)
        .service(balance::show_balance)
        .service(spending_limits::show_spending_limits)
        .service(spending_limits::change_spending_limits)
        .service(required_tags::show_required_tags)
        .service(required_tags::require_tags)
        .service(budgets::list_budgets)
        .service(budgets::add_budget)
        .service(budgets::show_budget)
        .service(budgets::change_budget)
        .service(budgets::delete_budget)
        // Callers' credentials.
        .service(ssh_keys::list_ssh_keys)
        .service(ssh_keys::add_ssh_key)
        .service(ssh_keys::delete_ssh_key)
        .service(tokens::trade_token)
        .service(api_keys::list_api_keys)
        .service(api_keys::make_api_key)
        .service(api_keys::rotate_api_key)
        .service(api_keys::revoke_api_key)
        .service(members::list_members)
        .service(projects::list_projects)
        .service(projects::make_project)
        // The audit log.
        .service(audit::list_audit);
}
