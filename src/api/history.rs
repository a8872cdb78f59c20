//! Histories and the live feed: the ledger read aloud, filtered by namespace.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::ledger::handle::{Ledger, Published, Unavailable};
use crate::ledger::ids::{Namespace, ReachId, Seq};
use crate::ledger::machine::access::Scope;
use crate::ledger::store::StoredEvent;
use tokio::sync::watch;

use super::App;
use super::anew::{Anew, SentBack};
use super::error::{ApiError, ApiResult, Code};
use super::extract::{Caller, Id, Json, Query, outside, wrong};
use super::list::{no_such_word, only};
use super::render::{self, Bodies, Fields};
use super::tasks::visible;
use super::timeline::timeline;
use super::wire::PAGE_BYTES;

/// Events read from the disk at a time.
const PAGE: usize = 256;
/// Events made ready at a time: each may bring a text of 64 KiB.
const RENDERED: usize = 32;
/// A stream has so much in memory that was not sent yet, and an event.
const STREAM_BYTES: usize = 1 << 20;
/// Events of the feed in one NDJSON answer.
const MAX_LIMIT: usize = 1_000;
/// Events looked through for one NDJSON answer: foreign ones cost as much to read as own ones.
const MAX_LOOKED: usize = 20_000;
/// The longest wait for an event.
const MAX_WAIT_MS: u64 = 60_000;
/// A silent stream says so this often, so that nothing in between closes it.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(history)).routes(routes!(feed))
}

/// How to show a history.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryQuery {
    /// `json` (the default), `ndjson` or `text`.
    format: Option<String>,
    /// `raw` adds each event's frame in base64.
    encoding: Option<String>,
}

/// Every event of a task, in order.
#[derive(Serialize, ToSchema)]
struct History {
    reach_id: String,
    #[schema(value_type = Vec<Object>)]
    events: Vec<Fields>,
}

/// Every event of a task, in order.
#[utoipa::path(
    get, path = "/v1/tasks/{reach_id}/history", operation_id = "get_history", tag = "audit", params(("reach_id" = String, Path), HistoryQuery),
    responses((status = 200, description = "As JSON, one event a line, or a timeline to read", content((History = "application/json"), (String = "application/x-ndjson"), (String = "text/plain"))))
)]
pub(super) async fn history(
    State(app): State<App>,
    caller: Caller,
    Id(id): Id<ReachId>,
    Query(query): Query<HistoryQuery>,
) -> ApiResult<Response> {
    use axum::response::IntoResponse as _;
    caller.require(Scope::Audit)?;
    let frames = Frames::asked(query.encoding.as_deref())?;
    let task = visible(&app, &caller, id).await?;
    let mut events = Vec::with_capacity(task.seqs.len());
    for seqs in task.seqs.chunks(PAGE) {
        let stored = app.ledger.events_at(seqs.to_vec()).await?;
        let mut shown = rendered(&app.ledger, &stored, frames).await?;
        for (stored, fields) in stored.iter().zip(&mut shown) {
            if let Some(anew) = Anew::told_by(&app.ledger, &stored.event).await? {
                anew.add_to(fields);
            } else if let Some(sent) = SentBack::told_by(&app.ledger, &stored.event).await? {
                sent.add_to(fields);
            }
        }
        events.extend(shown);
    }
    match query.format.as_deref() {
        None | Some("json") => Ok(Json(History { reach_id: id.to_string(), events }).into_response()),
        Some("ndjson") => {
            let mut text = Vec::new();
            for event in &events {
                text.extend_from_slice(json_text(event).as_bytes());
                text.push(b'\n');
            }
            Ok(typed(Body::from(text), "application/x-ndjson"))
        }
        Some("text") => {
            let history = serde_json::to_value(History { reach_id: id.to_string(), events }).unwrap_or_default();
            Ok(typed(Body::from(timeline(&history) + "\n"), "text/plain; charset=utf-8"))
        }
        Some(other) => Err(no_such_word("format", other, &["json", "ndjson", "text"])),
    }
}

fn typed(body: Body, kind: &'static str) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn json_text(fields: &Fields) -> String {
    serde_json::to_string(fields).unwrap_or_default()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Frames {
    Shown,
    Left,
}

impl Frames {
    /// What the parameter `encoding` asks for.
    fn asked(encoding: Option<&str>) -> ApiResult<Self> {
        let Some(word) = encoding else { return Ok(Self::Left) };
        only("encoding", word, &["raw"]).map(|()| Self::Shown)
    }
}

/// Events as JSON with the texts that are still there.
async fn rendered(ledger: &Ledger, stored: &[StoredEvent], frames: Frames) -> Result<Vec<Fields>, Unavailable> {
    let keys: Vec<_> = stored.iter().filter_map(|stored| render::wanted(&stored.event)).collect();
    let bodies = if keys.is_empty() { Vec::new() } else { ledger.bodies(keys.clone()).await? };
    let bodies = Bodies::new(keys.into_iter().zip(bodies));
    let access = ledger.published().access;
    let shown = stored.iter().map(|stored| {
        let mut fields = render::event(stored, &bodies);
        fields.name_actor(&stored.event.actor, &access);
        match frames {
            Frames::Shown => fields.put_frame(STANDARD.encode(&stored.frame)),
            Frames::Left => {}
        }
        fields
    });
    Ok(shown.collect())
}

/// Where the feed begins, and how long it lasts.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct FeedQuery {
    /// Events after this seq, or `latest` for those yet to come; from the beginning by default. The `Last-Event-ID`
    /// header means the same and wins.
    after: Option<String>,
    /// NDJSON: wait for an event for so long, 0 to 60,000.
    wait_ms: Option<u64>,
    /// NDJSON: events at most, 1 to 1,000; fewer come where these weigh over 8 MiB.
    limit: Option<usize>,
    /// `raw` adds each event's frame in base64.
    encoding: Option<String>,
}

/// Who reads, and how far it has come.
struct Reader {
    ledger: Ledger,
    news: watch::Receiver<Published>,
    namespace: Namespace,
    hub_events: HubEvents,
    frames: Frames,
    after: Seq,
}

/// May the hub's own events be shown?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HubEvents {
    Shown,
    Hidden,
}

/// One item of the feed.
struct Item {
    seq: Seq,
    live_type: String,
    json: String,
}

/// The events of the namespace, strictly rising by seq: NDJSON by default, an endless stream with
/// `Accept: text/event-stream`.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "list_events", tag = "audit",
    params(FeedQuery, ("Last-Event-ID" = Option<u64>, Header, description = "Goes on after this seq")),
    responses(
        (status = 200, description = "One event a line, or server-sent events; `Reach-After` says how far was looked", content((String = "application/x-ndjson"), (String = "text/event-stream"))),
    )
)]
pub(super) async fn feed(
    State(app): State<App>,
    caller: Caller,
    Query(query): Query<FeedQuery>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    caller.require(Scope::Audit)?;
    let news = app.ledger.follow();
    let after = match (headers.get("last-event-id"), query.after.as_deref()) {
        (Some(id), _) => id
            .to_str()
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .map(Seq)
            .ok_or_else(|| ApiError::new(Code::InvalidHeader, "Last-Event-ID is the seq of an event"))?,
        (None, None) => Seq(0),
        (None, Some("latest")) => news.borrow().seq,
        (None, Some(text)) => Seq(text.parse().map_err(|_| wrong("after", Some(text), "a seq or the word latest"))?),
    };
    reached(&app, &news, after).await?;
    let frames = Frames::asked(query.encoding.as_deref())?;
    let everywhere = caller.bearer().require_everywhere(Scope::Audit).is_ok();
    let hub_events = if everywhere { HubEvents::Shown } else { HubEvents::Hidden };
    let ledger = app.ledger.clone();
    let reader = Reader { ledger, news, namespace: caller.namespace.clone(), hub_events, frames, after };
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("");
    if accept.contains("text/event-stream") {
        return Ok(event_stream(reader));
    }
    let limit = query.limit.unwrap_or(MAX_LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        return Err(outside("limit", limit, 1..=MAX_LIMIT));
    }
    let wait = query.wait_ms.unwrap_or(0);
    if wait > MAX_WAIT_MS {
        return Err(outside("wait_ms", wait, 0..=MAX_WAIT_MS));
    }
    lines(reader, limit, Duration::from_millis(wait)).await
}

/// A reader that is ahead of the ledger has read another one. To wait until this one has caught up would be to miss
/// all that happens until then.
async fn reached(app: &App, news: &watch::Receiver<Published>, after: Seq) -> ApiResult<()> {
    if after <= news.borrow().seq {
        return Ok(());
    }
    // What an answer has told is on disk, but the news of it may be on its way.
    if !app.ledger.events_after(Seq(after.0 - 1), 1).await?.is_empty() {
        return Ok(());
    }
    let last = news.borrow().seq;
    Err(ApiError::new(Code::SeqAhead, format!("{after} is asked for; the last seq is {last}")).fact("last", last.0))
}

/// What one look into the ledger gave.
struct Look {
    items: Vec<Item>,
    looked: usize,
    bytes: usize,
}

impl Look {
    fn put(&mut self, item: Item) {
        self.bytes += item.json.len();
        self.items.push(item);
    }
}

impl Reader {
    fn shows(&self, stored: &StoredEvent) -> bool {
        match &stored.event.namespace {
            Some(namespace) => *namespace == self.namespace,
            None => self.hub_events == HubEvents::Shown,
        }
    }

    /// The next events, at most `limit` of them and of `bytes`, but one at least; moves on past what it looked at.
    async fn look(&mut self, limit: usize, bytes: usize) -> Result<Look, Unavailable> {
        let mut stored = self.ledger.events_after(self.after, PAGE).await?;
        let looked = stored.len();
        let mut look = Look { items: Vec::new(), looked, bytes: 0 };
        // What retention took is told, never passed over in silence.
        if let Some(first) = stored.first().map(|stored| stored.event.seq)
            && first > self.after.next()
        {
            let before = Seq(first.0.saturating_sub(1));
            look.put(gap(self.after.next(), before));
            self.after = before;
        }
        let last = stored.last().map(|stored| stored.event.seq);
        stored.retain(|stored| self.shows(stored));
        let cut = stored.len() > limit;
        stored.truncate(limit);
        for some in stored.chunks(RENDERED) {
            for (stored, mut fields) in some.iter().zip(rendered(&self.ledger, some, self.frames).await?) {
                if look.bytes >= bytes {
                    return Ok(look);
                }
                let live_type = render::live_type(stored.event.body.kind());
                fields.put_type(&live_type);
                look.put(Item { seq: stored.event.seq, live_type, json: json_text(&fields) });
                self.after = stored.event.seq;
            }
        }
        if !cut {
            self.after = last.unwrap_or(self.after);
        }
        Ok(look)
    }

    /// Waits until the ledger has more than was looked at.
    ///
    /// # Errors
    /// When the hub goes down: the reader comes back to the next one.
    async fn more(&mut self) -> Result<(), Unavailable> {
        let after = self.after;
        let news = self.news.wait_for(|published| published.seq > after || published.phase.is_stopping()).await;
        match news {
            Ok(published) if !published.phase.is_stopping() => Ok(()),
            Ok(_) | Err(_) => Err(Unavailable::Stopping),
        }
    }
}

fn gap(from: Seq, to: Seq) -> Item {
    Item { seq: to, live_type: "gap".to_owned(), json: json_text(&Fields::gap(from, to)) }
}

/// As many events as there are, up to the limit; waits for the first.
async fn lines(mut reader: Reader, limit: usize, wait: Duration) -> ApiResult<Response> {
    let end = tokio::time::sleep(wait);
    tokio::pin!(end);
    let mut text = Vec::new();
    let (mut shown, mut looked) = (0, 0);
    while shown < limit && looked < MAX_LOOKED && text.len() < PAGE_BYTES {
        let look = reader.look(limit - shown, PAGE_BYTES - text.len()).await?;
        shown += look.items.len();
        looked += look.looked;
        for item in &look.items {
            text.extend_from_slice(item.json.as_bytes());
            text.push(b'\n');
        }
        if look.looked > 0 {
            continue;
        }
        if shown > 0 {
            break;
        }
        tokio::select! {
            // A hub that goes down has nothing more to tell: what was looked at so far is the answer.
            more = reader.more() => if more.is_err() { break },
            () = &mut end => break,
        }
    }
    let mut response = typed(Body::from(text), "application/x-ndjson");
    response.headers_mut().insert(HeaderName::from_static("reach-after"), HeaderValue::from(reader.after.0));
    Ok(response)
}

/// What a stream has still to send.
struct Stream {
    reader: Reader,
    ready: VecDeque<Bytes>,
}

/// Server-sent events. The connection pulls: one page is in memory at a time, however slowly it is read.
fn event_stream(reader: Reader) -> Response {
    let mut ready = VecDeque::new();
    ready.push_back(Bytes::from_static(b"retry: 2000\n\n"));
    let stream = futures_util::stream::unfold(Stream { reader, ready }, |mut stream| async move {
        loop {
            if let Some(bytes) = stream.ready.pop_front() {
                return Some((Ok::<_, Infallible>(bytes), stream));
            }
            // A fault ends the stream; the reader comes back with the last id that it saw.
            let look = stream.reader.look(PAGE, STREAM_BYTES).await.ok()?;
            for item in &look.items {
                stream.ready.push_back(sse(item));
            }
            if look.looked > 0 {
                if look.items.is_empty() {
                    // Only foreign events: an id without data moves the reader on without an event.
                    stream.ready.push_back(Bytes::from(format!("id: {}\n\n", stream.reader.after)));
                }
                continue;
            }
            match tokio::time::timeout(KEEP_ALIVE, stream.reader.more()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return None,
                Err(_) => stream.ready.push_back(Bytes::from_static(b": here\n\n")),
            }
        }
    });
    let mut response = typed(Body::from_stream(stream), "text/event-stream");
    response.headers_mut().insert(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"));
    response
}

fn sse(item: &Item) -> Bytes {
    let Item { seq, live_type, json } = item;
    Bytes::from(format!("id: {seq}\nevent: {live_type}\ndata: {json}\n\n"))
}
