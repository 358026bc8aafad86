//! One connection of the simulated network: two halves, each from a writer to a reader.

use super::net::{Host, Net, WINDOW_BYTES};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What travels.
enum Parcel {
    Bytes(Bytes),
    /// The writer is done.
    End,
    /// The writer is gone in the middle.
    Reset,
}

/// One direction of a connection.
pub(super) struct Half {
    pub(super) from: Host,
    pub(super) to: Host,
    /// The other direction.
    pub(super) pair: u64,
    under_way: VecDeque<Parcel>,
    arrived: VecDeque<Bytes>,
    /// Bytes under way or not read yet.
    held_bytes: usize,
    pub(super) last_arrival_us: u64,
    ended: bool,
    /// The reader sees an error.
    reset: bool,
    /// The writer sees an error.
    broken: bool,
    writer_is_gone: bool,
    reader_is_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Half {
    pub(super) fn new(from: Host, to: Host, pair: u64) -> Half {
        Half {
            from,
            to,
            pair,
            under_way: VecDeque::new(),
            arrived: VecDeque::new(),
            held_bytes: 0,
            last_arrival_us: 0,
            ended: false,
            reset: false,
            broken: false,
            writer_is_gone: false,
            reader_is_gone: false,
            reader: None,
            writer: None,
        }
    }

    pub(super) fn touches(&self, host: Host) -> bool {
        self.from == host || self.to == host
    }

    /// Takes in the next parcel; how many bytes it had.
    pub(super) fn arrive(&mut self) -> usize {
        let bytes = match self.under_way.pop_front() {
            None => return 0,
            Some(Parcel::End) => {
                self.ended = true;
                1
            }
            Some(Parcel::Reset) => {
                self.reset_reader();
                2
            }
            Some(Parcel::Bytes(bytes)) => {
                let len = bytes.len();
                if !self.reader_is_gone {
                    self.arrived.push_back(bytes);
                }
                len
            }
        };
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        bytes
    }

    pub(super) fn reader_is_gone(&self) -> bool {
        self.reader_is_gone
    }

    /// The writer hears that nobody reads.
    pub(super) fn reset_writer(&mut self) {
        self.broken = true;
        if let Some(writer) = self.writer.take() {
            writer.wake();
        }
    }

    /// The reader hears that the connection is gone.
    pub(super) fn reset_reader(&mut self) {
        self.reset = true;
        self.arrived.clear();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn drop_writer(&mut self) {
        self.writer_is_gone = true;
        self.writer = None;
    }

    pub(super) fn drop_reader(&mut self) {
        self.reader_is_gone = true;
        self.reader = None;
        self.arrived.clear();
    }

    pub(super) fn send_reset(&mut self) {
        self.under_way.push_back(Parcel::Reset);
    }

    /// Nobody will look at it again.
    pub(super) fn is_done(&self) -> bool {
        self.writer_is_gone && self.reader_is_gone
    }
}

/// One end of a connection.
pub struct SimStream {
    net: Net,
    read: u64,
    write: u64,
    shut: bool,
}

impl SimStream {
    pub(super) fn new(net: Net, read: u64, write: u64) -> SimStream {
        SimStream { net, read, write, shut: false }
    }
}

impl AsyncRead for SimStream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut state = self.net.lock();
        let Some(half) = state.halves.get_mut(&self.read) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        if half.reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let mut taken = 0;
        while let Some(first) = half.arrived.front_mut() {
            let count = first.len().min(buf.remaining());
            if count == 0 {
                break;
            }
            buf.put_slice(&first[..count]);
            first.advance(count);
            taken += count;
            if first.is_empty() {
                half.arrived.pop_front();
            }
        }
        if taken == 0 && !half.ended && buf.remaining() > 0 {
            half.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        half.held_bytes -= taken;
        if let Some(writer) = half.writer.take() {
            writer.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SimStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let mut state = self.net.lock();
        let Some(half) = state.halves.get_mut(&self.write).filter(|half| !half.broken && !self.shut) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let room = WINDOW_BYTES.saturating_sub(half.held_bytes);
        if room == 0 {
            half.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        let count = room.min(buf.len());
        half.held_bytes += count;
        half.under_way.push_back(Parcel::Bytes(Bytes::copy_from_slice(&buf[..count])));
        state.sent(self.write);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.end();
        Poll::Ready(Ok(()))
    }
}

impl SimStream {
    fn end(&mut self) {
        if std::mem::replace(&mut self.shut, true) {
            return;
        }
        let mut state = self.net.lock();
        if let Some(half) = state.halves.get_mut(&self.write).filter(|half| !half.writer_is_gone) {
            half.under_way.push_back(Parcel::End);
            state.sent(self.write);
        }
    }
}

impl Drop for SimStream {
    fn drop(&mut self) {
        self.end();
        let mut state = self.net.lock();
        if let Some(half) = state.halves.get_mut(&self.write) {
            half.drop_writer();
        }
        if let Some(half) = state.halves.get_mut(&self.read) {
            half.drop_reader();
        }
        state.forget_done(self.write);
        state.forget_done(self.read);
    }
}
