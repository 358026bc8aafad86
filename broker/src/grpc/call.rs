//! What every call says about itself: who calls, with which SDK, and how long it waits.

use crate::clients::Sdk;
use crate::deadline::Deadline;
use crate::status::Refusal;
use raftmq_proto::metadata::{CLIENT_ID, CLIENT_VERSION, LANGUAGE};
use raftmq_proto::v2::{Code, Resource};
use std::borrow::Cow;
use std::net::SocketAddr;
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::MetadataMap;

/// A call, without its message.
pub(super) struct Call {
    metadata: MetadataMap,
    /// The caller's SDK.
    pub(super) sdk: Sdk,
    /// When an answer is due.
    pub(super) deadline: Deadline,
    /// Where the call comes from, when the server knows.
    pub(super) remote: Option<SocketAddr>,
}

impl Call {
    /// Takes a request apart.
    pub(super) fn of<T>(request: Request<T>) -> (Call, T) {
        let remote = request.remote_addr();
        let (metadata, _, message) = request.into_parts();
        let sdk = text(&metadata, LANGUAGE).map_or(Sdk::Other, Sdk::of_language);
        let deadline = Deadline::of(&metadata, Instant::now());
        (Call { metadata, sdk, deadline, remote }, message)
    }

    /// The client's id, which no call may lack.
    pub(super) fn client_id(&self) -> Result<&str, Refusal> {
        text(&self.metadata, CLIENT_ID).filter(|id| !id.trim().is_empty()).ok_or_else(|| {
            Refusal::new(Code::ClientIdRequired, "The call has no x-mq-client-id header, or it is blank.")
        })
    }

    /// The SDK's version, empty when it says none.
    pub(super) fn version(&self) -> &str {
        text(&self.metadata, CLIENT_VERSION).unwrap_or("")
    }

    /// The latest moment to answer.
    pub(super) fn answer_by(&self) -> Instant {
        self.deadline.answer_by()
    }
}

fn text<'a>(metadata: &'a MetadataMap, key: &str) -> Option<&'a str> {
    metadata.get(key).and_then(|value| value.to_str().ok())
}

/// The name by which the cluster knows a topic or a consumer group: within a namespace it is `namespace%name`. Empty
/// when there is none.
pub(super) fn name_of(resource: Option<&Resource>) -> Cow<'_, str> {
    match resource {
        None => Cow::Borrowed(""),
        Some(resource) if resource.resource_namespace.is_empty() => Cow::Borrowed(&resource.name),
        // A blank name stays blank, so that it is refused as such.
        Some(resource) if resource.name.trim().is_empty() => Cow::Borrowed(""),
        Some(resource) => Cow::Owned(format!("{}%{}", resource.resource_namespace, resource.name)),
    }
}
