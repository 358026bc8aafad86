//! Finding messages: by key, by message id, by time.
//!
//! An index entry or a ConsumeQueue unit only says where to look. What is answered was read from the log: its topic and its key are
//! those that were asked for, its ConsumeQueue has it at an offset that was not purged, and its log time lies in the span.
//! The answer is as of the moment of the call: behind a read barrier, and the index is brought there first.

use super::Replica;
use super::failure::{failure, of_propose, of_read};
use crate::units::{UnitDamage, Units, find, first_behind};
use bytes::Bytes;
use raftmq_model::batch::{BATCH_HEADER_BYTES, Batch};
use raftmq_model::ids::{PhysicalOffset, QueueId, QueueOffset, Timestamp, TopicUid};
use raftmq_model::record::RecordView;
use raftmq_proto::forward::{Failure, QueriedMessage, QueryReply, QueryRequest, failure::Kind, query_request::By};
use raftmq_store::index_file::KeyIndex;
use std::io::{self, ErrorKind};
use std::sync::Arc;

/// Messages that one query is answered with, at most.
pub const QUERY_COUNT_MAX: u32 = 1000;
/// Bytes of records in one answer; the message that reaches it is the last one.
pub const QUERY_BYTES_MAX: usize = 16 << 20;
/// Queries of one group that are worked on at the same time; further ones are refused.
pub const QUERIES_COUNT_MAX: usize = 4;
/// Index entries that one query looks at; then its answer says that it is not complete.
const LOOKED_AT_COUNT_MAX: u64 = 1_000_000;
/// Bytes of log that a query brings the index forward, before it answers from what is there.
const CATCH_UP_BYTES_MAX: usize = 64 << 20;
/// Bytes of a record that say how long it is.
const SIZE_BYTES: u32 = 4;

/// What is looked for, checked.
struct Query {
    topic: TopicUid,
    name: String,
    by: Option<By>,
    from: Timestamp,
    to: Timestamp,
    count_max: usize,
}

/// Messages so far.
#[derive(Default)]
struct Answer {
    messages: Vec<QueriedMessage>,
    bytes: usize,
    truncated: bool,
    incomplete: String,
}

impl Replica {
    /// The messages of a topic with a key or an id, newest first, or of a span of time, oldest first, that are stored in this group.
    /// Linearizable.
    ///
    /// # Errors
    /// NOT_LEADER or NOT_READY, also while an entry that is needed is repaired; OVERLOADED when [`QUERIES_COUNT_MAX`] are worked on; INVALID
    /// when the group has no index; UNKNOWN when the leadership could not be confirmed or something cannot be read.
    pub async fn query(self: &Arc<Self>, request: QueryRequest) -> Result<QueryReply, Failure> {
        self.leading()?;
        let too_many = || failure(Kind::Overloaded, "too many queries at the same time: try again");
        let permit = Arc::clone(&self.queries).try_acquire_owned().map_err(|_| too_many())?;
        let query = Query {
            topic: TopicUid(request.topic_uid),
            name: request.topic,
            from: Timestamp(request.from_ms),
            to: Timestamp(if request.to_ms == 0 { i64::MAX } else { request.to_ms }),
            by: request.by,
            count_max: request.count_max.clamp(1, QUERY_COUNT_MAX) as usize,
        };
        self.group.read_barrier().await.map_err(of_propose)?;
        let replica = Arc::clone(self);
        let found = self.blocking(move || {
            let _permit = permit;
            replica.find(&query)
        });
        match found.await {
            Ok(Answer { messages, truncated, incomplete, .. }) => {
                Ok(QueryReply { failure: None, messages, truncated, incomplete })
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => Err(failure(Kind::Invalid, error.to_string())),
            Err(error) => {
                tracing::error!(group = %self.id(), %error, "a query could not be answered");
                // A damaged entry is being repaired: never an answer without it.
                Err(of_read(Kind::Unknown, "the log or its index", &error))
            }
        }
    }

    fn find(&self, query: &Query) -> io::Result<Answer> {
        let mut answer = Answer::default();
        match &query.by {
            None => self.find_by_time(query, &mut answer)?,
            Some(by) => {
                let keys = self.keys.as_ref().ok_or_else(|| {
                    io::Error::new(ErrorKind::Unsupported, "the leader keeps no key index (`key_index = false`)")
                })?;
                self.find_by_key(query, by, keys, &mut answer)?;
            }
        }
        Ok(answer)
    }

    fn find_by_key(&self, query: &Query, by: &By, keys: &KeyIndex, answer: &mut Answer) -> io::Result<()> {
        let applied = self.view.applied();
        let followed = keys.follow(self.group.log(), applied, CATCH_UP_BYTES_MAX)?;
        if !followed.up_to_date {
            let next = followed.next_index;
            answer.incomplete = format!("the index is being built and has log entries before {next} of {applied}");
        }
        let (By::Key(key) | By::MessageId(key)) = by;
        let mut search = keys.search(&query.name, key, query.from, query.to);
        while let Some(batch) = search.next_batch()? {
            for candidate in batch {
                let Some(message) = self.stored(query, candidate.physical, None)? else { continue };
                if !answer.take(message, query.count_max) {
                    return Ok(());
                }
            }
            if search.looked_at() >= LOOKED_AT_COUNT_MAX {
                answer.truncated = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Messages of all queues in the order in which they were stored.
    fn find_by_time(&self, query: &Query, answer: &mut Answer) -> io::Result<()> {
        let ends: Vec<(QueueId, QueueOffset, QueueOffset)> = {
            let state = self.view.state();
            let of_topic = state.queues().filter(|(topic, ..)| *topic == query.topic);
            of_topic.map(|(topic, queue, max)| (queue, state.queue_min(topic, queue), max)).collect()
        };
        let mut found = Vec::new();
        for (queue, min, max) in ends {
            let from = self.first_at(query.topic, queue, (min, max), query.from)?;
            // One more than is wanted says whether there are more.
            let until = QueueOffset(max.0.min(from.0.saturating_add(query.count_max as u64 + 1)));
            self.units_upto(query, queue, (from, until), &mut found)?;
        }
        found.sort_unstable();
        for (physical, queue, offset) in found {
            let Some(message) = self.stored(query, physical, Some((queue, offset)))? else { continue };
            if !answer.take(message, query.count_max) {
                break;
            }
        }
        Ok(())
    }

    /// The first offset of a queue whose message was stored at `time` or later; log time never runs backwards.
    fn first_at(
        &self,
        topic: TopicUid,
        queue: QueueId,
        (min, max): (QueueOffset, QueueOffset),
        time: Timestamp,
    ) -> io::Result<QueueOffset> {
        let units = Units::of(&self.view, self.group.log(), topic, queue);
        // What was purged meanwhile is older.
        first_behind(&units, min.0..max.0, |unit| {
            Ok(self.log_time(unit.physical)?.is_some_and(|stored| stored >= time))
        })
    }

    fn units_upto(
        &self,
        query: &Query,
        queue: QueueId,
        (from, until): (QueueOffset, QueueOffset),
        found: &mut Vec<(PhysicalOffset, QueueId, QueueOffset)>,
    ) -> io::Result<()> {
        for offset in (from.0..until.0).map(QueueOffset) {
            let Some(physical) = self.physical_of(query.topic, queue, offset)? else { continue };
            if self.log_time(physical)?.is_some_and(|time| time > query.to) {
                return Ok(());
            }
            found.push((physical, queue, offset));
        }
        Ok(())
    }

    /// Where a message lies; `None` when it was purged meanwhile. A unit that is damaged is repaired first.
    fn physical_of(&self, topic: TopicUid, queue: QueueId, offset: QueueOffset) -> io::Result<Option<PhysicalOffset>> {
        let log = self.group.log();
        let read = || self.view.message(log, topic, queue, offset, None);
        let read = read().or_else(|error| match UnitDamage::of(&error) {
            Some(_) => Units::of(&self.view, log, topic, queue).repair(offset).and_then(|_| read()),
            None => Err(error),
        });
        match read {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            read => read.map(|(physical, _)| Some(physical)),
        }
    }

    /// The log time of the entry at an offset; `None` when the log holds none there.
    fn log_time(&self, at: PhysicalOffset) -> io::Result<Option<Timestamp>> {
        let log = self.group.log();
        let Some(payload) = log.payload_around(at) else { return Ok(None) };
        match log.record(payload, BATCH_HEADER_BYTES as u32) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            head => Ok(Batch::peek_now(&head?)),
        }
    }

    /// The message whose record lies at `physical`, if it is one that is looked for and it is stored; `known` is its place.
    fn stored(
        &self,
        query: &Query,
        physical: PhysicalOffset,
        known: Option<(QueueId, QueueOffset)>,
    ) -> io::Result<Option<QueriedMessage>> {
        let Some(time) = self.log_time(physical)?.filter(|time| (query.from..=query.to).contains(time)) else {
            return Ok(None);
        };
        let Some(record) = self.record_at(physical)? else { return Ok(None) };
        let Ok(view) = RecordView::parse(&record) else { return Ok(None) };
        let is_meant = view.topic() == query.name
            && match &query.by {
                Some(By::Key(key)) => view.keys().any(|one| one == key),
                Some(By::MessageId(id)) => view.message_id() == Some(id),
                None => true,
            };
        if !is_meant {
            return Ok(None);
        }
        let (queue, offset) = match known {
            Some(place) => place,
            None => match self.place(query.topic, QueueId(view.queue_id()), physical)? {
                Some(offset) => (QueueId(view.queue_id()), offset),
                None => return Ok(None),
            },
        };
        let (queue_offset, physical_offset) = (offset.0, physical.0);
        Ok(Some(QueriedMessage { queue_id: queue.0, queue_offset, physical_offset, stored_at_ms: time.0, record }))
    }

    fn record_at(&self, physical: PhysicalOffset) -> io::Result<Option<Bytes>> {
        let log = self.group.log();
        let read = log.record(physical, SIZE_BYTES).and_then(|size| {
            let size = size.as_ref().try_into().map_or(0, u32::from_be_bytes);
            log.record(physical, size)
        });
        match read {
            // Purged, or never a record.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            record => record.map(Some),
        }
    }

    /// The offset that a record has in its queue; `None` for one that was not stored (a repeat) or is purged.
    fn place(&self, topic: TopicUid, queue: QueueId, physical: PhysicalOffset) -> io::Result<Option<QueueOffset>> {
        let (min, max) = {
            let state = self.view.state();
            let Some(max) = state.queue_max(topic, queue) else { return Ok(None) };
            (state.queue_min(topic, queue), max)
        };
        let units = Units::of(&self.view, self.group.log(), topic, queue);
        Ok(find(&units, physical)?.filter(|offset| (min..max).contains(offset)))
    }
}

impl Answer {
    /// Adds a message; false when nothing more is wanted.
    fn take(&mut self, message: QueriedMessage, count_max: usize) -> bool {
        if self.messages.len() == count_max || self.bytes >= QUERY_BYTES_MAX {
            self.truncated = true;
            return false;
        }
        self.bytes += message.record.len();
        self.messages.push(message);
        true
    }
}
