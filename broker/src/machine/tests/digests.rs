//! Digests at an index: the same on replicas that apply in other steps, and nothing about what is passed.

use super::*;
use raftmq_model::machine::Enqueue;

/// What a machine that stops at `index` says.
fn stopped_at(index: u64) -> StateDigest {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(dir.path(), index);
    let (mut machine, view) = open(dir.path(), &Arc::default());
    apply(&mut machine, &log, 1, index, 64);
    view.digest_at(index).unwrap().try_recv().unwrap()
}

#[test]
fn an_index_ahead_is_answered_when_it_is_applied_however_the_log_is_split_into_runs() {
    const ENTRIES: u64 = 120;
    let expected: Vec<StateDigest> = [40, 41, 97].map(stopped_at).into();
    assert!(expected.windows(2).all(|pair| pair[0].state != pair[1].state), "{expected:?}");
    assert!(expected.iter().all(|digest| digest.out_of_step.is_none() && digest.queues_count == 2), "{expected:?}");
    for run in [1, 7, 64] {
        let dir = tempfile::tempdir().unwrap();
        let log = write_log(dir.path(), ENTRIES);
        let (mut machine, view) = open(dir.path(), &Arc::default());
        apply(&mut machine, &log, 1, 20, run);
        let mut asked: Vec<_> = [40, 41, 97].map(|index| view.digest_at(index).unwrap()).into();
        let mut twice = view.digest_at(97).unwrap();
        apply(&mut machine, &log, 21, 39, run);
        assert!(asked.iter_mut().all(|answer| answer.try_recv().is_err()), "nothing is said before its time");
        apply(&mut machine, &log, 40, ENTRIES, run);
        let told: Vec<StateDigest> = asked.into_iter().map(|mut answer| answer.try_recv().unwrap()).collect();
        assert_eq!(told, expected, "in runs of {run}");
        assert_eq!(twice.try_recv().as_ref(), Ok(&expected[2]));
    }
}

#[test]
fn what_is_passed_is_refused_also_by_entries_without_commands_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(dir.path(), 10);
    let store = Arc::new(MemoryState::new());
    let (mut machine, view) = open(dir.path(), &store);
    apply(&mut machine, &log, 1, 10, 3);
    let last = view.digest_at(10).unwrap().try_recv().unwrap();
    assert_eq!(view.digest_at(9).unwrap_err(), DigestRefusal::Passed { applied: 10 });
    let mut next = view.digest_at(11).unwrap();
    let blank = NewEntry { term: 2, index: 11, kind: EntryKind::Blank, payload: Bytes::new() };
    let (done, durable) = std::sync::mpsc::sync_channel(1);
    log.append(vec![blank], Box::new(move |result| drop(done.send(result)))).unwrap();
    durable.recv().unwrap().unwrap();
    let blank = log.read(11, 12, usize::MAX).unwrap().remove(0);
    assert_eq!(machine.apply(&blank).unwrap(), Vec::<Bytes>::new());
    assert_eq!(next.try_recv(), Ok(StateDigest { index: 11, ..last.clone() }), "it changes nothing");
    assert_eq!(view.digest_at(10).unwrap_err(), DigestRefusal::Passed { applied: 11 });
    machine.apply_end(Bytes::from_static(b"11")).unwrap();
    drop(machine);
    let (_machine, view) = open(dir.path(), &store);
    assert_eq!(view.digest_at(10).unwrap_err(), DigestRefusal::Passed { applied: 11 });
    assert_eq!(view.digest_at(11).unwrap().try_recv(), Ok(StateDigest { index: 11, ..last }));
}

#[test]
fn those_who_wait_are_bounded_and_one_who_goes_away_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let (_machine, view) = open(dir.path(), &Arc::default());
    let mut waiting: Vec<_> = (0..DIGESTS_COUNT_MAX).map(|_| view.digest_at(1_000).unwrap()).collect();
    assert_eq!(view.digest_at(1_000).unwrap_err(), DigestRefusal::TooMany);
    waiting.pop();
    waiting.push(view.digest_at(1_000).unwrap());
    assert_eq!(view.digest_at(1_000).unwrap_err(), DigestRefusal::TooMany);
    drop((_machine, view));
    assert!(waiting.iter_mut().all(|answer| answer.try_recv().is_err()), "a closed replica answers nothing");
}

#[test]
fn a_queue_that_is_not_where_the_state_says_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let log = write_log(dir.path(), 30);
    let (mut machine, view) = open(dir.path(), &Arc::default());
    apply(&mut machine, &log, 1, 30, 8);
    let before = view.digest_at(30).unwrap().try_recv().unwrap();
    assert_eq!(view.queue_out_of_step(), None);
    let end = view.queues().max(TOPIC, QueueId(1));
    let stray = Enqueue {
        topic: TOPIC,
        queue: QueueId(1),
        offset: end,
        physical: PhysicalOffset(1 << 20),
        size: 50,
        tags_code: 0,
    };
    view.queues().append_all(&[stray]).unwrap();
    let after = view.digest_at(30).unwrap().try_recv().unwrap();
    assert_eq!((after.state, after.units_count), (before.state, before.units_count + 1));
    assert!(after.out_of_step.is_some_and(|what| what.starts_with("queue 1 of topic 7 ends at ")));
}
