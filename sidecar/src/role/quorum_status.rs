//! The quorum as one voter sees it, in the shape of `palisade status --json`.

use serde::{Deserialize, Serialize};

/// What any voter answers at once, with or without a leader, from what it has seen itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumStatus {
    /// The majority.
    pub majority: Majority,
    /// What goes on right now.
    pub continues: Vec<String>,
    /// What is refused right now.
    pub stops: Vec<String>,
    /// Each voter as seen from here.
    pub voters: Vec<VoterStatus>,
    /// Age of what this voter has applied: time since it last heard the leader's confirmation.
    pub age_ms: u64,
}

/// Whether a structural change can be admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Majority {
    /// Whether enough voters are live and one of them leads.
    pub held: bool,
    /// Voters seen live from here, this one included.
    pub live: usize,
    /// Voters a majority needs.
    pub needed: usize,
    /// How many more failures the role survives; negative: how many are missing.
    pub margin: i64,
    /// The leader's name, if one is known and live.
    pub leader: Option<String>,
    /// Milliseconds since that leader (or none) has been so.
    #[serde(default)]
    pub leader_since_ms: u64,
    /// Voters not seen live.
    pub missing: Vec<String>,
    /// Milliseconds since the last canary or change was admitted, as known here.
    pub last_admitted_age_ms: Option<u64>,
}

/// One voter as seen from here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoterStatus {
    /// Its name.
    pub name: String,
    /// Its `--listen` address.
    pub address: String,
    /// Its `--admin-listen` address, if known.
    #[serde(default)]
    pub admin_address: Option<String>,
    /// Whether it answered lately.
    pub live: bool,
    /// Milliseconds since its last answer; `None`: never since this process started.
    pub last_contact_ms: Option<u64>,
    /// The last index it told it has applied.
    #[serde(default)]
    pub applied_index: u64,
    /// Whether it leads, as far as this voter knows.
    #[serde(default)]
    pub leads: bool,
}
