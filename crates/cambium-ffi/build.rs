//! Gives the library its name: programs look for `libcambium.so` when they start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcambium.so");
}
