//! What driver and system show of a node, before the work and after it. A pretended node shows
//! nothing of the kind.

use std::time::Duration;

use market::verification::{BandwidthWork, GpuFacts, NodeFacts, XidEvent};

use crate::device::{Device, DeviceError, Node, Rate};

/// What is shown before the first work; nothing of a pretended node.
///
/// Errors: the GPUs that could not be looked at.
pub fn before(node: &mut Node) -> Result<Option<NodeFacts>, Vec<DeviceError>> {
    let Some(surroundings) = &mut node.surroundings else {
        return Ok(None);
    };
    let mut facts = surroundings.before();
    facts.gpus = observe(node)?;
    Ok(Some(facts))
}

fn observe(node: &mut Node) -> Result<Vec<GpuFacts>, Vec<DeviceError>> {
    let nothing = vec![(); node.devices.len()];
    node.on_all(nothing, |_, device, ()| device.observe())
}

/// Measures the rates of all GPUs beside that of the copy: the host link one by one and once
/// together. Gives the GPUs that did not finish.
pub fn rates(node: &mut Node, facts: &mut NodeFacts, work: &BandwidthWork) -> Vec<DeviceError> {
    let measure = |device: &mut dyn Device, rate: Rate| -> Result<Vec<u64>, DeviceError> {
        let samples = (0..work.samples).map(|sample| device.rate_mb_per_s(rate, sample));
        Ok(samples
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect())
    };
    let together = |node: &mut Node, rate| {
        let nothing = vec![(); node.devices.len()];
        node.on_all(nothing, |_, device, ()| measure(device, rate))
    };
    let memory =
        together(node, Rate::Read).and_then(|read| Ok((read, together(node, Rate::Triad)?)));
    let (read, triad) = match memory {
        Ok(rates) => rates,
        Err(errors) => return errors,
    };
    let mut alone = Vec::new();
    for device in &mut node.devices {
        let link = measure(device.as_mut(), Rate::FromHost)
            .and_then(|from| Ok((from, measure(device.as_mut(), Rate::ToHost)?)));
        match link {
            Ok(rates) => alone.push(rates),
            Err(error) => return vec![error],
        }
    }
    let at_once = match together(node, Rate::FromHost) {
        Ok(rates) => rates,
        Err(errors) => return errors,
    };
    let measured = read.into_iter().zip(triad).zip(alone).zip(at_once);
    for (gpu, (((read, triad), (from, to)), at_once)) in facts.gpus.iter_mut().zip(measured) {
        gpu.rates.read_mb_per_s = read;
        gpu.rates.triad_mb_per_s = triad;
        gpu.rates.from_host_mb_per_s = from;
        gpu.rates.to_host_mb_per_s = to;
        gpu.rates.from_host_together_mb_per_s = at_once;
    }
    Vec::new()
}

/// Adds what is shown after the last work. Gives the GPUs that could not be looked at.
pub fn after(node: &mut Node, facts: &mut NodeFacts, elapsed: Duration) -> Vec<DeviceError> {
    let mut failed = Vec::new();
    match observe(node) {
        Ok(now) => {
            for (gpu, now) in facts.gpus.iter_mut().zip(now) {
                gpu.health_after = now.health_before;
                gpu.health_elapsed_ms = u64::try_from(elapsed.as_millis()).ok();
                gpu.host_link = now.host_link;
            }
        }
        Err(errors) => failed.extend(errors),
    }
    let nothing = vec![(); node.devices.len()];
    match node.on_all(nothing, |_, device, ()| device.xids()) {
        Ok(xids) => facts.xids = numbered(xids),
        Err(errors) => failed.extend(errors),
    }
    if let Some(surroundings) = &mut node.surroundings {
        surroundings.after(facts);
    }
    failed
}

/// All errors with their GPU's number; none where one GPU's could not be heard.
fn numbered(xids: Vec<Option<Vec<u32>>>) -> Option<Vec<XidEvent>> {
    let heard: Option<Vec<Vec<u32>>> = xids.into_iter().collect();
    let events = heard?.into_iter().zip(0..).flat_map(|(xids, gpu)| {
        let of = move |xid| XidEvent {
            gpu: Some(gpu),
            xid,
        };
        xids.into_iter().map(of)
    });
    Some(events.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_number_of_their_gpu_and_silence_is_not_health() {
        let heard = numbered(vec![Some(vec![]), Some(vec![79, 63])]).expect("heard");
        let pairs: Vec<_> = heard.iter().map(|event| (event.gpu, event.xid)).collect();
        assert_eq!(pairs, [(Some(1), 79), (Some(1), 63)]);
        assert_eq!(numbered(vec![Some(vec![79]), None]), None);
    }
}
