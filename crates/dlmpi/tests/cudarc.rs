//! Slices of cudarc on the simulated driver, whose device memory the host cannot touch and where work that was queued runs
//! as late as it may: an operation that does not wait for the slice's stream sends what was there before.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dlmpi::cudarc::driver::{CudaContext, CudaSlice, CudaStream};
use dlmpi::{Comm, ErrorKind, Op, scope};

const INSIDE: &str = "SIMULATED_INSIDE";

/// The driver and the MPI that the tests of this crate have.
fn libraries() -> String {
    // Cargo gives nobody the path of a cdylib, so it is built here, in a place of its own.
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("driver");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--offline"])
        .args(["--package", "simulated-driver", "--target-dir"])
        .arg(&folder)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        // A sanitizer watches the test, not the driver, whose library could not be opened then.
        .env_remove("RUSTFLAGS")
        .output()
        .expect("cargo runs this test");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let library = folder.join("debug/libsimulated_driver.so");
    // Both names, so that no real driver is found first.
    for name in ["libcuda.so", "libcuda.so.1"] {
        let name = folder.join(name);
        let _ = std::fs::remove_file(&name);
        std::fs::hard_link(&library, name).expect("a link beside the library");
    }
    let others = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    format!("{}:{others}", folder.display())
}

fn numbers(n: usize) -> Vec<f32> {
    (0..n).map(|i| i as f32 - 3.5).collect()
}

fn on_host(stream: &Arc<CudaStream>, slice: &CudaSlice<f32>) -> Vec<f32> {
    let copy = stream.clone_dtoh(slice).expect("a copy");
    // This driver is as late as CUDA is with pinned memory.
    stream.synchronize().expect("no earlier error");
    copy
}

fn operations(world: &Comm<'_>, stream: &Arc<CudaStream>, n: usize) {
    let host = numbers(n);
    // Queued, and not yet done when the operation is called.
    let mut slice = stream.clone_htod(&host).expect("room");
    let mut came = vec![f32::NAN; n];
    world
        .all_reduce_into(&slice, &mut came, Op::Max)
        .expect("from the device");
    assert_eq!(came, host);
    let doubled: Vec<f32> = host.iter().map(|x| 2.0 * x).collect();
    world
        .all_reduce_into(&doubled, &mut slice, Op::Sum)
        .expect("to the device");
    assert_eq!(on_host(stream, &slice), doubled);
    // Parts of a slice, to oneself; what lies beside them stays.
    let mut other = stream.clone_htod(&host).expect("room");
    let status = world.sendrecv(
        &slice.slice(1..n),
        world.rank(),
        3,
        &mut other.slice_mut(..n - 1),
        world.rank(),
        3,
    );
    assert_eq!(status.expect("a message").elements, n - 1);
    let mut expected = doubled[1..].to_vec();
    expected.extend(host.last());
    assert_eq!(on_host(stream, &other), expected);
    let mut room = stream.alloc_zeros::<f32>(n).expect("room");
    let done = scope(|scope| {
        let coming = world.immediate_recv(scope, &mut room, world.rank(), 4)?;
        world
            .immediate_send(scope, &slice, world.rank(), 4)?
            .wait()?;
        coming.wait().map(|(_, status)| status.elements)
    });
    assert_eq!(done.expect("a message"), n);
    assert_eq!(on_host(stream, &room), doubled);
}

fn inside() {
    let universe = dlmpi::initialize().expect("an MPI");
    let world = universe.world();
    let context = CudaContext::new(0).expect("the simulated driver");
    for stream in [
        context.default_stream(),
        context.new_stream().expect("a stream"),
    ] {
        for n in [1, 7, 1000, 70_001] {
            operations(&world, &stream, n);
        }
        // No mean of integers, whatever the device; and a slice that does not fit.
        let mut count = stream.clone_htod(&[1u32, 2]).expect("room");
        let error = world.all_reduce(&mut count, Op::Avg).expect_err("no mean");
        assert_eq!(error.kind(), ErrorKind::Argument);
        let error = world
            .all_gather(&count, &mut [0u32; 3])
            .expect_err("too long");
        assert_eq!(error.kind(), ErrorKind::Argument);
    }
}

#[test]
fn slices_of_a_device_take_part() {
    if std::env::var_os(INSIDE).is_some() {
        return inside();
    }
    let path = libraries();
    for schedule in ["late", "eager", "threads"] {
        // Kept from the terminal: a second summary in the output would be counted as this program's.
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["slices_of_a_device_take_part", "--exact", "--nocapture"])
            .env(INSIDE, "1")
            .env("LD_LIBRARY_PATH", &path)
            .env("SIMULATED_SCHEDULE", schedule)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("this program again");
        let start = Instant::now();
        while child.try_wait().expect("a child").is_none() {
            if start.elapsed() > Duration::from_secs(120) {
                child.kill().expect("a child");
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let output = child.wait_with_output().expect("a child");
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let ran = output.status.success() && said.contains("1 passed");
        assert!(ran, "{schedule}, {}: {said}", output.status);
    }
}
