//! Why a step is refused, and the form that a message must have to be examined.

use market::verification::{Commit, GemmCommitment, Inventory, PROTOCOL, Step};

use crate::canonical::CanonicalError;
use crate::jws::PublicKey;
use crate::order::BadOrder;
use crate::plain::{is_name, is_one_word};

/// The most GPUs, and the most network adapters, that a node may claim. It exceeds every order, so that a
/// node with too many is judged rather than its message refused as malformed.
const MOST_CLAIMED: usize = 64;
/// The most host keys that a node may claim.
const MOST_HOST_KEYS: usize = 16;
/// The longest host key: that of RSA with 16,384 bits.
const HOST_KEY_CHARS: usize = 3_000;
/// The most that all of a node's host keys may have together, since they are kept in a document. Units:
/// bytes.
const HOST_KEYS_BYTES: usize = 8_192;

/// Why a step was refused. A refused step changes nothing.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// The agent speaks another version.
    #[error("the agent speaks version {0} of the conversation, this broker version {PROTOCOL}")]
    Protocol(u32),
    /// A reference device outside simulation mode.
    #[error("a reference device cannot verify real hardware; run the agent on the node's GPUs")]
    SimulatedDevice,
    /// The broker expects another step.
    #[error("step {got} came where {awaited} is expected")]
    OutOfOrder {
        /// The step received.
        got: Step,
        /// The step expected.
        awaited: Step,
    },
    /// A finished step came again with other content.
    #[error("step {0} was answered before, with other content")]
    Changed(Step),
    /// The report was judged; the conversation is over.
    #[error("this verification is over")]
    Over,
    /// The message is from another agent than the one that committed.
    #[error("the message is not by the agent that began this conversation")]
    WrongKey,
    /// The message cannot be an answer to this order.
    #[error("the message does not have the expected form: {0}")]
    Malformed(&'static str),
    /// The broker's own order is impossible.
    #[error(transparent)]
    Order(#[from] BadOrder),
    /// A message has no canonical form.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// The stored session is damaged.
    #[error("the stored session cannot be read")]
    Stored(#[from] serde_json::Error),
}

pub(super) fn check_length(got: usize, want: usize) -> Result<(), StepError> {
    if got == want {
        return Ok(());
    }
    Err(StepError::Malformed(
        "there must be one entry for each GPU of the inventory",
    ))
}

/// Data beyond the order is not kept: a session is stored after every step.
pub(super) fn check_checksums(gpus: &[GemmCommitment], iterations: u32) -> Result<(), StepError> {
    if gpus
        .iter()
        .all(|gpu| gpu.checksums.len() <= iterations as usize)
    {
        return Ok(());
    }
    Err(StepError::Malformed(
        "a GPU has more checksums than products were ordered",
    ))
}

/// Whether a text may be stored, compared and shown as a name: short enough, and of permitted characters
/// only.
fn is_presentable(text: &str, longest: usize) -> bool {
    text.len() <= longest && is_name(text)
}

pub(super) fn check_commit(commit: &Commit) -> Result<(), StepError> {
    if commit.host.len() > 255 || !is_one_word(&commit.host) {
        return Err(StepError::Malformed("the host is no name or address"));
    }
    if !is_presentable(&commit.agent.version, 64) {
        return Err(StepError::Malformed("the agent's version is no plain text"));
    }
    PublicKey::parse(commit.agent_key.as_str())
        .map_err(|_| StepError::Malformed("the agent's key is no Ed25519 public key"))?;
    Ok(())
}

pub(super) fn check_inventory(inventory: &Inventory) -> Result<(), StepError> {
    if inventory.gpus.len() > MOST_CLAIMED {
        return Err(StepError::Malformed("a node has at most 64 GPUs"));
    }
    let texts = inventory.gpus.iter().flat_map(|gpu| [&gpu.name, &gpu.uuid]);
    if !texts
        .chain([&inventory.driver])
        .all(|text| is_presentable(text, 128))
    {
        return Err(StepError::Malformed(
            "a name in the inventory is no plain text",
        ));
    }
    if inventory.nics.len() > MOST_CLAIMED || inventory.ssh_host_keys.len() > MOST_HOST_KEYS {
        return Err(StepError::Malformed(
            "a node has at most 64 network adapters and 16 host keys",
        ));
    }
    let nics = inventory.nics.iter().all(|nic| is_presentable(nic, 64));
    let keys = &inventory.ssh_host_keys;
    if !nics || !keys.iter().all(|key| is_presentable(key, HOST_KEY_CHARS)) {
        return Err(StepError::Malformed(
            "a network adapter or a host key is no plain text",
        ));
    }
    if keys.iter().map(String::len).sum::<usize>() > HOST_KEYS_BYTES {
        return Err(StepError::Malformed(
            "the host keys of a node have at most 8,192 bytes together",
        ));
    }
    Ok(())
}
