//! Runs checks in step on all ranks, prints what cargo's test harness would, and ends the whole job
//! when one fails: a rank that went on alone would only hang.

use mpi_runtime::{Basic, BuiltinOp, Comm, Datatype, Mpi, Op, StatusPtr, ThreadLevel};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

/// What a check is given.
#[derive(Clone, Copy)]
pub struct Context {
    pub mpi: &'static Mpi,
    /// A duplicate of the world with MPI_ERRORS_RETURN.
    pub comm: Comm,
    pub rank: i32,
    pub size: i32,
}

impl Context {
    pub fn datatype(&self, basic: Basic) -> Datatype {
        self.mpi
            .datatype(basic)
            .unwrap_or_else(|| panic!("this MPI has no {}", basic.name()))
    }

    pub fn int(&self) -> Datatype {
        self.datatype(Basic::Int)
    }

    pub fn sum(&self) -> Op {
        self.mpi.op(BuiltinOp::Sum)
    }

    /// The neighbours in the ring of all ranks.
    pub fn next(&self) -> i32 {
        (self.rank + 1) % self.size
    }

    pub fn previous(&self) -> i32 {
        (self.rank + self.size - 1) % self.size
    }

    pub fn barrier(&self) {
        self.mpi.barrier(self.comm).expect("barrier");
    }
}

/// A buffer as MPI takes it.
pub fn input<T>(values: &[T]) -> *const u8 {
    values.as_ptr().cast()
}

/// A buffer that MPI writes.
pub fn output<T>(values: &mut [T]) -> *mut u8 {
    values.as_mut_ptr().cast()
}

pub const IGNORE: StatusPtr = StatusPtr::ignore();

pub struct Suite {
    context: Context,
    passed: usize,
    ignored: usize,
}

impl Suite {
    pub fn new(mpi: &'static Mpi) -> Suite {
        let world = mpi.comm_world();
        let size = mpi.comm_size(world).expect("size");
        let rank = mpi.comm_rank(world).expect("rank");
        if size < 2 {
            eprintln!(
                "table-check needs two ranks or more, and this MPI says {size}: start it with the mpiexec of {}",
                mpi.library_path()
            );
            mpi.abort(world, 2);
        }
        let comm = mpi.comm_dup(world).expect("dup");
        mpi.comm_set_errhandler(comm, mpi.errors_return())
            .expect("errors return");
        mpi.comm_set_errhandler(world, mpi.errors_return())
            .expect("errors return");
        mpi.comm_set_errhandler(mpi.comm_self(), mpi.errors_return())
            .expect("errors return");
        Suite {
            context: Context {
                mpi,
                comm,
                rank,
                size,
            },
            passed: 0,
            ignored: 0,
        }
    }

    pub fn announce(&self, provided: ThreadLevel) {
        let mpi = self.context.mpi;
        if self.context.rank == 0 {
            println!("{} by {}", mpi.library_path(), mpi.how_found());
            println!(
                "{} ABI, large counts: {}, threads: {provided:?}, ranks: {}, {}",
                mpi.family(),
                mpi.has_large_counts(),
                self.context.size,
                mpi.library_version().lines().next().unwrap_or_default()
            );
        }
    }

    pub fn has_large_counts(&self) -> bool {
        self.context.mpi.has_large_counts()
    }

    pub fn check(&mut self, name: &str, check: impl FnOnce(&Context)) {
        let context = self.context;
        if catch_unwind(AssertUnwindSafe(|| check(&context))).is_err() {
            println!("test {name} ... FAILED on rank {}", context.rank);
            println!(
                "test result: FAILED. {} passed; 1 failed; {} ignored",
                self.passed, self.ignored
            );
            context.mpi.abort(context.mpi.comm_world(), 1);
        }
        context.barrier();
        self.passed += 1;
        if context.rank == 0 {
            println!("test {name} ... ok");
        }
    }

    pub fn ignore(&mut self, name: &str, why: &str) {
        self.ignored += 1;
        if self.context.rank == 0 {
            println!("test {name} ... ignored, {why}");
        }
    }

    pub fn finish(self) -> ExitCode {
        let Context {
            mpi,
            mut comm,
            rank,
            ..
        } = self.context;
        // SAFETY:
        // - This is the last use of the duplicate, and of MPI.
        unsafe {
            mpi.comm_free(&mut comm).expect("free");
            mpi.finalize().expect("finalize");
        }
        assert_eq!(mpi.finalized(), Ok(true));
        if rank == 0 {
            println!(
                "test result: ok. {} passed; 0 failed; {} ignored",
                self.passed, self.ignored
            );
        }
        ExitCode::SUCCESS
    }
}
