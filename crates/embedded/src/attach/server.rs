//! The server side: serves any store over any number of connections.
//!
//! Each plain request holds a permit; when none is left, the connection is not read until one is free. Waits
//! and streams of reads can last as long as the client likes, so they hold no permit: they have a limit of
//! their own, beyond which they are refused.
//!
//! Invariant: no client can delay another, whatever it does or fails to do.
//! Invariant: after [`Server::stop`] has returned, no request of a client touches the store.

use super::answer;
use super::request::Request;
use super::snapshots::Served;
use super::{Greeting, OTHER_OWNER};
use atoll_store::{Cell, ErrorKind, StoreError};
use atoll_wire::{Connection, Limits, Responder, WireError};
use futures::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

/// What one connection may have under way at once.
#[derive(Clone, Copy, Debug)]
pub struct ServeOptions {
    /// Limits of the wire.
    pub limits: Limits,
    /// Plain requests under way per connection; beyond it the connection is not read.
    pub requests: usize,
    /// KiB of plain requests under way per connection; beyond it the connection is not read.
    pub request_kib: u32,
    /// Waits and streams of reads open per connection; beyond it they are refused.
    pub waits: usize,
    /// How long a client may take for its hello.
    pub hello_time: Duration,
    /// How long requests under way may take when the server stops.
    pub stop_time: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            requests: 256,
            request_kib: 128 << 10,
            waits: 50_000,
            hello_time: Duration::from_secs(5),
            stop_time: Duration::from_secs(1),
        }
    }
}

/// A running server.
pub struct Server {
    stop: watch::Sender<bool>,
    task: tokio::sync::Mutex<Option<JoinHandle<()>>>,
}

/// Serves a store to every client that connects, on `runtime`. The listener must be registered there.
#[must_use]
pub fn serve(
    listener: UnixListener,
    served: impl Into<Served>,
    options: ServeOptions,
    runtime: &Handle,
) -> Server {
    let (stop, stopped) = watch::channel(false);
    let task = runtime.spawn(accept_all(listener, served.into(), options, stopped));
    Server { stop, task: tokio::sync::Mutex::new(Some(task)) }
}

impl Server {
    /// Accepts no further requests, answers those under way, and ends.
    pub async fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(task) = self.task.lock().await.take() {
            // The task ends by itself; if it was aborted with its runtime, it has ended too.
            let _ = task.await;
        }
    }
}

async fn accept_all(
    listener: UnixListener,
    served: Served,
    options: ServeOptions,
    mut stopped: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let uid = rustix::process::geteuid().as_raw();
                    if !stream.peer_cred().is_ok_and(|peer| peer.uid() == uid || peer.uid() == 0) {
                        tracing::warn!("refused a connection of another user");
                        continue;
                    }
                    let (served, stopped) = (served.clone(), stopped.clone());
                    connections.spawn(async move {
                        if let Err(error) = serve_connection(stream, served, options, stopped).await {
                            tracing::debug!(%error, "a connection ended");
                        }
                    });
                }
                Err(error) => {
                    // Most likely out of file descriptors: wait, so that some can be freed.
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = until_stopped(&mut stopped) => break,
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // A dropped sender means stopped as well.
    let _ = stopped.wait_for(|stop| *stop).await;
}

/// Serves a store over one connection until the client leaves or `stopped` turns true.
///
/// # Errors
/// [`WireError`] if the client breaks the protocol or the transport fails.
pub async fn serve_connection<T>(
    transport: T,
    served: impl Into<Served>,
    options: ServeOptions,
    mut stopped: watch::Receiver<bool>,
) -> Result<(), WireError>
where
    T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let served = served.into();
    let mut greeting = Greeting { is_read_only: false, owner: None };
    let welcome = |bytes: &[u8]| {
        greeting = Greeting::decode(bytes)?;
        if greeting.owner.zip(served.owner).is_some_and(|(sought, ours)| sought != ours) {
            return Err(OTHER_OWNER.into());
        }
        let mut capabilities = served.store.capabilities();
        capabilities.waiters_max = capabilities.waiters_max.min(options.waits);
        Ok(answer::encode(&Ok(capabilities)))
    };
    let hello =
        tokio::time::timeout(options.hello_time, Connection::accept(transport, options.limits, welcome));
    let mut connection = tokio::select! {
        biased;
        // A client without a hello yet asks the next owner.
        () = until_stopped(&mut stopped) => return Ok(()),
        connection = hello => connection.map_err(|_| WireError::Closed)??,
    };
    let desk = Desk {
        served,
        is_read_only: greeting.is_read_only,
        requests: Arc::new(Semaphore::new(options.requests)),
        kib: Arc::new(Semaphore::new(options.request_kib as usize)),
        waits: Arc::new(AtomicUsize::new(0)),
        options,
    };
    let mut work = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = until_stopped(&mut stopped) => break,
            request = connection.next() => match request? {
                // This may wait for a client that does not read its answers.
                Some(request) => tokio::select! {
                    biased;
                    () = desk.take(request, &mut connection, &mut work) => {}
                    () = until_stopped(&mut stopped) => break,
                },
                None => return Ok(()),
            },
            Some(_) = work.join_next(), if !work.is_empty() => {}
        }
    }
    connection.goodbye();
    // Open waits are cut off: their clients ask the next owner.
    let all = desk.requests.acquire_many(u32::try_from(options.requests).unwrap_or(u32::MAX));
    let _ = tokio::time::timeout(options.stop_time, all).await;
    work.shutdown().await;
    Ok(())
}

/// The state of one connection that its requests share.
struct Desk {
    served: Served,
    is_read_only: bool,
    requests: Arc<Semaphore>,
    kib: Arc<Semaphore>,
    waits: Arc<AtomicUsize>,
    options: ServeOptions,
}

impl Desk {
    /// Begins a request: most are answered at once, the others go on in a task.
    async fn take(&self, asked: atoll_wire::Request, connection: &mut Connection, work: &mut JoinSet<()>) {
        let atoll_wire::Request { body, responder } = asked;
        let request = match Request::decode(&body) {
            Ok(request) => request,
            Err(error) => {
                let answer = refusal(ErrorKind::InvalidInput, format!("the request cannot be read: {error}"));
                return start(tell(responder, answer), work).await;
            }
        };
        if self.is_read_only && request.is_write() {
            let error = StoreError::ReadOnly { place: "a store opened for reading".into() };
            let answer = answer::encode::<()>(&Err(error));
            return start(tell(responder, answer), work).await;
        }
        let served = self.served.clone();
        if matches!(request, Request::Wait(..) | Request::GetMany(_)) {
            let Some(seat) = Seat::take(&self.waits, self.options.waits) else {
                let message = format!("more than {} waits on one connection", self.options.waits);
                return start(refuse_long(request, responder, message), work).await;
            };
            return start(answer_long(served, request, responder, seat), work).await;
        }
        let kib = u32::try_from(body.len() / 1024 + 1).unwrap_or(u32::MAX).min(self.options.request_kib);
        let (requests, kibs) = (Arc::clone(&self.requests), Arc::clone(&self.kib));
        if requests.available_permits() == 0 || kibs.available_permits() < kib as usize {
            connection.flush();
        }
        let unbegun = Unbegun(Some(responder));
        // Neither semaphore is ever closed, so both permits come in the end.
        let permits = (requests.acquire_owned().await, kibs.acquire_many_owned(kib).await);
        let Some(responder) = unbegun.begin() else { return };
        start(
            async move {
                answer_plain(served, request, responder).await;
                drop(permits);
            },
            work,
        )
        .await;
    }
}

/// A request that has not begun. If the server stops before it does, the request is declined, so that the
/// client may send it to the next owner.
struct Unbegun(Option<Responder>);

impl Unbegun {
    fn begin(mut self) -> Option<Responder> {
        self.0.take()
    }
}

impl Drop for Unbegun {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Responder::decline);
    }
}

/// A seat among the waits and streams of a connection.
struct Seat(Arc<AtomicUsize>);

impl Seat {
    fn take(taken: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let seat = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < most).then_some(seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `work` until it first waits, and the rest in a task.
async fn start(work: impl Future<Output = ()> + Send + 'static, tasks: &mut JoinSet<()>) {
    let mut work = Box::pin(work);
    let is_done = std::future::poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx).is_ready())).await;
    if !is_done {
        tasks.spawn(work);
    }
}

fn refusal(kind: ErrorKind, message: String) -> Vec<u8> {
    answer::encode::<()>(&Err(refused(kind, message)))
}

fn refused(kind: ErrorKind, message: String) -> StoreError {
    StoreError::Remote { kind, unknown: false, message, hint: None }
}

/// Refuses a request that got no seat; many reads are refused one by one, because each has its own answer.
async fn refuse_long(request: Request, mut responder: Responder, message: String) {
    let Request::GetMany(reads) = request else {
        return tell(responder, refusal(ErrorKind::Limit, message)).await;
    };
    let refused = Err(refused(ErrorKind::Limit, message));
    for index in 0..reads.len() {
        if responder.send(&answer::encode_one(index, &refused)).await.is_err() {
            return;
        }
    }
    tell(responder, Vec::new()).await;
}

async fn tell(responder: Responder, answer: Vec<u8>) {
    // If the client is gone, nobody needs the answer.
    let _ = responder.finish(&answer).await;
}

async fn answer_plain(served: Served, request: Request, responder: Responder) {
    let gone = responder.gone();
    let answer = tokio::select! {
        biased;
        answer = perform(&served, request) => answer,
        () = gone => return,
    };
    tell(responder, answer).await;
}

async fn perform(served: &Served, request: Request) -> Vec<u8> {
    let store = &served.store;
    match request {
        Request::Get(partition, sort, options) => {
            answer::encode(&store.get(Cell::new(&partition, &sort), options).await)
        }
        Request::Write(batch, options) => answer::encode(&store.write(batch, options).await),
        Request::Create(partition, sort, value, options) => {
            answer::encode(&store.create(Cell::new(&partition, &sort), value, options).await)
        }
        Request::DeletePartition(partition, options) => {
            answer::encode(&store.delete_partition(&partition, options).await)
        }
        Request::Scan(request) => answer::encode(&store.scan(request).await),
        Request::Wait(partition, sort, expectation, time_out) => {
            answer::encode(&store.wait(Cell::new(&partition, &sort), expectation, time_out).await)
        }
        Request::PartitionKeys(query) => answer::encode(&store.partition_keys(query).await),
        Request::Splits(readers) => {
            answer::encode(&store.splits(usize::try_from(readers).unwrap_or(usize::MAX)).await)
        }
        Request::Place(partition) => answer::encode(&store.place(&partition).await),
        Request::Now => answer::encode(&store.now().await),
        Request::Sync => answer::encode(&store.sync().await),
        Request::CreateSnapshot(name) => served.create_snapshot(&name).await,
        Request::DeleteSnapshot(name) => served.delete_snapshot(&name).await,
        Request::GetMany(_) => refusal(ErrorKind::Internal, "many reads have many answers".into()),
    }
}

async fn answer_long(served: Served, request: Request, mut responder: Responder, _seat: Seat) {
    let Request::GetMany(reads) = request else { return answer_plain(served, request, responder).await };
    let gone = responder.gone();
    let sending = async move {
        let mut answers = served.store.get_many(reads);
        while let Some((index, answer)) = answers.next().await {
            if responder.send(&answer::encode_one(index, &answer)).await.is_err() {
                return;
            }
        }
        let _ = responder.finish(&[]).await;
    };
    tokio::select! {
        biased;
        () = sending => {}
        () = gone => {}
    }
}
