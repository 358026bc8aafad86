//! `DeadLetter`: append to the dead-letter topic and finish the message, in one step.

use super::append::{enqueue, record_at};
use super::changes::Changes;
use super::{GroupState, attempts_max};
use crate::command::{DeadLetter, HandleKey, HandleOutcome, Outcome};
use crate::ids::{ConsumerGroupUid, Position, QueueId, TopicUid};
use prost::Message;

/// Bytes of kind and version before the body of a command.
const COMMAND_HEADER_BYTES: usize = 2;

impl GroupState {
    pub(super) fn dead_letter(
        &mut self,
        at: Position,
        command_at: u32,
        letter: &DeadLetter,
        changes: &mut Changes,
    ) -> Outcome {
        let Some(handle) = &letter.handle else { return Outcome::Refused("no handle".into()) };
        if let Err(outcome) = self.judge_letter(handle) {
            return Outcome::Handles(vec![outcome]);
        }
        let place = (TopicUid(letter.letter_topic), QueueId(letter.letter_queue));
        let Some(topic) = self.topics.get_mut(&place.0) else { return Outcome::UnknownTopic };
        let Some(queue) = topic.queues.get_mut(&place.1) else {
            return Outcome::Refused(format!(
                "queue {} of dead-letter topic {} is not in this group",
                place.1, place.0
            ));
        };
        let physical = record_at(at, command_at, letter_at(letter));
        enqueue(queue, &mut self.dirty.queues, place, physical, &letter.letter, letter.letter_tags_code, changes);
        self.finish(handle, changes);
        Outcome::Handles(vec![HandleOutcome::Done])
    }

    fn judge_letter(&self, handle: &HandleKey) -> Result<(), HandleOutcome> {
        if handle.popped_at != 0 {
            return self.judge(handle).map(|_| ());
        }
        let record = self.held(handle)?;
        let group = self.consumer_groups.get(&ConsumerGroupUid(handle.consumer_group)).ok_or(HandleOutcome::Gone)?;
        let exhausted = record.attempt >= attempts_max(&group.config);
        if record.attempt == handle.attempt && exhausted && record.visible_at <= self.now {
            Ok(())
        } else {
            Err(HandleOutcome::Superseded)
        }
    }
}

/// Offset of the letter within the encoded command: it is the last field of the body, so it is the command's tail.
pub(super) fn letter_at(letter: &DeadLetter) -> u32 {
    let at = COMMAND_HEADER_BYTES + letter.encoded_len() - letter.letter.len();
    u32::try_from(at).unwrap_or(u32::MAX)
}
