//! Tells the compiler that `--cfg loom` is a word it may meet: `src/sync.rs` says what for.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(loom)");
    println!("cargo::rerun-if-changed=build.rs");
}
