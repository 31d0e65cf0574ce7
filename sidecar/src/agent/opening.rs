//! Opens the engine and the data port of a node, once its place in the cluster is known.

use std::sync::Arc;

use palisade_engine::engine::{Coordinator, Engine, ShardIndex};
use palisade_engine::id::{NodeId, StorageId};
use tokio::sync::oneshot;

use super::config::NodeError;
use super::data_port::DataPort;
use super::node_state::NodeState;

/// Opens engine and data port, unless that has been done. Takes as long as recovery does.
pub(super) async fn open_once(state: &Arc<NodeState>) -> Result<(), NodeError> {
    if state.engine().is_some() {
        return Ok(());
    }
    let identity = state.identity();
    let Some(membership) = identity.membership else { return Ok(()) };
    let node = NodeId::new(membership.node);
    let node = node.ok_or(NodeError::Refused { reason: "a node id out of range".to_owned() })?;
    let config = state.config.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let coordinator = Coordinator { node, cluster: membership.cluster };
        Engine::builder(config.data_directory)
            .shards(config.shards)
            .io(config.io)
            .arena_bytes(config.arena_bytes)
            .settings(config.settings)
            .coordinator(coordinator)
            .storage(StorageId(identity.storage_id))
            .open()
    });
    let engine = match opening.await {
        Ok(opened) => opened.map_err(NodeError::Open)?,
        Err(_ended) => return Err(NodeError::Stopped),
    };
    for set_aside in &engine.report().set_aside {
        tracing::error!(path = %set_aside.path.display(), reason = ?set_aside.reason, "set aside");
    }
    state.set_engine(engine.clone());
    listen(state, &engine).await
}

/// Opens the data port. It lives on the first shard; partitions of the others are one hop away.
async fn listen(state: &Arc<NodeState>, engine: &Engine) -> Result<(), NodeError> {
    let address = state.config.listen;
    let failed = |reason: String| NodeError::Listen { address, reason };
    let (started, listening) = oneshot::channel();
    let port = DataPort::new(state.clone(), engine.clone(), started);
    engine.spawn_main(ShardIndex(0), port).map_err(|error| failed(error.to_string()))?;
    match listening.await {
        Ok(Ok(address)) => {
            state.set_data_address(address);
            Ok(())
        }
        Ok(Err(error)) => Err(failed(error.to_string())),
        Err(_ended) => Err(NodeError::Stopped),
    }
}
