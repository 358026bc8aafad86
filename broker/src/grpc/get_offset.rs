//! `GetOffset`: reads a group's offset. No official SDK calls it; not served yet.

use tonic::Status;

pub(super) fn refuse() -> Status {
    Status::unimplemented("GetOffset is not served yet.")
}
