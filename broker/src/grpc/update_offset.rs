//! `UpdateOffset`: stores a group's offset. No official SDK calls it; not served yet.

use tonic::Status;

pub(super) fn refuse() -> Status {
    Status::unimplemented("UpdateOffset is not served yet.")
}
