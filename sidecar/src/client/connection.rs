//! One connection to a node: requests go out in order, many are in flight, answers find them by number.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncWriteExt, BufReader, BufWriter};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::error::ClientError;
use crate::wire::WireError;
use crate::wire::data::{Request, Response, head, split};
use crate::wire::frame::{DATA_FRAME_BYTES_MAX, read_frame, within, write_frame};
use crate::wire::hello::{Hello, HelloAnswer};

const READ_BUFFER_BYTES: usize = 256 << 10;
const WRITE_BUFFER_BYTES: usize = 64 << 10;
/// In-flight bytes are counted in units of this, so that their number fits a semaphore.
const UNIT_BYTES: usize = 1024;

/// What one connection may have in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) requests_max: usize,
    pub(super) bytes_max: usize,
}

/// An open connection, shared by everybody who uses it. Dropping the last one closes it.
#[derive(Debug)]
pub(super) struct Connection {
    address: String,
    outgoing: mpsc::Sender<Vec<Bytes>>,
    waiting: Arc<Waiting>,
    requests: Arc<Semaphore>,
    units: Arc<Semaphore>,
    units_max: u32,
    next_request: AtomicU64,
    _tasks: JoinSet<()>,
}

/// An answer and the payload behind it.
pub(super) type Answer = (Response, Bytes);

/// A request that has been handed to the connection.
#[derive(Debug)]
pub(super) struct Submitted {
    answer: oneshot::Receiver<Answer>,
    address: String,
    _permits: Permits,
}

#[derive(Debug)]
struct Permits {
    _request: OwnedSemaphorePermit,
    _units: OwnedSemaphorePermit,
}

/// Requests whose answers are to come; `None` once the connection is over.
#[derive(Debug)]
struct Waiting(Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>);

impl Connection {
    /// Connects and says hello.
    pub(super) async fn open(
        address: &str,
        hello: Hello,
        limits: Limits,
        patience: Duration,
    ) -> Result<Connection, ClientError> {
        let connecting = async { Ok(TcpStream::connect(address).await?) };
        let stream = within(patience, connecting).await;
        let stream = stream.map_err(|last| ClientError::Unreachable { last: Arc::new(last) })?;
        stream.set_nodelay(true).map_err(WireError::from)?;
        let (reader, writer) = stream.into_split();
        let mut reader = BufReader::with_capacity(READ_BUFFER_BYTES, reader);
        let mut writer = BufWriter::with_capacity(WRITE_BUFFER_BYTES, writer);
        let greeting = greet(&mut reader, &mut writer, hello);
        match within(patience, greeting).await {
            Ok(HelloAnswer::Welcome(_)) => {}
            Ok(HelloAnswer::Refused(refusal)) => {
                return Err(ClientError::Refused { address: address.to_owned(), refusal });
            }
            Err(last) => return Err(ClientError::Unreachable { last: Arc::new(last) }),
        }
        let units_max = u32::try_from(limits.bytes_max / UNIT_BYTES).unwrap_or(u32::MAX).max(1);
        let (outgoing, queue) = mpsc::channel(limits.requests_max.max(1));
        let waiting = Arc::new(Waiting(Mutex::new(Some(HashMap::new()))));
        let mut tasks = JoinSet::new();
        tasks.spawn(write_requests(writer, queue, waiting.clone()));
        tasks.spawn(read_answers(reader, waiting.clone()));
        Ok(Connection {
            address: address.to_owned(),
            outgoing,
            waiting,
            requests: Arc::new(Semaphore::new(limits.requests_max.max(1))),
            units: Arc::new(Semaphore::new(units_max as usize)),
            units_max,
            next_request: AtomicU64::new(1),
            _tasks: tasks,
        })
    }

    /// Tells whether the connection can still be used.
    pub(super) fn is_open(&self) -> bool {
        self.waiting.lock().is_some()
    }

    /// Waits for room in flight, then hands the request over. Requests leave in the order in which this
    /// resolves. `None`: the connection is over and nothing was sent.
    pub(super) async fn submit(&self, request: &Request, payload: Bytes) -> Option<Submitted> {
        let units = u32::try_from(payload.len().div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX);
        let units = units.clamp(1, self.units_max);
        let permits = Permits {
            _request: self.requests.clone().acquire_owned().await.ok()?,
            _units: self.units.clone().acquire_many_owned(units).await.ok()?,
        };
        let number = self.next_request.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().as_mut()?.insert(number, sender);
        let parts = vec![head(number, request), payload];
        // There is a slot for every request that may be in flight, so this does not wait.
        if self.outgoing.send(parts).await.is_err() {
            self.waiting.end();
            return None;
        }
        Some(Submitted { answer, address: self.address.clone(), _permits: permits })
    }
}

impl Submitted {
    /// Where it was sent.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Waits for the answer.
    pub(super) async fn answer(self) -> Result<Answer, ClientError> {
        self.answer.await.map_err(|_closed: oneshot::error::RecvError| ClientError::Unknown {
            address: self.address,
        })
    }
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection is over: every request still waiting learns it.
    fn end(&self) {
        *self.lock() = None;
    }
}

async fn greet(
    reader: &mut BufReader<OwnedReadHalf>,
    writer: &mut BufWriter<OwnedWriteHalf>,
    hello: Hello,
) -> Result<HelloAnswer, WireError> {
    write_frame(writer, &[head(0, &Request::Hello(hello))]).await?;
    writer.flush().await?;
    let frame = read_frame(reader, DATA_FRAME_BYTES_MAX).await?.ok_or(WireError::Closed)?;
    match split::<Response>(frame)? {
        (_, Response::Hello(answer), _) => Ok(answer),
        _ => Err(WireError::Unexpected { expected: "an answer to hello" }),
    }
}

async fn write_requests(
    mut writer: BufWriter<OwnedWriteHalf>,
    mut queue: mpsc::Receiver<Vec<Bytes>>,
    waiting: Arc<Waiting>,
) {
    let outcome = async {
        while let Some(parts) = queue.recv().await {
            write_frame(&mut writer, &parts).await?;
            if queue.is_empty() {
                writer.flush().await?;
            }
        }
        Ok::<_, WireError>(())
    };
    if let Err(error) = outcome.await {
        tracing::debug!(%error, "a data connection ended while sending");
    }
    waiting.end();
}

async fn read_answers(mut reader: BufReader<OwnedReadHalf>, waiting: Arc<Waiting>) {
    let outcome = async {
        while let Some(frame) = read_frame(&mut reader, DATA_FRAME_BYTES_MAX).await? {
            let (number, response, payload) = split::<Response>(frame)?;
            let sender = waiting.lock().as_mut().and_then(|waiting| waiting.remove(&number));
            if let Some(sender) = sender {
                // Nobody waits if the caller dropped its future; the answer is of no use then.
                drop(sender.send((response, payload)));
            }
        }
        Ok::<_, WireError>(())
    };
    if let Err(error) = outcome.await {
        tracing::debug!(%error, "a data connection ended while receiving");
    }
    waiting.end();
}
