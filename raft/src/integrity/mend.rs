//! Opens a log. One that does not open since a frame is damaged gets that frame from a peer first.

use super::source::{Asked, FrameSource};
use crate::errors::OpenError;
use bytes::Bytes;
use raftmq_store::commit_log::{
    CommitLog, CommitLogOptions, OpenError as LogError, Put, Recovered, WantedFrame, put_frame, reach,
};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two rounds of asking, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Rounds in which all peers answer, and none has a frame that fits: then none will.
const REFUSALS_COUNT_MAX: u32 = 12;
/// How often it is said that the peers do not answer.
const REMIND: Duration = Duration::from_secs(30);

/// Opens the log, mended if need be: waits for peers as long as the node is not closing.
pub(crate) async fn open_log(
    source: &FrameSource,
    options: &CommitLogOptions,
    closing: &AtomicBool,
) -> Result<(CommitLog, Recovered), OpenError> {
    let group = source.group;
    loop {
        let opened = blocking(options, CommitLog::open).await?;
        let error = match opened {
            Ok(opened) => return Ok(opened),
            Err(error) => error,
        };
        match error.wanted() {
            Some(wanted) if source.has_peers() => {
                tracing::error!(group = group.0, "{error}; the replica waits for the frame of a peer");
                if !mend(source, options, wanted, closing).await? {
                    return Err(OpenError::Log { group, source: error });
                }
            }
            _ => return Err(OpenError::Log { group, source: error }),
        }
    }
}

/// Puts a frame in its place, and those behind it that are damaged too; false when no peer has one that fits.
async fn mend(
    source: &FrameSource,
    options: &CommitLogOptions,
    wanted: &WantedFrame,
    closing: &AtomicBool,
) -> Result<bool, OpenError> {
    let (mut wanted, mut refusals, mut pause) = (wanted.clone(), 0, PAUSE_MIN);
    let mut reminded = Instant::now();
    while refusals < REFUSALS_COUNT_MAX {
        if closing.load(Ordering::Relaxed) {
            return Err(OpenError::Stopped);
        }
        match source.ask(None, wanted.offset()).await {
            Asked::Frame(peer, frame) => match put(options, &wanted, frame).await? {
                Ok(put) => {
                    tracing::info!(group = source.group.0, peer = peer.0, "repaired {wanted}");
                    match put {
                        Put::Done => return Ok(true),
                        Put::More(next) => (wanted, refusals, pause) = (next, 0, PAUSE_MIN),
                    }
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    tracing::warn!(group = source.group.0, peer = peer.0, "{error}");
                    refusals += 1;
                }
                Err(error) => return Err(failed(source, options, error)),
            },
            Asked::Purged(committed) => {
                let reaches = wanted.clone();
                let reaches = blocking(options, move |options| reach(&options, &reaches)).await?;
                let reaches = reaches.map_err(|error| failed(source, options, error))?;
                if reaches <= committed {
                    return Err(OpenError::Outdated { group: source.group, reaches, committed });
                }
            }
            Asked::Nobody { all_answered: true } => refusals += 1,
            Asked::Nobody { all_answered: false } => {}
        }
        if reminded.elapsed() >= REMIND {
            reminded = Instant::now();
            tracing::warn!(group = source.group.0, "no peer has given the frame for {wanted} yet");
        }
        sleep(pause).await;
        pause = PAUSE_MAX.min(pause * 2);
    }
    Ok(false)
}

async fn put(options: &CommitLogOptions, wanted: &WantedFrame, frame: Bytes) -> Result<io::Result<Put>, OpenError> {
    let wanted = wanted.clone();
    blocking(options, move |options| put_frame(&options, &wanted, &frame)).await
}

fn failed(source: &FrameSource, options: &CommitLogOptions, error: io::Error) -> OpenError {
    let (group, dir) = (source.group, options.dir.clone());
    OpenError::Log { group, source: LogError::Io { dir, source: error } }
}

/// Does file IO on a thread for that, where threads are allowed.
async fn blocking<T: Send + 'static>(
    options: &CommitLogOptions,
    work: impl FnOnce(CommitLogOptions) -> T + Send + 'static,
) -> Result<T, OpenError> {
    let options = options.clone();
    if !options.io.allows_threads() {
        return Ok(work(options));
    }
    tokio::task::spawn_blocking(move || work(options)).await.map_err(|_| OpenError::Stopped)
}
