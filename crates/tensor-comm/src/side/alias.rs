//! Whether two tensors of one call share memory.

use dlpack_core::View;

use crate::arg::Part;

/// Whether two tensors may share memory.
pub(crate) fn may_alias(a: &View, b: &View) -> bool {
    let end = |view: &View| {
        let (low, high) = view.layout().span();
        let data = view.data() as isize;
        (data.wrapping_add(low), data.wrapping_add(high))
    };
    let ((a_low, a_high), (b_low, b_high)) = (end(a), end(b));
    a.numel() > 0 && b.numel() > 0 && a_low < b_high && b_low < a_high
}

/// Whether two parts are the very same elements.
pub(crate) fn same_elements(a: &Part, b: &Part) -> bool {
    a.view().data() == b.view().data()
        && a.start() == b.start()
        && a.count() == b.count()
        && a.view().dtype() == b.view().dtype()
        && a.view().layout().strides() == b.view().layout().strides()
        && a.view().layout().shape() == b.view().layout().shape()
}
