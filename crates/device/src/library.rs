//! Finds the CUDA driver of this machine by cudarc. Twin of `host.rs`; knows nothing of what is called in it.

use cudarc::driver::sys;

use crate::DeviceError;
use crate::symbols::Table;

/// The driver's functions, or why there are none.
pub(crate) fn load() -> Result<Table, DeviceError> {
    // SAFETY:
    // - Loads and unloads the driver library, whose initialisers are made for that.
    if !unsafe { sys::is_culib_present() } {
        return Err(DeviceError::NoDriver {
            why: "libcuda.so is nowhere the dynamic loader looks",
        });
    }
    // SAFETY:
    // - The library was there a moment ago, so that this neither fails nor panics; it stays loaded for ever.
    let library = unsafe { sys::culib() };
    let find = |name: &'static str| {
        // SAFETY:
        // - Only an address is taken; `Table` gives it the right type.
        unsafe { library.get::<unsafe extern "C" fn()>(name.as_bytes()) }
            .ok()
            .map(|symbol| *symbol)
    };
    // SAFETY:
    // - `find` looks the name up in the driver library, which is never unloaded.
    unsafe { Table::resolve(find) }
}
