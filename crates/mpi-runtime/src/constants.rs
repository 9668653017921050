//! MPI's integer constants, which differ between ABIs. Only their names; the values are in `abi/`.

macro_rules! constants {
    ($($(#[$doc:meta])* $f:ident = $mpi:literal,)*) => {
        /// The integer constants of the loaded library. A field is named like its constant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct Constants { $(#[doc = concat!("`", $mpi, "`")] pub $f: i32,)* }

        impl Constants {
            /// MPI's names of all constants here.
            pub const NAMES: &'static [&'static str] = &[$($mpi,)*];

            /// Every constant with MPI's name in C: for tables, and to compare with another source.
            pub fn named(&self) -> Vec<(&'static str, i32)> {
                vec![$(($mpi, self.$f),)*]
            }
        }
    };
}

constants! {
    success = "MPI_SUCCESS",
    proc_null = "MPI_PROC_NULL",
    any_source = "MPI_ANY_SOURCE",
    any_tag = "MPI_ANY_TAG",
    root = "MPI_ROOT",
    undefined = "MPI_UNDEFINED",
    keyval_invalid = "MPI_KEYVAL_INVALID",
    tag_ub = "MPI_TAG_UB",
    comm_type_shared = "MPI_COMM_TYPE_SHARED",
    bsend_overhead = "MPI_BSEND_OVERHEAD",
    thread_single = "MPI_THREAD_SINGLE",
    thread_funneled = "MPI_THREAD_FUNNELED",
    thread_serialized = "MPI_THREAD_SERIALIZED",
    thread_multiple = "MPI_THREAD_MULTIPLE",
    ident = "MPI_IDENT",
    congruent = "MPI_CONGRUENT",
    similar = "MPI_SIMILAR",
    unequal = "MPI_UNEQUAL",
    combiner_named = "MPI_COMBINER_NAMED",
    combiner_dup = "MPI_COMBINER_DUP",
    combiner_contiguous = "MPI_COMBINER_CONTIGUOUS",
    combiner_vector = "MPI_COMBINER_VECTOR",
    combiner_hvector = "MPI_COMBINER_HVECTOR",
    combiner_indexed = "MPI_COMBINER_INDEXED",
    combiner_hindexed = "MPI_COMBINER_HINDEXED",
    combiner_struct = "MPI_COMBINER_STRUCT",
    combiner_resized = "MPI_COMBINER_RESIZED",
    err_buffer = "MPI_ERR_BUFFER",
    err_count = "MPI_ERR_COUNT",
    err_type = "MPI_ERR_TYPE",
    err_tag = "MPI_ERR_TAG",
    err_comm = "MPI_ERR_COMM",
    err_rank = "MPI_ERR_RANK",
    err_root = "MPI_ERR_ROOT",
    err_truncate = "MPI_ERR_TRUNCATE",
    err_group = "MPI_ERR_GROUP",
    err_op = "MPI_ERR_OP",
    err_request = "MPI_ERR_REQUEST",
    err_topology = "MPI_ERR_TOPOLOGY",
    err_dims = "MPI_ERR_DIMS",
    err_arg = "MPI_ERR_ARG",
    err_other = "MPI_ERR_OTHER",
    err_unknown = "MPI_ERR_UNKNOWN",
    err_intern = "MPI_ERR_INTERN",
    err_in_status = "MPI_ERR_IN_STATUS",
    err_pending = "MPI_ERR_PENDING",
    err_keyval = "MPI_ERR_KEYVAL",
    err_no_mem = "MPI_ERR_NO_MEM",
    err_unsupported_operation = "MPI_ERR_UNSUPPORTED_OPERATION",
}

/// What threads may do, in rising order (MPI-4.1, 11.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ThreadLevel {
    /// The process has one thread.
    Single,
    /// Only the thread that initialised MPI calls it.
    Funneled,
    /// Any thread calls MPI, but never two at once.
    Serialized,
    /// Any thread calls MPI at any time.
    Multiple,
}

impl ThreadLevel {
    pub(crate) fn to_native(self, constants: &Constants) -> i32 {
        match self {
            ThreadLevel::Single => constants.thread_single,
            ThreadLevel::Funneled => constants.thread_funneled,
            ThreadLevel::Serialized => constants.thread_serialized,
            ThreadLevel::Multiple => constants.thread_multiple,
        }
    }

    /// The strongest level that a native value promises: it is ordered on every ABI.
    pub(crate) fn from_native(value: i32, constants: &Constants) -> ThreadLevel {
        [
            ThreadLevel::Multiple,
            ThreadLevel::Serialized,
            ThreadLevel::Funneled,
        ]
        .into_iter()
        .find(|level| value >= level.to_native(constants))
        .unwrap_or(ThreadLevel::Single)
    }
}
