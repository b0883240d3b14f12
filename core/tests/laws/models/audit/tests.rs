//! What may happen in which order, the law, and the runs.

use super::*;

impl Model for Audits {
    type State = State;
    type Step = Step;

    fn initial(&self) -> Vec<State> {
        let state = |liked: [bool; KEYS], drift: i64| {
            let rows = liked.map(|liked| 1 + i64::from(liked));
            let counted = |rows| Counted { rows, version: 1, mark: 0 };
            State {
                liked,
                liked_at_first: liked,
                stream: Vec::new(),
                applied: 0,
                checkpoint: 0,
                counters: [counted(rows[0] + drift), counted(rows[1])],
                gap: Some(UnixMillis(0)),
                open: None,
                segments: Vec::new(),
                processes: Vec::new(),
                left: self.left,
                wrongly_proved: false,
            }
        };
        let liked = [[false, false], [true, false]];
        liked.into_iter().flat_map(|liked| self.drifts.iter().map(move |drift| state(liked, *drift))).collect()
    }

    fn steps(&self, state: &State, next: &mut Vec<(Step, State)>) {
        if state.left.writes > 0 {
            for key in 0..KEYS {
                let mut written = state.clone();
                written.left.writes -= 1;
                written.liked[key] ^= true;
                let liked = written.liked[key];
                written.stream.push((key, liked));
                next.push((Step::Write { key, liked }, written));
            }
        }
        state.stream_on(next);
        if state.open.is_none() {
            let open: Vec<Gap> = state.gap.map(gap).into_iter().collect();
            let open = Some(OpenAtStart::new(state.now().wall, &open, None));
            next.push((Step::Begin, self.join(&State { open, ..state.clone() })));
        } else if state.processes.len() < self.processes {
            next.push((Step::Join, self.join(state)));
        }
        for process in 0..state.processes.len() {
            self.work(state, process, next);
        }
        next.iter_mut().for_each(|(_, after)| *after = after.clone().watched());
    }

    fn violation(&self, state: &State) -> Option<String> {
        if state.wrongly_proved {
            return Some(WRONG.to_owned());
        }
        let is_wrong = (0..KEYS).any(|key| state.drift(key) != 0);
        (state.gap.is_none() && is_wrong).then(|| CLOSED.to_owned())
    }

    fn is_goal(&self, state: &State) -> bool {
        state.gap.is_none()
    }
}

const WRONG: &str = "a row key is called proved whose count was never right";
const CLOSED: &str = "no gap is open, and a count is wrong";

const USUAL: Budget = Budget { writes: 2, trims: 1, failures: 1 };

#[test]
fn what_is_proved_was_right_and_a_gap_closes_once_everything_is() {
    let left = bounds(USUAL, Budget { writes: 3, ..USUAL });
    holds(&Audits::new(1, left));
}

#[test]
fn two_processes_on_one_audit_close_no_gap_too_early() {
    let left = bounds(Budget { writes: 1, ..USUAL }, USUAL);
    holds(&Audits { drifts: &[1], ..Audits::new(2, left) });
}

#[test]
fn each_reading_has_its_place() {
    for rule in [Rule::HorizonBeforeRows, Rule::VersionCompared, Rule::RowsPassed] {
        breaks(&Audits::new(1, Budget { trims: 0, failures: 0, ..USUAL }).without(rule), WRONG);
    }
}

#[test]
fn a_key_that_moved_is_proved_only_where_its_counter_stands() {
    let rules = [Rule::TrailBeforeRows, Rule::TrailRead, Rule::TrailCut, Rule::LastCounter, Rule::InTheirPlace];
    holds(&Audits::new(1, Budget { writes: 3, trims: 0, failures: 0 }));
    for rule in rules {
        breaks(&Audits::new(1, Budget { writes: 3, trims: 0, failures: 0 }).without(rule), WRONG);
    }
}

#[test]
fn a_gap_opened_anew_is_not_closed_by_the_audit_that_began_before() {
    breaks(&Audits::new(1, USUAL).without(Rule::OpenAtStart), CLOSED);
}

#[test]
fn a_gap_is_not_closed_over_a_row_key_that_is_left() {
    breaks(&Audits::new(1, USUAL).without(Rule::Settled), CLOSED);
}
