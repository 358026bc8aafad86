//! The command line's way to a cluster: the admin service of whichever endpoint answers first.

use crate::exit::Failure;
use raftmq_proto::admin::admin_client::AdminClient;
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};

/// How long one connection attempt may take.
const CONNECT_MS: u64 = 2000;
/// How long an admin call may take; a topic is created when each broker group has applied it.
const CALL_MS: u64 = 30_000;

/// A client of the admin service.
pub(crate) type Admin = AdminClient<Channel>;

/// Connects to the first endpoint that answers, in the given order. Error: unreachable, with what each one said.
pub(crate) async fn connect(endpoints: &[String]) -> Result<Admin, Failure> {
    let mut said = Vec::new();
    for address in endpoints {
        match connect_one(address).await {
            Ok(client) => return Ok(client),
            Err(sentence) => said.push(sentence),
        }
    }
    Err(Failure::unreachable(format!("no node answers: {}", said.join(", "))))
}

/// Connects to one endpoint. Error: part of a sentence that names it.
pub(crate) async fn connect_one(address: &str) -> Result<Admin, String> {
    let endpoint =
        endpoint(address)?.connect_timeout(Duration::from_millis(CONNECT_MS)).timeout(Duration::from_millis(CALL_MS));
    let channel = endpoint.connect().await.map_err(|error| format!("{address} ({})", cause(&error)))?;
    Ok(AdminClient::new(channel))
}

/// A gRPC endpoint in clear at `host:port` (a leading `http://` is fine). Error: part of a sentence.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, String> {
    let bare = address.strip_prefix("http://").unwrap_or(address);
    let valid = bare.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !valid {
        return Err(format!("\"{address}\" is not host:port"));
    }
    Endpoint::from_shared(format!("http://{bare}"))
        .map(|endpoint| endpoint.tcp_nodelay(true))
        .map_err(|_| format!("\"{address}\" is not host:port"))
}

/// The innermost cause of an error: what a person wants to read.
pub(crate) fn cause(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
