//! The tensors of a fused reduction in a few words each, since a thousand full descriptions are more than the caches
//! hold: only a tensor whose elements do not lie one behind the other in host memory keeps its view.

use dlpack_core::{DType, Device, View};

use crate::lane::Flat;

/// Tensors that are reduced together, in order.
#[derive(Debug, Default)]
pub struct Tensors {
    all: Vec<Tensor>,
    views: Vec<View>,
}

/// One of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Tensor {
    /// The first element.
    pub data: *mut u8,
    pub elements: usize,
    pub dtype: DType,
    /// Its number among the views, if it keeps one.
    view: u32,
}

/// Of a tensor that keeps no view.
const NONE: u32 = u32::MAX;

// SAFETY:
// - as a view, a list describes memory and never touches it.
unsafe impl Send for Tensors {}
// SAFETY:
// - as above.
unsafe impl Sync for Tensors {}

impl Tensors {
    /// An empty list with room for so many.
    pub fn with_capacity(tensors: usize) -> Tensors {
        Tensors {
            all: Vec::with_capacity(tensors),
            views: Vec::new(),
        }
    }

    /// Adds a tensor, whatever its layout and device.
    pub fn push(&mut self, view: View) {
        let flat = view.layout().is_c_contiguous()
            && view.device().is_host_addressable()
            && view.packed_numel().is_none()
            && view.check_writable().is_ok();
        self.all.push(Tensor {
            data: view.data(),
            elements: view.numel(),
            dtype: view.dtype(),
            view: match flat {
                true => NONE,
                false => u32::try_from(self.views.len()).unwrap_or(NONE),
            },
        });
        if !flat {
            self.views.push(view);
        }
    }

    /// Adds one that lies flat in host memory and may be written.
    #[inline]
    pub fn push_flat(&mut self, flat: Flat) {
        self.all.push(Tensor {
            data: flat.data,
            elements: flat.count,
            dtype: flat.dtype,
            view: NONE,
        });
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, Tensor> {
        self.all.iter()
    }

    /// All views that are kept.
    pub(super) fn views(&self) -> &[View] {
        &self.views
    }

    /// The view of a tensor that keeps one.
    #[inline]
    pub(super) fn view(&self, tensor: &Tensor) -> Option<&View> {
        match tensor.view {
            NONE => None,
            at => self.views.get(at as usize),
        }
    }

    /// The first two that share memory. Layouts with gaps may lie within each other lawfully.
    pub(super) fn alias(&self) -> Option<(usize, usize)> {
        let compact = |tensor: &Tensor| match self.view(tensor) {
            Some(view) => view.layout().is_c_contiguous(),
            None => true,
        };
        let mut places: Vec<(usize, usize)> = (self.iter().enumerate())
            .filter(|(_, tensor)| tensor.elements > 0 && compact(tensor))
            .map(|(i, tensor)| (tensor.data.addr(), i))
            .collect();
        // Allocators hand out memory in long runs of rising addresses, which this sort only joins.
        places.sort();
        // Only neighbours in memory can overlap.
        places.windows(2).find_map(|pair| {
            let (i, j) = (pair[0].1, pair[1].1);
            let (a, b) = (self.all.get(i)?, self.all.get(j)?);
            let shared = self.device(a) == self.device(b) && pair[1].0 - pair[0].0 < a.bytes();
            shared.then_some((i.min(j), i.max(j)))
        })
    }

    /// Where it lies, if that is not host memory.
    fn device(&self, tensor: &Tensor) -> Option<Device> {
        let device = self.view(tensor)?.device();
        (!device.is_host_addressable()).then_some(device)
    }
}

impl Tensor {
    /// Bytes of one element.
    #[inline]
    pub fn itemsize(&self) -> usize {
        self.dtype.itemsize().unwrap_or(1)
    }

    /// Bytes of all elements.
    #[inline]
    pub fn bytes(&self) -> usize {
        self.elements.saturating_mul(self.itemsize())
    }
}

impl FromIterator<View> for Tensors {
    fn from_iter<I: IntoIterator<Item = View>>(views: I) -> Tensors {
        let views = views.into_iter();
        let mut all = Tensors::with_capacity(views.size_hint().0);
        views.for_each(|view| all.push(view));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn view(address: usize, shape: &[i64], strides: Option<&[i64]>, device: Device) -> View {
        // SAFETY:
        // - the view is only looked at, never acted on, so no byte of it need exist.
        unsafe {
            View::from_parts(
                address as *mut u8,
                shape,
                strides,
                DType::F32,
                device,
                false,
            )
        }
        .expect("a lawful layout")
    }

    #[test]
    fn only_what_does_not_lie_flat_on_the_host_keeps_its_view() {
        let (cuda, pinned) = (Device::cuda(0), dlpack_core::DeviceKind::CUDA_HOST);
        let views = [
            (view(1 << 12, &[3, 5], None, Device::CPU), false),
            (view(2 << 12, &[3, 5], None, Device::new(pinned, 0)), false),
            (view(3 << 12, &[3, 5], Some(&[4, 12]), Device::CPU), true),
            (view(4 << 12, &[3, 5], None, cuda), true),
            (
                view(5 << 12, &[3], None, Device::CPU).with_readonly(true),
                true,
            ),
            (view(6 << 12, &[0], None, Device::CPU), false),
        ];
        let list: Tensors = views.iter().map(|(view, _)| view.clone()).collect();
        for (tensor, (view, kept)) in list.iter().zip(&views) {
            assert_eq!(list.view(tensor).is_some(), *kept, "{view:?}");
            assert_eq!((tensor.data, tensor.elements), (view.data(), view.numel()));
            assert_eq!(tensor.bytes(), 4 * view.numel());
        }
    }

    proptest! {
        #[test]
        fn shared_memory_is_found(
            places in prop::collection::vec((0usize..400, 0i64..4, 0i32..3), 0..12),
        ) {
            let device = |of: i32| if of == 0 { Device::CPU } else { Device::cuda(of) };
            let list: Tensors = (places.iter())
                .map(|&(at, n, of)| view(4096 + 4 * at, &[n], None, device(of)))
                .collect();
            let meet = |a: &(usize, i64, i32), b: &(usize, i64, i32)| {
                a.2 == b.2 && a.0 < b.0 + b.1 as usize && b.0 < a.0 + a.1 as usize && a.1 * b.1 > 0
            };
            let found = list.alias();
            if let Some((i, j)) = found {
                prop_assert!(i < j && meet(&places[i], &places[j]));
            }
            // What lies on another device in between may hide a pair.
            if places.iter().all(|place| place.2 == places[0].2) {
                let rest = |i: usize| &places[i + 1..];
                let any = (0..places.len()).any(|i| rest(i).iter().any(|b| meet(&places[i], b)));
                prop_assert_eq!(found.is_some(), any);
            }
        }
    }
}
