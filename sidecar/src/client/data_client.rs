//! `DataClient`: finds the owners of partitions and talks to them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::connection::{Answer, Connection, Limits, Submitted};
use super::error::ClientError;
use super::owners::{KnownStream, STREAMS_MAX};
use super::retry::{self, Next, Repeat};
use crate::wire::WireError;
use crate::wire::data::{
    AppendRequest, Appended, DataError, Durability, Producer, ReadRequest, Request, Response,
    Watermarks,
};
use crate::wire::hello::Hello;
use crate::wire::records::{ReceivedBatch, RecordBatch};
use crate::wire::session::{PartitionKey, StreamOwners};

/// A stream nobody knows may just have been created: it is asked for again for so long.
const UNKNOWN_STREAM_WAIT: Duration = Duration::from_secs(1);

/// How a data client is set up.
#[derive(Clone, Debug)]
pub struct DataClientConfig {
    /// The client's name, for the nodes' logs.
    pub name: String,
    /// The cluster it must reach; `None` takes any.
    pub cluster: Option<u128>,
    /// Data addresses of some nodes, `host:port`; the others are learned.
    pub nodes: Vec<String>,
    /// Requests in flight on one connection.
    pub in_flight_max: usize,
    /// Payload bytes in flight on one connection.
    pub in_flight_bytes_max: usize,
    /// How long a connection may take to be made.
    pub connect_wait: Duration,
    /// How long one call may take before it is given up, waiting reads aside.
    pub deadline: Duration,
}

impl DataClientConfig {
    /// The defaults, for a client that starts at `nodes`.
    #[must_use]
    pub fn new(nodes: Vec<String>) -> DataClientConfig {
        DataClientConfig {
            name: "client".to_owned(),
            cluster: None,
            nodes,
            in_flight_max: 256,
            in_flight_bytes_max: 32 << 20,
            connect_wait: Duration::from_secs(2),
            deadline: Duration::from_secs(10),
        }
    }
}

/// How a batch is appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppendOptions {
    /// When the append is acknowledged.
    pub durability: Durability,
    /// Append only if the log ends here.
    pub expected_offset: Option<u64>,
    /// What the client's clock says, in microseconds since 1970; 0 is unknown.
    pub client_time_us: u64,
    /// Who sends it. The log knows such a batch again, so it is repeated until it has an answer; see
    /// [`ProducerClient`](super::ProducerClient), which counts.
    pub producer: Option<Producer>,
}

impl AppendOptions {
    fn repeat(&self) -> Repeat {
        if self.producer.is_some() { Repeat::Harmless } else { Repeat::Doubles }
    }
}

/// Committed batches of one partition.
#[derive(Clone, Debug)]
pub struct ReadOutcome {
    /// Whole batches in order; the first may begin below the offset asked for.
    pub batches: Vec<ReceivedBatch>,
    /// Where to go on.
    pub next_offset: u64,
    /// Where the partition starts and ends.
    pub watermarks: Watermarks,
    /// How long ago the owner last heard from the metadata majority.
    pub metadata_age: Duration,
}

/// Picks the partition of a key. The same key goes to the same partition for as long as the stream does
/// not grow; part of the data protocol, so that all clients agree.
///
/// # Panics
///
/// If `partitions` is 0.
#[must_use]
pub fn partition_of(key: &[u8], partitions: u32) -> u32 {
    assert!(partitions > 0, "a stream has at least one partition");
    // The high half of the product spreads a 32-bit hash over the partitions without a division's bias.
    let spread = u64::from(crc32fast::hash(key)) * u64::from(partitions);
    u32::try_from(spread >> 32).expect("a 32-bit number times a 32-bit number, halved")
}

/// A client of the data port. Cheap to clone; all clones share connections and owners.
#[derive(Clone, Debug)]
pub struct DataClient {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    config: DataClientConfig,
    streams: Mutex<HashMap<String, KnownStream>>,
    connections: Mutex<HashMap<String, Arc<Slot>>>,
}

/// The connection to one address; locked while it is being made, so that only one is.
type Slot = tokio::sync::Mutex<Option<Arc<Connection>>>;

/// An append that has been sent.
#[derive(Debug)]
pub struct PendingAppend {
    client: DataClient,
    stream: String,
    partition: u32,
    batch: RecordBatch,
    options: AppendOptions,
    submitted: Submitted,
    give_up_at: Instant,
}

impl DataClient {
    /// Makes a client. Connections are made when they are first needed.
    #[must_use]
    pub fn new(config: DataClientConfig) -> DataClient {
        let shared = Shared { config, streams: Mutex::default(), connections: Mutex::default() };
        DataClient { shared: Arc::new(shared) }
    }

    /// Appends one batch and waits until it is acknowledged.
    ///
    /// Repeats what was refused before anything was written: another owner, a full queue, a connection that
    /// was never made. What may have been written is sent again only under a [`Producer`]: then it is in the log
    /// once, and the answer is that of the first try.
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] and [`DataError::Unknown`]: it may be in the log. Any other: it is not.
    pub async fn append(
        &self,
        stream: &str,
        partition: u32,
        batch: RecordBatch,
        options: AppendOptions,
    ) -> Result<Appended, ClientError> {
        self.submit(stream, partition, batch, options).await?.acknowledged().await
    }

    /// Sends one batch as soon as there is room in flight, and does not wait for its acknowledgement.
    ///
    /// Batches for one partition are appended in the order in which this resolves, unless one has to be
    /// repeated. At most [`in_flight_max`](DataClientConfig::in_flight_max) are unanswered a connection.
    ///
    /// # Errors
    ///
    /// [`ClientError`]: nothing was sent.
    pub async fn submit(
        &self,
        stream: &str,
        partition: u32,
        batch: RecordBatch,
        options: AppendOptions,
    ) -> Result<PendingAppend, ClientError> {
        let give_up_at = Instant::now() + self.shared.config.deadline;
        let make = |key| append_request(key, &batch, options);
        let submitted =
            self.send(stream, partition, make, batch.payload().clone(), give_up_at).await?;
        Ok(PendingAppend {
            client: self.clone(),
            stream: stream.to_owned(),
            partition,
            batch,
            options,
            submitted,
            give_up_at,
        })
    }

    /// Reads committed batches from an offset on, about `bytes_max` of them, and waits up to `wait` for the
    /// first if the log ends there. Repeats itself after refusals that can pass.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn read(
        &self,
        stream: &str,
        partition: u32,
        from: u64,
        bytes_max: usize,
        wait: Duration,
    ) -> Result<ReadOutcome, ClientError> {
        let bytes_max = u32::try_from(bytes_max).unwrap_or(u32::MAX);
        let wait_ms = u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let make = |partition| Request::Read(ReadRequest { partition, from, bytes_max, wait_ms });
        let (response, payload) = self.ask(stream, partition, make, wait).await?;
        let Response::Read(answer) = response else { return Err(unexpected("a read answer")) };
        Ok(ReadOutcome {
            batches: ReceivedBatch::cut(&answer.batches, payload)?,
            next_offset: answer.next_offset,
            watermarks: answer.watermarks,
            metadata_age: Duration::from_millis(answer.metadata_age_ms),
        })
    }

    /// Asks the owner where a partition starts and ends.
    ///
    /// # Errors
    ///
    /// [`ClientError`].
    pub async fn watermarks(
        &self,
        stream: &str,
        partition: u32,
    ) -> Result<Watermarks, ClientError> {
        let answer = self.ask(stream, partition, Request::Watermarks, Duration::ZERO).await?;
        match answer.0 {
            Response::Watermarks(watermarks) => Ok(watermarks),
            _ => Err(unexpected("watermarks")),
        }
    }

    /// Asks the nodes who owns the partitions of a stream, and keeps the answer.
    ///
    /// # Errors
    ///
    /// [`ClientError::UnknownStream`] if nobody knows it, or why nobody could be asked.
    pub async fn owners(&self, stream: &str) -> Result<StreamOwners, ClientError> {
        let give_up_at = Instant::now() + UNKNOWN_STREAM_WAIT.min(self.shared.config.deadline);
        let mut attempt = 0;
        loop {
            match self.ask_owners(stream).await {
                Err(ClientError::UnknownStream { .. }) if Instant::now() < give_up_at => {
                    attempt += 1;
                    tokio::time::sleep(retry::pause(attempt, fastrand::f64())).await;
                }
                outcome => return outcome,
            }
        }
    }

    /// Returns how many partitions a stream has, asking only if it is not known yet.
    ///
    /// # Errors
    ///
    /// As [`owners`](Self::owners).
    pub async fn partitions(&self, stream: &str) -> Result<u32, ClientError> {
        let known = lock(&self.shared.streams).get(stream).map(|known| known.partitions);
        match known {
            Some(partitions) if partitions > 0 => Ok(partitions),
            _ => Ok(self.owners(stream).await?.partitions),
        }
    }

    /// Sends a question that may be repeated, and returns its answer.
    async fn ask(
        &self,
        stream: &str,
        partition: u32,
        make: impl Fn(PartitionKey) -> Request,
        wait: Duration,
    ) -> Result<Answer, ClientError> {
        let give_up_at = Instant::now() + self.shared.config.deadline + wait;
        let mut attempt = 0;
        loop {
            let submitted = self.send(stream, partition, &make, Bytes::new(), give_up_at).await?;
            let answered = tokio::time::timeout_at(give_up_at, submitted.answer()).await;
            let last = match answered {
                Ok(Ok((Response::Failed(error), _))) => ClientError::Data(error),
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) => error,
                Err(_elapsed) => return Err(self.not_served(&"no answer")),
            };
            attempt += 1;
            self.recover(stream, &last, Repeat::Harmless, attempt, give_up_at).await?;
        }
    }

    /// Finds the owner and hands the request to its connection; waits for either until `give_up_at`.
    async fn send(
        &self,
        stream: &str,
        partition: u32,
        make: impl Fn(PartitionKey) -> Request,
        payload: Bytes,
        give_up_at: Instant,
    ) -> Result<Submitted, ClientError> {
        let mut attempt = 0;
        loop {
            let outcome = self.try_send(stream, partition, &make, payload.clone());
            let last = match tokio::time::timeout_at(give_up_at, outcome).await {
                Ok(Ok(submitted)) => return Ok(submitted),
                Ok(Err(error)) => error,
                Err(_elapsed) => return Err(self.not_served(&"nothing could be sent")),
            };
            if !matches!(last, ClientError::Unreachable { .. } | ClientError::NotServed { .. }) {
                return Err(last);
            }
            attempt += 1;
            let pause = retry::pause(attempt, fastrand::f64());
            if Instant::now() + pause >= give_up_at {
                return Err(self.not_served(&last));
            }
            tokio::time::sleep(pause).await;
            // Whoever owned it cannot be reached: somebody else may own it by now.
            if let Err(error) = self.ask_owners(stream).await {
                tracing::debug!(%error, stream, "could not ask for owners");
            }
        }
    }

    async fn try_send(
        &self,
        stream: &str,
        partition: u32,
        make: impl Fn(PartitionKey) -> Request,
        payload: Bytes,
    ) -> Result<Submitted, ClientError> {
        let (key, address) = self.locate(stream, partition).await?;
        let connection = self.connection(&address).await?;
        let submitted = connection.submit(&make(key), payload).await;
        submitted.ok_or_else(|| ClientError::Unreachable { last: Arc::new(WireError::Closed) })
    }

    async fn locate(
        &self,
        stream: &str,
        partition: u32,
    ) -> Result<(PartitionKey, String), ClientError> {
        if let Some(found) = self.locate_known(stream, partition) {
            return Ok(found);
        }
        let owners = self.owners(stream).await?;
        if owners.partitions > 0 && partition >= owners.partitions {
            return Err(ClientError::UnknownPartition {
                stream: stream.to_owned(),
                partition,
                partitions: owners.partitions,
            });
        }
        self.locate_known(stream, partition)
            .ok_or_else(|| self.not_served(&format!("nobody owns {stream}/{partition}")))
    }

    fn locate_known(&self, stream: &str, partition: u32) -> Option<(PartitionKey, String)> {
        let streams = lock(&self.shared.streams);
        let known = streams.get(stream)?;
        let owner = known.owner(partition)?;
        Some((PartitionKey { stream: known.stream, index: partition }, owner.address.clone()))
    }

    /// After a refusal: pauses, asks for owners, or gives the error back.
    async fn recover(
        &self,
        stream: &str,
        last: &ClientError,
        repeat: Repeat,
        attempt: u32,
        give_up_at: Instant,
    ) -> Result<(), ClientError> {
        let next = match last {
            ClientError::Data(error) => retry::after(error, repeat),
            ClientError::Unknown { .. } if repeat == Repeat::Harmless => Next::FindOwner,
            _ => Next::GiveUp,
        };
        let pause = match next {
            Next::GiveUp => return Err(last.clone()),
            Next::Pause(pause) => pause,
            Next::FindOwner => retry::pause(attempt, fastrand::f64()),
        };
        if Instant::now() + pause >= give_up_at {
            return Err(self.not_served(last));
        }
        tokio::time::sleep(pause).await;
        if next == Next::FindOwner
            && let Err(error) = self.ask_owners(stream).await
        {
            tracing::debug!(%error, stream, "could not ask for owners");
        }
        Ok(())
    }

    /// Asks one node after the other until one answers from the metadata; what nodes know of themselves is
    /// gathered from all of them if none does.
    async fn ask_owners(&self, stream: &str) -> Result<StreamOwners, ClientError> {
        let mut last = None;
        let mut is_answered = false;
        for address in self.known_addresses() {
            let answer = match self.ask_owners_of(&address, stream).await {
                Ok(answer) => answer,
                Err(error) => {
                    last = Some(error);
                    continue;
                }
            };
            is_answered = true;
            let is_from_metadata = answer.at.index > 0;
            self.remember(stream, answer);
            if is_from_metadata {
                break;
            }
        }
        match lock(&self.shared.streams).get(stream) {
            Some(known) if is_answered => Ok(known.owners()),
            _ => Err(last.unwrap_or(ClientError::UnknownStream { stream: stream.to_owned() })),
        }
    }

    async fn ask_owners_of(
        &self,
        address: &str,
        stream: &str,
    ) -> Result<StreamOwners, ClientError> {
        let connection = self.connection(address).await?;
        let request = Request::Owners { stream: stream.to_owned() };
        let submitted = connection.submit(&request, Bytes::new()).await;
        let submitted = submitted
            .ok_or_else(|| ClientError::Unreachable { last: Arc::new(WireError::Closed) })?;
        let patience = self.shared.config.connect_wait;
        match tokio::time::timeout(patience, submitted.answer()).await {
            Ok(Ok((Response::Owners(owners), _))) => Ok(owners),
            Ok(Ok((Response::Failed(DataError::UnknownStream { .. }), _))) => {
                Err(ClientError::UnknownStream { stream: stream.to_owned() })
            }
            Ok(Ok((Response::Failed(error), _))) => Err(error.into()),
            Ok(Ok(_)) => Err(unexpected("owners")),
            Ok(Err(error)) => Err(error),
            Err(_elapsed) => Err(self.not_served(&format!("{address} does not answer"))),
        }
    }

    fn remember(&self, stream: &str, answer: StreamOwners) {
        let mut streams = lock(&self.shared.streams);
        if streams.len() >= STREAMS_MAX && !streams.contains_key(stream) {
            // A cache that is full starts over: asking again is cheap and rare.
            streams.clear();
        }
        streams.entry(stream.to_owned()).or_default().merge(answer);
    }

    /// The configured addresses, then the learned ones.
    fn known_addresses(&self) -> Vec<String> {
        let mut addresses = self.shared.config.nodes.clone();
        let streams = lock(&self.shared.streams);
        for known in streams.values() {
            for owner in known.owners().owners {
                if !addresses.contains(&owner.address) {
                    addresses.push(owner.address);
                }
            }
        }
        addresses
    }

    async fn connection(&self, address: &str) -> Result<Arc<Connection>, ClientError> {
        let slot = lock(&self.shared.connections).entry(address.to_owned()).or_default().clone();
        let mut slot = slot.lock().await;
        if let Some(connection) = slot.as_ref().filter(|connection| connection.is_open()) {
            return Ok(connection.clone());
        }
        let config = &self.shared.config;
        let limits =
            Limits { requests_max: config.in_flight_max, bytes_max: config.in_flight_bytes_max };
        let hello = Hello::of_client(&config.name, config.cluster);
        let connection = Connection::open(address, hello, limits, config.connect_wait).await?;
        let connection = Arc::new(connection);
        *slot = Some(connection.clone());
        Ok(connection)
    }

    fn not_served(&self, last: &dyn std::fmt::Display) -> ClientError {
        let waited_ms = self.shared.config.deadline.as_millis();
        ClientError::NotServed {
            waited_ms: u64::try_from(waited_ms).unwrap_or(u64::MAX),
            last: last.to_string(),
        }
    }
}

impl PendingAppend {
    /// Waits for the acknowledgement; see [`DataClient::append`].
    ///
    /// # Errors
    ///
    /// [`ClientError::Unknown`] and [`DataError::Unknown`]: it may be in the log. Any other: it is not.
    pub async fn acknowledged(self) -> Result<Appended, ClientError> {
        let PendingAppend { client, stream, partition, batch, options, give_up_at, .. } = self;
        let mut submitted = self.submitted;
        let mut attempt = 0;
        // An attempt may have been done: no refusal of a later one says that nothing is in the log.
        let mut doubt = None;
        loop {
            let address = submitted.address().to_owned();
            let last = match tokio::time::timeout_at(give_up_at, submitted.answer()).await {
                Ok(Ok((Response::Appended(appended), _))) => return Ok(appended),
                Ok(Ok((Response::Failed(error), _))) => ClientError::Data(error),
                Ok(Ok(_)) => unexpected("an acknowledgement"),
                Ok(Err(error)) => error,
                Err(_elapsed) => return Err(ClientError::Unknown { address }),
            };
            if retry::may_be_done(&last) {
                doubt = Some(ClientError::Unknown { address });
            }
            attempt += 1;
            let again = async {
                client.recover(&stream, &last, options.repeat(), attempt, give_up_at).await?;
                let make = |key| append_request(key, &batch, options);
                let payload = batch.payload().clone();
                client.send(&stream, partition, make, payload, give_up_at).await
            };
            submitted = match again.await {
                Ok(submitted) => submitted,
                Err(ClientError::Data(error @ DataError::AlreadyAppended { .. })) => {
                    return Err(error.into());
                }
                Err(error) if retry::may_be_done(&error) => return Err(error),
                Err(error) => return Err(doubt.unwrap_or(error)),
            };
        }
    }
}

fn append_request(partition: PartitionKey, batch: &RecordBatch, options: AppendOptions) -> Request {
    Request::Append(AppendRequest {
        partition,
        records: batch.records(),
        payload_crc: batch.payload_crc(),
        durability: options.durability,
        expected_offset: options.expected_offset,
        client_time_us: options.client_time_us,
        producer: options.producer,
    })
}

fn unexpected(expected: &'static str) -> ClientError {
    WireError::Unexpected { expected }.into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each critical section leaves its value whole at every step, so a panic elsewhere harms nothing.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_spread_over_all_partitions_and_stay_where_they_are() {
        let mut counts = [0u32; 6];

        for key in 0..6_000u32 {
            let partition = partition_of(&key.to_le_bytes(), 6);
            counts[usize::try_from(partition).unwrap()] += 1;
        }

        assert!(counts.iter().all(|count| (800..1200).contains(count)), "{counts:?}");
        assert_eq!(partition_of(b"orders", 6), partition_of(b"orders", 6));
        assert_eq!(partition_of(b"anything", 1), 0);
    }
}
