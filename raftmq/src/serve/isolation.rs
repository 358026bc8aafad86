//! The client port is open while this node can reach a majority of all nodes, itself among them. Cut off from it, the
//! node closes the port and all its connections, so that SDKs move to a node that can serve them.

use super::born::Born;
use super::node::Node;
use super::{busy, reach};
use crate::client_port::{ClientPort, OpenClientPort};
use crate::exit::Failure;
use openssl::ssl::SslAcceptor;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Wait before the port is tried again when it cannot be opened at once.
const REOPEN_MS: u64 = 200;

/// Opens and closes the client port until `stop`; answers the port if it is open then.
pub(super) async fn keep_client_port(
    node: &Arc<Node>,
    born: &Arc<Born>,
    tls: SslAcceptor,
    stop: impl Future<Output = ()>,
) -> Result<Option<OpenClientPort>, Failure> {
    let port = node.client_port(tls);
    let routes = tonic::service::Routes::new(born.edge.messaging_service());
    let mut majority = reach::follow(node, born);
    let mut open: Option<OpenClientPort> = None;
    tokio::pin!(stop);
    loop {
        let wanted = open.is_none();
        tokio::select! {
            () = &mut stop => return Ok(open),
            changed = majority.wait_for(|majority| *majority == wanted) => if changed.is_err() {
                return Err(Failure::fatal("the Raft runtime is gone"));
            },
        }
        open = match open.take() {
            Some(port) => {
                tracing::warn!("no majority of the nodes answers: the client port is closed");
                port.cut().await;
                None
            }
            None => Some(open_port(node, &port, &routes).await?),
        };
    }
}

async fn open_port(node: &Node, port: &ClientPort, routes: &tonic::service::Routes) -> Result<OpenClientPort, Failure> {
    let mut attempts = 0;
    loop {
        match port.listen().await {
            Ok(listener) => {
                tracing::info!(address = %port.address, "client port open");
                return Ok(port.open(listener, routes.clone()));
            }
            // Another process may have taken the port while it was closed; it was free at the start.
            Err(error) if attempts >= REOPEN_ATTEMPTS => {
                return Err(busy("client_listen", &node.config.client_listen, &error));
            }
            Err(_) => {
                attempts += 1;
                tokio::time::sleep(Duration::from_millis(REOPEN_MS)).await;
            }
        }
    }
}

const REOPEN_ATTEMPTS: u32 = 25;
