//! The [`Framework`] of torch.

use std::ptr::NonNull;
use std::sync::Arc;

use dlpack_core::{DeviceKind, View};
use py_bridge::dlpack_call::{self, CallForms};
use py_bridge::framework::derives_from;
use py_bridge::loan::Wrote;
use py_bridge::{
    ExportError, ExportResult, Exporter, Flat, Framework, Intent, Loan, StreamOrder, call, fetch,
};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyTuple, PyType};

use crate::check::{self, Plain};
use crate::exchange::Exchange;
use crate::fields::Fields;
use crate::flats::Places;
use crate::versions::Versions;

/// PyTorch.
pub struct Torch;

impl Framework for Torch {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn claim(&self, ty: &Bound<'_, PyType>) -> PyResult<Option<Arc<dyn Exporter>>> {
        if !derives_from(ty, "torch", "Tensor")? {
            return Ok(None);
        }
        let exchange = Exchange::of(ty)?;
        let fields = exchange.and_then(|_| Fields::get(ty.py()));
        let plain = Plain::get(ty.py());
        Ok(Some(Arc::new(Tensor {
            exchange,
            fields,
            forms: CallForms::default(),
            plain: fields.is_some() && plain.is_some_and(|plain| plain.contains(ty.as_ptr())),
            places: fields.and_then(|fields| Places::get(ty.py(), fields)),
            versions: fields.and_then(|_| Versions::get(ty.py())),
            ty: ty.as_type_ptr().addr(),
        })))
    }
}

/// Lends tensors of one type.
struct Tensor {
    exchange: Option<Exchange>,
    fields: Option<Fields>,
    forms: CallForms,
    /// No Python code of a subclass hears of what is asked.
    plain: bool,
    places: Option<Places>,
    versions: Option<Versions>,
    /// The type's address.
    ty: usize,
}

/// Tensors between one whose words are read and one that is fetched: as many as take as long as memory does.
const AHEAD: usize = 6;

impl Exporter for Tensor {
    fn framework(&self) -> &'static str {
        "torch"
    }

    #[inline]
    fn export(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        let lent = self
            .lend(obj, intent, order)
            .map_err(|error| check::explain(obj, error))?;
        Ok(match intent {
            Intent::Send => lent,
            Intent::Receive => lent.on_write(wrote, obj.clone().unbind()),
        })
    }

    #[inline]
    fn lend_flat(
        &self,
        obj: &Bound<'_, PyAny>,
        order: &mut StreamOrder,
        kept: &mut Vec<Py<PyAny>>,
    ) -> Option<Flat> {
        let (exchange, fields) = (self.exchange.filter(|_| self.plain)?, self.fields?);
        if order.pins(|| cuda_is_initialized(obj.py())).ok()? {
            return None;
        }
        // The storage first: nothing may free the memory between the look at it and the hold.
        let storage = check::storage(obj).ok()?;
        // SAFETY:
        // - the registry gives this exporter instances of torch.Tensor alone.
        let flat = match self.places.and_then(|places| unsafe { places.flat(obj) }) {
            Some(flat) => flat,
            None => self.ask(exchange, fields, obj, &storage)?,
        };
        let (start, held) = fields.extent(&storage)?;
        let since = flat.data.addr().checked_sub(start)?;
        if since.checked_add(flat.bytes())? > held {
            return None;
        }
        kept.push(storage.unbind());
        Some(flat)
    }

    #[inline]
    fn lend_undisturbed(
        &self,
        obj: &Bound<'_, PyAny>,
        order: &mut StreamOrder,
    ) -> Option<(Flat, Option<NonNull<u32>>)> {
        let (places, versions) = (self.places.filter(|_| self.plain)?, self.versions?);
        // Asked before the first tensor, and remembered.
        if order.pins(|| cuda_is_initialized(obj.py())).ok()? {
            return None;
        }
        // SAFETY:
        // - as above.
        let (flat, counter) = unsafe { (places.flat(obj)?, versions.counter(obj)?) };
        Some((flat, Some(counter)))
    }

    #[inline]
    fn look_ahead(&self, objects: &[Borrowed<'_, '_, PyAny>]) {
        let Some(places) = self.places else { return };
        let object = |after| objects.get(after * AHEAD);
        let is_ours = |object: &&Borrowed<'_, '_, PyAny>| object.get_type_ptr().addr() == self.ty;
        let tensor = |after| object(after).filter(is_ours).map(|tensor| &**tensor);
        if let Some(object) = object(3) {
            for at in [0, 16] {
                fetch(object.as_ptr().wrapping_byte_add(at));
            }
        }
        // SAFETY:
        // - they are of the type whose instances the registry gives this exporter.
        unsafe { places.fetch(tensor(2), tensor(1)) };
    }

    fn wrote(&self) -> Option<Wrote> {
        Some(wrote)
    }
}

impl Tensor {
    /// The elements of a tensor that torch says is flat, and remembers its kind.
    #[cold]
    fn ask(
        &self,
        exchange: Exchange,
        fields: Fields,
        obj: &Bound<'_, PyAny>,
        storage: &Bound<'_, PyAny>,
    ) -> Option<Flat> {
        // SAFETY:
        // - the registry gives this exporter instances of torch.Tensor alone.
        if unsafe { fields.is_negative(obj) }? {
            return None;
        }
        let flat = exchange.flat(obj)?;
        if let Some(places) = self.places {
            // SAFETY:
            // - as above.
            unsafe { places.learn(obj, storage, &flat) };
        }
        Some(flat)
    }

    fn lend(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        if let Some(resolved) = check::resolve_negative(obj, intent, self.fields)? {
            return self.lend(&resolved, intent, order);
        }
        let Some(exchange) = &self.exchange else {
            return self.by_older(obj, intent, order);
        };
        // The storage first: nothing may free the memory between the view and the hold.
        let storage = check::storage(obj)?;
        let view = exchange.view(obj)?;
        if view.dtype().is_complex()
            && let Some(resolved) = check::resolve_conjugate(obj, intent)?
        {
            return self.lend(&resolved, intent, order);
        }
        if !view.device().is_host_addressable() {
            return match view.device().kind {
                DeviceKind::CUDA => self.on_device(exchange, &view, obj, intent, order),
                // Nobody but torch touches it, and the bits were looked at.
                _ => Ok(Loan::of_object(view, "dlpack exchange", storage.unbind())),
            };
        }
        check::fits(&view, &storage, self.fields)?;
        // Pinned memory may still be the target of a copy.
        if order.pins(|| cuda_is_initialized(obj.py()))? && is_pinned(obj)? {
            wait_for_copies(obj.py(), Some(exchange), order)?;
        }
        Ok(Loan::of_object(view, "dlpack exchange", storage.unbind()))
    }

    /// Device memory: torch orders its work on our stream, which the exchange API does not.
    #[cold]
    fn on_device(
        &self,
        exchange: &Exchange,
        view: &View,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        let dev = view.device().id;
        order.refuse_capture(stream(obj.py(), Some(exchange), dev)?, dev)?;
        self.by_call(obj, intent, order)
    }

    /// A torch without the exchange API: its streams are asked for by Python.
    #[cold]
    fn by_older(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        let py = obj.py();
        // Also that of an AMD GPU.
        let cuda = obj.getattr_opt(intern!(py, "is_cuda"))?;
        if cuda.is_some_and(|cuda| cuda.is_truthy().unwrap_or(false)) {
            let device = dlpack_call::device(obj)?;
            if device.kind == DeviceKind::CUDA {
                order.refuse_capture(stream(py, None, device.id)?, device.id)?;
            }
        }
        let loan = self.by_call(obj, intent, order)?;
        if loan.view().device().kind == DeviceKind::CUDA_HOST {
            wait_for_copies(py, None, order)?;
        }
        Ok(loan)
    }

    /// `__dlpack__`, which refuses tensors that require a gradient and says nothing of the bits.
    fn by_call(
        &self,
        obj: &Bound<'_, PyAny>,
        intent: Intent,
        order: &mut StreamOrder,
    ) -> ExportResult<Loan> {
        let py = obj.py();
        let raised = |error| ExportError::raised(py, "its export failed", error);
        let storage = check::storage(obj)?;
        let plain = obj.call_method0(intern!(py, "detach")).map_err(raised)?;
        if plain.call_method0(intern!(py, "is_complex"))?.is_truthy()?
            && let Some(resolved) = check::resolve_conjugate(&plain, intent)?
        {
            return self.by_call(&resolved, intent, order);
        }
        let loan = dlpack_call::export(&plain, &self.forms, intent, order)?;
        check::fits(loan.view(), &storage, self.fields)?;
        Ok(loan.holding(storage.unbind()))
    }
}

/// MPI wrote: autograd must know, or it would silently use the overwritten values.
fn wrote(tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
    let Some(versions) = Versions::get(tensors.py()) else {
        return tell(tensors);
    };
    match versions.count(tensors) {
        others if others.is_empty() => Ok(()),
        others => tell(&PyTuple::new(tensors.py(), others)?),
    }
}

fn tell(tensors: &Bound<'_, PyTuple>) -> PyResult<()> {
    static TELL: PyOnceLock<Tell> = PyOnceLock::new();
    let py = tensors.py();
    let tell = TELL.get_or_try_init(py, || Tell::of(py))?;
    let told = tell.call.bind(py);
    match tell.many {
        true => call::one(told, tensors).map(drop),
        false => tensors
            .iter()
            .map(|tensor| call::one(told, &tensor).map(drop))
            .fold(Ok(()), PyResult::and),
    }
}

/// How torch is told.
struct Tell {
    call: Py<PyAny>,
    /// It takes many tensors at once.
    many: bool,
}

impl Tell {
    /// The function behind torch's public one, which costs a frame of Python more; else the latter, which before
    /// torch 2.5 takes one tensor.
    fn of(py: Python<'_>) -> PyResult<Tell> {
        let takes_many = |call: &Bound<'_, PyAny>| call.call1((PyTuple::empty(py),)).is_ok();
        let within = py
            .import("torch._C")
            .and_then(|module| module.getattr("_increment_version"))
            .ok()
            .filter(takes_many);
        if let Some(call) = within {
            let call = call.unbind();
            return Ok(Tell { call, many: true });
        }
        let call = py
            .import("torch.autograd.graph")?
            .getattr("increment_version")?;
        let many = takes_many(&call);
        let call = call.unbind();
        Ok(Tell { call, many })
    }
}

/// Has anybody used CUDA through torch? Only then can host memory be pinned. Asking the driver instead
/// would start it in every process on a machine with a GPU.
fn cuda_is_initialized(py: Python<'_>) -> ExportResult<bool> {
    static ASK: PyOnceLock<Option<Py<PyAny>>> = PyOnceLock::new();
    let ask = ASK.get_or_try_init(py, || {
        // A torch that was built without CUDA never has; older ones do not say.
        let built = py
            .import("torch.backends.cuda")
            .and_then(|module| module.call_method0("is_built")?.is_truthy());
        match built {
            Ok(false) => Ok(None),
            _ => py
                .import("torch.cuda")?
                .getattr("is_initialized")
                .map(|ask| Some(ask.unbind())),
        }
    })?;
    ask.as_ref()
        .map_or(Ok(false), |ask| Ok(ask.bind(py).call0()?.is_truthy()?))
}

#[cold]
fn is_pinned(obj: &Bound<'_, PyAny>) -> ExportResult<bool> {
    Ok(obj
        .call_method0(intern!(obj.py(), "is_pinned"))?
        .is_truthy()?)
}

/// Pinned memory may still be the target of a copy on torch's current stream.
#[cold]
fn wait_for_copies(
    py: Python<'_>,
    exchange: Option<&Exchange>,
    order: &mut StreamOrder,
) -> ExportResult<()> {
    let cuda = py.import("torch.cuda")?;
    if !py.import("torch.version")?.getattr("hip")?.is_none() {
        // On an AMD GPU torch itself waits.
        cuda.call_method0("current_stream")?
            .call_method0("synchronize")?;
        return Ok(());
    }
    let dev: i32 = cuda.call_method0("current_device")?.extract()?;
    let stream = stream(py, exchange, dev)?;
    order.refuse_capture(stream, dev)?;
    order.wait_for(stream, dev);
    Ok(())
}

/// torch's current stream on a CUDA device.
fn stream(py: Python<'_>, exchange: Option<&Exchange>, dev: i32) -> ExportResult<u64> {
    match exchange {
        Some(exchange) => exchange.current_stream(py, dev),
        None => Ok(py
            .import("torch.cuda")?
            .call_method1("current_stream", (dev,))?
            .getattr("cuda_stream")?
            .extract()?),
    }
}
