//! The planner explains itself: by the rules and positions that its next dispatch uses.

use crate::ledger::machine::State;
use crate::ledger::machine::task::Task;
use crate::scheduler::plan::Scheduler;
use crate::scheduler::routing::report::{Beside, route};
use crate::scheduler::routing::{Needs, Question, RouteReport};

impl Scheduler {
    /// Explains a routing question in full, as of now: the same rules and positions that the next dispatch uses.
    #[must_use]
    pub fn explain(&self, state: &State, question: &Question<'_>) -> RouteReport {
        let pool = self.roster.pool_named(&question.needs.namespace, &question.needs.capability);
        let positions = pool.into_iter().flat_map(|pool| pool.positions()).map(|(id, at)| (id.clone(), at)).collect();
        route(question, state, &Beside { vitals: &self.vitals, affinity: &self.affinity, positions })
    }

    /// As [`Scheduler::explain`], for a task.
    #[must_use]
    pub fn explain_task(&self, state: &State, task: &Task) -> RouteReport {
        let needs = Needs::of_task(task);
        self.explain(state, &self.wishes(state, &needs, task))
    }
}
