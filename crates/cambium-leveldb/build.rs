//! Gives the library its name, so that a program linked with it by a path looks
//! for it by name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcambium_leveldb.so");
}
