//! Counts the calls that a stopping node waits for.
//!
//! Streams that last by design are left out: a telemetry stream lives as long as its client, and a long poll that waits
//! holds nothing. Both are cut, and SDKs open them again elsewhere.

use pin_project_lite::pin_project;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use tower::{Layer, Service};

/// Calls that are not counted, by the end of their path.
const LASTING: [&str; 2] = ["/Telemetry", "/ReceiveMessage"];

/// The number of calls under way. Clones share it. As a layer it counts the calls of the service below.
#[derive(Clone, Default)]
pub(super) struct Calls(Arc<AtomicUsize>);

impl Calls {
    /// How many are under way.
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn begin(&self) -> Call {
        self.0.fetch_add(1, Ordering::Relaxed);
        Call(Arc::clone(&self.0))
    }
}

/// One call, counted until it is dropped.
struct Call(Arc<AtomicUsize>);

impl Drop for Call {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each call is counted once");
    }
}

impl<S> Layer<S> for Calls {
    type Service = Counted<S>;

    fn layer(&self, inner: S) -> Counted<S> {
        Counted { inner, calls: self.clone() }
    }
}

/// See [`Calls`].
#[derive(Clone)]
pub(super) struct Counted<S> {
    inner: S,
    calls: Calls,
}

impl<S, B> Service<http::Request<B>> for Counted<S>
where
    S: Service<http::Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = CountedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<B>) -> CountedFuture<S::Future> {
        let lasting = LASTING.iter().any(|end| request.uri().path().ends_with(end));
        let call = (!lasting).then(|| self.calls.begin());
        CountedFuture { inner: self.inner.call(request), call }
    }
}

pin_project! {
    /// Ends the count when the answer is there.
    pub(super) struct CountedFuture<F> {
        #[pin]
        inner: F,
        call: Option<Call>,
    }
}

impl<F: Future> Future for CountedFuture<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let output = ready!(this.inner.poll(cx));
        *this.call = None;
        Poll::Ready(output)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn calls_are_counted_while_they_run_but_lasting_streams_are_not() {
        let calls = Calls::default();
        let permits = Arc::new(Semaphore::new(0));
        let held = Arc::clone(&permits);
        let mut service = calls.layer(tower::service_fn(move |_: http::Request<()>| {
            let held = Arc::clone(&held);
            async move { held.acquire().await.map(|permit| permit.forget()) }
        }));
        let request = |path: &str| http::Request::builder().uri(path).body(()).expect("request");
        let send = service.call(request("/apache.rocketmq.v2.MessagingService/SendMessage"));
        let poll = service.call(request("/apache.rocketmq.v2.MessagingService/ReceiveMessage"));
        let dropped = service.call(request("/apache.rocketmq.v2.MessagingService/AckMessage"));
        assert_eq!(calls.count(), 2);
        drop(dropped);
        assert_eq!(calls.count(), 1);
        permits.add_permits(2);
        send.await.expect("permit");
        assert_eq!(calls.count(), 0);
        poll.await.expect("permit");
        assert_eq!(calls.count(), 0);
    }
}
