//! Accepting connections and finding out what they speak, within bounds.

use super::connection::{ClientConnection, Transport};
use super::{ClientPortLimits, READY_COUNT_MAX};
use openssl::ssl::{Ssl, SslAcceptor};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_openssl::SslStream;
use tokio_util::sync::CancellationToken;

/// First byte of a TLS handshake record.
const TLS_HANDSHAKE: u8 = 0x16;
/// What an HTTP/2 client says first.
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Wait after a failed `accept` (too many open files), so that the failure does not become a busy loop.
const ACCEPT_PAUSE_MS: u64 = 50;

/// Turns raw connections into ones that tonic can serve.
pub(super) struct Acceptor {
    limits: ClientPortLimits,
    tls: SslAcceptor,
    cut: CancellationToken,
    ready: mpsc::Sender<ClientConnection>,
    connections: Arc<Semaphore>,
    handshakes: Arc<Semaphore>,
}

impl Acceptor {
    /// An acceptor that hands finished connections to `ready`; `cut` ends every one of them.
    pub(super) fn new(
        limits: ClientPortLimits,
        tls: SslAcceptor,
        cut: CancellationToken,
        ready: mpsc::Sender<ClientConnection>,
    ) -> Acceptor {
        assert!(ready.max_capacity() <= READY_COUNT_MAX, "finished connections are bounded");
        Acceptor {
            limits,
            tls,
            cut,
            ready,
            connections: Arc::new(Semaphore::new(limits.connections_count_max)),
            handshakes: Arc::new(Semaphore::new(limits.handshakes_count_max)),
        }
    }

    /// Accepts until `stop`; then the listener is closed.
    pub(super) async fn run(self, listener: TcpListener, stop: CancellationToken) {
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, _)) => self.take(stream),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    tracing::warn!(%error, "a client connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(ACCEPT_PAUSE_MS)).await;
                }
            }
        }
    }

    /// Starts to find out what a connection speaks; past a bound it is closed.
    fn take(&self, stream: TcpStream) {
        let permits =
            (Arc::clone(&self.connections).try_acquire_owned(), Arc::clone(&self.handshakes).try_acquire_owned());
        let (Ok(connection), Ok(handshake)) = permits else {
            tracing::debug!("a client connection was closed at once: too many");
            return;
        };
        let bound = Duration::from_millis(self.limits.handshake_ms_max);
        let (tls, cut, ready) = (self.tls.clone(), self.cut.clone(), self.ready.clone());
        tokio::spawn(async move {
            let opened = tokio::select! {
                () = cut.cancelled() => return,
                opened = tokio::time::timeout(bound, open(stream, tls, &cut, connection)) => opened,
            };
            drop(handshake);
            match opened {
                // The receiver is gone when the port is closing.
                Ok(Ok(connection)) => drop(ready.send(connection).await),
                Ok(Err(error)) => tracing::debug!(%error, "a client connection did not open"),
                Err(_) => tracing::debug!("a client connection did not open in time"),
            }
        });
    }
}

/// Whether `accept` failed because of the one connection that it was about.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn open(
    stream: TcpStream,
    tls: SslAcceptor,
    cut: &CancellationToken,
    permit: OwnedSemaphorePermit,
) -> io::Result<ClientConnection> {
    stream.set_nodelay(true)?;
    let peer = stream.peer_addr()?;
    let local = stream.local_addr()?;
    let mut first = [0u8; 1];
    if stream.peek(&mut first).await? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let transport = if first[0] == TLS_HANDSHAKE {
        let mut stream = SslStream::new(Ssl::new(tls.context())?, stream)?;
        Pin::new(&mut stream).accept().await.map_err(io::Error::other)?;
        read_preface(&mut stream).await?;
        Transport::Tls(Box::new(stream))
    } else {
        let mut stream = stream;
        read_preface(&mut stream).await?;
        Transport::Clear(stream)
    };
    Ok(ClientConnection::new(transport, (local, peer), cut.clone(), permit))
}

/// Reads the HTTP/2 preface; fails at the first byte that is another one. [`ClientConnection`] gives it to tonic again.
async fn read_preface<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut preface = [0u8; PREFACE.len()];
    let mut filled = 0;
    while filled < preface.len() {
        let read = stream.read(&mut preface[filled..]).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        filled += read;
        if preface[..filled] != PREFACE[..filled] {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "neither TLS nor HTTP/2"));
        }
    }
    Ok(())
}
