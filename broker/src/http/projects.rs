//! `/v1/projects`: the projects by which a tenant splits its reservations and costs.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::ids::ProjectId;
use serde::{Deserialize, Serialize};
use store::tenants::Project;

use super::access::{ReadIdentity, WriteIdentity};
use super::auth::{InProjects, May};
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use super::names::check_name;
use super::page::{Cursors, Page, WhichPage};
use super::query::Query;
use crate::platform::app::Broker;

/// A project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProjectView {
    /// Its id.
    id: ProjectId,
    /// Its name, which no other project of the tenant has.
    name: String,
    /// When it was made.
    created_at: DateTime<Utc>,
}

impl From<&Project> for ProjectView {
    fn from(project: &Project) -> Self {
        Self {
            id: project.id,
            name: project.name.clone(),
            created_at: project.created_at,
        }
    }
}

/// A project to make.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MakeProject {
    /// Its name.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
}

/// Lists the tenant's projects, the newest first.
#[utoipa::path(
    tag = "identity",
    params(WhichPage),
    responses((status = 200, description = "A page of projects", body = Page<ProjectView>))
)]
#[get("/v1/projects")]
pub(crate) async fn list_projects(
    broker: web::Data<Broker>,
    who: May<ReadIdentity, InProjects>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<ProjectView>>, ApiError> {
    let mut projects = broker.store().tenants().projects(who.tenant).await?;
    projects.retain(|project| who.grant.projects.has(project.id));
    projects.sort_by_key(|project| std::cmp::Reverse(project.id));
    let cursors = Cursors::of(broker.keys(), "projects", &who.tenant);
    let page = cursors.page_of(&projects, &query, |row| row.id)?;
    Ok(web::Json(page.map(ProjectView::from)))
}

/// Makes a project.
#[utoipa::path(
    tag = "identity",
    params(IdempotencyHeader),
    request_body = MakeProject,
    responses((status = 201, description = "The project", body = ProjectView))
)]
#[post("/v1/projects")]
pub(crate) async fn make_project(
    broker: web::Data<Broker>,
    who: May<WriteIdentity>,
    request: HttpRequest,
    body: Body<MakeProject>,
) -> Result<HttpResponse, ApiError> {
    let MakeProject { name } = body.value;
    check_name("name", &name)?;
    let render = |project: &Project| answer(StatusCode::CREATED, &ProjectView::from(project));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let id = ProjectId::from_uuid(broker.new_uuid());
        let tenants = broker.store().tenants();
        let made = tenants
            .add_project(
                who.tenant,
                &name,
                id,
                broker.now(),
                completion(effect, &render),
            )
            .await?;
        Ok(render(&made))
    })
    .await
}
