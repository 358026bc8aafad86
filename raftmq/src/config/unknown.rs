//! Keys that nobody knows: an error that names the nearest one that exists.

use super::DEFAULT_FILE;

/// Keys of one entry of `peers`; `default.toml` shows them in a comment.
const PEER_KEYS: [&str; 3] = ["id", "peer", "roles"];

/// Refuses a key that `default.toml` does not have. The sentence names the nearest known key.
pub(super) fn check(table: &toml::Table) -> Result<(), String> {
    let known: toml::Table = DEFAULT_FILE.parse().map_err(|error| format!("the built-in default file: {error}"))?;
    for (key, value) in table {
        match (known.get(key), value) {
            (None, _) => return Err(sentence("", key, &all_keys(&known))),
            (Some(toml::Value::Table(section)), toml::Value::Table(given)) => {
                let keys: Vec<String> = section.keys().cloned().collect();
                for key_in_section in given.keys() {
                    if !section.contains_key(key_in_section) {
                        return Err(sentence(&format!("{key}."), key_in_section, &keys));
                    }
                }
            }
            (Some(_), toml::Value::Array(entries)) if key == "peers" => check_peers(entries)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_peers(entries: &[toml::Value]) -> Result<(), String> {
    let keys: Vec<String> = PEER_KEYS.iter().map(ToString::to_string).collect();
    for entry in entries.iter().filter_map(toml::Value::as_table) {
        for key in entry.keys() {
            if !keys.contains(key) {
                return Err(sentence("peers.", key, &keys));
            }
        }
    }
    Ok(())
}

/// Top-level keys first, then those of sections by their full names, so that a key in the wrong place finds its home.
fn all_keys(known: &toml::Table) -> Vec<String> {
    let mut keys: Vec<String> = known.keys().cloned().collect();
    for (name, value) in known {
        if let toml::Value::Table(section) = value {
            keys.extend(section.keys().map(|key| format!("{name}.{key}")));
        }
    }
    keys
}

fn sentence(prefix: &str, key: &str, known: &[String]) -> String {
    let distance = |candidate: &String| {
        let bare = candidate.rsplit('.').next().unwrap_or(candidate);
        strsim::damerau_levenshtein(key, bare).min(strsim::damerau_levenshtein(key, candidate))
    };
    match known.iter().min_by_key(|candidate| distance(candidate)) {
        Some(nearest) if nearest.contains('.') => {
            format!("unknown key \"{prefix}{key}\"; the nearest key is \"{nearest}\"")
        }
        Some(nearest) => format!("unknown key \"{prefix}{key}\"; the nearest key is \"{prefix}{nearest}\""),
        None => format!("unknown key \"{prefix}{key}\""),
    }
}
