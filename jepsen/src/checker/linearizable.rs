//! Linearizability by the search of Wing and Gong with Lowe's memory of what was seen: is there an order of the operations,
//! each somewhere between its call and its answer, in which every answer is right?
//!
//! Operations without a certain answer may take their place anywhere after their call, or never. The search is exponential
//! in the number of operations that overlap, so histories are cut into many small objects, what is likely is tried first
//! (answered operations in the order of their calls), and a search that grows too large is given up.

use std::collections::HashSet;
use std::hash::Hash;

/// Operations on one object, at most: one bit each.
pub const OPERATIONS_COUNT_MAX: usize = 64;

/// Steps of one search, at most.
pub const STEPS_COUNT_MAX: usize = 1_000_000;

/// What an object is when one operation follows another.
pub trait Specification {
    /// The object.
    type State: Clone + Eq + Hash;
    /// An operation together with its answer.
    type Operation;

    /// The object after the operation; `None`: it cannot have been answered like that by an object in this state.
    fn step(state: &Self::State, operation: &Self::Operation) -> Option<Self::State>;
}

/// An operation and when it was under way.
#[derive(Clone, Debug)]
pub struct Timed<O> {
    /// What was asked and answered.
    pub operation: O,
    /// When it was called.
    pub called_at: u64,
    /// When it was answered; `None`: never for certain.
    pub answered_at: Option<u64>,
}

/// The history is too long, or its search too large, to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Whether a history of one object is linearizable.
///
/// # Errors
/// [`TooLarge`] with more than [`OPERATIONS_COUNT_MAX`] operations or after [`STEPS_COUNT_MAX`] steps.
pub fn is_linearizable<S: Specification>(
    first: S::State,
    operations: &[Timed<S::Operation>],
) -> Result<bool, TooLarge> {
    if operations.len() > OPERATIONS_COUNT_MAX {
        return Err(TooLarge);
    }
    let certain = bits(operations.iter().map(|timed| timed.answered_at.is_some()));
    // Each with the set of those that were answered before it was called: these come first.
    let before: Vec<u64> = operations
        .iter()
        .map(|later| {
            bits(operations.iter().map(|timed| timed.answered_at.is_some_and(|answered| answered < later.called_at)))
        })
        .collect();
    let mut seen: HashSet<(u64, S::State)> = HashSet::new();
    let mut open = vec![(0u64, first)];
    while let Some((done, state)) = open.pop() {
        if done & certain == certain {
            return Ok(true);
        }
        if seen.len() > STEPS_COUNT_MAX {
            return Err(TooLarge);
        }
        // What is pushed last is tried first.
        let order = |answered: bool| (0..operations.len()).rev().filter(move |at| (certain >> at & 1 == 1) == answered);
        for at in order(false).chain(order(true)) {
            let bit = 1 << at;
            if done & bit != 0 || before[at] & !done != 0 {
                continue;
            }
            let Some(next) = S::step(&state, &operations[at].operation) else { continue };
            // Where it changes nothing, an operation without an answer may as well never happen.
            if certain & bit == 0 && next == state {
                continue;
            }
            let next = (done | bit, next);
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    Ok(false)
}

fn bits(set: impl Iterator<Item = bool>) -> u64 {
    set.enumerate().fold(0, |bits, (at, on)| bits | u64::from(on) << at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    use todc_utils::linearizability::WGLChecker;
    use todc_utils::linearizability::history::{Action, History};

    /// A register of small numbers; reads carry what they were answered.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Read(u8),
        Write(u8),
        Swap(u8, u8),
    }

    struct Register;

    impl Specification for Register {
        type State = u8;
        type Operation = Op;

        fn step(state: &u8, operation: &Op) -> Option<u8> {
            match operation {
                Op::Read(value) => (value == state).then_some(*state),
                Op::Write(value) => Some(*value),
                Op::Swap(from, to) => (from == state).then_some(*to),
            }
        }
    }

    impl todc_utils::Specification for Register {
        type State = u8;
        type Operation = Op;

        fn init() -> u8 {
            0
        }

        fn apply(operation: &Op, state: &u8) -> (bool, u8) {
            let next = <Register as Specification>::step(state, operation);
            (next.is_some(), next.unwrap_or(*state))
        }
    }

    fn timed(operation: Op, called_at: u64, answered_at: Option<u64>) -> Timed<Op> {
        Timed { operation, called_at, answered_at }
    }

    fn judge(operations: &[Timed<Op>]) -> bool {
        is_linearizable::<Register>(0, operations).unwrap()
    }

    #[test]
    fn a_stale_read_is_none_and_an_overlapping_one_may_be_either() {
        assert!(judge(&[timed(Op::Write(1), 0, Some(10)), timed(Op::Read(0), 5, Some(8))]));
        assert!(judge(&[timed(Op::Write(1), 0, Some(10)), timed(Op::Read(1), 5, Some(8))]));
        assert!(!judge(&[timed(Op::Write(1), 0, Some(10)), timed(Op::Read(0), 11, Some(12))]));
    }

    #[test]
    fn what_has_no_answer_may_happen_late_or_never() {
        let unknown = timed(Op::Write(1), 0, None);
        assert!(judge(&[unknown.clone(), timed(Op::Read(0), 100, Some(110))]), "never");
        assert!(judge(&[unknown.clone(), timed(Op::Read(0), 100, Some(110)), timed(Op::Read(1), 120, Some(130))]));
        let back = [unknown, timed(Op::Read(1), 100, Some(110)), timed(Op::Read(0), 120, Some(130))];
        assert!(!judge(&back), "but not away again");
    }

    #[test]
    fn two_swaps_from_one_value_are_none() {
        let swaps = [timed(Op::Swap(0, 1), 0, Some(10)), timed(Op::Swap(0, 2), 0, Some(10))];
        assert!(!judge(&swaps));
        let many = vec![timed(Op::Write(1), 0, None); OPERATIONS_COUNT_MAX + 1];
        assert_eq!(is_linearizable::<Register>(0, &many), Err(TooLarge));
    }

    #[test]
    fn many_operations_without_an_answer_do_not_blow_the_search_up() {
        // A cluster that is down for a while: thirty clients get no answer, and then all goes on from what was there.
        let unknown = (0..30).map(|at| timed(Op::Write(100 + at), 10 + u64::from(at), None));
        let reads = (0..30).map(|at| timed(Op::Read(0), 100 + 2 * at, Some(101 + 2 * at)));
        let mut history: Vec<Timed<Op>> = unknown.chain(reads).collect();
        assert!(judge(&history));
        history.push(timed(Op::Read(129), 200, Some(201)));
        assert!(judge(&history), "one of them happened late");
        // Nobody wrote it: only the bound ends this search.
        history.push(timed(Op::Read(1), 202, Some(203)));
        assert_eq!(is_linearizable::<Register>(0, &history), Err(TooLarge));
    }

    /// Random histories of complete operations, good and bad, judged as another checker judges them.
    #[test]
    fn it_agrees_with_another_checker() {
        let mut verdicts = [0; 2];
        for seed in 0..2_000 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut at = 0;
            let mut actions: Vec<(usize, Action<Op>)> = Vec::new();
            let mut own: Vec<Timed<Op>> = Vec::new();
            let mut open: Vec<Option<(usize, Op)>> = vec![None; 3];
            // The register itself, so that many answers are right; a few are not.
            let mut real = 0;
            for _ in 0..14 {
                at += 1;
                let process = rng.random_range(0..open.len());
                match open[process].take() {
                    Some((place, op)) => {
                        actions.push((process, Action::Response(op)));
                        own[place].answered_at = Some(at);
                    }
                    None => {
                        let (a, b) = (rng.random_range(0..3), rng.random_range(0..3));
                        let seen = if rng.random_ratio(1, 12) { a } else { real };
                        let op = [Op::Read(seen), Op::Write(b), Op::Swap(seen, b)][rng.random_range(0..3)];
                        real = <Register as Specification>::step(&real, &op).unwrap_or(real);
                        actions.push((process, Action::Call(op)));
                        open[process] = Some((own.len(), op));
                        own.push(timed(op, at, None));
                    }
                }
            }
            for (process, one) in open.iter_mut().enumerate() {
                at += 1;
                if let Some((place, op)) = one.take() {
                    actions.push((process, Action::Response(op)));
                    own[place].answered_at = Some(at);
                }
            }
            let verdict = judge(&own);
            let other = WGLChecker::<Register>::is_linearizable(History::from_actions(actions));
            assert_eq!(verdict, other, "seed {seed}: {own:?}");
            verdicts[usize::from(verdict)] += 1;
        }
        assert!(verdicts.iter().all(|count| *count > 200), "both kinds: {verdicts:?}");
    }
}
