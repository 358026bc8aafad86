//! Other programs, run to their end.

use anyhow::{Context, Result, bail};
use std::process::Command;

/// Runs a program; its output, or an error that says what it complained about.
pub(super) fn sh(program: &str, args: &[&str]) -> Result<String> {
    let line = || format!("{program} {}", args.join(" "));
    let out = Command::new(program).args(args).output().with_context(|| format!("cannot run `{}`", line()))?;
    if !out.status.success() {
        bail!("`{}`: {}: {}", line(), out.status, String::from_utf8_lossy(&out.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The programs of `needed` that are not on the path.
pub(super) fn missing(needed: &[&'static str]) -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    needed.iter().filter(|name| !found(name)).copied().collect()
}
