//! Which nodes a command talks to: `--endpoints`, or the playground (`--data DIR`, or the one that was started last).
//!
//! The playground that was started last is remembered in `$XDG_STATE_HOME/raftmq/context.json`
//! (`~/.local/state/raftmq/context.json` without the variable).

use crate::cli::Global;
use crate::exit::Failure;
use crate::playground::record::Playground;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Which port of the nodes a command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// The admin port.
    Admin,
    /// The client port.
    Client,
}

#[derive(Serialize, Deserialize)]
struct Context {
    data: PathBuf,
}

/// `host:port` addresses for a command, at least one.
pub(crate) fn endpoints(global: &Global, port: Port) -> Result<Vec<String>, Failure> {
    if !global.endpoints.is_empty() {
        return Ok(global.endpoints.clone());
    }
    let playground = Playground::load(&playground_dir(global)?)?;
    Ok(playground
        .nodes
        .iter()
        .map(|node| match port {
            Port::Admin => node.admin.clone(),
            Port::Client => node.client.clone(),
        })
        .collect())
}

/// The playground's folder: `--data`, or the one that was started last.
pub(crate) fn playground_dir(global: &Global) -> Result<PathBuf, Failure> {
    if let Some(dir) = &global.data {
        return Ok(dir.clone());
    }
    let remembered = context_path()
        .and_then(|path| std::fs::read(path).ok())
        .and_then(|bytes| serde_json::from_slice::<Context>(&bytes).ok());
    match remembered {
        Some(context) => Ok(context.data),
        None => Err(Failure::usage(
            "there is no playground to talk to: give --endpoints host:port, or --data DIR, or start one with `raftmq playground`",
        )),
    }
}

/// Remembers the playground that was started last.
pub(crate) fn remember(dir: &Path) -> Result<(), Failure> {
    let Some(path) = context_path() else { return Ok(()) };
    let failed = |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", path.display()));
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    let context = serde_json::to_vec(&Context { data: dir.to_path_buf() })
        .map_err(|error| Failure::failed(format!("the context cannot be written: {error}")))?;
    std::fs::write(&path, context).map_err(failed)
}

/// Forgets the playground in `dir` if it is the remembered one.
pub(crate) fn forget(dir: &Path) {
    let Some(path) = context_path() else { return };
    let remembered = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice::<Context>(&bytes).ok());
    if remembered.is_some_and(|context| context.data == dir) {
        // A context that cannot be removed only leads to a clear answer later: the playground is stopped.
        let _ = std::fs::remove_file(path);
    }
}

/// Where state of this user is kept, without a trailing file name; `None` without a home.
pub(crate) fn state_dir() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("raftmq"))
}

fn context_path() -> Option<PathBuf> {
    state_dir().map(|dir| dir.join("context.json"))
}
