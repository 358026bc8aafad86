//! Lets libraries that look `getrandom` up by name at run time find the one of the simulation (`src/sim/interpose.rs`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg=-Wl,--export-dynamic-symbol=getrandom");
}
