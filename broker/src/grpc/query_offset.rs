//! `QueryOffset`: finds an offset by time. No official SDK calls it; not served yet.

use tonic::Status;

pub(super) fn refuse() -> Status {
    Status::unimplemented("QueryOffset is not served yet.")
}
