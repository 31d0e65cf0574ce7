//! `ProducerClient`: appends to one partition, each batch once, whatever happens to connections and nodes.
//!
//! It counts; that the log knows a batch again is the engine's part. One batch at a time.

use super::data_client::{AppendOptions, DataClient};
use super::error::ClientError;
use super::retry::may_be_done;
use crate::wire::data::{Appended, DataError, Producer};
use crate::wire::records::RecordBatch;

/// Appends to one partition as one producer.
#[derive(Debug)]
pub struct ProducerClient {
    client: DataClient,
    stream: String,
    partition: u32,
    next: Producer,
    /// The fate of the batch sent last is not known.
    is_in_doubt: bool,
}

impl ProducerClient {
    /// Begins a producer nobody has been before.
    #[must_use]
    pub fn new(client: DataClient, stream: &str, partition: u32) -> ProducerClient {
        let next = Producer { id: fastrand::u64(1..), epoch: 0, sequence: 0 };
        ProducerClient { client, stream: stream.to_owned(), partition, next, is_in_doubt: false }
    }

    /// Appends one batch and waits until it is acknowledged. It is sent again until the client's deadline and is in
    /// the log at most once.
    ///
    /// `options` may name a condition; their producer is not looked at. A batch whose future was dropped, or ended
    /// with [`ClientError::Unknown`], is given up: the next one begins a new run, which fences late copies of it.
    ///
    /// # Errors
    ///
    /// As [`DataClient::append`].
    pub async fn append(
        &mut self,
        batch: RecordBatch,
        options: AppendOptions,
    ) -> Result<Appended, ClientError> {
        loop {
            if self.is_in_doubt {
                self.begin_run();
            }
            let producer = self.next;
            let options = AppendOptions { producer: Some(producer), ..options };
            // Stays in doubt if this future is dropped.
            self.is_in_doubt = true;
            let answer = self.client.append(&self.stream, self.partition, batch.clone(), options);
            let answer = answer.await;
            self.is_in_doubt = answer.as_ref().is_err_and(is_run_over);
            match &answer {
                Ok(_) => self.next.sequence += 1,
                // The log has forgotten a producer that was silent for long. Nothing of it is in flight.
                Err(ClientError::Data(DataError::OutOfOrder { expected: 0, .. }))
                    if producer.sequence > 0 =>
                {
                    continue;
                }
                Err(_) => {}
            }
            return answer;
        }
    }

    fn begin_run(&mut self) {
        self.next = match self.next.epoch.checked_add(1) {
            Some(epoch) => Producer { epoch, sequence: 0, ..self.next },
            None => Producer { id: fastrand::u64(1..), epoch: 0, sequence: 0 },
        };
    }
}

/// Tells whether no further batch can follow in the run.
fn is_run_over(error: &ClientError) -> bool {
    may_be_done(error)
        || matches!(
            error,
            ClientError::Data(
                DataError::OutOfOrder { .. }
                    | DataError::ProducerFenced { .. }
                    | DataError::AlreadyAppended { .. }
            )
        )
}
