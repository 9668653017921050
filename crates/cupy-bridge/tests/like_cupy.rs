//! The CuPy bridge against a module that behaves like CuPy, on streams that only keep a diary: no GPU and
//! no CuPy is needed. What CuPy does is from its source (14.2): a typed stream argument, `max_version`
//! that must be a tuple, an event recorded on the *current* device, and, before 1.0 of DLPack, `stream` alone.
#![cfg(feature = "python")]
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cupy_bridge::CuPy;
use device::DeviceError;
use dlpack_core::abi::{DLDataType, DLDevice, DLManagedTensor, DLTensor};
use dlpack_core::{Device, DeviceKind};
use py_bridge::order::Streams;
use py_bridge::{ExportError, Exporter, Framework, Intent, StreamOrder};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyModule;

/// Our stream on every device.
const OURS: u64 = 0x5715;

static DIARY: Mutex<Vec<String>> = Mutex::new(Vec::new());
static CURRENT: AtomicI32 = AtomicI32::new(0);
static CAPTURING: AtomicBool = AtomicBool::new(false);
static DELETED: AtomicUsize = AtomicUsize::new(0);
/// One diary, one test at a time.
static TURN: Mutex<()> = Mutex::new(());

fn note(text: impl Into<String>) {
    DIARY
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(text.into());
}

fn diary() -> Vec<String> {
    std::mem::take(&mut *DIARY.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Diary;

impl Streams for Diary {
    fn stream(&self, dev: i32) -> Result<u64, DeviceError> {
        match dev {
            0..2 => Ok(OURS + dev as u64),
            id => Err(DeviceError::NoSuchDevice { id, count: 2 }),
        }
    }
    fn on_device(&self, dev: i32, f: &mut dyn FnMut()) -> Result<(), DeviceError> {
        let before = CURRENT.swap(dev, SeqCst);
        f();
        CURRENT.store(before, SeqCst);
        Ok(())
    }
    fn synchronize(&self, dev: i32) -> Result<(), DeviceError> {
        note(format!("wait for ours on {dev}"));
        Ok(())
    }
    fn synchronize_stream(&self, stream: u64, dev: i32) -> Result<(), DeviceError> {
        note(format!("wait for {stream:#x} on {dev}"));
        Ok(())
    }
    fn follow(&self, stream: u64, dev: i32) -> Result<(), DeviceError> {
        note(format!("follow {stream:#x} on {dev}"));
        Ok(())
    }
    fn is_capturing(&self, _stream: u64, _dev: i32) -> Result<bool, DeviceError> {
        Ok(CAPTURING.load(SeqCst))
    }
}

unsafe extern "C" fn deleter(tensor: *mut DLManagedTensor) {
    DELETED.fetch_add(1, SeqCst);
    // SAFETY:
    // - made by `Box::into_raw` in `capsule`, and deleted once, which the tests count.
    let tensor = unsafe { Box::from_raw(tensor) };
    // SAFETY:
    // - as above.
    drop(unsafe { Box::from_raw(tensor.dl_tensor.shape) });
}

/// A legacy capsule of eight float32 at a made-up address on a device.
#[pyfunction]
fn capsule(py: Python<'_>, kind: i32, id: i32) -> PyResult<Py<PyAny>> {
    let tensor = DLManagedTensor {
        dl_tensor: DLTensor {
            data: std::ptr::without_provenance_mut(0x7000_0000),
            device: DLDevice {
                device_type: kind,
                device_id: id,
            },
            ndim: 1,
            dtype: DLDataType {
                code: 2,
                bits: 32,
                lanes: 1,
            },
            shape: Box::into_raw(Box::new(8)),
            strides: std::ptr::null_mut(),
            byte_offset: 0,
        },
        manager_ctx: std::ptr::null_mut(),
        deleter: Some(deleter),
    };
    let pointer = Box::into_raw(Box::new(tensor));
    // SAFETY:
    // - attached; the pointer is not NULL and the name is static. The tests consume every capsule.
    let capsule = unsafe { ffi::PyCapsule_New(pointer.cast(), c"dltensor".as_ptr(), None) };
    // SAFETY:
    // - a new reference, or NULL with an exception.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }.map(Bound::unbind)
}

#[pyfunction]
fn current_device() -> i32 {
    CURRENT.load(SeqCst)
}

#[pyfunction]
fn write_down(text: String) {
    note(text);
}

const CODE: &std::ffi::CStr = cr#"
import sys, types

class ndarray:
    kind, modern = 2, True
    def __init__(self, device=0):
        self.device = device
    def __dlpack_device__(self):
        return (self.kind, self.device)
    def __dlpack__(self, **keywords):
        known = {"stream", "max_version", "dl_device", "copy"} if self.modern else {"stream"}
        for name in keywords:
            if name not in known:
                raise TypeError(f"__dlpack__() got an unexpected keyword argument '{name}'")
        version = keywords.get("max_version")
        if version is not None and type(version) is not tuple:
            raise TypeError("Argument 'max_version' has incorrect type")
        if not isinstance(keywords.get("stream"), int):
            raise AssertionError("no stream: CuPy would order nothing")
        write_down(f"{keywords['stream']:#x} on {current_device()}")
        return capsule(self.kind, self.device)

class Legacy(ndarray):
    modern = False

class Managed(ndarray):
    kind = 13

class Broken(ndarray):
    def __dlpack__(self, **keywords):
        raise TypeError("a broken promise")

cupy = types.ModuleType("cupy")
cupy.ndarray = ndarray
cupy.cuda = types.SimpleNamespace(
    get_current_stream=lambda: types.SimpleNamespace(ptr=0xc0)
)
sys.modules["cupy"] = cupy
"#;

/// Runs a test with fresh state and the module that behaves like CuPy.
fn with_cupy(test: impl FnOnce(&Bound<'_, PyModule>)) {
    let _turn: MutexGuard<'_, ()> = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Python::initialize();
    diary();
    CURRENT.store(0, SeqCst);
    CAPTURING.store(false, SeqCst);
    DELETED.store(0, SeqCst);
    Python::attach(|py| {
        let module = PyModule::new(py, "like_cupy").unwrap();
        for function in [
            wrap_pyfunction!(capsule, &module).unwrap(),
            wrap_pyfunction!(current_device, &module).unwrap(),
            wrap_pyfunction!(write_down, &module).unwrap(),
        ] {
            module.add_function(function).unwrap();
        }
        let globals = module.dict();
        py.run(CODE, Some(&globals), None).unwrap();
        test(&module);
    });
}

fn make<'py>(
    module: &Bound<'py, PyModule>,
    class: &str,
    dev: i32,
) -> (Bound<'py, PyAny>, std::sync::Arc<dyn Exporter>) {
    let array = module.getattr(class).unwrap().call1((dev,)).unwrap();
    let exporter = CuPy
        .claim(&array.get_type())
        .unwrap()
        .expect("an array of CuPy's");
    (array, exporter)
}

#[test]
fn other_types_are_not_claimed() {
    with_cupy(|module| {
        let list = module.py().get_type::<pyo3::types::PyList>();
        assert!(CuPy.claim(&list).unwrap().is_none());
    });
}

#[test]
fn our_stream_is_passed_with_the_arrays_device_current_and_waited_for_once() {
    with_cupy(|module| {
        let mut order = StreamOrder::new(&Diary);
        let (first, exporter) = make(module, "ndarray", 1);
        let (second, _) = make(module, "ndarray", 1);
        let sent = exporter.export(&first, Intent::Send, &mut order).unwrap();
        let received = exporter
            .export(&second, Intent::Receive, &mut order)
            .unwrap();
        assert_eq!(sent.view().device(), Device::cuda(1));
        assert_eq!(CURRENT.load(SeqCst), 0, "what was current is current again");
        order.wait(module.py()).unwrap();
        let ours = format!("{:#x} on 1", OURS + 1);
        assert_eq!(
            diary(),
            [ours.clone(), ours, "wait for ours on 1".to_owned()]
        );
        assert_eq!(DELETED.load(SeqCst), 0, "held until the loans end");
        drop((sent, received));
        assert_eq!(DELETED.load(SeqCst), 2);
    });
}

#[test]
fn each_device_is_waited_for_once_however_many_streams_it_has() {
    with_cupy(|module| {
        let mut order = StreamOrder::new(&Diary);
        for (stream, dev) in [(0x20, 1), (0x30, 0), (0x40, 1), (0x20, 1)] {
            order.wait_for(stream, dev);
        }
        order.wait(module.py()).unwrap();
        // A stream that is alone on its device needs no other one.
        let both = ["follow 0x20 on 1", "follow 0x40 on 1", "wait for ours on 1"];
        assert_eq!(diary(), [&both[..], &["wait for 0x30 on 0"]].concat());
        order.stream(0).unwrap();
        order.wait(module.py()).unwrap();
        let joined = ["follow 0x30 on 0", "wait for ours on 0"];
        assert_eq!(diary(), [&joined[..], &both].concat());
    });
}

#[test]
fn an_old_signature_never_costs_the_stream() {
    with_cupy(|module| {
        let mut order = StreamOrder::new(&Diary);
        let (array, exporter) = make(module, "Legacy", 0);
        for intent in [Intent::Send, Intent::Receive, Intent::Send] {
            drop(exporter.export(&array, intent, &mut order).unwrap());
        }
        assert_eq!(diary(), vec![format!("{OURS:#x} on 0"); 3]);
    });
}

#[test]
fn managed_memory_is_ordered_like_device_memory() {
    with_cupy(|module| {
        let mut order = StreamOrder::new(&Diary);
        let (array, exporter) = make(module, "Managed", 0);
        let loan = exporter.export(&array, Intent::Send, &mut order).unwrap();
        assert_eq!(loan.view().device().kind, DeviceKind::CUDA_MANAGED);
        order.wait(module.py()).unwrap();
        assert_eq!(
            diary(),
            [format!("{OURS:#x} on 0"), "wait for ours on 0".to_owned()]
        );
    });
}

#[test]
fn a_capture_is_refused_before_anything_is_enqueued() {
    with_cupy(|module| {
        CAPTURING.store(true, SeqCst);
        let mut order = StreamOrder::new(&Diary);
        let (array, exporter) = make(module, "ndarray", 0);
        let refused = exporter.export(&array, Intent::Send, &mut order);
        assert!(matches!(refused, Err(ExportError::Buffer(words)) if words.contains("capture")));
        assert!(diary().is_empty());
    });
}

#[test]
fn a_device_that_is_not_there_is_an_error_in_words() {
    with_cupy(|module| {
        let mut order = StreamOrder::new(&Diary);
        let (array, exporter) = make(module, "ndarray", 7);
        let refused = exporter.export(&array, Intent::Send, &mut order);
        assert!(matches!(refused, Err(ExportError::Buffer(words)) if words.contains("device 7")));
        assert!(diary().is_empty());
    });
}

#[test]
fn the_first_exception_is_the_one_that_people_see() {
    with_cupy(|module| {
        let py = module.py();
        let mut order = StreamOrder::new(&Diary);
        let (array, exporter) = make(module, "Broken", 0);
        let error = match exporter.export(&array, Intent::Receive, &mut order) {
            Ok(_) => panic!("it raises"),
            Err(error) => error.named(py, "recvbuf"),
        };
        assert!(error.is_instance_of::<pyo3::exceptions::PyBufferError>(py));
        assert!(error.to_string().contains("recvbuf") && error.to_string().contains("promise"));
        assert!(
            error
                .cause(py)
                .is_some_and(|c| c.to_string().contains("promise"))
        );
    });
}
