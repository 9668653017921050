//! The name under which the loader knows the library: that of the driver whose place it takes.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
}
