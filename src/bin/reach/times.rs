//! HDR histograms of spans, in whatever unit their owner counts.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The longest span told apart: an hour in microseconds. Longer ones count as this.
const LONGEST: u64 = 3_600_000_000;

/// An empty histogram of three digits. Its bounds are fixed: one that grows by itself clamps what is recorded
/// saturating to the size that it has so far.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("1 to an hour in three digits are bounds that HDR histograms take")
}

/// Its quantiles, each divided by `scale`.
pub(crate) fn quantiles(histogram: &Histogram<u64>, scale: f64) -> Value {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / scale;
    json!({
        "count": histogram.len(), "p50": at(0.5), "p90": at(0.9), "p95": at(0.95), "p99": at(0.99), "p999": at(0.999),
        "max": histogram.max() as f64 / scale,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_long_span_is_recorded_as_long_as_it_is() {
        let mut micros = histogram();
        micros.saturating_record(20_000);
        assert_eq!(quantiles(&micros, 1e3)["p50"].as_f64().map(f64::round), Some(20.0));
    }
}
