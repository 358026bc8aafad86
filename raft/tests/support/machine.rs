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
    state: State,
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
        TestMachine { shared: shared.clone(), state: shared.get(), poison: None }
    }

    pub fn poisoned_by(mut self, command: &'static [u8]) -> TestMachine {
        self.poison = Some(Bytes::from_static(command));
        self
    }

    fn publish(&mut self, bookkeeping: Bytes) {
        self.state.bookkeeping = Some(bookkeeping);
        *self.shared.0.lock().unwrap() = self.state.clone();
        self.shared.1.send_replace(self.state.commands.len());
    }
}

impl Machine for TestMachine {
    fn restored(&mut self) -> io::Result<Option<Bytes>> {
        Ok(self.state.bookkeeping.clone())
    }

    fn apply(&mut self, entry: &Entry) -> io::Result<Vec<Bytes>> {
        self.state.applied = (entry.term, entry.index);
        // The storage suite applies batches that are none.
        let Ok(batch) = Batch::decode(entry.payload.clone()) else { return Ok(Vec::new()) };
        assert_eq!(entry.kind, EntryKind::Batch);
        self.state.offsets.push((entry.index, entry.payload_offset.0));
        let mut outcomes = Vec::new();
        for (_, command) in batch.commands() {
            if self.poison.as_ref() == Some(&command) {
                return Err(io::Error::other("a poisoned command"));
            }
            let mut outcome = BytesMut::from(&b"did "[..]);
            outcome.put_slice(&command);
            outcomes.push(outcome.freeze());
            self.state.commands.push(Bytes::copy_from_slice(&command));
        }
        Ok(outcomes)
    }

    fn apply_end(&mut self, bookkeeping: Bytes) -> io::Result<()> {
        self.publish(bookkeeping);
        Ok(())
    }

    fn snapshot(&mut self) -> io::Result<Bytes> {
        let mut bytes = BytesMut::new();
        bytes.put_u64(self.state.applied.0);
        bytes.put_u64(self.state.applied.1);
        for command in &self.state.commands {
            bytes.put_u32(command.len() as u32);
            bytes.put_slice(command);
        }
        Ok(bytes.freeze())
    }

    fn install(&mut self, mut snapshot: Bytes, bookkeeping: Bytes) -> io::Result<()> {
        self.state.applied = (snapshot.get_u64(), snapshot.get_u64());
        self.state.commands.clear();
        self.state.offsets.clear();
        while snapshot.has_remaining() {
            let len = snapshot.get_u32() as usize;
            self.state.commands.push(snapshot.split_to(len));
        }
        self.state.installed_count += 1;
        self.publish(bookkeeping);
        Ok(())
    }
}
