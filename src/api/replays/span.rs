//! Between which ids the rows of a selection lie, so that one that names its times does not read a whole namespace.
//!
//! Ids begin with the wall clock's milliseconds at their drawing; a task that a plan made begins as the plan's id does,
//! however late its turn came. The filter still decides about each row: here is only where to begin and to stop.

use crate::api::App;
use crate::api::error::ApiResult;
use crate::api::list::Filter;
use crate::ledger::ids::{ReachId, ReplayId};
use crate::ledger::machine::replay::Replay;
use crate::ledger::time::{Millis, Timestamp};

/// How far ids may lie from the times of their submissions: the clock may have been set, and what was drawn may wait
/// for its turn to be decided.
const MARGIN: Millis = Millis::secs(3_600);
/// Ended plans read at once.
const PAGE: usize = 50;
/// Pages of them at most: with more plans nothing tells where to stop.
const PAGES: usize = 12;

/// The ids of a selection's rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::api) struct Span {
    /// All of them are below this one.
    pub(in crate::api) below: Option<ReachId>,
    /// None of them was drawn before this moment of the wall clock.
    since: Option<u64>,
}

impl Span {
    /// Is this row, and so every later one in the order of ids, out of it?
    pub(in crate::api) fn is_behind(&self, id: ReachId) -> bool {
        self.since.is_some_and(|since| drawn_at(id.0) < since)
    }
}

/// The milliseconds that an id begins with.
fn drawn_at(id: [u8; 16]) -> u64 {
    let [a, b, c, d, e, f, ..] = id;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The lowest id of that moment; `None` beyond what ids can tell.
fn first_of(moment: u64) -> Option<ReachId> {
    let [0, 0, a, b, c, d, e, f] = moment.to_be_bytes() else { return None };
    Some(ReachId([a, b, c, d, e, f, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]))
}

/// The span of times in ledger time; `offset` is how far the wall clock is ahead of it, `oldest` the oldest plan that
/// may have made a task since.
fn span((after, before): (Option<Timestamp>, Option<Timestamp>), offset: i64, oldest: Option<ReplayId>) -> Span {
    let wall = |at: Timestamp| at.0.saturating_add_signed(offset);
    // Whichever of the two clocks ids were nearer to.
    let below = before.and_then(|at| first_of(at.0.max(wall(at)).saturating_add(MARGIN.0)));
    let since = after.map(|at| at.0.min(wall(at)).saturating_sub(MARGIN.0));
    let since = since.map(|since| oldest.map_or(since, |plan| drawn_at(plan.0).min(since)));
    Span { below, since }
}

/// The span of a filter's rows.
///
/// # Errors
/// 503 when the hub or its disk does not answer.
pub(in crate::api) async fn of(app: &App, filter: &Filter) -> ApiResult<Span> {
    let (after, before) = (filter.select.after, filter.select.before);
    let offset = app.ledger.published().wall_offset;
    let Some(since) = after else { return Ok(span((None, before), offset, None)) };
    let namespace = filter.namespace.clone();
    let open = app
        .ledger
        .ask(move |state| state.replays().iter().find(|(_, replay)| replay.namespace == namespace).map(|(id, _)| *id));
    let mut oldest = open.await?;
    let mut position = None;
    for _ in 0..PAGES {
        let rows = app.ledger.ended_replays(filter.namespace.clone(), position, PAGE).await?;
        position = rows.last().map(|replay| replay.id);
        let later = |replay: &&Replay| replay.ended_at.is_none_or(|ended| ended >= since);
        oldest = rows.iter().filter(later).map(|replay| replay.id).chain(oldest).min();
        if rows.len() < PAGE {
            return Ok(span((after, before), offset, oldest));
        }
    }
    Ok(span((None, before), offset, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = 3_600_000;

    fn id(moment: u64) -> ReachId {
        let mut id = first_of(moment).unwrap();
        id.0[6..].fill(0x7f);
        id
    }

    #[test]
    fn a_span_holds_every_id_that_was_drawn_between_its_times_and_an_hour_around() {
        let (after, before) = (Timestamp(10 * HOUR), Timestamp(20 * HOUR));
        let both = span((Some(after), Some(before)), 0, None);
        assert!(both.below.unwrap() > id(21 * HOUR - 1) && both.below.unwrap() < id(21 * HOUR));
        assert!(!both.is_behind(id(9 * HOUR)) && both.is_behind(id(9 * HOUR - 1)));
        let open = span((None, None), 0, None);
        assert!(open.below.is_none() && !open.is_behind(id(0)));
    }

    #[test]
    fn a_span_reaches_as_far_as_the_clock_was_set_and_as_the_oldest_plan_that_may_have_made_one() {
        let (after, before) = (Timestamp(10 * HOUR), Timestamp(20 * HOUR));
        let ahead = span((Some(after), Some(before)), 5 * 3_600_000, None);
        assert!(ahead.below.unwrap() > id(25 * HOUR) && !ahead.is_behind(id(9 * HOUR)));
        let behind = span((Some(after), Some(before)), -5 * 3_600_000, None);
        assert!(behind.below.unwrap() > id(20 * HOUR) && !behind.is_behind(id(4 * HOUR)));
        let plan = span((Some(after), None), 0, Some(ReplayId(id(2 * HOUR).0)));
        assert!(!plan.is_behind(id(2 * HOUR)), "what a slow plan makes late begins as its id does");
        assert_eq!(drawn_at(ReplayId(id(2 * HOUR).0).successor(id(1)).0), 2 * HOUR);
    }

    #[test]
    fn a_moment_beyond_what_ids_can_tell_is_no_bound() {
        assert_eq!(span((None, Some(Timestamp(u64::MAX))), 0, None).below, None);
    }
}
