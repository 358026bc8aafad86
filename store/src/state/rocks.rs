//! The state store on RocksDB.
//!
//! RocksDB by itself may flush its memtable whenever it likes (a full buffer, a clean close), and then the state would
//! be ahead of the ConsumeQueues. So nothing is given to it before a checkpoint: writes wait in an overlay of our own,
//! and `flush` hands them over as one batch without a WAL and has the memtable written as one file. What is in RocksDB
//! is therefore always the last checkpoint. Messages that are taken and acked between two checkpoints never reach it.

use super::overlay::Overlay;
use super::{StateDamage, StateStore, WriteBatch};
use parking_lot::Mutex;
use rocksdb::{
    BlockBasedOptions, Cache, DB, Direction, ErrorKind, FlushOptions, IteratorMode, LogLevel, Options, WriteOptions,
};
use std::io;
use std::path::{Path, PathBuf};

/// More than a checkpoint ever hands over at once ([`super::UNFLUSHED_BYTES_MAX`] and what comes in meanwhile), so that
/// RocksDB sees no reason to flush in between. Memory is taken in arena blocks as it is used.
const WRITE_BUFFER_BYTES: usize = 256 * 1024 * 1024;
/// Steps in which the memtable takes memory.
const ARENA_BLOCK_BYTES: usize = 64 * 1024;
/// Cached blocks. The state is read once, at start: the cache serves that scan and compaction.
const BLOCK_CACHE_BYTES: usize = 1024 * 1024;
/// Table files held open.
const OPEN_FILES_COUNT_MAX: i32 = 64;
/// Threads for compaction and flush.
const BACKGROUND_JOBS_COUNT: i32 = 2;
/// RocksDB's own text log.
const INFO_LOG_BYTES_MAX: usize = 1024 * 1024;

/// A [`StateStore`] in a folder.
pub struct RocksState {
    db: DB,
    dir: PathBuf,
    overlay: Mutex<Overlay>,
}

impl RocksState {
    /// Opens the store in `dir`, as it was at its last flush; makes it when there is none.
    ///
    /// # Errors
    /// It cannot be opened: in use, damaged, or no room.
    pub fn open(dir: &Path) -> io::Result<RocksState> {
        let options = options()?;
        let db = DB::open(&options, dir).map_err(|error| failed(dir, "open", &error))?;
        Ok(RocksState { db, dir: dir.to_path_buf(), overlay: Mutex::new(Overlay::default()) })
    }

    /// Opens the store in `dir` for reading: nothing in the folder is changed, and writes fail at the next flush.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub fn open_read_only(dir: &Path) -> io::Result<RocksState> {
        let mut options = options()?;
        options.create_if_missing(false);
        let db = DB::open_for_read_only(&options, dir, false).map_err(|error| failed(dir, "open", &error))?;
        Ok(RocksState { db, dir: dir.to_path_buf(), overlay: Mutex::new(Overlay::default()) })
    }

    fn hand_over(&self, overlay: &Overlay) -> Result<(), rocksdb::Error> {
        let mut batch = rocksdb::WriteBatch::default();
        for (key, value) in overlay.iter() {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        let mut without_wal = WriteOptions::default();
        without_wal.disable_wal(true);
        self.db.write_opt(batch, &without_wal)?;
        let mut flush = FlushOptions::default();
        flush.set_wait(true);
        self.db.flush_opt(&flush)
    }
}

impl StateStore for RocksState {
    fn get(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let overlay = self.overlay.lock();
        overlay.check()?;
        match overlay.get(key) {
            Some(value) => Ok(value.cloned()),
            None => self.db.get(key).map_err(|error| failed(&self.dir, "read", &error)),
        }
    }

    fn scan(&self, prefix: &[u8], visit: &mut dyn FnMut(&[u8], &[u8])) -> io::Result<()> {
        let overlay = self.overlay.lock();
        overlay.check()?;
        let durable = self.db.iterator(IteratorMode::From(prefix, Direction::Forward));
        let durable = durable.map(|pair| pair.map_err(|error| failed(&self.dir, "read", &error)));
        overlay.merge(prefix, durable, visit)
    }

    fn write(&self, batch: WriteBatch) -> io::Result<()> {
        let mut overlay = self.overlay.lock();
        overlay.check()?;
        overlay.write(batch);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        let mut overlay = self.overlay.lock();
        overlay.check()?;
        if overlay.is_empty() {
            return Ok(());
        }
        if let Err(error) = self.hand_over(&overlay) {
            overlay.fail();
            return Err(failed(&self.dir, "flush", &error));
        }
        overlay.take();
        Ok(())
    }

    fn unflushed_bytes(&self) -> usize {
        self.overlay.lock().bytes()
    }
}

impl std::fmt::Debug for RocksState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RocksState").field("dir", &self.dir).finish_non_exhaustive()
    }
}

fn options() -> io::Result<Options> {
    let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES).map_err(io::Error::other)?;
    let mut tables = BlockBasedOptions::default();
    tables.set_block_cache(&cache);
    tables.set_cache_index_and_filter_blocks(true);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&tables);
    options.set_write_buffer_size(WRITE_BUFFER_BYTES);
    options.set_arena_block_size(ARENA_BLOCK_BYTES);
    options.set_max_write_buffer_number(2);
    options.set_max_open_files(OPEN_FILES_COUNT_MAX);
    options.set_max_background_jobs(BACKGROUND_JOBS_COUNT);
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    Ok(options)
}

fn failed(dir: &Path, what: &'static str, error: &rocksdb::Error) -> io::Error {
    let damage = StateDamage { dir: dir.to_path_buf(), what, reason: error.to_string() };
    // A damaged file can name another one that is not there.
    let is_missing = error.kind() == ErrorKind::IOError && damage.reason.contains("No such file");
    if error.kind() == ErrorKind::Corruption || is_missing {
        return io::Error::new(io::ErrorKind::InvalidData, damage);
    }
    io::Error::other(damage.to_string())
}
