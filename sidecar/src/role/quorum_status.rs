//! The quorum as one voter sees it, in the shape of `palisade status --json`.

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::voter::{Voter, millis};

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

impl Voter {
    pub(super) fn quorum_status(&self) -> QuorumStatus {
        let (live, needed, missing) = self.count_live();
        let leader = self.leader();
        let held = live >= needed && leader.is_some() && !*self.stop.borrow();
        let (continues, stops) = what_goes_on(held, live >= needed);
        let now = Instant::now();
        let (leader_since, admitted, led) = {
            let ages = self.ages();
            let since = ages.leader.as_ref().filter(|(known, _)| *known == leader);
            (since.map_or(now, |(_, since)| *since), ages.admitted, ages.led)
        };
        QuorumStatus {
            majority: Majority {
                held,
                live,
                needed,
                margin: signed(live) - signed(needed),
                leader_since_ms: millis(now.saturating_duration_since(leader_since)),
                last_admitted_age_ms: admitted.map(|at| millis(now.saturating_duration_since(at))),
                missing,
                leader: leader.clone(),
            },
            continues,
            stops,
            voters: self.voter_names().into_iter().map(|n| self.voter_status(n, &leader)).collect(),
            age_ms: millis(now.saturating_duration_since(led.unwrap_or(self.started))),
        }
    }

    fn voter_status(&self, name: String, leader: &Option<String>) -> VoterStatus {
        let hint = self.hint(&name);
        let (address, admin_address) =
            hint.map_or((String::new(), None), |hint| (hint.address, hint.admin_address));
        let leads = leader.as_ref() == Some(&name);
        if name == self.name() {
            return VoterStatus {
                name,
                address,
                admin_address,
                live: !*self.stop.borrow(),
                last_contact_ms: Some(0),
                applied_index: self.machine.view().index,
                leads,
            };
        }
        let contact = self.contacts.get(&name).unwrap_or_default();
        VoterStatus {
            name,
            address,
            admin_address,
            live: contact.is_live(self.config.timings.voter_silent),
            last_contact_ms: contact.heard.map(|heard| millis(heard.elapsed())),
            applied_index: contact.report.applied_index,
            leads,
        }
    }
}

fn signed(count: usize) -> i64 {
    i64::try_from(count).expect("a count of voters")
}

/// The table of DESIGN 6 as sentences for people: what goes on and what does not.
pub(crate) fn what_goes_on(held: bool, has_majority: bool) -> (Vec<String>, Vec<String>) {
    let lines = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
    if held {
        let continues = [
            "appends, committed reads and fresh reads",
            "create, delete and alter streams; register nodes; elect owners",
            "lease renewal",
        ];
        return (lines(&continues), Vec::new());
    }
    let continues = [
        "appends and committed reads on settled owners of serve-settled and self-elect streams",
        "appends and reads of fail-closed streams until the lease of their owner ends",
        "lists and status, answered with their age",
    ];
    let reason = if has_majority { "until a leader is elected" } else { "no majority" };
    let stops = [
        "create, delete and alter streams; registering nodes",
        "elections of new owners: a partition whose owner dies waits",
        "lease renewal: fail-closed streams stop when their leases end",
    ];
    let stops = stops.iter().map(|stop| format!("{stop} ({reason})")).collect();
    (lines(&continues), stops)
}
