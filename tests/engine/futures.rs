//! Futures: any executor, no thread held, cancelled at any point.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = Box::pin(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        if let Poll::Ready(output) = poll(future.as_mut(), &waker) {
            return output;
        }
        std::thread::park();
    }
}

pub fn poll<F: Future + ?Sized>(future: Pin<&mut F>, waker: &Waker) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(waker))
}

/// Runs many futures on this thread, all at once.
pub fn join<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<_> = futures.into_iter().map(|future| (Some(Box::pin(future)), None)).collect();
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        let mut left = false;
        for (future, output) in &mut pending {
            let Some(running) = future else { continue };
            match poll(running.as_mut(), &waker) {
                Poll::Ready(ready) => (*future, *output) = (None, Some(ready)),
                Poll::Pending => left = true,
            }
        }
        if !left {
            return pending.into_iter().filter_map(|(_, output)| output).collect();
        }
        std::thread::park();
    }
}
