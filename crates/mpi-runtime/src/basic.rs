//! The names of MPI's predefined datatypes and operations, on no library in particular.

macro_rules! named {
    ($(#[$doc:meta])* $enum:ident { $($(#[$vdoc:meta])* $v:ident = $mpi:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum $enum { $(#[doc = concat!("`", $mpi, "`")] $v,)* }
        impl $enum {
            /// Every one, in the order of the declaration.
            pub const ALL: &'static [$enum] = &[$($enum::$v,)*];
            /// MPI's name in C.
            pub const fn name(self) -> &'static str {
                match self { $($enum::$v => $mpi,)* }
            }
        }
    };
}

named! {
    /// A predefined MPI datatype.
    Basic {
        Char = "MPI_CHAR",
        SignedChar = "MPI_SIGNED_CHAR",
        Short = "MPI_SHORT",
        Int = "MPI_INT",
        Long = "MPI_LONG",
        LongLong = "MPI_LONG_LONG",
        UnsignedChar = "MPI_UNSIGNED_CHAR",
        UnsignedShort = "MPI_UNSIGNED_SHORT",
        Unsigned = "MPI_UNSIGNED",
        UnsignedLong = "MPI_UNSIGNED_LONG",
        UnsignedLongLong = "MPI_UNSIGNED_LONG_LONG",
        Float = "MPI_FLOAT",
        Double = "MPI_DOUBLE",
        LongDouble = "MPI_LONG_DOUBLE",
        CBool = "MPI_C_BOOL",
        CxxBool = "MPI_CXX_BOOL",
        CFloatComplex = "MPI_C_FLOAT_COMPLEX",
        CDoubleComplex = "MPI_C_DOUBLE_COMPLEX",
        CLongDoubleComplex = "MPI_C_LONG_DOUBLE_COMPLEX",
        Byte = "MPI_BYTE",
        Packed = "MPI_PACKED",
        Wchar = "MPI_WCHAR",
        Int8 = "MPI_INT8_T",
        Int16 = "MPI_INT16_T",
        Int32 = "MPI_INT32_T",
        Int64 = "MPI_INT64_T",
        Uint8 = "MPI_UINT8_T",
        Uint16 = "MPI_UINT16_T",
        Uint32 = "MPI_UINT32_T",
        Uint64 = "MPI_UINT64_T",
        Aint = "MPI_AINT",
        Count = "MPI_COUNT",
        Offset = "MPI_OFFSET",
        FloatInt = "MPI_FLOAT_INT",
        DoubleInt = "MPI_DOUBLE_INT",
        LongInt = "MPI_LONG_INT",
        TwoInt = "MPI_2INT",
        ShortInt = "MPI_SHORT_INT",
        LongDoubleInt = "MPI_LONG_DOUBLE_INT",
    }
}

named! {
    /// A predefined MPI reduction operation.
    BuiltinOp {
        Sum = "MPI_SUM",
        Prod = "MPI_PROD",
        Max = "MPI_MAX",
        Min = "MPI_MIN",
        Land = "MPI_LAND",
        Lor = "MPI_LOR",
        Lxor = "MPI_LXOR",
        Band = "MPI_BAND",
        Bor = "MPI_BOR",
        Bxor = "MPI_BXOR",
        Maxloc = "MPI_MAXLOC",
        Minloc = "MPI_MINLOC",
        Replace = "MPI_REPLACE",
        NoOp = "MPI_NO_OP",
    }
}
