//! The look-up lane: any voter, leader or not, answers from the state it has applied and says which.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;

use super::server::Shared;
use crate::state::View;
use crate::wire::WireError;
use crate::wire::frame::{HELLO_BYTES_MAX, receive, send, within};
use crate::wire::session::{Lookup, LookupAnswer, MetadataPoint, PartitionOwner, StreamOwners};

/// A lane nobody asks on is closed after so long; the next question opens another.
const IDLE_WAIT: Duration = Duration::from_secs(60);

pub(super) async fn serve(shared: &Arc<Shared>, mut stream: TcpStream) -> Result<(), WireError> {
    loop {
        let question: Lookup = within(IDLE_WAIT, receive(&mut stream, HELLO_BYTES_MAX)).await?;
        let answer = match question {
            Lookup::Stream { name } => owners_of(&shared.role.view(), &name),
            Lookup::Quorum => LookupAnswer::Quorum(Box::new(shared.role.quorum_status())),
        };
        send(&mut stream, &answer).await?;
    }
}

fn owners_of(view: &View, name: &str) -> LookupAnswer {
    let at = MetadataPoint { lineage: view.lineage, index: view.index };
    let Some(stream) = view.stream_by_name(name) else {
        return LookupAnswer::UnknownStream { at };
    };
    let owners = (0u32..).zip(&stream.partitions).filter_map(|(index, partition)| {
        let node = view.node(partition.owner()?)?;
        Some(PartitionOwner {
            index,
            epoch: partition.epoch.packed(),
            node: node.id.0,
            address: node.data_address.clone(),
        })
    });
    LookupAnswer::Stream(StreamOwners {
        stream: stream.uuid.as_u128(),
        at,
        partitions: u32::try_from(stream.partitions.len()).unwrap_or(u32::MAX),
        owners: owners.collect(),
    })
}
