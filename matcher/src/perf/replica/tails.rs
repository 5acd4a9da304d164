//! Tail latencies: an event simulation of continuous batching on one replica.
//!
//! The closed form gives only means. Here requests arrive one by one and queue for a slot in the batch. The
//! engine reads their prompt, and each step of the batch writes one token of every answer. Between two steps
//! the engine admits as many requests as it can. A prompt delays the others for as long as one stage of a
//! pipeline reads it, and its own request until it has passed all stages. Arrivals come from a seeded
//! generator, so the same load gives the same latencies.

use std::collections::VecDeque;

use market::math::ln;

use super::PromptTimes;

/// Tokens of prompts that an engine reads between two steps at most, but for one prompt.
const PROMPT_TOKENS_A_STEP: f64 = 8_192.0;

/// Requests that are simulated at most. The first tenth is not counted: the queue is empty then, as
/// it seldom is later.
const REQUESTS: usize = 4_000;

/// The most steps to simulate: a replica that is nearly idle has the same tail latencies after few steps.
const STEPS: u64 = 100_000;

/// How requests come in.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arrivals {
    /// Random arrivals, so many per second on average (a Poisson process).
    PerSecond(f64),
    /// A new request whenever one is answered, so that this many are always in flight.
    InFlight(u32),
}

/// The load of one replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CopyLoad {
    /// How requests come in.
    pub arrivals: Arrivals,
    /// Tokens of a prompt.
    pub input_tokens: f64,
    /// Tokens of an answer, one or more.
    pub output_tokens: u32,
    /// Sequences that are answered together at most.
    pub most_together: u32,
}

/// The times of a replica's steps. Units: seconds.
pub trait StepTimes {
    /// To read one prompt.
    fn prompt(&self) -> PromptTimes;
    /// To write the next token of each of `batch` sequences, `context` tokens long on average.
    fn step_seconds(&self, batch: f64, context: f64) -> f64;
}

/// The latencies of the requests of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Tails {
    /// To the first token, queueing included; sorted. Units: seconds.
    first_token: Vec<f64>,
    /// Per further token, the mean over a request; sorted. Units: seconds.
    per_token: Vec<f64>,
}

impl Tails {
    /// From latencies in the order in which requests were answered; `None` for no requests.
    fn of(mut first_token: Vec<f64>, mut per_token: Vec<f64>) -> Option<Self> {
        for times in [&mut first_token, &mut per_token] {
            times.drain(..times.len() / 10);
            times.sort_by(f64::total_cmp);
        }
        (!first_token.is_empty()).then_some(Self {
            first_token,
            per_token,
        })
    }

    /// The time to the first token at this percentile of the requests.
    /// Units: seconds.
    #[must_use]
    pub fn first_token_seconds(&self, percentile: f64) -> f64 {
        at(&self.first_token, percentile)
    }

    /// The mean time per further token at this percentile of the requests.
    /// Units: seconds; zero where answers have one token.
    #[must_use]
    pub fn per_token_seconds(&self, percentile: f64) -> f64 {
        at(&self.per_token, percentile)
    }

    /// The mean time to the first token. Units: seconds.
    #[must_use]
    pub fn mean_first_token_seconds(&self) -> f64 {
        self.first_token.iter().sum::<f64>() / self.first_token.len().max(1) as f64
    }
}

/// The value at this percentile of sorted values.
fn at(sorted: &[f64], percentile: f64) -> f64 {
    let rank = (percentile / 100.0 * sorted.len() as f64).ceil() as usize;
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(rank.saturating_sub(1).min(last))
        .copied()
        .unwrap_or(0.0)
}

/// A request whose prompt is being read.
struct Reading {
    arrived: f64,
    read_at: f64,
}

/// A request whose answer is being written.
struct Request {
    arrived: f64,
    first_token: f64,
    /// The step after which its answer is complete.
    done_after: u64,
}

/// Simulates a replica under a load. The same load, times and seed give the same tail latencies.
///
/// `None` where answers are so long that none is complete within the simulated steps.
#[must_use]
pub fn simulate(load: &CopyLoad, times: &impl StepTimes, seed: u64) -> Option<Tails> {
    let places = load.most_together.max(1) as usize;
    let mut source = Source::new(load.arrivals, places, seed);
    let prompt = times.prompt();
    let prompts_a_step = (PROMPT_TOKENS_A_STEP / load.input_tokens).max(1.0) as usize;
    let steps_of_answer = u64::from(load.output_tokens.max(1));
    let mut waiting: VecDeque<f64> = VecDeque::new();
    let mut reading: VecDeque<Reading> = VecDeque::new();
    let mut running: VecDeque<Request> = VecDeque::new();
    let mut written = 0.0;
    let (mut now, mut step) = (0.0_f64, 0_u64);
    let (mut first_token, mut per_token) = (Vec::new(), Vec::new());
    while first_token.len() < REQUESTS && step < STEPS {
        source.arrive(now, first_token.len(), &mut waiting);
        if running.is_empty() && reading.is_empty() && waiting.is_empty() {
            now = source.next_arrival();
            continue;
        }
        let admitted = waiting
            .len()
            .min(places - running.len() - reading.len())
            .min(prompts_a_step);
        let begun = now;
        now += admitted as f64 * prompt.each;
        let read_at = now.max(begun + prompt.alone);
        let admitted = waiting.drain(..admitted);
        reading.extend(admitted.map(|arrived| Reading { arrived, read_at }));
        let read = reading.partition_point(|request| request.read_at <= now);
        if running.is_empty() && read == 0 {
            // Until a prompt is read, the first stage is free for the next request.
            let full = waiting.is_empty() || reading.len() == places;
            if let (true, Some(first)) = (full, reading.front()) {
                now = now.max(first.read_at.min(source.next_arrival()));
            }
            continue;
        }
        step += 1;
        let batch = (running.len() + read) as f64;
        let context = load.input_tokens + written / batch;
        now += times.step_seconds(batch, context);
        for Reading { arrived, .. } in reading.drain(..read) {
            running.push_back(Request {
                arrived,
                first_token: now,
                done_after: step + steps_of_answer - 1,
            });
        }
        written += batch;
        while let Some(request) = running.pop_front_if(|request| request.done_after == step) {
            written -= steps_of_answer as f64;
            first_token.push(request.first_token - request.arrived);
            let further = (steps_of_answer - 1).max(1) as f64;
            per_token.push((now - request.first_token) / further);
        }
    }
    Tails::of(first_token, per_token)
}

/// Where requests come from.
struct Source {
    arrivals: Arrivals,
    /// The next arrival, for random arrivals.
    next: f64,
    /// Requests so far.
    sent: usize,
    /// The most requests to admit: the simulation ends without any later ones.
    most: usize,
    state: u64,
}

impl Source {
    fn new(arrivals: Arrivals, places: usize, seed: u64) -> Self {
        let mut source = Self {
            arrivals,
            next: 0.0,
            sent: 0,
            most: REQUESTS.saturating_add(places),
            state: seed,
        };
        source.next = source.gap();
        source
    }

    /// Queues the requests that have arrived by now.
    fn arrive(&mut self, now: f64, answered: usize, waiting: &mut VecDeque<f64>) {
        match self.arrivals {
            Arrivals::PerSecond(_) => {
                while self.next <= now && self.sent < self.most {
                    waiting.push_back(self.next);
                    self.next += self.gap();
                    self.sent += 1;
                }
            }
            Arrivals::InFlight(count) => {
                let wanted = answered.saturating_add(count.max(1) as usize);
                while self.sent < wanted.min(self.most) {
                    waiting.push_back(now);
                    self.sent += 1;
                }
            }
        }
    }

    /// The next arrival; infinity where no more requests are admitted.
    fn next_arrival(&self) -> f64 {
        if self.sent < self.most {
            self.next
        } else {
            f64::INFINITY
        }
    }

    /// Seconds between two random arrivals.
    fn gap(&mut self) -> f64 {
        match self.arrivals {
            Arrivals::PerSecond(rate) => -ln(1.0 - self.uniform()) / rate,
            Arrivals::InFlight(_) => f64::INFINITY,
        }
    }

    /// A number from zero to below one: the generator SplitMix64 (Steele, Lea & Flood 2014).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use market::math::{exp, pow};

    use super::*;

    /// Every step takes the same time, and so does every prompt.
    struct Constant {
        step: f64,
        prompt: PromptTimes,
    }

    impl Constant {
        /// Prompts take no time.
        const fn step(step: f64) -> Self {
            let prompt = PromptTimes {
                each: 0.0,
                alone: 0.0,
            };
            Self { step, prompt }
        }
    }

    impl StepTimes for Constant {
        fn prompt(&self) -> PromptTimes {
            self.prompt
        }

        fn step_seconds(&self, _: f64, _: f64) -> f64 {
            self.step
        }
    }

    fn tails(load: &CopyLoad, step_seconds: f64, seed: u64) -> Tails {
        simulate(load, &Constant::step(step_seconds), seed).expect("answers")
    }

    fn one_at_a_time(utilisation: f64) -> CopyLoad {
        CopyLoad {
            arrivals: Arrivals::PerSecond(utilisation),
            input_tokens: 1.0,
            output_tokens: 1,
            most_together: 1,
        }
    }

    /// The chance of waiting at most `t` in the queue M/D/1 whose service takes 1. Source: Erlang
    /// 1909, as in Kleinrock, Queueing Systems I.
    fn waits_at_most(t: f64, utilisation: f64) -> f64 {
        let mut factorial = 1.0;
        let mut sum = 0.0;
        for k in 0..=(t.floor() as u32) {
            let k = f64::from(k);
            if k > 0.0 {
                factorial *= k;
            }
            let x = utilisation * (k - t);
            sum += pow(x, k) / factorial * exp(-x);
        }
        (1.0 - utilisation) * sum
    }

    #[test]
    fn one_answer_at_a_time_waits_as_the_queue_m_d_1_does() {
        for utilisation in [0.3, 0.5, 0.7] {
            // Ten seeds, so that random error is small against the tested difference.
            let runs: Vec<_> = (0..10)
                .map(|seed| tails(&one_at_a_time(utilisation), 1.0, seed))
                .collect();
            let mean = runs
                .iter()
                .map(Tails::mean_first_token_seconds)
                .sum::<f64>()
                / 10.0;
            // Pollaczek and Khinchine: the wait is u / 2(1 - u), and the service takes 1.
            let exact = 1.0 + utilisation / (2.0 * (1.0 - utilisation));
            assert!(
                (mean / exact - 1.0).abs() < 0.03,
                "{utilisation}: {mean} {exact}"
            );
            for percentile in [75.0, 95.0, 99.0] {
                let of_runs = runs.iter().map(|run| run.first_token_seconds(percentile));
                let found = of_runs.sum::<f64>() / 10.0 - 1.0;
                let chance = waits_at_most(found, utilisation) * 100.0;
                assert!(
                    (chance - percentile).abs() < 1.0,
                    "{utilisation}: {percentile} % within {found}, exactly {chance}"
                );
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_tails_and_another_one_others() {
        let of = |seed| tails(&one_at_a_time(0.5), 1.0, seed);
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn an_answer_that_never_ends_is_not_waited_for() {
        let load = CopyLoad {
            output_tokens: 10_000_000,
            ..one_at_a_time(0.5)
        };
        assert_eq!(simulate(&load, &Constant::step(1.0), 1), None);
    }

    #[test]
    fn a_prompt_passes_all_stages_before_its_first_token_and_holds_others_up_for_one() {
        let times = Constant {
            step: 0.02,
            prompt: PromptTimes {
                each: 0.1,
                alone: 0.4,
            },
        };
        let load = |rate| CopyLoad {
            arrivals: Arrivals::PerSecond(rate),
            input_tokens: 4_000.0,
            output_tokens: 10,
            most_together: 64,
        };
        // One at a time: four stages, one after the other, then ten steps.
        let calm = simulate(&load(1e-3), &times, 1).expect("answers");
        assert!((calm.first_token_seconds(50.0) - 0.42).abs() < 1e-9);
        assert!((calm.per_token_seconds(50.0) - 0.02).abs() < 1e-9);
        // Stages read different prompts: five a second, where one after the other would give two and a half.
        // No request waits for less than its own prompt.
        let busy = simulate(&load(5.0), &times, 1).expect("answers");
        assert!(busy.first_token[0] >= 0.42 - 1e-9);
        assert!(busy.first_token_seconds(95.0) < 2.0);
        assert!(busy.per_token_seconds(50.0) > 0.03);
    }

    #[test]
    fn a_copy_that_is_never_full_makes_nobody_queue() {
        let load = CopyLoad {
            arrivals: Arrivals::InFlight(8),
            input_tokens: 100.0,
            output_tokens: 50,
            most_together: 8,
        };
        let tails = tails(&load, 0.02, 1);
        assert!((tails.first_token_seconds(99.0) - 0.02).abs() < 1e-9);
        assert!((tails.per_token_seconds(99.0) - 0.02).abs() < 1e-9);
    }

    #[test]
    fn tails_grow_with_the_load_and_are_never_below_the_median() {
        let of = |utilisation| {
            // Four slots, and answers of ten steps: 0.4 requests per second are its capacity.
            let load = CopyLoad {
                arrivals: Arrivals::PerSecond(0.4 * utilisation),
                input_tokens: 100.0,
                output_tokens: 10,
                most_together: 4,
            };
            tails(&load, 1.0, 7)
        };
        let (calm, busy) = (of(0.3), of(0.9));
        assert!(busy.first_token_seconds(95.0) > 2.0 * calm.first_token_seconds(95.0));
        for tails in [calm, busy] {
            assert!(tails.first_token_seconds(99.0) >= tails.first_token_seconds(50.0));
            assert_eq!(tails.first_token.len(), REQUESTS - REQUESTS / 10);
        }
    }
}
