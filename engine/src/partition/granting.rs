//! Takes up granted epochs and gives them back, each durably before it is said.

use std::rc::Rc;
use std::sync::Arc;

use super::authority::LeaseRule;
use super::change::ChangeError;
use super::checkpointing::Intent;
use super::grant::{Grant, GrantError, GrantOutcome};
use super::log::{PartitionLog, Phase};
use super::promise::{PromiseVerdict, judge_take_up};
use super::starting::TakeUp;
use crate::id::{Epoch, Offset};
use crate::io::disk::{Disk, DiskError};

impl<D: Disk> PartitionLog<D> {
    /// Takes up a granted epoch; resolves once its promise and then its marker are durable.
    pub(crate) async fn grant(self: &Rc<Self>, grant: Grant) -> Result<GrantOutcome, GrantError> {
        let _changing = self.changing.lock().await;
        self.check_grant(&grant)?;
        let start = {
            let state = self.state.borrow();
            let owned = state.owned.map(|owned| owned.epoch);
            match judge_take_up(state.promised, owned, grant.epoch) {
                PromiseVerdict::Refuse { promised } => return Err(GrantError::Fenced { promised }),
                PromiseVerdict::Repeat => {
                    let start = state.epochs.last().map_or(Offset::ZERO, |last| last.start);
                    return Ok(GrantOutcome { epoch: grant.epoch, start, repeated: true });
                }
                PromiseVerdict::Raise => {}
            }
            state.watermarks.log_end
        };
        // What an earlier epoch of this run admitted is acknowledged in it or not at all.
        let _paused = self.pause();
        self.drain().await.map_err(grant_error)?;
        let start = start.max(self.state.borrow().watermarks.log_end);
        let take_up = TakeUp {
            epoch: grant.epoch,
            descriptor: grant.descriptor,
            rule: LeaseRule::of(grant.policy),
        };
        if let Err(error) = self.begin_changes(Some(take_up)).await {
            return Err(self.fail_grant(error));
        }
        self.submit();
        self.drain().await.map_err(grant_error)?;
        let epoch = grant.epoch;
        Ok(GrantOutcome { epoch, start, repeated: false })
    }

    fn check_grant(&self, grant: &Grant) -> Result<(), GrantError> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = &state.stopped {
            return Err(GrantError::Stopped { error: error.clone() });
        }
        if state.phase == Phase::Closed {
            return Err(GrantError::Closed);
        }
        let replicas = grant.descriptor.set.members.len();
        if replicas != 1 {
            return Err(GrantError::ReplicasUnsupported { replicas });
        }
        let storage = self.context.identity.storage;
        if grant.descriptor.set.members.iter().all(|member| member.storage != storage) {
            return Err(GrantError::NotMember { storage });
        }
        let (push, applied) = (grant.point(), state.pushes.applied());
        if !state.pushes.accept(push) {
            self.context.gate.count_dropped();
            return Err(GrantError::Older { push, applied });
        }
        Ok(())
    }

    fn fail_grant(self: &Rc<Self>, error: DiskError) -> GrantError {
        if error.is_full() {
            let mut state = self.state.borrow_mut();
            if state.phase == Phase::Starting {
                state.phase = Phase::Idle;
            }
            return GrantError::DiskFull;
        }
        self.stop(std::sync::Arc::new(error));
        let stopped = self.state.borrow().stopped.clone();
        GrantError::Stopped { error: stopped.expect("it was just stopped") }
    }

    /// Gives an epoch back: drains, and acknowledges nothing in it afterwards (I9).
    pub(crate) async fn revoke(self: &Rc<Self>, epoch: Epoch) -> Result<Offset, GrantError> {
        let _changing = self.changing.lock().await;
        let owned = self.state.borrow().owned.map(|owned| owned.epoch);
        if owned != Some(epoch) {
            return Err(GrantError::NotOwner { epoch });
        }
        let _paused = self.pause();
        let drained = self.drain().await;
        let log_end = {
            let mut state = self.state.borrow_mut();
            state.owned = None;
            self.publish(&state);
            state.watermarks.log_end
        };
        self.refuse_waiting(&super::append::AppendError::NotOwner);
        drained.map_err(grant_error)?;
        self.checkpoint_change(Intent::default()).await.map_err(grant_error)?;
        Ok(log_end)
    }
}

fn grant_error(error: ChangeError) -> GrantError {
    match error {
        ChangeError::DiskFull { .. } => GrantError::DiskFull,
        ChangeError::Stopped { error } => GrantError::Stopped { error: Arc::clone(&error) },
        _ => GrantError::Closed,
    }
}
