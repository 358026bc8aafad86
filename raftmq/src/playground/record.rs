//! `playground.json`: which nodes there are and which processes run them.

use crate::exit::Failure;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's name in the playground's folder.
const FILE: &str = "playground.json";

/// A playground.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Playground {
    /// Broker groups that it was (or is to be) born with.
    pub(crate) groups: u32,
    /// Ascending by id.
    pub(crate) nodes: Vec<PlaygroundNode>,
}

/// One node of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PlaygroundNode {
    /// Node id, from 1.
    pub(crate) id: u32,
    /// The process that runs it, or ran it last; 0 before the first start.
    pub(crate) pid: u32,
    /// When that process started, in clock ticks since boot: tells it from another one that got its pid.
    pub(crate) started_ticks: u64,
    /// `host:port` of the client port.
    pub(crate) client: String,
    /// `host:port` of the admin port.
    pub(crate) admin: String,
    /// `host:port` of the peer port.
    pub(crate) peer: String,
    /// Data folder.
    pub(crate) data: PathBuf,
    /// Configuration file.
    pub(crate) config: PathBuf,
    /// Log file.
    pub(crate) log: PathBuf,
}

impl Playground {
    /// Whether `dir` holds a playground.
    pub(crate) fn exists(dir: &Path) -> bool {
        dir.join(FILE).exists()
    }

    /// Reads `DIR/playground.json`. Error: a sentence that names the file.
    pub(crate) fn load(dir: &Path) -> Result<Playground, Failure> {
        let path = dir.join(FILE);
        let bytes = std::fs::read(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Failure::not_found(format!("there is no playground in {}", dir.display())),
            _ => Failure::usage(format!("{} cannot be read: {error}", path.display())),
        })?;
        serde_json::from_slice(&bytes)
            .map_err(|error| Failure::usage(format!("{} is not a playground's file: {error}", path.display())))
    }

    /// Replaces `DIR/playground.json` in one step, so that a reader never sees half of it.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), Failure> {
        let path = dir.join(FILE);
        let next = dir.join(format!("{FILE}.next"));
        let failed = |error: std::io::Error| Failure::failed(format!("{} cannot be written: {error}", path.display()));
        let bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Failure::failed(format!("{} cannot be written: {error}", path.display())))?;
        std::fs::write(&next, bytes).map_err(failed)?;
        std::fs::rename(&next, &path).map_err(failed)
    }

    /// A node by id. Error: a sentence that says which there are.
    pub(crate) fn node(&self, id: u32) -> Result<&PlaygroundNode, Failure> {
        let ids: Vec<String> = self.nodes.iter().map(|node| node.id.to_string()).collect();
        self.nodes
            .iter()
            .find(|node| node.id == id)
            .ok_or_else(|| Failure::not_found(format!("the playground has no node {id}, it has {}", ids.join(", "))))
    }

    /// Admin addresses of all nodes.
    pub(crate) fn admins(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.admin.clone()).collect()
    }

    /// Client addresses of all nodes.
    pub(crate) fn clients(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.client.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_documented_fields() {
        let dir = tempfile::tempdir().expect("dir");
        let playground = crate::playground::layout::plan(dir.path(), 3, 1, Some(9081)).expect("plan");
        playground.save(dir.path()).expect("save");
        assert_eq!(Playground::load(dir.path()).expect("load"), playground);
        let json: serde_json::Value =
            serde_json::from_slice(&std::fs::read(dir.path().join(FILE)).expect("read")).expect("json");
        for field in ["id", "pid", "client", "admin", "data"] {
            assert!(!json["nodes"][0][field].is_null(), "{field}");
        }
    }
}
