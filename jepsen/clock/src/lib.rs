//! A wall clock that the harness can turn: loaded before the C library of a node (`LD_PRELOAD`), it answers
//! `clock_gettime`, `gettimeofday` and `time`.
//!
//! Only the wall clock is turned. The monotonic clock, by which time-outs run, cannot jump on a real machine either.
//!
//! ```text
//! the file named by RAFTMQ_JEPSEN_CLOCK, mapped when the library is loaded; little endian
//!   0   8   offset_ns     added to the wall clock
//!   8   8   from_ns       the wall clock from which on it drifts
//!  16   8   drift_ppm     nanoseconds that it gains in each millisecond after that
//! ```
//! The harness writes the file while the node runs. Fields are read one by one, so that a reader may see a new offset with
//! an old drift for a moment, which a clock that is being turned may do. Without the variable, or when the file cannot be
//! mapped, the clock is the system's. Any thread.

#![allow(
    unsafe_code,
    unreachable_pub,
    reason = "the C library's functions are replaced, as C functions that nobody here calls"
)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering};

const NS_PER_S: i64 = 1_000_000_000;
const PPM: i128 = 1_000_000;

/// The mapped file.
#[repr(C)]
struct Control {
    offset_ns: AtomicI64,
    from_ns: AtomicI64,
    drift_ppm: AtomicI64,
}

static CONTROL: AtomicPtr<Control> = AtomicPtr::new(std::ptr::null_mut());
/// The C library's own `clock_gettime`.
static SYSTEM: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The dynamic linker calls it when it loads the library.
#[used]
#[unsafe(link_section = ".init_array")]
static LOAD: extern "C" fn() = load;

extern "C" fn load() {
    // SAFETY: names are C strings; what `mmap` answers is checked, and never unmapped.
    unsafe {
        SYSTEM.store(libc::dlsym(libc::RTLD_NEXT, c"clock_gettime".as_ptr()), Ordering::Relaxed);
        let path = libc::getenv(c"RAFTMQ_JEPSEN_CLOCK".as_ptr());
        if path.is_null() {
            return;
        }
        let file = libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC);
        if file < 0 {
            return;
        }
        let bytes = size_of::<Control>();
        // A page of a file that is too short is zero up to its end, and so turns nothing; an empty file has no page.
        let long_enough = libc::lseek(file, 0, libc::SEEK_END) >= bytes as libc::off_t;
        if long_enough {
            let page = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ, libc::MAP_SHARED, file, 0);
            if page != libc::MAP_FAILED {
                CONTROL.store(page.cast(), Ordering::Release);
            }
        }
        libc::close(file);
    }
}

/// What the turned clock shows when the system's shows `now_ns`.
fn turned(control: &Control, now_ns: i64) -> i64 {
    let drift_ppm = i128::from(control.drift_ppm.load(Ordering::Relaxed));
    let drifted = i128::from(now_ns - control.from_ns.load(Ordering::Relaxed)) * drift_ppm / PPM;
    now_ns + control.offset_ns.load(Ordering::Relaxed) + drifted as i64
}

/// # Safety
/// As the C library's: `time` is valid for a write or null.
unsafe fn system(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    type ClockGettime = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> c_int;
    let found = SYSTEM.load(Ordering::Relaxed);
    // SAFETY: what the C library calls `clock_gettime` has this type; null is `None`.
    match unsafe { std::mem::transmute::<*mut c_void, Option<ClockGettime>>(found) } {
        // SAFETY: the caller's promise, passed on.
        Some(system) => unsafe { system(clock, time) },
        // Called before this library was loaded. SAFETY: the same.
        None => unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) as c_int },
    }
}

/// # Safety
/// As the C library's: `time` is valid for a write or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the caller's promise, passed on.
    let result = unsafe { system(clock, time) };
    let wall = matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_REALTIME_COARSE);
    // SAFETY: the file stays mapped.
    if let Some(control) = unsafe { CONTROL.load(Ordering::Acquire).as_ref() }.filter(|_| wall && result == 0) {
        // SAFETY: the system's clock wrote it, so it is valid.
        let time = unsafe { &mut *time };
        let now_ns = turned(control, time.tv_sec * NS_PER_S + time.tv_nsec);
        (time.tv_sec, time.tv_nsec) = (now_ns.div_euclid(NS_PER_S), now_ns.rem_euclid(NS_PER_S));
    }
    result
}

fn wall() -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it is valid for a write.
    unsafe { clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time
}

/// # Safety
/// As the C library's: `time` is valid for a write or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gettimeofday(time: *mut libc::timeval, _zone: *mut c_void) -> c_int {
    let now = wall();
    if !time.is_null() {
        // SAFETY: not null, and the caller says that it is valid.
        unsafe { *time = libc::timeval { tv_sec: now.tv_sec, tv_usec: now.tv_nsec / 1_000 } };
    }
    0
}

/// # Safety
/// As the C library's: `time` is valid for a write or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn time(time: *mut libc::time_t) -> libc::time_t {
    let now = wall().tv_sec;
    if !time.is_null() {
        // SAFETY: not null, and the caller says that it is valid.
        unsafe { *time = now };
    }
    now
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(offset_ns: i64, from_ns: i64, drift_ppm: i64) -> Control {
        let field = AtomicI64::new;
        Control { offset_ns: field(offset_ns), from_ns: field(from_ns), drift_ppm: field(drift_ppm) }
    }

    #[test]
    fn it_jumps_and_drifts() {
        let now_ns = 1_800_000_000 * NS_PER_S;
        assert_eq!(turned(&control(0, 0, 0), now_ns), now_ns);
        assert_eq!(turned(&control(-60 * NS_PER_S, 0, 0), now_ns), now_ns - 60 * NS_PER_S);
        // A tenth too fast since ten seconds ago.
        let drifting = control(0, now_ns - 10 * NS_PER_S, 100_000);
        assert_eq!(turned(&drifting, now_ns), now_ns + NS_PER_S);
    }
}
