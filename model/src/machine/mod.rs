//! The state machine of a broker group.
