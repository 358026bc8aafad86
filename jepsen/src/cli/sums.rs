//! What ranges of seeds came to, one JSON line for each run, so that many runs add up.

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

/// What the seeds of one run, or of several, came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Sum {
    /// The first seed.
    pub(super) from: u64,
    /// The seed after the last one.
    pub(super) to: u64,
    /// Simulated seconds under faults, for each.
    pub(super) seconds: u64,
    /// Seeds that ran.
    pub(super) seeds: u64,
    /// Those with a violation.
    pub(super) bad: Vec<u64>,
    /// Sends that were acknowledged.
    pub(super) acked: usize,
    /// Changes of topics that were answered.
    #[serde(default)]
    pub(super) changed: usize,
    pub(super) simulated_ms: u64,
    /// How often each kind of fault came.
    pub(super) faults: BTreeMap<String, u64>,
}

impl Sum {
    /// Adds another run.
    pub(super) fn add(&mut self, other: &Sum) {
        self.to = self.to.max(other.to);
        self.seeds += other.seeds;
        self.bad.extend(&other.bad);
        self.bad.sort_unstable();
        self.acked += other.acked;
        self.changed += other.changed;
        self.simulated_ms += other.simulated_ms;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults: Vec<String> = self.faults.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        writeln!(f, "seeds       {}, {} s each under faults", self.seeds, self.seconds)?;
        writeln!(f, "simulated   {:.1} h", self.simulated_ms as f64 / 3.6e6)?;
        writeln!(f, "acked       {} sends, {} changes of metadata", self.acked, self.changed)?;
        writeln!(f, "faults      {}", faults.join(", "))?;
        write!(f, "violations  {} {:?}", self.bad.len(), self.bad)
    }
}

/// All runs in a file; none when there is no file.
pub(super) fn read(path: &Path) -> Result<Vec<Sum>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let lines = text.lines().enumerate();
    lines
        .map(|(at, line)| serde_json::from_str(line).with_context(|| format!("{} line {}", path.display(), at + 1)))
        .collect()
}

/// Adds a line for one run.
pub(super) fn append(path: &Path, sum: &Sum) -> Result<()> {
    let mut line = serde_json::to_string(sum)?;
    line.push('\n');
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_add_up() {
        let path = std::env::temp_dir().join(format!("raftmq-sums-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        assert!(read(&path).unwrap().is_empty());
        let one =
            Sum { from: 0, to: 10, seeds: 10, bad: vec![3], faults: [("Kill".to_owned(), 2)].into(), ..Sum::default() };
        append(&path, &one).unwrap();
        append(&path, &Sum { from: 10, to: 20, bad: Vec::new(), ..one.clone() }).unwrap();
        let mut total = Sum::default();
        read(&path).unwrap().iter().for_each(|sum| total.add(sum));
        assert_eq!((total.to, total.seeds, total.bad, total.faults["Kill"]), (20, 20, vec![3], 4));
        std::fs::remove_file(&path).unwrap();
    }
}
