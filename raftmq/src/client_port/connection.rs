//! One client connection, clear or TLS, as tonic serves it.

use super::accept::PREFACE;
use super::authority::Repair;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_openssl::SslStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Bytes that are read at a time while `:authority` is repaired.
const REPAIR_READ_BYTES: usize = 16 << 10;

/// The bytes below HTTP/2.
pub(super) enum Transport {
    /// TCP.
    Clear(TcpStream),
    /// TLS over TCP.
    Tls(Box<SslStream<TcpStream>>),
}

/// A connection whose preface was read; it reads as if it had not been.
pub(crate) struct ClientConnection {
    transport: Transport,
    /// Bytes of the preface that were given out.
    preface_read: usize,
    /// Until it is known that the client sends one address as `:authority`.
    repair: Option<Repair>,
    local: SocketAddr,
    peer: SocketAddr,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Counts the connection as long as it lives.
    _permit: OwnedSemaphorePermit,
}

impl ClientConnection {
    /// A connection between `addresses` (local, peer) that fails as soon as `cut` says so.
    pub(super) fn new(
        transport: Transport,
        addresses: (SocketAddr, SocketAddr),
        cut: CancellationToken,
        permit: OwnedSemaphorePermit,
    ) -> ClientConnection {
        let (local, peer) = addresses;
        ClientConnection {
            transport,
            preface_read: 0,
            repair: Some(Repair::new()),
            local,
            peer,
            cut: Box::pin(cut.cancelled_owned()),
            _permit: permit,
        }
    }
}

impl Transport {
    fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Transport::Clear(stream) => Pin::new(stream).poll_read(cx, buffer),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl ClientConnection {
    fn poll_read_repaired(&mut self, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.repair.as_ref().is_some_and(Repair::is_off) {
            self.repair = None;
        }
        let Some(repair) = &mut self.repair else {
            return self.transport.poll_read(cx, buffer);
        };
        while !repair.has_output() {
            let mut piece = [0u8; REPAIR_READ_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            std::task::ready!(self.transport.poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            repair.input(piece.filled());
        }
        let count = repair.output(buffer.initialize_unfilled().into());
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl Connected for ClientConnection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: Some(self.local), remote_addr: Some(self.peer) }
    }
}

impl AsyncRead for ClientConnection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.preface_read < PREFACE.len() {
            let count = buffer.remaining().min(PREFACE.len() - this.preface_read);
            buffer.put_slice(&PREFACE[this.preface_read..this.preface_read + count]);
            this.preface_read += count;
            return Poll::Ready(Ok(()));
        }
        let read = this.poll_read_repaired(cx, buffer);
        // Only asked when there is nothing to read, which keeps it off the hot path; the waker that it registers is
        // what ends an idle connection.
        if read.is_pending() && this.cut.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        read
    }
}

impl AsyncWrite for ClientConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_write(cx, bytes),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Clear(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Clear(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
