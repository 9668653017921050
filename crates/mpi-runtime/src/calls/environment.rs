//! Start, end, versions, clocks and error texts (MPI-4.1, chapters 9 and 11).

use super::{Result, call, with_table};
use crate::{Comm, Error, Mpi, MpiError, ThreadLevel};
use libc::c_int;
use std::ptr::null_mut;

/// Longer than every known MPI_MAX_ERROR_STRING and MPI_MAX_PROCESSOR_NAME (512).
const TEXT_BYTES: usize = 2048;

impl Mpi {
    /// `MPI_Init_thread`. Returns the level that the library grants, which may be weaker than the one asked for.
    pub fn init_thread(&self, required: ThreadLevel) -> Result<ThreadLevel> {
        let required = required.to_native(self.constants());
        let mut provided = 0;
        call!(
            self,
            "MPI_Init_thread",
            init_thread(null_mut(), null_mut(), required, &mut provided)
        )?;
        Ok(ThreadLevel::from_native(provided, self.constants()))
    }

    /// `MPI_Finalize`
    ///
    /// # Safety
    /// - No other thread is inside an MPI call, and none makes one afterwards, except for
    ///   [`initialized`](Self::initialized), [`finalized`](Self::finalized) and the version queries.
    pub unsafe fn finalize(&self) -> Result<()> {
        call!(self, "MPI_Finalize", finalize())
    }

    /// `MPI_Initialized`
    pub fn initialized(&self) -> Result<bool> {
        let mut flag = 0;
        call!(self, "MPI_Initialized", initialized(&mut flag))?;
        Ok(flag != 0)
    }

    /// `MPI_Finalized`
    pub fn finalized(&self) -> Result<bool> {
        let mut flag = 0;
        call!(self, "MPI_Finalized", finalized(&mut flag))?;
        Ok(flag != 0)
    }

    /// `MPI_Query_thread`: what threads may do in this process.
    ///
    /// Below [`ThreadLevel::Multiple`] two threads must not be inside MPI at once; below
    /// [`ThreadLevel::Serialized`] only the thread that initialised MPI may be
    /// ([`is_thread_main`](Self::is_thread_main)).
    pub fn query_thread(&self) -> Result<ThreadLevel> {
        let mut provided = 0;
        call!(self, "MPI_Query_thread", query_thread(&mut provided))?;
        Ok(ThreadLevel::from_native(provided, self.constants()))
    }

    /// `MPI_Is_thread_main`
    pub fn is_thread_main(&self) -> Result<bool> {
        let mut flag = 0;
        call!(self, "MPI_Is_thread_main", is_thread_main(&mut flag))?;
        Ok(flag != 0)
    }

    /// `MPI_Get_version`: the version and subversion of the standard.
    pub fn get_version(&self) -> Result<(i32, i32)> {
        let (mut version, mut subversion) = (0, 0);
        call!(
            self,
            "MPI_Get_version",
            get_version(&mut version, &mut subversion)
        )?;
        Ok((version, subversion))
    }

    /// `MPI_Get_library_version`, asked anew; [`library_version`](Self::library_version) remembers it.
    pub fn get_library_version(&self) -> Result<String> {
        let mut text = vec![0u8; 16 * 1024];
        let mut length = 0;
        call!(
            self,
            "MPI_Get_library_version",
            get_library_version(text.as_mut_ptr().cast(), &mut length)
        )?;
        Ok(string(&text, length))
    }

    /// `MPI_Get_processor_name`
    pub fn get_processor_name(&self) -> Result<String> {
        let mut text = [0u8; TEXT_BYTES];
        let mut length = 0;
        call!(
            self,
            "MPI_Get_processor_name",
            get_processor_name(text.as_mut_ptr().cast(), &mut length)
        )?;
        Ok(string(&text, length))
    }

    /// `MPI_Wtime`: seconds since some moment in the past.
    pub fn wtime(&self) -> f64 {
        with_table!(self, |table| {
            // SAFETY:
            // - The table holds the function of this prototype; it takes nothing.
            unsafe { (table.wtime)() }
        })
    }

    /// `MPI_Abort`: ends the job. MPI lets it return, and MPICH's does; the process then ends with the same code.
    pub fn abort(&self, comm: Comm, errorcode: i32) -> ! {
        // The outcome does not matter: nothing but ending the process is left.
        let _ = call!(self, "MPI_Abort", abort(comm.native(), errorcode));
        // SAFETY:
        // - it ends the process at once: nothing of it is used any more.
        unsafe { libc::_exit(errorcode) }
    }

    /// `MPI_Error_class`
    pub fn error_class(&self, errorcode: i32) -> Result<i32> {
        let mut class = 0;
        // Not through `check`: an error of this call must not ask for its own class.
        match self.raw_error_class(errorcode, &mut class) {
            0 => Ok(class),
            code => Err(Error::Mpi(MpiError {
                code,
                class: code,
                call: "MPI_Error_class",
            })),
        }
    }

    /// `MPI_Error_string`
    pub fn error_string(&self, errorcode: i32) -> Result<String> {
        let mut text = [0u8; TEXT_BYTES];
        let mut length = 0;
        call!(
            self,
            "MPI_Error_string",
            error_string(errorcode, text.as_mut_ptr().cast(), &mut length)
        )?;
        Ok(string(&text, length))
    }

    /// The text of a code, if the library has one; an error here is no error of the caller's.
    pub(crate) fn error_text(&self, errorcode: i32) -> Option<String> {
        self.error_string(errorcode)
            .ok()
            .filter(|text| !text.is_empty())
    }

    /// The class of a code; a code that the library cannot classify is its own class.
    pub(crate) fn class_of(&self, errorcode: i32) -> i32 {
        let mut class = errorcode;
        match self.raw_error_class(errorcode, &mut class) {
            0 => class,
            _ => errorcode,
        }
    }

    fn raw_error_class(&self, errorcode: i32, class: &mut c_int) -> c_int {
        with_table!(self, |table| {
            // SAFETY:
            // - The table holds the function of this prototype; `class` is valid for writes.
            unsafe { (table.error_class)(errorcode, class) }
        })
    }
}

/// What a library wrote into a text buffer. MPICH counts without the NUL, as MPI says; cut at one anyway.
fn string(text: &[u8], length: c_int) -> String {
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text = text[..length]
        .split(|byte| *byte == 0)
        .next()
        .unwrap_or_default();
    String::from_utf8_lossy(text).trim_end().to_owned()
}
