//! `PullMessage`: takes messages from an offset on. No official SDK calls it; not served yet.

use tonic::Status;

pub(super) fn refuse() -> Status {
    Status::unimplemented("PullMessage is not served yet.")
}
