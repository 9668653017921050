//! Runs a test under the simulated driver, and speaks to that driver past the crate under test.

use std::ffi::CString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use device::Cuda;
use libloading::Library;

const INSIDE: &str = "SIMULATED_INSIDE";

/// The folder in which the driver lies, built on first use.
fn driver_folder(features: &'static [&'static str]) -> PathBuf {
    static BUILT: Mutex<Vec<(&[&str], PathBuf)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, folder)) = built.iter().find(|(known, _)| *known == features) {
        return folder.clone();
    }
    // Cargo gives nobody the path of a cdylib, so it is built here, in a place of its own.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("driver{}", built.len()));
    let output = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--offline"])
        .args(["--package", "simulated-driver", "--target-dir"])
        .arg(&folder)
        .args(features.iter().flat_map(|feature| ["--features", feature]))
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // A sanitizer watches the tests, not the driver, whose library could not be opened then.
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let library = folder.join("debug/libsimulated_driver.so");
    // Both names, so that no real driver is found first.
    for name in ["libcuda.so", "libcuda.so.1"] {
        let name = folder.join(name);
        let _ = std::fs::remove_file(&name);
        std::fs::hard_link(&library, name).unwrap();
    }
    built.push((features, folder.clone()));
    folder
}

/// Runs `body` in a new process of this program in which the simulated driver is the one that is found.
pub fn with(test: &str, features: &'static [&'static str], env: &[(&str, &str)], body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = driver_folder(features);
    // Kept from the terminal: a second summary in the output would be counted as this program's.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", &folder)
        .envs(env.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            break;
        }
        sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    // A name that matches no test would succeed as well.
    let ran = output.status.success() && said.contains("1 passed");
    assert!(ran, "{test} in its own process, {}: {said}", output.status);
}

/// The simulated driver's own functions.
pub struct Simulated(Library);

impl Simulated {
    pub fn get() -> Simulated {
        // SAFETY:
        // - The library that is already loaded.
        Simulated(unsafe { Library::new("libcuda.so") }.unwrap())
    }

    fn symbol<F: Copy>(&self, name: &str) -> F {
        // SAFETY:
        // - Each caller below names the function's type as `driver` has it.
        unsafe { *self.0.get::<F>(name).unwrap() }
    }

    /// Memory of a device, zeroed; leaves the current context as it is.
    pub fn alloc(&self, n: usize, dev: i32) -> u64 {
        let (before, mut start) = (self.current(), 0);
        self.set_current(dev);
        let alloc = self.symbol::<unsafe extern "C" fn(*mut u64, usize) -> u32>("cuMemAlloc_v2");
        // SAFETY:
        // - The pointer is to a local.
        assert_eq!(unsafe { alloc(&mut start, n) }, 0);
        self.set_current(before);
        start
    }

    /// A kernel of the producer's on a stream of `dev`: fills memory.
    pub fn launch(&self, stream: u64, dst: u64, value: u8, n: usize, dev: i32) {
        let before = self.current();
        self.set_current(dev);
        let fill =
            self.symbol::<unsafe extern "C" fn(u64, u8, usize, u64) -> u32>("cuMemsetD8Async");
        // SAFETY:
        // - `dst` is from `alloc` and large enough.
        assert_eq!(unsafe { fill(dst, value, n, stream) }, 0);
        self.set_current(before);
    }

    /// Begins or ends a capture on a stream of the current device.
    pub fn capture(&self, stream: u64, capturing: bool) {
        // SAFETY:
        // - No requirement.
        unsafe {
            self.symbol::<unsafe extern "C" fn(u64, bool)>("simulated_capture")(stream, capturing)
        }
    }

    pub fn current(&self) -> i32 {
        // SAFETY:
        // - No requirement.
        unsafe { self.symbol::<unsafe extern "C" fn() -> i32>("simulated_current")() }
    }

    pub fn set_current(&self, dev: i32) {
        // SAFETY:
        // - No requirement.
        unsafe { self.symbol::<unsafe extern "C" fn(i32)>("simulated_set_current")(dev) }
    }

    /// Lets the next call of a function fail.
    pub fn fail(&self, name: &str) {
        let name = CString::new(name).unwrap();
        type Fail = unsafe extern "C" fn(*const std::ffi::c_char, u64, u32, bool);
        // SAFETY:
        // - A C string.
        unsafe { self.symbol::<Fail>("simulated_fail")(name.as_ptr(), 0, 719, false) }
    }

    pub fn calls(&self, name: &str) -> u64 {
        let name = CString::new(name).unwrap();
        // SAFETY:
        // - A C string.
        unsafe {
            self.symbol::<unsafe extern "C" fn(*const std::ffi::c_char) -> u64>("simulated_calls")(
                name.as_ptr(),
            )
        }
    }
}

pub fn to_host(cuda: &'static Cuda, src: u64, n: usize, dev: i32) -> Vec<u8> {
    let mut host = vec![0xEE; n];
    // SAFETY:
    // - `src` is from `alloc` and large enough; `host` is ours.
    unsafe { cuda.copy_to_host(host.as_mut_ptr(), src, n, dev) }.unwrap();
    host
}
