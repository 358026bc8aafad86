//! A bound for the bytes of requests that a node holds at a time.
//!
//! Bytes are counted as they come in, before they are decoded, and given back when the call is answered. Past the bound
//! the request ends with gRPC RESOURCE_EXHAUSTED: the node sheds what it could not hold, before it has held it.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, Response};
use http_body::{Frame, SizeHint};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

/// Bytes of requests that are being received or served.
#[derive(Debug)]
pub struct Budget {
    bytes_max: usize,
    used_bytes: AtomicUsize,
}

impl Budget {
    /// An unused budget.
    #[must_use]
    pub fn new(bytes_max: usize) -> Arc<Budget> {
        Arc::new(Budget { bytes_max, used_bytes: AtomicUsize::new(0) })
    }

    /// Bytes in use now.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize) -> bool {
        let grown = |used: usize| used.checked_add(bytes).filter(|used| *used <= self.bytes_max);
        self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        let before = self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "more bytes were given back than taken");
    }
}

/// What one call holds of a [`Budget`]; given back when its last clone is dropped.
#[derive(Clone, Debug)]
pub(super) struct Reservation(Arc<Held>);

#[derive(Debug)]
struct Held {
    budget: Arc<Budget>,
    bytes: AtomicUsize,
}

impl Reservation {
    fn new(budget: Arc<Budget>) -> Reservation {
        Reservation(Arc::new(Held { budget, bytes: AtomicUsize::new(0) }))
    }

    fn grow(&self, bytes: usize) -> bool {
        let taken = self.0.budget.take(bytes);
        if taken {
            self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        taken
    }

    /// Gives back what is held; for calls that live on after their messages were dealt with.
    pub(super) fn release(&self) {
        self.0.give_back();
    }
}

impl Held {
    fn give_back(&self) {
        self.budget.give_back(self.bytes.swap(0, Ordering::Relaxed));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// A gRPC service whose requests are counted.
#[derive(Clone, Debug)]
pub struct Budgeted<S> {
    inner: S,
    budget: Arc<Budget>,
}

impl<S> Budgeted<S> {
    /// Counts the requests of `inner`.
    #[must_use]
    pub fn new(inner: S, budget: Arc<Budget>) -> Budgeted<S> {
        Budgeted { inner, budget }
    }
}

impl<S: NamedService> NamedService for Budgeted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Budgeted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let reservation = Reservation::new(Arc::clone(&self.budget));
        let counted = reservation.clone();
        let mut request = request.map(|body| Body::new(Counted { body, reservation: counted }));
        request.extensions_mut().insert(reservation.clone());
        Answering { answer: self.inner.call(request), _reservation: reservation }
    }
}

/// A call that is being answered.
pub struct Answering<F> {
    answer: F,
    _reservation: Reservation,
}

impl<F: Future<Output = Result<Response<Body>, Infallible>> + Unpin> Future for Answering<F> {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(Pin::new(&mut self.answer).poll(context))?;
        too_large_is_exhausted(&mut response);
        Poll::Ready(Ok(response))
    }
}

/// A message past the decoder's bound is answered with OUT_OF_RANGE by the decoder; the protocol's word for it is
/// RESOURCE_EXHAUSTED.
fn too_large_is_exhausted(response: &mut Response<Body>) {
    const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
    if let Some(status) = response.headers_mut().get_mut(GRPC_STATUS)
        && status.as_bytes() == (Code::OutOfRange as i32).to_string().as_bytes()
    {
        *status = HeaderValue::from(Code::ResourceExhausted as i32);
    }
}

/// A request's body, counted as it comes in.
struct Counted {
    body: Body,
    reservation: Reservation,
}

impl http_body::Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)?) else { return Poll::Ready(None) };
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        if !self.reservation.grow(bytes) {
            return Poll::Ready(Some(Err(Status::resource_exhausted(
                "This node holds as many bytes of requests as it may; try again later or use another node.",
            ))));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_bounded_and_come_back() {
        let budget = Budget::new(10);
        let first = Reservation::new(Arc::clone(&budget));
        let second = Reservation::new(Arc::clone(&budget));
        assert!(first.grow(6) && second.grow(4) && !second.grow(1));
        assert_eq!(budget.used_bytes(), 10);
        let clone = first.clone();
        drop(first);
        assert_eq!(budget.used_bytes(), 10, "a clone still holds it");
        drop(clone);
        assert_eq!(budget.used_bytes(), 4);
        second.release();
        assert_eq!(budget.used_bytes(), 0);
        assert!(!second.grow(usize::MAX) && second.grow(10));
    }
}
