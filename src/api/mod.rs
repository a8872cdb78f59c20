//! Floor 3: how the world asks and tells.
//!
//! Why thin: a handler checks what came in, proposes a command or asks the state, and writes down the answer. Rules live
//! below; an API that held one would have to be asked by every other door too.
//!
//! Every route is made with `routes!`, so none can be missing from /openapi.json.

mod aftermath;
mod agents;
mod anew;
pub mod auth;
mod batches;
mod callback_secrets;
mod callbacks;
mod delivery;
mod departures;
mod envelope;
pub mod error;
mod explain;
pub mod extract;
mod framing;
mod health;
mod history;
pub mod late_schemas;
mod leftover;
mod list;
mod machine;
pub mod metrics;
pub mod near;
pub mod openapi;
mod policies;
mod render;
mod replays;
mod reports;
pub mod room;
pub mod schemas;
pub mod server;
#[cfg(test)]
mod server_tests;
mod socket;
mod status;
mod submission;
mod submit;
mod task_view;
mod tasks;
mod text;
pub mod timeline;
mod tokens;
mod unborne;
pub mod wire;
pub mod words;
mod work;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use utoipa_axum::router::OpenApiRouter;

use crate::ledger::handle::Ledger;
use crate::scheduler::outbound::alerts::board::Board;
use crate::scheduler::outbound::guard::Guard;
use crate::scheduler::outbound::secrets::Secrets;
use crate::scheduler::trainer::Meanings;

use auth::token::DevToken;
use metrics::Metrics;
use schemas::SchemaCache;

/// What the API is told at the start.
#[derive(Debug, Clone)]
pub struct Options {
    /// The development token, if this is a development hub.
    pub dev: Option<DevToken>,
    /// Open connections at most; more wait in the kernel's queue. Default 10,000.
    pub max_connections: usize,
    /// A request's head must have arrived by then; an idle connection is closed after it. Default 30 s.
    pub header_timeout: Duration,
    /// A request's body must have arrived by then; a caller that takes none of its answer for so long is cut off.
    /// Default 60 s.
    pub body_timeout: Duration,
    /// Bytes of request bodies in memory at a time, over the whole hub. 256 MiB.
    pub body_memory: usize,
    /// At a stop, open calls may finish within this. Default 10 s.
    pub shutdown_grace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            dev: None,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(60),
            body_memory: 256 << 20,
            shutdown_grace: Duration::from_secs(10),
        }
    }
}

/// What the hub gives the API at the start.
pub struct Parts {
    /// The way to everything that is known.
    pub ledger: Ledger,
    /// What the API was told at the start.
    pub options: Options,
    /// What is counted.
    pub metrics: Metrics,
    /// Signing secrets of callbacks.
    pub secrets: Arc<Secrets>,
    /// Judges the addresses that callers name.
    pub guard: Arc<Guard>,
    /// How telling alerts goes; `None` if they go nowhere.
    pub alerts: Option<Arc<Board>>,
    /// What texts mean.
    pub meanings: Arc<Meanings>,
}

/// What every handler needs: cheap to clone, for axum clones it for each call.
#[derive(Clone)]
pub struct App(Arc<Shared>);

/// Everything that calls share.
pub struct Shared {
    /// The way to everything that is known.
    pub ledger: Ledger,
    /// What the API was told at the start.
    pub options: Options,
    /// What is counted.
    pub metrics: Metrics,
    /// Signing secrets of callbacks.
    pub secrets: Arc<Secrets>,
    /// Judges the addresses that callers name.
    pub guard: Arc<Guard>,
    /// How telling alerts goes.
    pub alerts: Option<Arc<Board>>,
    /// What texts mean.
    pub meanings: Arc<Meanings>,
    /// Compiled schemas.
    pub schemas: Arc<SchemaCache>,
    /// For the bodies of all calls.
    pub room: room::Room,
    /// Who is selecting for a plan.
    pub(in crate::api) selections: replays::turn::Turns,
    /// Patches of plans that were looked at.
    pub(in crate::api) patches: replays::patches::Patches,
}

impl Deref for App {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl App {
    /// Puts the parts together.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { ledger, options, metrics, secrets, guard, alerts, meanings } = parts;
        let schemas = Arc::new(SchemaCache::default());
        let room = room::Room::new(options.body_memory);
        let (selections, patches) = (replays::turn::Turns::default(), replays::patches::Patches::default());
        let shared =
            Shared { ledger, options, metrics, secrets, guard, alerts, meanings, schemas, room, selections, patches };
        Self(Arc::new(shared))
    }
}

/// Every route of the API, with its part of the OpenAPI document. A resource has a `routes()` of its own.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(agents::routes())
        .merge(tasks::routes())
        .merge(batches::routes())
        .merge(work::routes())
        .merge(history::routes())
        .merge(explain::routes())
        .merge(replays::routes())
        .merge(callbacks::routes())
        .merge(tokens::routes())
        .merge(callback_secrets::routes())
        .merge(policies::routes())
        .merge(health::routes())
        .merge(status::routes())
        .merge(machine::routes())
        .merge(openapi::routes())
}

/// The whole API as one service.
pub fn router(app: App) -> axum::Router {
    let (router, _document) = routes().split_for_parts();
    enveloped(router, app)
}

/// Routes with what stands around all of them.
fn enveloped(routes: axum::Router<App>, app: App) -> axum::Router {
    routes
        .fallback(error::no_such_path)
        .method_not_allowed_fallback(error::no_such_method)
        .layer(axum::middleware::from_fn_with_state(app.clone(), envelope::wrap))
        .with_state(app)
}
