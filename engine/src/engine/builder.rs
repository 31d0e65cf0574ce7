//! Builds an [`EngineConfig`] step by step and opens it.

use std::path::PathBuf;

use super::Engine;
use super::config::{Coordinator, EngineConfig, IoChoice, SHARDS_MAX};
use super::open_error::OpenError;
use crate::id::StorageId;
use crate::partition::{PartitionSettings, ShardLimits};

/// Collects settings for [`Engine::open`].
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    config: EngineConfig,
}

impl EngineBuilder {
    pub(super) fn new(data_directory: PathBuf) -> EngineBuilder {
        EngineBuilder { config: EngineConfig::new(data_directory) }
    }

    /// Sets the number of shards, from 1 to [`SHARDS_MAX`].
    #[must_use]
    pub fn shards(mut self, shards: usize) -> EngineBuilder {
        self.config.shards = shards.clamp(1, SHARDS_MAX);
        self
    }

    /// Chooses between the ring and blocking calls.
    #[must_use]
    pub fn io(mut self, io: IoChoice) -> EngineBuilder {
        self.config.io = io;
        self
    }

    /// Sets the memory of one shard.
    #[must_use]
    pub fn arena_bytes(mut self, arena_bytes: usize) -> EngineBuilder {
        self.config.arena_bytes = arena_bytes;
        self
    }

    /// Sets the limits of one shard.
    #[must_use]
    pub fn limits(mut self, limits: ShardLimits) -> EngineBuilder {
        self.config.limits = limits;
        self
    }

    /// Sets whether reads from disk that do not say otherwise compare the checksums of payloads.
    #[must_use]
    pub fn verify_payloads(mut self, verify_payloads: bool) -> EngineBuilder {
        self.config.verify_payloads = verify_payloads;
        self
    }

    /// Sets how partitions that are created without settings of their own are stored.
    #[must_use]
    pub fn settings(mut self, settings: PartitionSettings) -> EngineBuilder {
        self.config.settings = settings;
        self
    }

    /// Hands the gate to a coordinator: partitions are served only under its grants.
    #[must_use]
    pub fn coordinator(mut self, coordinator: Coordinator) -> EngineBuilder {
        self.config.coordinator = Some(coordinator);
        self
    }

    /// Sets the id of the data directory: a new one gets it, one that has another is refused.
    #[must_use]
    pub fn storage(mut self, storage: StorageId) -> EngineBuilder {
        self.config.storage = Some(storage);
        self
    }

    /// Makes random ids repeatable.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> EngineBuilder {
        self.config.seed = Some(seed);
        self
    }

    /// Returns the settings collected so far.
    #[must_use]
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Opens the engine; see [`Engine::open`].
    ///
    /// # Errors
    ///
    /// [`OpenError`] says what is missing or in the way.
    pub fn open(self) -> Result<Engine, OpenError> {
        Engine::open(self.config)
    }
}
