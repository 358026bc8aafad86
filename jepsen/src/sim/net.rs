//! A network between nodes in one process: connections with latency, loss, cuts and ends, on simulated time.
//!
//! What is sent arrives in order or not at all, as over TCP. A lost packet is late by a retransmission; behind a cut bytes
//! wait until it heals, or until the connection ends. A process that dies resets its connections; a host that loses power
//! is silent. All latencies are at least [`LATENCY_US_MIN`], the step of the simulation: within a step nodes do not
//! influence each other, so the order in which they run does not matter to what they see.

use super::stream::{Half, SimStream};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A host of the network. 0 is where clients are, nodes are numbered from 1.
pub type Host = u32;

/// The step of the simulation and the shortest latency, in microseconds.
pub const LATENCY_US_MIN: u64 = 1_000;
/// How late a lost packet is, at least.
const RETRANSMISSION_US: u64 = 200_000;
/// Bytes of one direction of a connection that may be under way or unread.
pub(super) const WINDOW_BYTES: usize = 256 << 10;

/// Handles share one network.
#[derive(Clone)]
pub struct Net(Arc<Mutex<State>>);

/// What is wrong between hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct Weather {
    /// Latencies are drawn between the shortest one and this, in microseconds.
    pub latency_us_max: u64,
    /// Of so many packets one is lost; 0: none.
    pub lost_one_of: u32,
}

impl Default for Weather {
    fn default() -> Weather {
        Weather { latency_us_max: 2_000, lost_one_of: 0 }
    }
}

pub(super) struct State {
    now_us: u64,
    chance: StdRng,
    weather: Weather,
    /// Ordered pairs (from, to) that carry nothing.
    cuts: BTreeSet<(Host, Host)>,
    /// Hosts without power: they do not even refuse.
    dark: BTreeSet<Host>,
    listeners: BTreeMap<String, Listening>,
    pub(super) halves: BTreeMap<u64, Half>,
    next_half: u64,
    /// What arrives when: (time, order of sending) -> half.
    due: BTreeMap<(u64, u64), u64>,
    next_order: u64,
    digest: u64,
}

struct Listening {
    host: Host,
    waiting: VecDeque<SimStream>,
    waker: Option<Waker>,
}

impl Net {
    /// A network without faults.
    #[must_use]
    pub fn new(seed: u64) -> Net {
        Net(Arc::new(Mutex::new(State {
            now_us: 0,
            chance: StdRng::seed_from_u64(seed),
            weather: Weather::default(),
            cuts: BTreeSet::new(),
            dark: BTreeSet::new(),
            listeners: BTreeMap::new(),
            halves: BTreeMap::new(),
            next_half: 1,
            due: BTreeMap::new(),
            next_order: 0,
            digest: 0,
        })))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves time on and lets arrive what is due.
    pub fn advance(&self, now_us: u64) {
        let mut state = self.lock();
        state.now_us = now_us;
        while let Some(entry) = state.due.first_entry().filter(|entry| entry.key().0 <= now_us) {
            let half = entry.remove();
            state.arrive(half);
        }
    }

    /// Cuts or heals one direction.
    pub fn cut(&self, from: Host, to: Host, is_cut: bool) {
        let mut state = self.lock();
        if is_cut {
            state.cuts.insert((from, to));
        } else {
            state.cuts.remove(&(from, to));
        }
    }

    /// Heals all cuts and makes the weather fine.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.cuts.clear();
        state.weather = Weather::default();
    }

    /// Changes latency and loss, everywhere.
    pub fn set_weather(&self, weather: Weather) {
        self.lock().weather = weather;
    }

    /// The process on `host` is gone: its ports refuse, its connections are reset. `dark`: the host is gone with it, and
    /// nobody hears of it.
    pub fn crash(&self, host: Host, dark: bool) {
        let mut state = self.lock();
        let closed: Vec<Listening> = state
            .listeners
            .extract_if(.., |_, listening| listening.host == host)
            .map(|(_, listening)| listening)
            .collect();
        if dark {
            state.dark.insert(host);
        }
        let ends: Vec<u64> = state.halves.iter().filter(|(_, half)| half.touches(host)).map(|(id, _)| *id).collect();
        for id in ends {
            state.end(id, host, dark);
        }
        // What waits to be accepted takes the lock when it is dropped.
        drop(state);
        drop(closed);
    }

    /// The host has power again.
    pub fn power_up(&self, host: Host) {
        self.lock().dark.remove(&host);
    }

    /// A number that depends on everything that arrived so far, and when.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.lock().digest
    }

    /// Takes connections to `address` from now on.
    #[must_use]
    pub fn listen(&self, host: Host, address: &str) -> Listener {
        let listening = Listening { host, waiting: VecDeque::new(), waker: None };
        self.lock().listeners.insert(address.to_owned(), listening);
        Listener { net: self.clone(), address: address.to_owned() }
    }

    /// Connects. Behind a cut, or to a host without power, it waits for ever: callers have a timeout.
    ///
    /// # Errors
    /// `ConnectionRefused` when nobody listens.
    pub async fn connect(&self, from: Host, address: String) -> io::Result<SimStream> {
        loop {
            let pause_us = {
                let mut state = self.lock();
                let to = host_of(&address)?;
                let open = !state.dark.contains(&to) && !state.is_cut(from, to) && !state.is_cut(to, from);
                if open { state.latency_us() + state.latency_us() } else { RETRANSMISSION_US }
            };
            tokio::time::sleep(std::time::Duration::from_micros(pause_us)).await;
            let mut state = self.lock();
            let to = host_of(&address)?;
            if state.dark.contains(&to) || state.is_cut(from, to) || state.is_cut(to, from) {
                continue;
            }
            if !state.listeners.contains_key(&address) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let (there, back) = state.open_halves(from, to);
            let accepted = SimStream::new(self.clone(), there, back);
            if let Some(listening) = state.listeners.get_mut(&address) {
                listening.waiting.push_back(accepted);
                if let Some(waker) = listening.waker.take() {
                    waker.wake();
                }
            }
            drop(state);
            return Ok(SimStream::new(self.clone(), back, there));
        }
    }
}

/// Addresses look like `10.0.0.<host>:<port>`.
fn host_of(address: &str) -> io::Result<Host> {
    let host = address.rsplit_once(':').and_then(|(host, _)| host.rsplit_once('.')).and_then(|(_, n)| n.parse().ok());
    host.ok_or_else(|| io::Error::other(format!("{address} is no address of the simulation")))
}

impl State {
    fn is_cut(&self, from: Host, to: Host) -> bool {
        self.cuts.contains(&(from, to))
    }

    fn latency_us(&mut self) -> u64 {
        let late = self.weather.lost_one_of > 0 && self.chance.random_ratio(1, self.weather.lost_one_of);
        let drawn = self.chance.random_range(LATENCY_US_MIN..=self.weather.latency_us_max.max(LATENCY_US_MIN));
        if late { drawn + RETRANSMISSION_US + self.chance.random_range(0..RETRANSMISSION_US) } else { drawn }
    }

    fn open_halves(&mut self, from: Host, to: Host) -> (u64, u64) {
        let (there, back) = (self.next_half, self.next_half + 1);
        self.next_half += 2;
        self.halves.insert(there, Half::new(from, to, back));
        self.halves.insert(back, Half::new(to, from, there));
        (there, back)
    }

    /// Something was put into a half: it arrives after a latency, never before what was sent earlier.
    pub(super) fn sent(&mut self, half: u64) {
        let latency_us = self.latency_us();
        let Some(sent) = self.halves.get_mut(&half) else { return };
        let at = (self.now_us + latency_us).max(sent.last_arrival_us);
        sent.last_arrival_us = at;
        self.due.insert((at, self.next_order), half);
        self.next_order += 1;
    }

    /// The next thing that is under way in a half arrives, unless the way is cut: then it is tried again later.
    fn arrive(&mut self, id: u64) {
        let Some(half) = self.halves.get_mut(&id) else { return };
        if self.cuts.contains(&(half.from, half.to)) || self.dark.contains(&half.to) {
            let again = self.now_us + RETRANSMISSION_US;
            half.last_arrival_us = half.last_arrival_us.max(again);
            self.due.insert((again, self.next_order), id);
            self.next_order += 1;
            return;
        }
        let (from, to, bytes) = (half.from, half.to, half.arrive());
        for word in [self.now_us, id, u64::from(from), u64::from(to), bytes as u64] {
            self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
        // Nobody reads there any more: the sender hears of it.
        if half.reader_is_gone() {
            self.reset_sender(id);
        }
        self.forget_done(id);
    }

    fn reset_sender(&mut self, id: u64) {
        let Some(half) = self.halves.get_mut(&id) else { return };
        half.reset_writer();
        let pair = half.pair;
        if let Some(back) = self.halves.get_mut(&pair) {
            back.reset_reader();
        }
    }

    /// The reader or the writer of a half let go of it.
    pub(super) fn forget_done(&mut self, id: u64) {
        if self.halves.get(&id).is_some_and(Half::is_done) {
            self.halves.remove(&id);
        }
    }

    /// One end of a half is gone with its process.
    fn end(&mut self, id: u64, host: Host, dark: bool) {
        let Some(half) = self.halves.get_mut(&id) else { return };
        if half.from == host {
            half.drop_writer();
            if !dark {
                half.send_reset();
                self.sent(id);
            }
        } else {
            half.drop_reader();
        }
        self.forget_done(id);
    }
}

/// The connections to one address, as they come.
pub struct Listener {
    net: Net,
    address: String,
}

impl futures::Stream for Listener {
    type Item = io::Result<SimStream>;

    fn poll_next(
        self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let mut state = self.net.lock();
        let Some(listening) = state.listeners.get_mut(&self.address) else { return std::task::Poll::Ready(None) };
        match listening.waiting.pop_front() {
            Some(stream) => std::task::Poll::Ready(Some(Ok(stream))),
            None => {
                listening.waker = Some(context.waker().clone());
                std::task::Poll::Pending
            }
        }
    }
}
