//! A machine whose state is the list of commands, kept by the test while the node comes and goes.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use raftmq_model::batch::Batch;
use raftmq_raft::{Entry, Machine};
use raftmq_store::commit_log::EntryKind;
use std::io;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

/// What survives of a machine, and what tests look at.
#[derive(Clone, Default, Debug, PartialEq)]
pub struct State {
    pub commands: Vec<Bytes>,
    /// (term, index) of the last applied entry.
    pub applied: (u64, u64),
    /// Physical offset of each batch's payload.
    pub offsets: Vec<(u64, u64)>,
    pub bookkeeping: Option<Bytes>,
    pub installed_count: u32,
}

#[derive(Clone)]
pub struct Shared(Arc<Mutex<State>>, watch::Sender<usize>);

impl Shared {
    pub fn new() -> Shared {
        Shared(Arc::default(), watch::Sender::new(0))
    }

    pub fn get(&self) -> State {
        self.0.lock().unwrap().clone()
    }

    pub async fn wait_for_commands(&self, count: usize) {
        self.1.subscribe().wait_for(|now| *now >= count).await.unwrap();
    }
}

pub struct TestMachine {
    shared: Shared,
    /// What the run under way adds.
    run: State,
    /// Applying this command fails.
    poison: Option<Bytes>,
}

impl TestMachine {
    pub fn fresh() -> (TestMachine, Shared) {
        let shared = Shared::new();
        (TestMachine::over(&shared), shared)
    }

    /// Goes on from what an earlier machine wrote.
    pub fn over(shared: &Shared) -> TestMachine {
        TestMachine { shared: shared.clone(), run: State::default(), poison: None }
    }

    pub fn poisoned_by(mut self, command: &'static [u8]) -> TestMachine {
        self.poison = Some(Bytes::from_static(command));
        self
    }

    fn write(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.shared.0.lock().unwrap();
        change(&mut state);
        self.shared.1.send_replace(state.commands.len());
    }
}

impl Machine for TestMachine {
    fn restored(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self.shared.get().bookkeeping)
    }

    fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Bytes>> {
        self.run.applied = (entry.term, entry.index);
        // The storage suite applies batches that are none.
        let Ok(batch) = Batch::decode(entry.payload.clone()) else { return Ok(Vec::new()) };
        assert_eq!(entry.kind, EntryKind::Batch);
        self.run.offsets.push((entry.index, entry.payload_offset.0));
        let mut outcomes = Vec::new();
        for (_, command) in batch.commands() {
            if self.poison.as_ref() == Some(&command) {
                return Err(io::Error::other("a poisoned command"));
            }
            let mut outcome = BytesMut::from(&b"did "[..]);
            outcome.put_slice(&command);
            outcomes.push(outcome.freeze());
            self.run.commands.push(Bytes::copy_from_slice(&command));
        }
        Ok(outcomes)
    }

    fn apply_end(&mut self, bookkeeping: Bytes) -> io::Result<()> {
        let run = std::mem::take(&mut self.run);
        self.write(|state| {
            state.commands.extend(run.commands);
            state.offsets.extend(run.offsets);
            state.applied = run.applied;
            state.bookkeeping = Some(bookkeeping);
        });
        Ok(())
    }

    fn snapshot(&mut self) -> io::Result<Bytes> {
        let state = self.shared.get();
        let mut bytes = BytesMut::new();
        bytes.put_u64(state.applied.0);
        bytes.put_u64(state.applied.1);
        for command in &state.commands {
            bytes.put_u32(command.len() as u32);
            bytes.put_slice(command);
        }
        Ok(bytes.freeze())
    }

    fn install(&mut self, mut snapshot: Bytes, bookkeeping: Bytes) -> io::Result<()> {
        let applied = (snapshot.get_u64(), snapshot.get_u64());
        let mut commands = Vec::new();
        while snapshot.has_remaining() {
            let len = snapshot.get_u32() as usize;
            commands.push(snapshot.split_to(len));
        }
        self.write(|state| {
            let installed_count = state.installed_count + 1;
            let bookkeeping = Some(bookkeeping);
            *state = State { commands, applied, bookkeeping, installed_count, ..State::default() };
        });
        Ok(())
    }
}
