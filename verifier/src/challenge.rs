//! The broker's side of the conversation: one session per node, pure and storable.
//!
//! The broker keeps a [`Session`] as JSON between steps. It passes in fresh entropy and the real time since
//! its last answer, and sends the reply. Sessions do no I/O and read no clock. A repeated message (the
//! agent's retry) gets the same answer again. A different message for a finished step, or a step out of
//! order, is an error and changes nothing. A late answer is accepted, and the verdict records that it was
//! late.

mod draw;
mod history;
mod refusal;
mod siblings;
mod time;

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::attestation::{Attestation, Finding};
use market::ids::{AttestationId, LeaseId, VerificationId};
use market::verification::{
    AgentKey, BlockChoices, Choices, Commit, CommitReply, DeviceKind, Digest, Fill, FreshKey,
    MemoryRoots, MemoryTaken, Openings, PROTOCOL, ReportReply, ReportSubmission, Roots, Step,
    VerificationOrder,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::attest::{attest, attest_together};
use crate::evidence::{Evidence, Said};
use crate::memory::block_count;
use crate::order::{Mode, check_mode, check_order};
use crate::transcript::{Transcript, digest_of};
pub use refusal::StepError;
use refusal::{check_checksums, check_commit, check_inventory, check_length};

/// The subject of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The verification of all nodes of the lease.
    pub verification_id: VerificationId,
    /// The lease.
    pub lease_id: LeaseId,
    /// Whether simulated devices are accepted.
    pub mode: Mode,
    /// The order for this node.
    pub order: VerificationOrder,
}

/// The result of a step.
#[derive(Debug, Clone)]
pub struct Answered<R> {
    /// The session to store in place of the one before.
    pub session: Session,
    /// The reply to send.
    pub reply: R,
    /// Whether this repeats an earlier answer. Then there is nothing to store, and the clock of the next step
    /// goes on.
    pub replayed: bool,
}

/// The data that the broker adds to a judgement.
#[derive(Debug, Clone, Copy)]
pub struct Judging {
    /// The id for the attestation.
    pub attestation_id: AttestationId,
    /// The time to write on the attestation, and of the report's arrival.
    pub now: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "awaits", rename_all = "snake_case")]
enum Stage {
    Roots,
    Fill {
        choices: Choices,
    },
    Memory {
        choices: Choices,
        key: Digest,
    },
    Openings {
        choices: Choices,
        key: Digest,
    },
    Report {
        fill_seed: Digest,
        key: Digest,
        blocks: BlockChoices,
    },
    Over {
        attestation: Box<Attestation>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct LastExchange {
    step: Step,
    request: Digest,
    reply: serde_json::Value,
}

/// The broker's state of one node's conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Session {
    opening: Opening,
    commit: Commit,
    nonce: Digest,
    transcript: Transcript,
    evidence: Evidence,
    stage: Stage,
    last: LastExchange,
}

impl Session {
    /// Step 1: takes an agent's commitment and draws the nonce.
    ///
    /// `entropy` must be fresh from the operating system here and in every later step.
    /// Errors: [`StepError::SimulatedDevice`] for a reference device outside simulation,
    /// [`StepError::Protocol`], [`StepError::Malformed`], [`StepError::Order`].
    pub fn open(
        opening: Opening,
        commit: Commit,
        entropy: [u8; 32],
    ) -> Result<Answered<CommitReply>, StepError> {
        if commit.protocol != PROTOCOL {
            return Err(StepError::Protocol(commit.protocol));
        }
        if opening.mode == Mode::Real && commit.device_kind == DeviceKind::Reference {
            return Err(StepError::SimulatedDevice);
        }
        check_mode(&opening.order, opening.mode)?;
        check_order(&opening.order)?;
        check_commit(&commit)?;
        let nonce = Digest(entropy);
        let reply = CommitReply {
            nonce,
            order: opening.order.clone(),
        };
        let transcript = Transcript::default().with(Step::Commit, &commit, &reply)?;
        let last = LastExchange {
            step: Step::Commit,
            request: digest_of(&commit)?,
            reply: serde_json::to_value(&reply)?,
        };
        let evidence = Evidence::default();
        let session = Self {
            opening,
            commit,
            nonce,
            transcript,
            evidence,
            stage: Stage::Roots,
            last,
        };
        Ok(Answered {
            session,
            reply,
            replayed: false,
        })
    }

    /// Step 1 again for an existing session: the same answer to the same commitment.
    ///
    /// Errors: [`StepError::Changed`] for another commitment, [`StepError::OutOfOrder`] when the
    /// conversation has gone on.
    pub fn on_commit_again(&self, commit: &Commit) -> Result<Answered<CommitReply>, StepError> {
        match self.replay(Step::Commit, commit)? {
            Some(answered) => Ok(answered),
            None => Err(self.out_of_order(Step::Commit)),
        }
    }

    /// Step 2: takes the roots and draws the products to open.
    ///
    /// `elapsed` is the real time since the broker's answer to step 1.
    /// Errors: [`StepError`]; a late answer is not an error.
    pub fn on_roots(
        &self,
        roots: &Roots,
        entropy: [u8; 32],
        elapsed: Duration,
    ) -> Result<Answered<Choices>, StepError> {
        self.check_speaker(&roots.agent_key)?;
        if let Some(answered) = self.replay(Step::Roots, roots)? {
            return Ok(answered);
        }
        if self.stage != Stage::Roots {
            return Err(self.out_of_order(Step::Roots));
        }
        check_inventory(&roots.inventory)?;
        check_length(roots.gpus.len(), roots.inventory.gpus.len())?;
        let gemm = &self.opening.order.gemm;
        check_checksums(&roots.gpus, gemm.iterations)?;
        let said = digest_of(roots)?;
        let choices = draw::choices(&entropy, roots.gpus.len(), gemm);
        let mut next = self.clone();
        next.evidence.add_roots(roots);
        next.stage = Stage::Fill {
            choices: choices.clone(),
        };
        next.exchanged(Step::Roots, said, choices, elapsed)
    }

    /// Step 3: memory is filled; draws the fresh key.
    ///
    /// Errors: [`StepError`]; a late answer is not an error.
    pub fn on_fill(
        &self,
        fill: &Fill,
        entropy: [u8; 32],
        elapsed: Duration,
    ) -> Result<Answered<FreshKey>, StepError> {
        self.check_speaker(&fill.agent_key)?;
        if let Some(answered) = self.replay(Step::Fill, fill)? {
            return Ok(answered);
        }
        let Stage::Fill { choices } = &self.stage else {
            return Err(self.out_of_order(Step::Fill));
        };
        check_length(fill.gpus.len(), self.evidence.gpu_count())?;
        let said = digest_of(fill)?;
        let key = Digest(entropy);
        let mut next = self.clone();
        next.evidence.filled = Some(fill.gpus.clone());
        next.stage = Stage::Memory {
            choices: choices.clone(),
            key,
        };
        next.exchanged(Step::Fill, said, FreshKey { key }, elapsed)
    }

    /// Step 4: takes the trees over memory without checking them.
    ///
    /// Errors: [`StepError`]; a late answer is not an error.
    pub fn on_memory(
        &self,
        memory: &MemoryRoots,
        elapsed: Duration,
    ) -> Result<Answered<MemoryTaken>, StepError> {
        self.check_speaker(&memory.agent_key)?;
        if let Some(answered) = self.replay(Step::Memory, memory)? {
            return Ok(answered);
        }
        let Stage::Memory { choices, key } = &self.stage else {
            return Err(self.out_of_order(Step::Memory));
        };
        check_length(memory.roots.len(), self.evidence.gpu_count())?;
        let said = digest_of(memory)?;
        let mut next = self.clone();
        next.evidence.memory_roots.clone_from(&memory.roots);
        next.stage = Stage::Openings {
            choices: choices.clone(),
            key: *key,
        };
        next.exchanged(Step::Memory, said, MemoryTaken {}, elapsed)
    }

    /// Step 5: checks the openings and draws the blocks of memory to open.
    ///
    /// This computes for a while with large orders: call it where blocking is allowed.
    /// Errors: [`StepError`]; a wrong or late answer is not an error.
    pub fn on_openings(
        &self,
        openings: &Openings,
        entropy: [u8; 32],
        elapsed: Duration,
    ) -> Result<Answered<BlockChoices>, StepError> {
        self.check_speaker(&openings.agent_key)?;
        if let Some(answered) = self.replay(Step::Openings, openings)? {
            return Ok(answered);
        }
        let Stage::Openings { choices, key } = &self.stage else {
            return Err(self.out_of_order(Step::Openings));
        };
        check_length(openings.gpus.len(), self.evidence.gpu_count())?;
        // A message that is not accepted costs no computation: it may come again and again.
        let said = digest_of(openings)?;
        let order = &self.opening.order;
        let filled = |gpu| block_count(&self.evidence.memory_work(&order.memory, gpu));
        let gpus = 0..openings.gpus.len() as u32;
        let count = order.memory.opened_blocks;
        let blocks = gpus
            .map(|gpu| draw::choose(&entropy, gpu, count, filled(gpu)))
            .collect();
        let reply = BlockChoices { blocks };
        let mut next = self.clone();
        next.evidence
            .add_openings(&self.nonce, order, choices, key, openings);
        next.stage = Stage::Report {
            fill_seed: choices.fill_seed,
            key: *key,
            blocks: reply.clone(),
        };
        next.exchanged(Step::Openings, said, reply, elapsed)
    }

    /// The session with a report's claims added, so that [`Self::shown_gpus`] is complete. Nothing is
    /// recomputed, timed or judged.
    ///
    /// Errors: [`StepError`] of a report before its step, or after the end.
    pub fn reported(&self, submission: &ReportSubmission) -> Result<Self, StepError> {
        self.check_speaker(&submission.agent_key)?;
        if matches!(self.stage, Stage::Report { .. }) {
            check_length(submission.blocks.len(), self.evidence.gpu_count())?;
        }
        let mut next = self.clone();
        let said = Said {
            verification_id: self.opening.verification_id,
            nonce: &self.nonce,
            transcript: self.transcript.digest(),
            may_be_simulated: self.opening.mode == Mode::Simulation,
        };
        next.evidence
            .add_report(&submission.report, &self.commit, &said);
        if self.awaited() != Some(Step::Report) {
            next.check_early_report(self)?;
        }
        Ok(next)
    }

    /// Step 6: checks the report and judges the node.
    ///
    /// An agent that cannot go on may report at any step and gives the reason in `troubles`. The attestation
    /// is then in [`Self::attestation`], to be countersigned and stored. This computes for a while with large
    /// orders: call it where blocking is allowed.
    /// Errors: [`StepError`]; a wrong, forged or late report is not an error.
    pub fn on_report(
        &self,
        submission: &ReportSubmission,
        judging: Judging,
        elapsed: Duration,
    ) -> Result<Answered<ReportReply>, StepError> {
        self.check_speaker(&submission.agent_key)?;
        if let Some(answered) = self.replay(Step::Report, submission)? {
            return Ok(answered);
        }
        // As with openings.
        let said = digest_of(submission)?;
        let mut next = self.reported(submission)?;
        let order = &self.opening.order;
        if let Stage::Report {
            fill_seed,
            key,
            blocks,
        } = &self.stage
        {
            next.evidence
                .add_blocks(fill_seed, order, key, blocks, submission);
        }
        next.evidence.reported_at = Some(judging.now);
        next.time(Step::Report, elapsed);
        let attestation = attest(&self.opening, Some(&self.commit), &next.evidence, judging);
        let reply = ReportReply {
            verdict: attestation.verdict,
            attestation_id: judging.attestation_id,
            // The leader of the gang sets this.
            gang: false,
        };
        next.stage = Stage::Over {
            attestation: Box::new(attestation),
        };
        next.remember(Step::Report, said, &reply)?;
        Ok(Answered {
            session: next,
            reply,
            replayed: false,
        })
    }

    /// The result with the findings on the node's gang added; none while there is no result.
    #[must_use]
    pub fn together(&self, found: Vec<Finding>, judging: Judging) -> Option<Attestation> {
        let alone = self.attestation()?;
        Some(attest_together(alone, &self.opening.order, found, judging))
    }

    /// Only an agent that names its reason for stopping may report before its step.
    fn check_early_report(&self, before: &Self) -> Result<(), StepError> {
        let reports = self.evidence.report.as_ref();
        if before.awaited().is_none() || reports.is_none_or(|report| report.troubles.is_empty()) {
            return Err(before.out_of_order(Step::Report));
        }
        self.evidence
            .inventory
            .as_ref()
            .map_or(Ok(()), check_inventory)
    }

    /// The result, once there is one.
    #[must_use]
    pub fn attestation(&self) -> Option<&Attestation> {
        match &self.stage {
            Stage::Over { attestation } => Some(attestation),
            _ => None,
        }
    }

    /// The key by which the node is known.
    #[must_use]
    pub const fn agent_key(&self) -> &AgentKey {
        &self.commit.agent_key
    }

    /// The subject of the session.
    #[must_use]
    pub const fn opening(&self) -> &Opening {
        &self.opening
    }

    /// What is known of the node.
    pub(crate) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    fn check_speaker(&self, key: &AgentKey) -> Result<(), StepError> {
        if *key == self.commit.agent_key {
            Ok(())
        } else {
            Err(StepError::WrongKey)
        }
    }

    fn replay<Q: Serialize, R: DeserializeOwned>(
        &self,
        step: Step,
        request: &Q,
    ) -> Result<Option<Answered<R>>, StepError> {
        if self.last.step != step {
            return Ok(None);
        }
        if self.last.request != digest_of(request)? {
            return Err(StepError::Changed(step));
        }
        let reply = R::deserialize(&self.last.reply)?;
        Ok(Some(Answered {
            session: self.clone(),
            reply,
            replayed: true,
        }))
    }

    fn out_of_order(&self, got: Step) -> StepError {
        self.awaited()
            .map_or(StepError::Over, |awaited| StepError::OutOfOrder {
                got,
                awaited,
            })
    }

    fn exchanged<R: Serialize>(
        mut self,
        step: Step,
        request: Digest,
        reply: R,
        elapsed: Duration,
    ) -> Result<Answered<R>, StepError> {
        self.time(step, elapsed);
        self.transcript = self.transcript.with_said(step, request, &reply)?;
        self.remember(step, request, &reply)?;
        Ok(Answered {
            session: self,
            reply,
            replayed: false,
        })
    }

    fn remember<R: Serialize>(
        &mut self,
        step: Step,
        request: Digest,
        reply: &R,
    ) -> Result<(), StepError> {
        let reply = serde_json::to_value(reply)?;
        self.last = LastExchange {
            step,
            request,
            reply,
        };
        Ok(())
    }
}

/// Judges a node that never sent a message.
#[must_use]
pub fn judge_silence(opening: &Opening, judging: Judging) -> Attestation {
    attest(opening, None, &Evidence::default(), judging)
}

#[cfg(test)]
mod tests;
