//! How a client connects: TCP unless the options name another way.

use crate::error::ClientError;
use hyper_util::rt::TokioIo;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::transport::{Channel, Endpoint, Uri};
use tower::service_fn;

/// A stream of bytes in both directions.
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// Connects to `host:port`, for networks that are not the system's: a simulation, a tunnel.
#[derive(Clone)]
pub struct Connector(Arc<dyn Fn(String) -> Connecting + Send + Sync>);

impl Connector {
    /// A connector that calls `connect` for each connection.
    pub fn new<F, C>(connect: impl Fn(String) -> F + Send + Sync + 'static) -> Connector
    where
        F: Future<Output = io::Result<C>> + Send + 'static,
        C: Connection + 'static,
    {
        Connector(Arc::new(move |address| {
            let connecting = connect(address);
            Box::pin(async move { Ok(Box::new(connecting.await?) as Box<dyn Connection>) })
        }))
    }

    pub(crate) fn lazy(&self, endpoint: &Endpoint, address: &str) -> Channel {
        let (connector, address) = (self.clone(), address.to_owned());
        endpoint.connect_with_connector_lazy(service_fn(move |_: Uri| {
            let connecting = (connector.0)(address.clone());
            async move { connecting.await.map(TokioIo::new) }
        }))
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

/// The endpoint of an address, without any bounds.
pub(crate) fn endpoint(address: &str) -> Result<Endpoint, ClientError> {
    Endpoint::from_shared(format!("http://{address}")).map_err(|_| ClientError::Endpoint(address.to_owned()))
}
