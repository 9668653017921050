//! Makes a library that was found the process's: its functions and predefined handles resolved, once.

use std::sync::{Mutex, PoisonError};

use super::{AnyTable, GLOBAL, Mpi};
use crate::abi::{Family, Predefined, Special};
use crate::basic::{Basic, BuiltinOp};
use crate::error::LoadError;
use crate::find::Found;
use crate::gpu::Queries;
use crate::library::Library;
use crate::table::Table;

static LOADING: Mutex<()> = Mutex::new(());

/// Finds a library and makes it the process's, or confirms that it already is.
pub(super) fn install(
    find: impl FnOnce() -> Result<Found, LoadError>,
) -> Result<&'static Mpi, LoadError> {
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let found = find()?;
    if let Some(mpi) = GLOBAL.get() {
        if mpi.identity == found.identity {
            return Ok(mpi);
        }
        return Err(LoadError::AlreadyLoaded {
            loaded: mpi.path.clone(),
            asked: found.path,
        });
    }
    let opened = found.opened.clone();
    let mpi = build(found)?;
    if let Some(name) = opened {
        // Only now: nothing else of the process shall see a library that is refused.
        Library::publish(&name).map_err(|detail| LoadError::CannotOpen { detail })?;
    }
    Ok(GLOBAL.get_or_init(|| mpi))
}

fn build(found: Found) -> Result<Mpi, LoadError> {
    let missing = |symbol: &str| LoadError::MissingSymbol {
        library: found.path.clone(),
        symbol: symbol.to_owned(),
        version: found.version.lines().next().unwrap_or_default().to_owned(),
    };
    // SAFETY:
    // - `found.family` was told from the library itself, and handles are `int` on MPICH.
    // - They are pointers, or as wide as one, on Open MPI and on the standard ABI.
    let table = unsafe {
        match found.family {
            Family::Mpich => Table::load(&found.library).map(AnyTable::Int),
            Family::OpenMpi | Family::Abi => Table::load(&found.library).map(AnyTable::Pointer),
        }
    }
    .map_err(missing)?;

    let abi = found.family.abi();
    let mut special = [0; Special::ALL.len()];
    for name in Special::ALL {
        special[name as usize] = resolve(&found.library, (abi.handle)(name))
            .ok_or_else(|| missing(symbol_name((abi.handle)(name))))?;
    }
    let mut ops = Vec::with_capacity(BuiltinOp::ALL.len());
    for op in BuiltinOp::ALL {
        let predefined = (abi.op)(*op);
        ops.push(
            resolve(&found.library, predefined).ok_or_else(|| missing(symbol_name(predefined)))?,
        );
    }
    let datatypes = Basic::ALL
        .iter()
        .map(|basic| resolve(&found.library, (abi.datatype)(*basic)))
        .collect();

    Ok(Mpi {
        table,
        queries: Queries::of(&found.library),
        family: found.family,
        how: found.how,
        path: found.path,
        version: found.version,
        identity: found.identity,
        special,
        datatypes,
        ops,
    })
}

fn resolve(library: &Library, predefined: Predefined) -> Option<u64> {
    match predefined {
        Predefined::Value(value) => Some(value),
        Predefined::Symbol(name) => library.symbol(name).map(|address| address.as_ptr() as u64),
    }
}

fn symbol_name(predefined: Predefined) -> &'static str {
    match predefined {
        Predefined::Value(_) => "a predefined handle",
        Predefined::Symbol(name) => crate::table::text(name),
    }
}
