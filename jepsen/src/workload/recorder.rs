//! Records a history from many tasks at once, with one clock.

use crate::history::{Call, Event, Phase};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Events of one run, in memory.
#[derive(Debug)]
pub struct Recorder {
    start: Instant,
    next_op: AtomicU64,
    events: Mutex<Vec<Event>>,
    events_count_max: usize,
}

/// The run made more events than were allowed, so that its history is not whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecorderFull;

impl Recorder {
    /// An empty history that takes `events_count_max` events.
    #[must_use]
    pub fn new(events_count_max: usize) -> Recorder {
        Recorder { start: Instant::now(), next_op: AtomicU64::new(0), events: Mutex::new(Vec::new()), events_count_max }
    }

    /// Notes that an operation begins, before anything is sent; answers its number.
    pub fn invoke(&self, process: u32, call: Call) -> u64 {
        let op = self.next_op.fetch_add(1, Ordering::Relaxed);
        self.push(process, op, Phase::Invoke { call });
        op
    }

    /// Notes how an operation ended, after the answer has arrived.
    pub fn complete(&self, process: u32, op: u64, phase: Phase) {
        self.push(process, op, phase);
    }

    /// The whole history, in the order of its times.
    ///
    /// # Errors
    /// [`RecorderFull`] when events were dropped.
    pub fn into_events(self) -> Result<Vec<Event>, RecorderFull> {
        let events = self.events.into_inner().unwrap_or_else(PoisonError::into_inner);
        if events.len() > self.events_count_max { Err(RecorderFull) } else { Ok(events) }
    }

    fn push(&self, process: u32, op: u64, phase: Phase) {
        // The time is taken under the lock, so that the order of the list is the order of the times.
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let at_us = self.start.elapsed().as_micros() as u64;
        // One event too many is kept: it says that the history is not whole.
        if events.len() <= self.events_count_max {
            events.push(Event { at_us, process, op, phase });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_that_is_not_whole_is_refused() {
        let recorder = Recorder::new(2);
        recorder.invoke(0, Call::Drained);
        recorder.invoke(0, Call::Drained);
        assert_eq!(recorder.next_op.load(Ordering::Relaxed), 2);
        recorder.invoke(0, Call::Drained);
        assert_eq!(recorder.into_events(), Err(RecorderFull));
    }
}
