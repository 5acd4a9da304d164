//! The facts of driver and system about a node, before the work and after it. A simulated node has none of
//! them.

use std::time::Duration;

use market::verification::{BandwidthWork, GpuFacts, NodeFacts, XidEvent};

use crate::device::{Device, DeviceError, Node, Rate};

/// The facts before the first work, for all GPUs that could be inspected; none for a simulated node. Also
/// gives the GPUs that could not be.
pub fn before(node: &mut Node) -> (Option<NodeFacts>, Vec<DeviceError>) {
    let Some(surroundings) = &mut node.surroundings else {
        return (None, Vec::new());
    };
    let mut facts = surroundings.before();
    let mut failed = Vec::new();
    for looked in look(node) {
        let shown = looked.and_then(|look| look.shown);
        facts.gpus.push(shown.unwrap_or_else(|error| {
            failed.push(error);
            GpuFacts::default()
        }));
    }
    (Some(facts), failed)
}

/// One inspection of a GPU.
struct Look {
    /// The errors that its driver reported.
    xids: Result<Option<Vec<u32>>, DeviceError>,
    /// Its current state.
    shown: Result<GpuFacts, DeviceError>,
}

/// Inspects all GPUs: a GPU that does not answer does not affect the others' results.
fn look(node: &mut Node) -> Vec<Result<Look, DeviceError>> {
    let nothing = vec![(); node.devices.len()];
    node.on_each(nothing, |_, device, ()| {
        // First the errors already received: a GPU that does not answer is given up, with all of that.
        let xids = device.xids();
        let shown = device.observe();
        Ok(Look { xids, shown })
    })
}

/// Measures the rates of all GPUs besides that of the copy: the host link one by one and once together. Gives
/// the GPUs that did not finish.
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

/// Adds the facts after the last work. Gives the GPUs that could not be inspected.
pub fn after(node: &mut Node, facts: &mut NodeFacts, elapsed: Duration) -> Vec<DeviceError> {
    let mut failed = Vec::new();
    let mut heard = Vec::new();
    for (gpu, looked) in facts.gpus.iter_mut().zip(look(node)) {
        let (xids, shown) = match looked {
            Ok(Look { xids, shown }) => (xids.ok().flatten(), shown),
            Err(error) => (None, Err(error)),
        };
        heard.push(xids);
        match shown {
            Ok(now) => {
                gpu.health_after = now.health_before;
                gpu.health_elapsed_ms = u64::try_from(elapsed.as_millis()).ok();
                gpu.host_link = now.host_link;
            }
            Err(error) => failed.push(error),
        }
    }
    (facts.xids, facts.xids_unheard) = numbered(heard);
    if let Some(surroundings) = &mut node.surroundings {
        surroundings.listen(facts);
    }
    failed
}

/// All errors with their GPU's number, and the GPUs without an answer; no errors where no GPU answered.
fn numbered(xids: Vec<Option<Vec<u32>>>) -> (Option<Vec<XidEvent>>, Vec<u32>) {
    let (mut events, mut unheard) = (None, Vec::new());
    for (gpu, xids) in (0..).zip(xids) {
        let of = |xid| XidEvent {
            gpu: Some(gpu),
            xid,
        };
        match xids {
            Some(xids) => events
                .get_or_insert_with(Vec::new)
                .extend(xids.into_iter().map(of)),
            None => unheard.push(gpu),
        }
    }
    (events, unheard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_carry_the_number_of_their_gpu_and_silence_is_not_health() {
        let pairs = |events: Option<Vec<XidEvent>>| -> Vec<_> {
            let events = events.expect("heard").into_iter();
            events.map(|event| (event.gpu, event.xid)).collect()
        };
        let (heard, unheard) = numbered(vec![Some(vec![]), Some(vec![79, 63])]);
        assert_eq!(pairs(heard), [(Some(1), 79), (Some(1), 63)]);
        assert!(unheard.is_empty());
        let (heard, unheard) = numbered(vec![Some(vec![79]), None]);
        assert_eq!((pairs(heard), unheard), (vec![(Some(0), 79)], vec![1]));
        assert_eq!(numbered(vec![None, None]), (None, vec![0, 1]));
    }
}
