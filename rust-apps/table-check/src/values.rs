//! Compares every constant and predefined handle with what a C compiler makes of the library's own
//! headers: this writes the C source, the compiler builds it into a small library, and that is asked.

use crate::suite::Context;
use libc::{c_char, c_longlong, c_void};
use mpi_runtime::{Basic, BuiltinOp, Mpi};
use std::ffi::CString;
use std::fmt::Write;
use std::path::Path;

/// Predefined handles other than datatypes and operations.
type Special = (&'static str, fn(&Mpi) -> u64);

const SPECIAL: &[Special] = &[
    ("MPI_COMM_NULL", |mpi| mpi.comm_null().raw()),
    ("MPI_COMM_WORLD", |mpi| mpi.comm_world().raw()),
    ("MPI_COMM_SELF", |mpi| mpi.comm_self().raw()),
    ("MPI_DATATYPE_NULL", |mpi| mpi.datatype_null().raw()),
    ("MPI_OP_NULL", |mpi| mpi.op_null().raw()),
    ("MPI_REQUEST_NULL", |mpi| mpi.request_null().raw()),
    ("MPI_GROUP_NULL", |mpi| mpi.group_null().raw()),
    ("MPI_GROUP_EMPTY", |mpi| mpi.group_empty().raw()),
    ("MPI_ERRHANDLER_NULL", |mpi| mpi.errhandler_null().raw()),
    ("MPI_ERRORS_RETURN", |mpi| mpi.errors_return().raw()),
    ("MPI_ERRORS_ARE_FATAL", |mpi| mpi.errors_are_fatal().raw()),
    ("MPI_MESSAGE_NULL", |mpi| mpi.message_null().raw()),
    ("MPI_MESSAGE_NO_PROC", |mpi| mpi.message_no_proc().raw()),
];

/// C expressions that are no constants of that name.
const LAYOUT: &[&str] = &[
    "sizeof(MPI_Status)",
    "offsetof(MPI_Status, MPI_SOURCE)",
    "offsetof(MPI_Status, MPI_TAG)",
    "offsetof(MPI_Status, MPI_ERROR)",
    "sizeof(MPI_Comm)",
    "sizeof(MPI_Count)",
    "sizeof(MPI_Aint)",
    "(size_t)MPI_IN_PLACE",
];

/// The C source: one function from a name to its value.
pub fn source() -> String {
    let mut c = String::from(
        "#include <mpi.h>\n#include <stddef.h>\n#include <string.h>\n\n\
         int table_check_value(const char *name, long long *value)\n{\n",
    );
    let handles = SPECIAL.iter().map(|(name, _)| *name);
    let handles = handles
        .chain(Basic::ALL.iter().map(|basic| basic.name()))
        .chain(BuiltinOp::ALL.iter().map(|op| op.name()));
    let numbers = mpi_runtime::Constants::NAMES
        .iter()
        .copied()
        .chain(LAYOUT.iter().copied());
    for name in numbers {
        let _ = writeln!(
            c,
            "    if (!strcmp(name, \"{name}\")) {{ *value = (long long)({name}); return 0; }}"
        );
    }
    for name in handles {
        let _ = writeln!(
            c,
            "    if (!strcmp(name, \"{name}\")) {{ *value = (long long)(size_t)({name}); return 0; }}"
        );
    }
    c.push_str("    return 1;\n}\n");
    c
}

struct Values(unsafe extern "C" fn(*const c_char, *mut c_longlong) -> i32);

impl Values {
    fn open(path: &Path) -> Values {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path without NUL");
        // SAFETY:
        // - The library was built from `source` by whoever names it; nothing of it runs on loading.
        // - It is never closed.
        let symbol = unsafe {
            let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
            assert!(!library.is_null(), "cannot open {path:?}");
            libc::dlsym(library, c"table_check_value".as_ptr())
        };
        assert!(
            !symbol.is_null(),
            "{path:?} was not built from --emit-values"
        );
        // SAFETY:
        // - `source` gives the function this signature.
        Values(unsafe {
            std::mem::transmute::<
                *mut c_void,
                unsafe extern "C" fn(*const c_char, *mut c_longlong) -> i32,
            >(symbol)
        })
    }

    fn get(&self, name: &str) -> i64 {
        let c_name = CString::new(name).expect("a name without NUL");
        let mut value = 0;
        // SAFETY:
        // - The name is a C string and the value valid for writes.
        let code = unsafe { (self.0)(c_name.as_ptr(), &mut value) };
        assert_eq!(code, 0, "{name} is not in the library of values");
        value
    }

    /// A handle is as wide as the library says: a C int may have been widened with its sign.
    fn handle(&self, mpi: &Mpi, name: &str) -> u64 {
        let bits = self.get(name) as u64;
        if mpi.handle_bytes() == 4 {
            bits & 0xffff_ffff
        } else {
            bits
        }
    }
}

pub fn compare(c: &Context, path: &Path) {
    let mpi = c.mpi;
    let values = Values::open(path);
    for (name, value) in mpi.constants().named() {
        assert_eq!(i64::from(value), values.get(name), "{name}");
    }
    for (name, handle) in SPECIAL {
        assert_eq!(handle(mpi), values.handle(mpi, name), "{name}");
    }
    for basic in Basic::ALL {
        assert_eq!(
            c.datatype(*basic).raw(),
            values.handle(mpi, basic.name()),
            "{}",
            basic.name()
        );
    }
    for op in BuiltinOp::ALL {
        assert_eq!(
            mpi.op(*op).raw(),
            values.handle(mpi, op.name()),
            "{}",
            op.name()
        );
    }
    assert_eq!(mpi.status_bytes() as i64, values.get("sizeof(MPI_Status)"));
    assert_eq!(mpi.handle_bytes() as i64, values.get("sizeof(MPI_Comm)"));
    assert_eq!(mpi.in_place() as i64, values.get("(size_t)MPI_IN_PLACE"));
    assert_eq!(
        (
            values.get("sizeof(MPI_Count)"),
            values.get("sizeof(MPI_Aint)")
        ),
        (8, 8)
    );

    // The offsets, by writing through the table and reading through the layout of the headers.
    let mut status = mpi_runtime::StatusBuf::new();
    let pointer = status.as_ptr();
    // SAFETY:
    // - The status is writable and as large as any library's.
    unsafe { mpi.status_set(pointer, 11, 22, 33) };
    let at = |name: &str| {
        // SAFETY:
        // - The headers place a C int of the status there, and the buffer is as large as any library's status.
        unsafe {
            pointer
                .0
                .cast::<u8>()
                .add(values.get(name) as usize)
                .cast::<i32>()
                .read()
        }
    };
    assert_eq!(at("offsetof(MPI_Status, MPI_SOURCE)"), 11);
    assert_eq!(at("offsetof(MPI_Status, MPI_TAG)"), 22);
    assert_eq!(at("offsetof(MPI_Status, MPI_ERROR)"), 33);
}
