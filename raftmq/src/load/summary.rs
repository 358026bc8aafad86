//! Latencies and rates of a load.

use crate::exit::Failure;
use crate::playground::process::cpu_us;
use hdrhistogram::Histogram;
use std::time::Duration;

/// Latencies up to a minute, in microseconds, to three digits.
const LATENCY_US_MAX: u64 = 60_000_000;

/// An empty histogram of microseconds.
pub(crate) fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new_with_bounds(1, LATENCY_US_MAX, 3)
        .map_err(|error| Failure::failed(format!("latencies cannot be recorded: {error}")))
}

/// Records a latency; longer ones count as the longest.
pub(crate) fn record(latencies: &mut Histogram<u64>, latency: Duration) {
    latencies.saturating_record(u64::try_from(latency.as_micros()).unwrap_or(LATENCY_US_MAX));
}

/// A percentile in milliseconds.
pub(crate) fn percentile_ms(latencies: &Histogram<u64>, percentile: f64) -> f64 {
    latencies.value_at_percentile(percentile) as f64 / 1000.0
}

/// CPU time of processes over a span.
pub(crate) struct CpuSpan {
    pids: Vec<u32>,
    started_us: u64,
}

impl CpuSpan {
    /// Begins now. Error: a process that does not run.
    pub(crate) fn begin(pids: &[u32]) -> Result<CpuSpan, Failure> {
        Ok(CpuSpan { pids: pids.to_vec(), started_us: sum(pids)? })
    }

    /// Microseconds of CPU per message so far; `None` without processes or messages.
    pub(crate) fn us_per_message(&self, messages: u64) -> Result<Option<f64>, Failure> {
        if self.pids.is_empty() || messages == 0 {
            return Ok(None);
        }
        let spent = sum(&self.pids)?.saturating_sub(self.started_us);
        Ok(Some(spent as f64 / messages as f64))
    }
}

fn sum(pids: &[u32]) -> Result<u64, Failure> {
    pids.iter().map(|pid| cpu_us(*pid).ok_or_else(|| Failure::not_found(format!("there is no process {pid}")))).sum()
}
