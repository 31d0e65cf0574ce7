//! The first message of every connection: who speaks, of which cluster, and what for.
//!
//! Decides whether the two belong together; a program that guessed wrong learns what it reached.

use serde::{Deserialize, Serialize};

use super::WIRE_VERSION;

/// The longest name of a node, a voter or a client, in bytes.
pub const NAME_BYTES_MAX: usize = 200;

/// What a connection to a voter or a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lane {
    /// A node registers, takes pushes and reports; one per node.
    Control,
    /// A node renews its lease. Apart from [`Lane::Control`], so that pushes never delay it.
    Lease,
    /// Questions that any voter answers from what it has applied.
    Lookup,
    /// A client appends and reads at a node.
    Data,
}

/// What the side that connected says first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// What the connection is for.
    pub lane: Lane,
    /// The cluster the speaker belongs to; `None` before its first contact.
    pub cluster: Option<u128>,
    /// The speaker's name.
    pub name: String,
    /// The speaker's node id, once it has one.
    pub node: Option<u32>,
    /// Which run of the node this is; 0 for clients.
    pub incarnation: u64,
}

impl Hello {
    /// Says hello as a client of the data port.
    #[must_use]
    pub fn of_client(name: &str, cluster: Option<u128>) -> Hello {
        Hello { lane: Lane::Data, cluster, name: name.to_owned(), node: None, incarnation: 0 }
    }

    /// Checks that the speaker may talk to `cluster` on one of `lanes`.
    ///
    /// # Errors
    ///
    /// [`HelloRefusal`], to be sent back before the connection is closed.
    pub fn check(&self, cluster: u128, lanes: &[Lane]) -> Result<(), HelloRefusal> {
        if self.name.is_empty() || self.name.len() > NAME_BYTES_MAX {
            return Err(HelloRefusal::Name { bytes: self.name.len(), bytes_max: NAME_BYTES_MAX });
        }
        if self.name.chars().any(char::is_control) {
            return Err(HelloRefusal::Name { bytes: self.name.len(), bytes_max: NAME_BYTES_MAX });
        }
        if !lanes.contains(&self.lane) {
            return Err(HelloRefusal::Lane { asked: self.lane });
        }
        match self.cluster {
            Some(found) if found != cluster => {
                Err(HelloRefusal::OtherCluster { yours: found, mine: cluster })
            }
            None if self.lane == Lane::Lease => Err(HelloRefusal::Incarnation { incarnation: 0 }),
            _ if self.is_of_node() && self.incarnation == 0 => {
                Err(HelloRefusal::Incarnation { incarnation: 0 })
            }
            _ => Ok(()),
        }
    }

    fn is_of_node(&self) -> bool {
        matches!(self.lane, Lane::Control | Lane::Lease)
    }
}

/// What the side that accepted answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HelloAnswer {
    /// Go on.
    Welcome(Welcome),
    /// The connection ends here.
    Refused(HelloRefusal),
}

/// Who the speaker has reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The cluster.
    pub cluster: u128,
    /// The voter's or node's name.
    pub name: String,
    /// The node's id; 0 at a voter.
    pub node: u32,
    /// Which run of the node this is; 0 at a voter.
    pub incarnation: u64,
    /// What the accepting side speaks.
    pub version: u8,
}

impl Welcome {
    /// Welcomes in the name of a voter.
    #[must_use]
    pub fn of_voter(cluster: u128, name: &str) -> Welcome {
        Welcome { cluster, name: name.to_owned(), node: 0, incarnation: 0, version: WIRE_VERSION }
    }
}

/// Why a connection was refused at its first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum HelloRefusal {
    /// The speaker belongs elsewhere: a wrong address, or a directory of another cluster.
    #[error("you belong to cluster {yours:032x}; this is {mine:032x}")]
    OtherCluster {
        /// The speaker's cluster.
        yours: u128,
        /// The cluster it reached.
        mine: u128,
    },
    /// The name is empty, too long, or holds control characters.
    #[error("a name of {bytes} bytes; 1 to {bytes_max} printable ones are allowed")]
    Name {
        /// Its length.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// That lane is not served on this port.
    #[error("the {asked:?} lane is not served here")]
    Lane {
        /// What was asked for.
        asked: Lane,
    },
    /// A node without, or with an old, incarnation.
    #[error("incarnation {incarnation} is not, or no longer, that of a registered run")]
    Incarnation {
        /// What the speaker said.
        incarnation: u64,
    },
    /// This voter has not joined its cluster yet; try again later or at another.
    #[error("not part of a cluster yet; try again")]
    NotReady,
    /// As many connections as this process allows are open; try again later.
    #[error("{connections} connections are open, the limit; try again later")]
    TooMany {
        /// How many are open.
        connections: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(lane: Lane) -> Hello {
        Hello { lane, cluster: Some(7), name: "n1".to_owned(), node: Some(1), incarnation: 3 }
    }

    #[test]
    fn a_member_of_the_cluster_is_let_in() {
        let lanes = [Lane::Control, Lane::Lease];

        assert_eq!(hello(Lane::Control).check(7, &lanes), Ok(()));
        assert_eq!(hello(Lane::Lease).check(7, &lanes), Ok(()));
        assert_eq!(Hello { cluster: None, ..hello(Lane::Control) }.check(7, &lanes), Ok(()));
    }

    #[test]
    fn strangers_are_told_why() {
        let lanes = [Lane::Control, Lane::Lease];
        let cases = [
            Hello { cluster: Some(8), ..hello(Lane::Control) },
            Hello { name: String::new(), ..hello(Lane::Control) },
            Hello { name: "x".repeat(300), ..hello(Lane::Control) },
            Hello { name: "a\nb".to_owned(), ..hello(Lane::Control) },
            Hello { incarnation: 0, ..hello(Lane::Lease) },
            Hello { cluster: None, ..hello(Lane::Lease) },
            hello(Lane::Data),
        ];

        for hello in cases {
            assert!(hello.check(7, &lanes).is_err(), "{hello:?}");
        }
    }
}
