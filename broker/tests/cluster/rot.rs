//! Rot in every kind of file of a replica: two bits flip, or a file is cut, while its node is down or while it runs. Nothing that
//! is wrong is served, nothing that was acknowledged is lost, and each outcome is one of those of decision 0009: repaired, made anew, or
//! a node that does not start, with one sentence that names the file.
//!
//! `RAFTMQ_ROT_SEEDS=200 cargo test -p raftmq-broker --test cluster rot` is the long form; it prints what came of each kind.

use crate::support::{AUDIT, BILLING, Cluster, GROUP, Shape, TOPIC, append_with, message_id_of, pop_request, soon};
use raftmq_broker::leader::Replica;
use raftmq_model::ids::{NodeId, QueueOffset};
use raftmq_model::machine::Limits;
use raftmq_proto::forward::PopRequest;
use raftmq_store::consume_queue::UNIT_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::timeout;

const VICTIM: NodeId = NodeId(3);
/// Seeds of each kind, unless the environment says more.
const SEEDS: u64 = 3;
const MESSAGES: usize = 500;
const PAD_BYTES: usize = 3 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// Kinds of files: a name, what a path in the folder of the group has in it, and whether a node that does not start is an answer.
const KINDS: [(&str, &str, bool); 13] = [
    ("log segment", "/log/commitlog/", false),
    ("log index", "/log/index/", false),
    ("vote", "/log/vote", true),
    ("log manifest", "/log/manifest", true),
    ("ConsumeQueue", "/consumequeue/", false),
    ("key index", "/keyindex/", false),
    ("snapshot", "/snapshots/", true),
    ("placement", "/placement", false),
    ("state table", ".sst", false),
    ("state MANIFEST", "/state/MANIFEST", false),
    ("state CURRENT", "/state/CURRENT", false),
    ("state OPTIONS", "/state/OPTIONS", false),
    ("state IDENTITY", "/state/IDENTITY", false),
];
/// Of these, those that are damaged while the node runs, too.
const WHILE_OPEN: [&str; 2] = ["log segment", "ConsumeQueue"];

/// The numbers of a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Flips,
    Cut,
}

/// What came of one damage.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// Found, and what was there is there again.
    Repaired,
    /// The state was put aside and made anew.
    Rebuilt,
    /// Nothing was noticed, or what is damaged is not needed; nothing is wrong.
    Harmless,
    /// The node does not start, or ends.
    Stops,
}

type Image = BTreeMap<PathBuf, Vec<u8>>;

/// All files of a folder.
fn image(dir: &Path) -> Image {
    let (mut files, mut dirs) = (Image::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                files.insert(path.clone(), fs::read(path).unwrap());
            }
        }
    }
    files
}

fn restore(dir: &Path, image: &Image) {
    // A node that was killed still writes what its log was told to.
    let until = Instant::now() + PATIENCE;
    while let Err(error) = fs::remove_dir_all(dir) {
        assert!(Instant::now() < until, "{error}");
    }
    for (path, bytes) in image {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// By queue, the records from the first offset that is kept on.
type Messages = BTreeMap<(u64, u32), (u64, Vec<Vec<u8>>)>;

fn messages(replica: &Replica) -> Messages {
    let of = |range: raftmq_store::consume_queue::QueueRange| {
        let read = |offset| replica.stored_record(range.topic, range.queue, QueueOffset(offset)).unwrap().to_vec();
        ((range.topic.0, range.queue.0), (range.min.0, (range.min.0..range.max.0).map(read).collect()))
    };
    replica.queue_ranges().into_iter().map(of).collect()
}

struct Sweep {
    cluster: Cluster,
    expected: Messages,
    folder: PathBuf,
    image: Image,
    outcomes: BTreeMap<(&'static str, &'static str, Outcome), u64>,
}

impl Sweep {
    /// Three nodes with messages, some of which were purged, and what one node has on its disk when it is down.
    async fn new() -> Sweep {
        let mut cluster = Cluster::start_as(Shape {
            segment_bytes_max: 128 << 10,
            retention_bytes_max: 512 << 10,
            checkpoint_interval_ms: 20,
            rules: Limits { stored_once_count_max: 64, ..Limits::default() },
            scrub_interval_ms: 20,
            scrub_bytes_per_second_max: 64 << 20,
        })
        .await;
        if cluster.leader().await == VICTIM {
            cluster.replica(VICTIM).group().transfer_leader(None).await.unwrap();
        }
        let through = cluster.leader().await;
        let router = cluster.router(through);
        for n in 0..MESSAGES {
            let command = append_with(&format!("id-{n}"), ["a", "b"][n % 2], n as u32 % 4, n * 7 % PAD_BYTES, "k");
            for _ in 0..=usize::from(n % 16 == 0) {
                router.propose(GROUP, vec![command.clone()], soon()).await.unwrap();
            }
        }
        at_rest(&cluster).await;
        let expected = messages(&cluster.replica(through));
        assert!(expected[&(TOPIC.0, 0)].0 > 0, "some were purged");
        // Its machine makes a checkpoint of the end when it is dropped.
        cluster.kill(VICTIM).await;
        let folder = cluster.folder(VICTIM);
        let image = image(&folder);
        Sweep { cluster, expected, folder, image, outcomes: BTreeMap::new() }
    }

    /// Damages a file of that kind; its path.
    fn damage(&self, pattern: &str, damage: Damage, seed: u64) -> PathBuf {
        let mut draw = Draw(seed);
        let of_kind = |path: &&PathBuf| path.to_string_lossy().contains(pattern);
        let filled = self.image.iter().filter(|(path, bytes)| of_kind(path) && !bytes.is_empty());
        let paths: Vec<&PathBuf> = filled.map(|(path, _)| path).collect();
        assert!(!paths.is_empty(), "no file of {pattern}");
        let path = paths[draw.below(paths.len())];
        let mut bytes = fs::read(path).unwrap();
        match damage {
            Damage::Cut => {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(draw.below(bytes.len()) as u64).unwrap();
            }
            Damage::Flips => {
                for _ in 0..2 {
                    let bit = draw.below(bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                }
                // In place: who has the file open has the same file.
                std::os::unix::fs::FileExt::write_all_at(
                    &fs::OpenOptions::new().write(true).open(path).unwrap(),
                    &bytes,
                    0,
                )
                .unwrap();
            }
        }
        path.clone()
    }

    /// The node is down, a file is damaged, the node starts.
    async fn closed(&mut self, kind: (&'static str, &str, bool), damage: Damage, seed: u64) {
        restore(&self.folder, &self.image);
        let path = self.damage(kind.1, damage, seed);
        let what = format!("{} {damage:?} seed {seed}, {}", kind.0, path.display());
        let ended = match self.cluster.try_restart(VICTIM).await {
            Err(sentence) => Err(sentence),
            Ok(()) => {
                let ended = self.whole(&what).await;
                self.cluster.kill(VICTIM).await;
                ended
            }
        };
        self.note(kind, if damage == Damage::Cut { "cut" } else { "flips" }, ended, &path, &what);
    }

    /// The node runs while its file is damaged.
    async fn open(&mut self, kind: (&'static str, &str, bool), seed: u64) {
        restore(&self.folder, &self.image);
        self.cluster.restart(VICTIM).await;
        self.whole("before").await.unwrap();
        let path = self.damage(kind.1, Damage::Flips, seed);
        let what = format!("{} while open, seed {seed}, {}", kind.0, path.display());
        let ended = self.whole(&what).await;
        self.cluster.kill(VICTIM).await;
        self.note(kind, "open", ended, &path, &what);
    }

    fn note(
        &mut self,
        kind: (&'static str, &str, bool),
        when: &'static str,
        ended: Result<bool, String>,
        path: &Path,
        what: &str,
    ) {
        let outcome = match ended {
            Ok(_) if self.folder.join("groups/1/state.damaged-1").exists() => Outcome::Rebuilt,
            Ok(true) => Outcome::Repaired,
            Ok(false) => Outcome::Harmless,
            Err(sentence) => {
                println!("{what}: {sentence}");
                let named = sentence.contains(&path.display().to_string())
                    || path.to_string_lossy().contains("/state/") && sentence.contains("/state");
                assert!(named, "{what}: the file is not named: {sentence}");
                let stops = kind.2 || when == "cut" && kind.0 == "log segment";
                assert!(stops, "{what}: this is repaired: {sentence}");
                Outcome::Stops
            }
        };
        *self.outcomes.entry((kind.0, when, outcome)).or_default() += 1;
    }

    /// Waits until the victim has everything, scrubbed; what it serves is right. Whether something was repaired; or why it ends.
    async fn whole(&self, what: &str) -> Result<bool, String> {
        let leader = self.cluster.replica(self.cluster.leader().await);
        let passes = |replica: &Replica| {
            (replica.group().integrity().scrub_passes_count, replica.unit_integrity().scrub_passes_count)
        };
        let broker = self.cluster.broker(VICTIM);
        let mut from = None;
        let waited = timeout(PATIENCE, async {
            loop {
                if let Some(sentence) = self.cluster.fatal(VICTIM) {
                    return Err(sentence);
                }
                if let Some(replica) = broker.replica(GROUP) {
                    let begun = *from.get_or_insert_with(|| passes(&replica));
                    let now = passes(&replica);
                    let is_whole = replica.group().status().applied == leader.group().status().applied
                        && replica.group().integrity().damaged_count == 0
                        // The pass that was under way may have been past the damage.
                        && now.0 >= begun.0 + 2
                        && now.1 >= begun.1 + 2;
                    if is_whole {
                        return Ok(replica);
                    }
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        });
        let replica = match waited.await {
            Ok(replica) => replica?,
            Err(_) => panic!("{what}: the replica does not come back: {:?}", broker.replica(GROUP).map(|r| passes(&r))),
        };
        assert_eq!(replica.digest(), leader.digest(), "{what}");
        assert!(messages(&replica) == self.expected, "{what}: a message is another one");
        assert_eq!(replica.unit_integrity().unrepaired_count, 0, "{what}");
        Ok(replica.group().integrity().repaired_count + replica.unit_integrity().repaired_count > 0)
    }
}

/// Returns when all replicas have the same, and the log is purged.
async fn at_rest(cluster: &Cluster) {
    let leader = cluster.replica(cluster.leader().await);
    let at_rest = timeout(PATIENCE, async {
        loop {
            let applied = leader.group().status().applied;
            let purged = leader.group().log().purged();
            // Rest is that nothing happens: no event says so. Longer than several looks of the retention.
            tokio::time::sleep(Duration::from_millis(300)).await;
            let same = |id: &NodeId| {
                let group = cluster.replica(*id).group().clone();
                group.status().applied == applied && group.log().purged() == purged
            };
            if purged.is_some() && cluster.ids().iter().all(same) {
                return;
            }
        }
    });
    at_rest.await.expect("the cluster comes to rest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rot_in_any_file_of_a_replica_serves_nothing_wrong_and_loses_nothing() {
    let seeds = std::env::var("RAFTMQ_ROT_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(SEEDS);
    let only = std::env::var("RAFTMQ_ROT_KIND").unwrap_or_default();
    let mut sweep = Sweep::new().await;
    for kind in KINDS.into_iter().filter(|kind| kind.0.contains(&only)) {
        for seed in 0..seeds {
            sweep.closed(kind, Damage::Flips, seed).await;
            if seed % 4 == 0 {
                sweep.closed(kind, Damage::Cut, seed).await;
            }
            if WHILE_OPEN.contains(&kind.0) {
                sweep.open(kind, seed).await;
            }
        }
    }
    for ((kind, when, outcome), count) in &sweep.outcomes {
        println!("{kind:16} {when:6} {outcome:?}: {count}");
    }
    if only.is_empty() {
        // That there was something to find: of these hardly one is harmless.
        for seen in [("log segment", "open", Outcome::Repaired), ("state table", "flips", Outcome::Rebuilt)] {
            assert!(sweep.outcomes.contains_key(&seen), "{seen:?} never came");
        }
    }
}

/// A receive that meets damaged units has them repaired, and is served; with a tag filter, too. There is no scrubber.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receive_repairs_the_units_that_it_meets() {
    const COUNT: usize = 64;
    let shape = Shape { checkpoint_interval_ms: 20, scrub_bytes_per_second_max: 0, ..Shape::default() };
    let cluster = Cluster::start_as(shape).await;
    let leader = cluster.leader().await;
    let router = cluster.router(leader);
    for n in 0..COUNT {
        let command = append_with(&format!("id-{n}"), "a", n as u32 % 4, 0, "");
        router.propose(GROUP, vec![command], soon()).await.unwrap();
    }
    let file = |queue: usize| {
        let topic = cluster.folder(leader).join("groups/1/consumequeue").join(TOPIC.to_string());
        topic.join(queue.to_string()).join(format!("{:020}", 0))
    };
    let written = |queue| fs::metadata(file(queue)).is_ok_and(|file| file.len() == (COUNT / 4 * UNIT_BYTES) as u64);
    while !(0..4).all(written) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    for (consumers, tags) in [(AUDIT, vec![]), (BILLING, vec!["a".to_owned()])] {
        let before = cluster.replica(leader).unit_integrity().repaired_count;
        for queue in 0..4 {
            let mut bytes = fs::read(file(queue)).unwrap();
            // Where a record lies, and how long it is, of two units; of the first one of all, too.
            [(3 * queue, 6, 1), (13, 10, 4)]
                .iter()
                .for_each(|(unit, byte, bit)| bytes[unit * UNIT_BYTES + byte] ^= 1 << bit);
            let file = fs::OpenOptions::new().write(true).open(file(queue)).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0).unwrap();
        }
        let mut ids = BTreeSet::new();
        loop {
            let request = PopRequest { tags: tags.clone(), ..pop_request(TOPIC, consumers, 60_000) };
            let messages = router.pop(GROUP, request, soon()).await.unwrap();
            if messages.is_empty() {
                break;
            }
            assert!(messages.iter().all(|message| ids.insert(message_id_of(message))), "none comes twice");
        }
        assert_eq!(ids.len(), COUNT);
        assert_eq!(cluster.replica(leader).unit_integrity().repaired_count, before + 8);
    }
}
