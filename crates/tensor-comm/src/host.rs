//! A host address for a tensor's memory: the memory itself, or a mirror of device memory.
//!
//! No MPI is handed a device pointer here: until awareness is proved, device memory is staged.

use device::cuda;
use dlpack_core::{DeviceKind, View};

use crate::error::{Result, buffer_error};
use crate::scratch::Scratch;

/// Where a tensor's logical element 0 lies in host memory.
pub(crate) enum Host {
    /// The tensor's own memory.
    Own(*mut u8),
    /// A copy of the bytes from `low` (relative to element 0) on.
    Mirror {
        /// The copy.
        scratch: Scratch,
        /// Lowest byte that the layout touches, relative to element 0.
        low: isize,
    },
}

impl Host {
    /// Host memory that holds what the tensor holds now.
    pub fn of(view: &View) -> Result<Host> {
        if view.device().is_host_addressable() || view.numel() == 0 {
            return Ok(Host::Own(view.data()));
        }
        reachable(view)?;
        let (low, high) = view.layout().span();
        let host = Host::Mirror {
            scratch: Scratch::new((high - low) as usize)?,
            low,
        };
        host.refresh(view)?;
        Ok(host)
    }

    /// Copies what the tensor holds now into its mirror; own memory has nothing to do.
    pub fn refresh(&self, view: &View) -> Result<()> {
        let Host::Mirror { scratch, .. } = self else {
            return Ok(());
        };
        let (low, high) = view.layout().span();
        let source = (view.data() as u64).wrapping_add_signed(low as i64);
        let (bytes, device) = ((high - low) as usize, view.device().id);
        // SAFETY:
        // - the door found these bytes to be the tensor's, whose memory the caller holds.
        // - the mirror was made with room for them.
        Ok(unsafe { cuda()?.copy_to_host(scratch.ptr(), source, bytes, device) }?)
    }

    /// Address of logical element 0.
    pub fn data(&self) -> *mut u8 {
        match self {
            Host::Own(data) => *data,
            Host::Mirror { scratch, low } => scratch.ptr().wrapping_offset(-low),
        }
    }

    /// Copies `bytes` bytes from `offset` (relative to element 0) on back to the device; own memory has
    /// nothing to do.
    pub fn commit(&self, view: &View, offset: isize, bytes: usize) -> Result<()> {
        let Host::Mirror { .. } = self else {
            return Ok(());
        };
        let target = (view.data() as u64).wrapping_add_signed(offset as i64);
        let from = self.data().wrapping_offset(offset);
        // SAFETY:
        // - the range is within the span that `of` mirrored, so both sides have these bytes.
        // - the tensor is writable (side.rs), and its memory is held by the caller.
        unsafe { cuda()?.copy_to_device(target, from, bytes, view.device().id) }?;
        Ok(())
    }
}

fn reachable(view: &View) -> Result<()> {
    match view.device().kind {
        DeviceKind::CUDA => Ok(()),
        _ => Err(buffer_error!(
            "the tensor is on {}, whose memory dlmpi cannot copy; move it to the CPU first",
            view.device()
        )),
    }
}
