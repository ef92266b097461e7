//! Gives the library its name: programs look for `libcambium.so.` and the first part
//! of the version when they start.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let major = env!("CARGO_PKG_VERSION_MAJOR");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcambium.so.{major}");
}
