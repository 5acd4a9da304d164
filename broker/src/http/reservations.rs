//! `/v1/reservations`: the tenant's claims, from hold to closed.

mod access;
mod change;
mod list;
mod nodes;
mod place;
mod rechecks;
mod reports;
mod show;

use chrono::{DateTime, Utc};
use market::demand::{Ceiling, Demand, DemandKind};
use market::ids::{BudgetId, PlanId, PrincipalId, ProjectId, QuoteId, ReservationId};
use market::money::Money;
use market::quote::{is_bounded, most_per_hour};
use market::reservation::{CloseReason, ReservationState};
use market::tags::{Attribution, Tags};
use market::verification::Level;
use serde::Serialize;
use store::StoreError;
use store::reservations::{RequestedAction, Reservation};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema};

pub(crate) use access::reservation_access;
pub(crate) use change::{
    cancel_reservation, confirm_reservation, confirm_reservations, extend_reservation,
    relabel_reservation, release_reservation,
};
pub(crate) use list::list_reservations;
pub(crate) use nodes::reservation_nodes;
pub(crate) use place::place_reservation;
pub(crate) use rechecks::{recheck_node, stop_rechecks};
pub(crate) use reports::{node_reports, report_node};
pub(crate) use show::show_reservation;

use super::error::ApiError;
use super::quotes::{LineView, PriceIs};
use crate::flow::reserve::ReserveError;

/// An action that the tenant requested, and that a worker has still to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WishWord {
    /// To end it before the hand-off.
    Cancel,
    /// To end it.
    Release,
}

/// A reservation.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct ReservationView {
    /// Its id.
    id: ReservationId,
    /// In which project.
    project_id: ProjectId,
    /// The principal who placed it, and who may change it beside administrators; `null` for those older than
    /// the record of it.
    created_by: Option<PrincipalId>,
    /// The tenant's name for it.
    name: String,
    /// The kind of its demand.
    kind: DemandKind,
    /// Where it stands.
    #[schema(schema_with = state_schema)]
    state: String,
    /// Why it ends or ended; `null` while it does not.
    reason: Option<CloseReason>,
    /// The demand.
    demand: Demand,
    /// The plan it comes from.
    plan_id: PlanId,
    /// The quote it took.
    quote_id: QuoteId,
    /// The items sold: at frozen rates, or under bounds until a later start is ordered.
    lines: Vec<LineView>,
    /// Whether their price is frozen.
    price_is: PriceIs,
    /// The most that all lines together cost for an hour, in US dollars; absent where their rates are frozen.
    #[serde(skip_serializing_if = "Option::is_none")]
    price_at_most_usd_hour: Option<Money>,
    /// Whether its nodes only make sense together, so that it is replaced as one.
    gang: bool,
    /// The limits that neither it nor a replacement may exceed.
    ceiling: Option<Ceiling>,
    /// How deeply its nodes prove themselves before they are handed over.
    verification: Level,
    /// Free tags.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    tags: Tags,
    /// The fixed fields for finance.
    attribution: Attribution,
    /// The later start: it is used and charged from then on. It moves with the run that it follows. `null`: it
    /// starts once it is confirmed.
    starts_at: Option<DateTime<Utc>>,
    /// The reservation after which it starts.
    follows: Option<ReservationId>,
    /// When it ends by itself; before the hand-off: when it is given up; `null` while that is open.
    window_end: Option<DateTime<Utc>>,
    /// When the hold lapses unless it is confirmed.
    hold_expires_at: DateTime<Utc>,
    /// When it was placed.
    created_at: DateTime<Utc>,
    /// When it was confirmed.
    confirmed_at: Option<DateTime<Utc>>,
    /// When it was first handed off.
    active_at: Option<DateTime<Utc>>,
    /// When it was closed.
    closed_at: Option<DateTime<Utc>>,
    /// The action that the tenant requested, and that is still to be done.
    wish: Option<WishWord>,
    /// When the tenant asked for the release: use after this is not charged.
    wish_at: Option<DateTime<Utc>>,
    /// The budget that was spent, so that it was ended; `null` when no budget ended it.
    stopped_by: Option<BudgetId>,
}

impl From<&Reservation> for ReservationView {
    fn from(row: &Reservation) -> Self {
        Self {
            id: row.id,
            project_id: row.project_id,
            created_by: row.created_by,
            name: row.name.clone(),
            kind: row.kind,
            state: row.state.as_str().to_owned(),
            reason: row.state.reason(),
            demand: row.demand.clone(),
            plan_id: row.plan_id,
            quote_id: row.quote_id,
            lines: row.lines.iter().filter_map(LineView::of).collect(),
            price_is: PriceIs::of(&row.lines),
            price_at_most_usd_hour: is_bounded(&row.lines)
                .then(|| most_per_hour(&row.lines, row.ceiling.as_ref()).ok())
                .flatten(),
            gang: row.gang,
            ceiling: row.ceiling.clone(),
            verification: row.verification,
            tags: row.tags.clone(),
            attribution: row.attribution.clone(),
            starts_at: row.starts_at,
            follows: row.follows.map(|follows| follows.run),
            window_end: row.window_end,
            hold_expires_at: row.hold_expires_at,
            created_at: row.created_at,
            confirmed_at: row.confirmed_at,
            active_at: row.active_at,
            closed_at: row.closed_at,
            wish: match row.wish {
                RequestedAction::None => None,
                RequestedAction::Cancel => Some(WishWord::Cancel),
                RequestedAction::Release => Some(WishWord::Release),
            },
            wish_at: row.wish_at,
            stopped_by: row.stopped_by,
        }
    }
}

/// Several reservations.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct SeveralReservations {
    /// Of a pair the run first; of a confirmation in the order of `ids`.
    #[schema(max_items = 10)]
    reservations: Vec<ReservationView>,
}

impl SeveralReservations {
    pub(crate) fn of(rows: &[Reservation]) -> Self {
        Self {
            reservations: rows.iter().map(ReservationView::from).collect(),
        }
    }
}

/// The words of the states, each once.
fn state_words() -> Vec<&'static str> {
    let mut words: Vec<&str> = ReservationState::all()
        .into_iter()
        .map(ReservationState::as_str)
        .collect();
    words.dedup();
    words
}

fn state_schema() -> RefOr<Schema> {
    ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Where it stands"))
        .enum_values(Some(state_words()))
        .into()
}

impl From<ReserveError> for ApiError {
    fn from(error: ReserveError) -> Self {
        use ReserveError as E;
        let said = error.to_string();
        match error {
            E::Plan(error) => error.into(),
            E::Quote(error) => error.into(),
            E::QuoteLapsed(_) => Self::quote_lapsed(said),
            E::QuoteTaken(_) => Self::quote_taken(said),
            E::OutOfStock(_) => Self::capacity_taken(said),
            E::CoolingDown(_) => Self::offer_cooling_down(said),
            E::OutsidePolicy { .. } => Self::outside_policy(said),
            E::ProviderClosed(conflict) => StoreError::from(conflict).into(),
            E::NothingMatches { .. } => Self::nothing_matches(said),
            E::NoSshKey => Self::no_ssh_key(said),
            E::TooManyLeases { .. } => Self::too_many_leases(said),
            E::AboveCeiling(_) => Self::above_ceiling(said),
            E::Tags(_)
            | E::Name
            | E::WhichProject
            | E::EndTooEarly(_)
            | E::TooDeep(_)
            | E::NotAPair(_)
            | E::StartsAtOnce => Self::invalid_body(said),
            E::RunFirst(_) => Self::wrong_state(said),
            E::TagsMissing(_) => Self::tags_required(said),
            E::UnknownProject(_) | E::UnknownSshKey(_) | E::UnknownRun(_) => {
                Self::unknown_reference(said)
            }
            E::Unknown(_) => Self::not_found(said),
            E::Illegal { .. } | E::OpenEnd | E::WindowOver(_) => Self::wrong_state(said),
            E::HoldLapsed(_) => Self::hold_lapsed(said),
            E::OneOfSeveral { refusal, .. } => Self::from(*refusal).with_detail(said),
            E::Store(error) => error.into(),
        }
    }
}
