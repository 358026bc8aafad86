//! Time and chance of a simulation, underneath everything: the C functions that all code of this process gets them from.
//!
//! The executable's own `clock_gettime`, `getrandom` and `getpid` (part of client and message ids) take precedence over
//! those of the C library. On a thread that runs a simulation they answer from the simulation's clock and seed; on every
//! other thread they pass on to the system. So hash maps, ids, back-offs and time-outs deep inside libraries are functions
//! of the seed, and nothing in the product knows about it.
//!
//! A simulation has a thread of its own, made for it: what libraries keep per thread is fresh then.

#![allow(
    unsafe_code,
    unreachable_pub,
    reason = "the C library's functions are replaced, as C functions that nobody here calls"
)]

use std::cell::Cell;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Where the simulated clocks begin, in nanoseconds: a moment after the Unix epoch, and a machine that was up for a day.
const WALL_START_NS: u64 = 1_800_000_000_000_000_000;
const UPTIME_NS: u64 = 86_400_000_000_000;
/// All simulated processes have this number.
const PID: libc::pid_t = 4_711;
const NS_PER_S: u64 = 1_000_000_000;

thread_local! {
    static SIMULATED: Cell<bool> = const { Cell::new(false) };
    static NOW_NS: Cell<u64> = const { Cell::new(0) };
    static CHANCE: Cell<u64> = const { Cell::new(0) };
}

/// This thread runs a simulation from now on.
pub(super) fn begin(seed: u64) {
    NOW_NS.set(0);
    CHANCE.set(seed ^ 0x5EED_0FC4_A9CE);
    SIMULATED.set(true);
}

/// The simulated clocks of this thread, in nanoseconds since the simulation began.
pub(super) fn set_now_ns(now_ns: u64) {
    NOW_NS.set(now_ns);
}

/// Nanoseconds since the simulation of this thread began.
pub(super) fn now_ns() -> u64 {
    NOW_NS.get()
}

/// The simulated wall clock in milliseconds since the Unix epoch.
pub(super) fn wall_ms() -> i64 {
    ((WALL_START_NS + now_ns()) / 1_000_000) as i64
}

/// SplitMix64: every seed gives a good stream.
fn next_chance() -> u64 {
    let state = CHANCE.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
    CHANCE.set(state);
    let mut mixed = state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;

/// The C library's own `clock_gettime`, once looked up.
static SYSTEM_CLOCK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn system_clock() -> Option<ClockGettime> {
    let mut found = SYSTEM_CLOCK.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: the name is a C string.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()) };
        SYSTEM_CLOCK.store(found, Ordering::Relaxed);
    }
    // SAFETY: what the C library calls `clock_gettime` has this type; null is `None`.
    unsafe { std::mem::transmute::<*mut c_void, Option<ClockGettime>>(found) }
}

/// # Safety
/// As the C library's: `time` is valid for a write or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    if !SIMULATED.get() || time.is_null() {
        return match system_clock() {
            // SAFETY: the caller's promise, passed on.
            Some(system) => unsafe { system(clock, time) },
            // SAFETY: the same.
            None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int },
        };
    }
    let start =
        if matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE) { WALL_START_NS } else { UPTIME_NS };
    let now = start + NOW_NS.get();
    // SAFETY: not null, and the caller says that it is valid.
    unsafe {
        (*time).tv_sec = (now / NS_PER_S) as libc::time_t;
        (*time).tv_nsec = (now % NS_PER_S) as libc::c_long;
    }
    0
}

/// # Safety
/// As the C library's: `buffer` is valid for `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getrandom(buffer: *mut c_void, len: usize, flags: c_uint) -> isize {
    if !SIMULATED.get() {
        // SAFETY: the caller's promise, passed on.
        return unsafe { libc::syscall(libc::SYS_getrandom, buffer, len, flags) as isize };
    }
    if buffer.is_null() || len == 0 {
        return 0;
    }
    // SAFETY: the caller says that it is valid for `len` bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len) };
    for chunk in bytes.chunks_mut(8) {
        let chance = next_chance().to_le_bytes();
        chunk.copy_from_slice(&chance[..chunk.len()]);
    }
    len as isize
}

#[unsafe(no_mangle)]
pub extern "C" fn getpid() -> libc::pid_t {
    if SIMULATED.get() {
        return PID;
    }
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::syscall(libc::SYS_getpid) as libc::pid_t }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::hash::BuildHasher;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    /// What a thread of that seed gets from everything that gives out chance.
    fn chance(seed: u64) -> (u64, uuid::Uuid, u64) {
        let thread = std::thread::spawn(move || {
            begin(seed);
            let hash = HashMap::<u8, u8>::new().hasher().hash_one(1);
            (hash, uuid::Uuid::new_v4(), rand::random())
        });
        thread.join().unwrap()
    }

    #[test]
    fn chance_is_a_function_of_the_seed() {
        assert_eq!(chance(7), chance(7));
        let (one, other) = (chance(7), chance(8));
        assert!(one.0 != other.0 && one.1 != other.1 && one.2 != other.2, "{one:?} {other:?}");
    }

    #[test]
    fn time_stands_until_it_is_set() {
        let thread = std::thread::spawn(|| {
            begin(1);
            assert_eq!(std::process::id(), PID as u32);
            let (before, wall) = (Instant::now(), SystemTime::now());
            assert_eq!(wall.duration_since(UNIX_EPOCH).unwrap().as_nanos(), u128::from(WALL_START_NS));
            set_now_ns(5_000_000);
            assert_eq!(before.elapsed().as_nanos(), 5_000_000);
            assert_eq!(wall.elapsed().unwrap().as_nanos(), 5_000_000);
        });
        thread.join().unwrap();
        let before = Instant::now();
        while before.elapsed().is_zero() {}
    }
}
