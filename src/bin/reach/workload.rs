//! Arrival traces and service times, shared by demo and bench.
//!
//! Why real ones: a constant rate flatters a queue. Calls of a production LLM service come in bursts, and their service
//! times have a long tail; both are in the embedded trace (`demo/README.md` says whose it is).

use std::time::Duration;

/// The embedded trace: arrival, tokens in, tokens out.
pub(crate) const TRACE_CSV: &str = include_str!("../../../demo/azure-llm-2023-excerpt.csv");
/// The embedded sentences: one JSON object a line.
pub(crate) const SENTENCES_JSONL: &str = include_str!("../../../demo/clinc150-excerpt.jsonl");

/// One call of the traced service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Call {
    /// When it arrived, from the first one.
    pub(crate) at: Duration,
    /// Tokens in.
    pub(crate) context_tokens: u32,
    /// Tokens out.
    pub(crate) generated_tokens: u32,
}

/// A trace, in order of arrival.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trace {
    calls: Vec<Call>,
}

/// Why a text is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {what}")]
pub(crate) struct TraceError {
    line: usize,
    what: &'static str,
}

impl Trace {
    /// Reads `TIMESTAMP,ContextTokens,GeneratedTokens` lines; the first is the heading.
    pub(crate) fn parse(text: &str) -> Result<Self, TraceError> {
        let mut calls = Vec::new();
        let mut first: Option<jiff::civil::DateTime> = None;
        for (index, line) in text.lines().enumerate().skip(1) {
            let wrong = |what| TraceError { line: index + 1, what };
            let mut fields = line.split(',');
            let (Some(at), Some(context), Some(generated), None) =
                (fields.next(), fields.next(), fields.next(), fields.next())
            else {
                return Err(wrong("expected three fields"));
            };
            let at: jiff::civil::DateTime = at.parse().map_err(|_| wrong("the time cannot be read"))?;
            let since = at.duration_since(*first.get_or_insert(at));
            calls.push(Call {
                at: Duration::try_from(since).map_err(|_| wrong("arrivals go back in time"))?,
                context_tokens: context.parse().map_err(|_| wrong("the context tokens are no number"))?,
                generated_tokens: generated.parse().map_err(|_| wrong("the generated tokens are no number"))?,
            });
        }
        if !calls.is_sorted_by_key(|call| call.at) {
            return Err(TraceError { line: 0, what: "arrivals are not in order" });
        }
        Ok(Self { calls })
    }

    /// The calls.
    pub(crate) fn calls(&self) -> &[Call] {
        &self.calls
    }

    /// From the first arrival to the last.
    pub(crate) fn span(&self) -> Duration {
        self.calls.last().map_or(Duration::ZERO, |call| call.at)
    }

    /// The same arrivals, so much faster that all lie within `span`: bursts stay bursts.
    pub(crate) fn squeezed_into(&self, span: Duration) -> Self {
        let factor = span.as_secs_f64() / self.span().as_secs_f64().max(f64::EPSILON);
        let calls = self.calls.iter().map(|call| Call { at: call.at.mul_f64(factor), ..*call }).collect();
        Self { calls }
    }
}

/// Service time of an LLM call, `a + b × GeneratedTokens`: 20 ms to the first token and 30 ms a token, as such models
/// take, played `faster` times faster than real.
pub(crate) fn service_time(generated_tokens: u32, faster: f64) -> Duration {
    (Duration::from_millis(20) + Duration::from_millis(30) * generated_tokens).div_f64(faster.max(1.0))
}

/// When the next request is due, whatever became of the ones before: open loop.
#[derive(Debug, Clone)]
pub(crate) enum Arrivals {
    /// Evenly spaced.
    Steady {
        /// Requests a second.
        rate: f64,
    },
    /// Independent callers: exponential gaps from a fixed seed.
    Poisson {
        /// Requests a second, on average.
        rate: f64,
        /// State of the generator.
        seed: u64,
    },
    /// The traced bursts, scaled to a mean rate, over and over.
    Traced {
        /// Requests a second, on average.
        rate: f64,
        /// The trace.
        trace: Trace,
    },
}

impl Arrivals {
    /// Offsets from the start, never falling, without end.
    pub(crate) fn offsets(self) -> Box<dyn Iterator<Item = Duration> + Send> {
        match self {
            Self::Steady { rate } => {
                Box::new((0_u32..).map(move |n| Duration::from_secs_f64(f64::from(n) / rate.max(f64::EPSILON))))
            }
            Self::Poisson { rate, seed } => {
                let mut chance = SplitMix(seed);
                let mut at = Duration::ZERO;
                Box::new(std::iter::from_fn(move || {
                    at += Duration::from_secs_f64(-(1.0 - chance.unit()).ln() / rate.max(f64::EPSILON));
                    Some(at)
                }))
            }
            Self::Traced { rate, trace } => {
                let count = u32::try_from(trace.calls.len()).unwrap_or(u32::MAX);
                let lap = Duration::from_secs_f64(f64::from(count) / rate.max(f64::EPSILON));
                let calls = trace.squeezed_into(lap).calls;
                Box::new(
                    (0_u32..).flat_map(move |turn| calls.iter().map(|call| lap * turn + call.at).collect::<Vec<_>>()),
                )
            }
        }
    }
}

/// SplitMix64: small, seeded, good enough to spread arrivals.
#[derive(Debug, Clone)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// The next 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// In [0, bound); 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_trace_has_a_thousand_calls_in_order() {
        let trace = Trace::parse(TRACE_CSV).expect("the embedded trace is whole");
        assert_eq!(trace.calls().len(), 1_000);
        assert_eq!(
            trace.calls().first(),
            Some(&Call { at: Duration::ZERO, context_tokens: 4_808, generated_tokens: 10 })
        );
        assert_eq!(trace.span().as_secs(), 521);
    }

    #[test]
    fn a_squeezed_trace_keeps_its_shape() {
        let trace = Trace::parse(TRACE_CSV).expect("the embedded trace is whole");
        let fast = trace.squeezed_into(Duration::from_secs(20));
        assert_eq!(fast.span().as_secs_f64().round(), 20.0);
        let ratio = |t: &Trace| t.calls()[500].at.as_secs_f64() / t.span().as_secs_f64();
        assert!((ratio(&trace) - ratio(&fast)).abs() < 1e-6);
    }

    #[test]
    fn a_broken_line_is_named() {
        let error = Trace::parse("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,x\n");
        assert_eq!(error, Err(TraceError { line: 2, what: "the generated tokens are no number" }));
    }

    #[test]
    fn service_time_grows_with_the_tokens_and_shrinks_with_the_speed() {
        assert_eq!(service_time(10, 1.0), Duration::from_millis(320));
        assert_eq!(service_time(10, 20.0), Duration::from_millis(16));
    }

    #[test]
    fn every_arrival_process_keeps_its_mean_rate() {
        let trace = Trace::parse(TRACE_CSV).expect("the embedded trace is whole");
        for arrivals in [
            Arrivals::Steady { rate: 500.0 },
            Arrivals::Poisson { rate: 500.0, seed: 7 },
            Arrivals::Traced { rate: 500.0, trace },
        ] {
            let last = arrivals.offsets().nth(10_000).expect("offsets have no end").as_secs_f64();
            assert!((19.0..21.0).contains(&last), "10,000 arrivals at 500/s took {last} s");
        }
    }

    #[test]
    fn offsets_never_fall() {
        let trace = Trace::parse(TRACE_CSV).expect("the embedded trace is whole");
        let offsets: Vec<_> = Arrivals::Traced { rate: 900.0, trace }.offsets().take(3_000).collect();
        assert!(offsets.is_sorted());
    }
}
