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
fn driver_folder(cfg: &'static [&'static str]) -> PathBuf {
    static BUILT: Mutex<Vec<(&[&str], PathBuf)>> = Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, folder)) = built.iter().find(|(known, _)| *known == cfg) {
        return folder.clone();
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("driver{}", built.len()));
    std::fs::create_dir_all(&folder).unwrap();
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/simulated/driver/mod.rs");
    let status = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "cdylib",
            "--crate-name",
            "cuda",
        ])
        .args(cfg)
        .arg(source)
        .arg("--out-dir")
        .arg(&folder)
        .status()
        .unwrap();
    assert!(status.success());
    // Both names, so that no real driver is found first.
    std::fs::copy(folder.join("libcuda.so"), folder.join("libcuda.so.1")).unwrap();
    built.push((cfg, folder.clone()));
    folder
}

/// Runs `body` in a new process of this program in which the simulated driver is the one that is found.
pub fn with(test: &str, cfg: &'static [&'static str], env: &[(&str, &str)], body: fn()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    let folder = driver_folder(cfg);
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

    pub fn alloc(&self, n: usize, dev: i32) -> u64 {
        // SAFETY:
        // - No requirement.
        unsafe { self.symbol::<unsafe extern "C" fn(usize, i32) -> u64>("simulated_alloc")(n, dev) }
    }

    pub fn launch(&self, stream: u64, dst: u64, value: u8, n: usize) {
        // SAFETY:
        // - `dst` is from `alloc` and large enough.
        unsafe {
            self.symbol::<unsafe extern "C" fn(u64, u64, u8, usize)>("simulated_launch")(
                stream, dst, value, n,
            )
        }
    }

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

    pub fn calls(&self, name: &str) -> i32 {
        let name = CString::new(name).unwrap();
        // SAFETY:
        // - A C string.
        unsafe {
            self.symbol::<unsafe extern "C" fn(*const std::ffi::c_char) -> i32>("simulated_calls")(
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
