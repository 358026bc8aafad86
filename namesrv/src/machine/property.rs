//! Property: a copy that follows the changes, from any point on, is equal to the state; and every command twice is as
//! good as once.

use super::tests::{birth, node};
use super::*;
use proptest::prelude::*;
use raftmq_model::meta::{AlterTopic, CreateTopic, ReplaceNode, ReportLeader, SetAlive};

fn names() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["orders", "billing", "audit", "", "%DLQ%orders", "no good"]).prop_map(str::to_owned)
}

fn consumer_groups() -> impl Strategy<Value = ConsumerGroupConfig> {
    (0..12u64, 0..12u64, names(), any::<bool>(), 0..3u32).prop_map(|(uid, version, name, fifo, attempts_max)| {
        ConsumerGroupConfig { uid, version, name, fifo, attempts_max, consume_enabled: true }
    })
}

fn ops() -> impl Strategy<Value = MetaOp> {
    prop_oneof![
        1 => (1..3u32).prop_map(birth),
        1 => (1..6u32, 1..3u32).prop_map(|(id, incarnation)| MetaOp::PutNode(NodeRecord { incarnation, ..node(id) })),
        1 => (1..6u32, 1..4u32)
            .prop_map(|(node, incarnation)| MetaOp::ReplaceNode(ReplaceNode { node, incarnation })),
        2 => (1..6u32, any::<bool>()).prop_map(|(node, alive)| MetaOp::SetAlive(SetAlive { node, alive })),
        2 => (0..3u32, 0..5u64, 1..5u32)
            .prop_map(|(group, term, node)| MetaOp::ReportLeader(ReportLeader { group, term, node })),
        4 => (names(), 0..6i32, 0..8i32, 0..5u32).prop_map(|(name, topic_type, permission, queue_count)| {
            MetaOp::CreateTopic(CreateTopic { name, topic_type, permission, queue_count })
        }),
        3 => (0..12u64, prop::option::of(0..8i32), prop::option::of(0..9u32)).prop_map(
            |(uid, permission, queue_count)| MetaOp::AlterTopic(AlterTopic { uid, permission, queue_count })
        ),
        2 => (0..12u64).prop_map(MetaOp::DeleteTopic),
        4 => consumer_groups().prop_map(MetaOp::CreateConsumerGroup),
        2 => consumer_groups().prop_map(MetaOp::AlterConsumerGroup),
        2 => (0..12u64).prop_map(MetaOp::DeleteConsumerGroup),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn a_copy_that_follows_the_changes_equals_the_state(script in prop::collection::vec(ops(), 1..40), born in any::<bool>()) {
        let mut state = MetaState::default();
        let (mut from_start, mut late) = (MetaView::default(), None::<MetaView>);
        let script = born.then(|| birth(2)).into_iter().chain(script);
        for (index, op) in (1u64..).zip(script) {
            let command = MetaCommand { op: Some(op) };
            let (outcome, change) = state.apply(index, &command);
            prop_assert_eq!(change.revision, index);
            if change.reset || !change.records.is_empty() {
                from_start.take(&change);
                if let Some(late) = &mut late { late.take(&change); }
            }
            if index == 10 {
                let mut view = MetaView::default();
                view.take(&state.full_change());
                late = Some(view);
            }
            prop_assert_eq!(&from_start, &state.view());
            if let Some(late) = &late { prop_assert_eq!(late, &state.view()); }

            let before = state.clone();
            let (again, change) = state.apply(index, &command);
            prop_assert!(change.records.is_empty() && !change.reset);
            prop_assert_eq!(&before, &state);
            prop_assert_eq!(outcome, again);
        }
        prop_assert_eq!(&MetaState::decode_snapshot(&state.encode_snapshot()).unwrap(), &state);
    }
}
