//! Follows the ledger from where alerts were told, gathers what wants a person, and hands each window to the sender.
//!
//! One window is on its way at a time; what happens meanwhile is gathered in the next one, however long that takes. The
//! file says first which window is being told and then that it is, so whoever is killed between tells it again, the
//! same, under the same ids.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::Settings;
use super::cursor::{self, Cursor};
use super::levels::{Filling, Levels, Moment, Place, filling};
use super::message::message;
use super::rules::{Beside, classify, left_behind, wants_task};
use super::sender::{Outbox, Sender};
use super::window::Window;
use crate::ledger::handle::{Ledger, Phase, Unavailable};
use crate::ledger::ids::{ReachId, Seq};
use crate::ledger::machine::event::EventKind;
use crate::ledger::machine::task::Task;
use crate::ledger::store::StoredEvent;
use crate::scheduler::outbound::http::HttpClient;
use crate::scheduler::outbound::secrets::Secrets;

/// Events read at a time.
const PAGE: usize = 256;
/// Capabilities looked at in one question to the sequencer.
const AT_ONCE: usize = 500;
/// Queues that fill, looked at in one window.
const MAX_FILLING: usize = 1_000;

/// The worker.
pub(in crate::scheduler::outbound) struct Reader {
    pub(in crate::scheduler::outbound) ledger: Ledger,
    pub(in crate::scheduler::outbound) http: HttpClient,
    pub(in crate::scheduler::outbound) secrets: Arc<Secrets>,
    pub(in crate::scheduler::outbound) settings: Settings,
    pub(in crate::scheduler::outbound) stop: CancellationToken,
}

/// What it remembers.
struct Desk {
    /// As the file has it, or will have it once it can be written.
    cursor: Cursor,
    /// Read up to here.
    read: Seq,
    /// The kind of the event there.
    before: Option<EventKind>,
    window: Window,
    levels: Levels,
    /// The window that is on its way, and how many messages it is.
    sending: Option<JoinHandle<()>>,
    on_its_way: usize,
}

impl Reader {
    pub(in crate::scheduler::outbound) async fn run(self) {
        let stop = self.stop.clone();
        let mut follow = self.ledger.follow();
        let is_on = |phase| !matches!(phase, Phase::Starting | Phase::NoRoom);
        let begun = async {
            if follow.wait_for(|published| is_on(published.phase)).await.is_err() {
                return None;
            }
            Some(self.begin().await)
        };
        let mut desk = tokio::select! {
            () = stop.cancelled() => return,
            desk = begun => match desk {
                Some(desk) => desk,
                None => return,
            },
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow(&mut desk) => {}
        }
        // What it did not get to is told by the next start, under the same ids.
        if let Some(sending) = desk.sending {
            sending.abort();
        }
    }

    async fn begin(&self) -> Desk {
        let end = self.ledger.published().seq;
        let path = self.settings.file.clone();
        let found = tokio::task::spawn_blocking(move || cursor::read(&path)).await;
        let cursor = match found.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(Some(cursor)) => {
                let within = cursor.within(end);
                if within.told < cursor.told {
                    tracing::warn!(told = %cursor.told, %end, "alerts were told beyond the end of the ledger; they begin at its end");
                }
                within
            }
            Ok(None) => Cursor::at(end),
            Err(error) => {
                let file = self.settings.file.display();
                tracing::error!(%file, %error, "how far alerts were told can't be read; they begin at the end of the ledger");
                Cursor::at(end)
            }
        };
        self.keep(cursor).await;
        let before = match self.ledger.events_at(vec![cursor.told]).await {
            Ok(events) => events.first().map(|stored| stored.event.body.kind()),
            Err(_) => None,
        };
        let (window, levels) = (Window::default(), Levels::default());
        Desk { cursor, read: cursor.told, before, window, levels, sending: None, on_its_way: 0 }
    }

    async fn follow(&self, desk: &mut Desk) {
        let mut tick = tokio::time::interval(self.settings.every);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => self.look(desk).await,
                end = ended(&mut desk.sending) => {
                    (desk.sending, desk.on_its_way) = (None, 0);
                    match end {
                        End::Told => {
                            desk.cursor = Cursor::at(desk.cursor.cut);
                            self.keep(desk.cursor).await;
                        }
                        // From the ledger, all of it again.
                        End::Lost => (desk.read, desk.before, desk.window) = (desk.cursor.told, None, Window::default()),
                    }
                }
            }
            self.settings.board.waits(desk.window.len().saturating_add(desk.on_its_way));
        }
    }

    /// One look: what happened since, what holds, and a window to be told unless one is.
    async fn look(&self, desk: &mut Desk) {
        // A start tells first what the last one was telling, for itself.
        let again = desk.sending.is_none() && desk.cursor.cut > desk.read;
        let to = if again { desk.cursor.cut } else { self.ledger.published().seq };
        if let Err(error) = self.gather(desk, to).await {
            tracing::debug!(%error, "alerts are gathered later");
            return;
        }
        if !again {
            self.levels(desk).await;
        }
        if desk.sending.is_some() {
            return;
        }
        if desk.window.is_empty() {
            if desk.cursor != Cursor::at(desk.read) {
                desk.cursor = Cursor::at(desk.read);
                self.keep(desk.cursor).await;
            }
            return;
        }
        desk.cursor.cut = desk.read;
        self.keep(desk.cursor).await;
        let lineage = self.ledger.published().lineage;
        let groups = std::mem::take(&mut desk.window).into_groups();
        let made = groups.map(|(group, told)| message(lineage, &group, &told).map(|made| Outbox::of(group.kind, made)));
        let messages: Vec<Outbox> = made.filter_map(Result::ok).collect();
        desk.on_its_way = messages.len();
        self.settings.board.waits(desk.on_its_way);
        let sender = Sender {
            ledger: self.ledger.clone(),
            http: self.http.clone(),
            secrets: Arc::clone(&self.secrets),
            settings: self.settings.clone(),
        };
        desk.sending = Some(tokio::spawn(sender.tell(messages)));
    }

    async fn gather(&self, desk: &mut Desk, to: Seq) -> Result<(), Unavailable> {
        while desk.read < to {
            let mut page = self.ledger.events_after(desk.read, PAGE).await?;
            page.retain(|stored| stored.event.seq <= to);
            let Some(last) = page.last().map(|stored| stored.event.seq) else { return Ok(()) };
            let tasks = self.tasks(&page).await?;
            let rules = self.ledger.published().capability_rules;
            for StoredEvent { event, .. } in &page {
                let task = wants_task(&event.body).and_then(|id| tasks.get(&id));
                if let Some(alert) = classify(event, Beside { task, before: desk.before, rules: &rules }) {
                    desk.window.put(alert);
                }
                if let Some(left) = left_behind(event, task) {
                    desk.window.leave(event.namespace.as_ref(), left);
                }
                desk.before = Some(event.body.kind());
            }
            desk.read = last;
        }
        Ok(())
    }

    /// The tasks that must be looked at, as they stand now.
    async fn tasks(&self, page: &[StoredEvent]) -> Result<BTreeMap<ReachId, Task>, Unavailable> {
        let mut ids: Vec<ReachId> = page.iter().filter_map(|stored| wants_task(&stored.event.body)).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        Ok(self.ledger.tasks(ids).await?.into_iter().flatten().map(|task| (task.id(), task)).collect())
    }

    async fn levels(&self, desk: &mut Desk) {
        let published = self.ledger.published();
        if published.phase.is_stopping() {
            return;
        }
        let Ok(found) = self.filling().await else { return };
        let moment = Moment { seq: desk.read, at: self.ledger.now() };
        for alert in desk.levels.look(&found, published.phase, moment) {
            desk.window.put(alert);
        }
    }

    async fn filling(&self) -> Result<Vec<Filling>, Unavailable> {
        let (mut all, mut from) = (Vec::new(), Some(Place::default()));
        while let Some(place) = from.take()
            && all.len() < MAX_FILLING
        {
            let (found, next) = self.ledger.ask(move |state| filling(state, &place, AT_ONCE)).await?;
            all.extend(found);
            from = next;
        }
        Ok(all)
    }

    /// A file that can't be written costs doubles after a crash, no alert.
    async fn keep(&self, cursor: Cursor) {
        let path = self.settings.file.clone();
        let written = tokio::task::spawn_blocking(move || cursor::write(&path, cursor)).await;
        if let Err(error) = written.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            tracing::warn!(%error, "how far alerts were told can't be written");
        }
    }
}

/// How telling a window ended.
enum End {
    Told,
    /// A bug: nobody knows how far it came.
    Lost,
}

/// Waits for the end of what is on its way; for ever if nothing is.
async fn ended(sending: &mut Option<JoinHandle<()>>) -> End {
    match sending {
        Some(sending) => match sending.await {
            Ok(()) => End::Told,
            Err(error) => {
                tracing::error!(%error, "telling alerts ended abruptly");
                End::Lost
            }
        },
        None => std::future::pending().await,
    }
}
