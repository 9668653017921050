//! Predefined and derived datatypes.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Basic, Datatype, StatusBuf};

pub fn all(suite: &mut Suite) {
    suite.check("sizes of predefined datatypes", sizes);
    suite.check("contiguous, vector, hvector", strided);
    suite.check("hindexed, struct, resized", irregular);
}

/// What C's sizeof says, on every 64-bit Unix.
fn size_in_c(basic: Basic) -> Option<i64> {
    let size = match basic {
        Basic::Char | Basic::SignedChar | Basic::UnsignedChar | Basic::Byte | Basic::Packed => 1,
        Basic::CBool | Basic::CxxBool | Basic::Int8 | Basic::Uint8 => 1,
        Basic::Short | Basic::UnsignedShort | Basic::Int16 | Basic::Uint16 => 2,
        Basic::Int
        | Basic::Unsigned
        | Basic::Float
        | Basic::Int32
        | Basic::Uint32
        | Basic::Wchar => 4,
        Basic::Long | Basic::LongLong | Basic::UnsignedLong | Basic::UnsignedLongLong => 8,
        Basic::Double | Basic::Int64 | Basic::Uint64 | Basic::CFloatComplex => 8,
        Basic::Aint | Basic::Count | Basic::Offset => 8,
        Basic::CDoubleComplex => 16,
        // The sum of the members: a pair's size does not count its padding.
        Basic::FloatInt | Basic::TwoInt => 8,
        Basic::DoubleInt | Basic::LongInt => 12,
        Basic::ShortInt => 6,
        // How long a long double is, the processor says.
        _ => return None,
    };
    Some(size)
}

fn sizes(c: &Context) {
    let mpi = c.mpi;
    for basic in Basic::ALL {
        let datatype = c.datatype(*basic);
        let size = mpi
            .type_size(datatype)
            .unwrap_or_else(|error| panic!("{}: {error}", basic.name()));
        if let Some(expected) = size_in_c(*basic) {
            assert_eq!(size, expected, "{}", basic.name());
        }
        let (lb, extent) = mpi.type_get_extent(datatype).expect("extent");
        assert!(lb == 0 && extent >= size, "{}", basic.name());
        let envelope = mpi.type_get_envelope(datatype).expect("envelope");
        assert_eq!(
            envelope.combiner,
            mpi.constants().combiner_named,
            "{}",
            basic.name()
        );
        let found = mpi.basic(datatype).expect("a predefined datatype");
        assert_eq!(mpi.datatype(found), Some(datatype));
    }
    if cfg!(target_arch = "x86_64") {
        assert_eq!(mpi.type_size(c.datatype(Basic::LongDouble)), Ok(16));
        assert_eq!(mpi.type_size(c.datatype(Basic::CLongDoubleComplex)), Ok(32));
    }
    assert_eq!(mpi.basic(mpi.datatype_null()), None);
}

/// Sends `sent` elements of `datatype` to the next rank, which receives ints.
fn as_ints(c: &Context, memory: &[i32], sent: i64, datatype: Datatype, ints: usize) -> Vec<i32> {
    let mut received = vec![-1; ints + 1];
    let mut status = StatusBuf::new();
    // SAFETY:
    // - The callers' memory holds `sent` elements of the datatype; `received` is as long as its count.
    unsafe {
        c.mpi
            .sendrecv(
                input(memory),
                sent,
                datatype,
                c.next(),
                3,
                output(&mut received),
                ints as i64 + 1,
                c.int(),
                c.previous(),
                3,
                c.comm,
                status.as_ptr(),
            )
            .expect("sendrecv");
        assert_eq!(
            c.mpi.get_count(status.as_ptr(), c.int()),
            Ok(Some(ints as i64))
        );
    }
    received.truncate(ints);
    received
}

fn commit(c: &Context, made: Result<Datatype, mpi_runtime::Error>) -> Datatype {
    let datatype = made.expect("constructor");
    c.mpi.type_commit(datatype).expect("commit");
    datatype
}

fn free(c: &Context, mut datatype: Datatype) {
    // SAFETY:
    // - The callers are done with the datatype.
    unsafe { c.mpi.type_free(&mut datatype).expect("free") };
    assert_eq!(datatype, c.mpi.datatype_null());
}

fn strided(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let memory: Vec<i32> = (0..24).collect();

    let contiguous = commit(c, mpi.type_contiguous(3, c.int()));
    assert_eq!(mpi.type_size(contiguous), Ok(12));
    let envelope = mpi.type_get_envelope(contiguous).expect("envelope");
    assert_eq!(envelope.combiner, k.combiner_contiguous);
    assert_eq!(
        (envelope.integers + envelope.addresses, envelope.datatypes),
        (1, 1)
    );
    assert_eq!(as_ints(c, &memory, 2, contiguous, 6), [0, 1, 2, 3, 4, 5]);
    free(c, contiguous);

    // Columns 0 and 1 of a 4 x 6 matrix.
    let vector = commit(c, mpi.type_vector(4, 2, 6, c.int()));
    assert_eq!(
        mpi.type_get_envelope(vector).expect("envelope").combiner,
        k.combiner_vector
    );
    assert_eq!(mpi.type_get_extent(vector), Ok((0, 20 * 4)));
    assert_eq!(
        as_ints(c, &memory, 1, vector, 8),
        [0, 1, 6, 7, 12, 13, 18, 19]
    );
    free(c, vector);

    let hvector = commit(c, mpi.type_create_hvector(4, 1, 6 * 4, c.int()));
    assert_eq!(
        mpi.type_get_envelope(hvector).expect("envelope").combiner,
        k.combiner_hvector
    );
    assert_eq!(as_ints(c, &memory, 1, hvector, 4), [0, 6, 12, 18]);
    free(c, hvector);
}

fn irregular(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    let memory: Vec<i32> = (0..24).collect();

    let hindexed = commit(
        c,
        mpi.type_create_hindexed(&[2, 1, 3], &[40, 0, 8], c.int()),
    );
    assert_eq!(
        mpi.type_get_envelope(hindexed).expect("envelope").combiner,
        k.combiner_hindexed
    );
    assert_eq!(mpi.type_size(hindexed), Ok(24));
    assert_eq!(as_ints(c, &memory, 1, hindexed, 6), [10, 11, 0, 2, 3, 4]);
    free(c, hindexed);

    let pair = mpi.type_contiguous(2, c.int()).expect("contiguous");
    let structure = commit(
        c,
        mpi.type_create_struct(&[1, 2], &[4, 16], &[c.int(), pair]),
    );
    assert_eq!(
        mpi.type_get_envelope(structure).expect("envelope").combiner,
        k.combiner_struct
    );
    assert_eq!(mpi.type_get_extent(structure), Ok((4, 28)));
    assert_eq!(mpi.type_get_true_extent(structure), Ok((4, 28)));
    assert_eq!(as_ints(c, &memory, 1, structure, 5), [1, 4, 5, 6, 7]);
    free(c, structure);
    free(c, pair);

    let every_third = commit(c, mpi.type_create_resized(c.int(), 0, 12));
    assert_eq!(
        mpi.type_get_envelope(every_third)
            .expect("envelope")
            .combiner,
        k.combiner_resized
    );
    assert_eq!(mpi.type_get_extent(every_third), Ok((0, 12)));
    assert_eq!(mpi.type_get_true_extent(every_third), Ok((0, 4)));
    assert_eq!(as_ints(c, &memory, 5, every_third, 5), [0, 3, 6, 9, 12]);
    free(c, every_third);

    // Sizes beyond a C int are told whole: 2^20 x 4096 ints.
    let row = mpi.type_contiguous(1 << 20, c.int()).expect("contiguous");
    let huge = mpi.type_contiguous(4096, row).expect("contiguous");
    assert_eq!(mpi.type_size(huge), Ok(1 << 34));
    assert_eq!(mpi.type_get_extent(huge), Ok((0, 1 << 34)));
    let mut status = StatusBuf::new();
    // SAFETY:
    // - The status is filled by the probe of no process before anything is read from it.
    unsafe {
        mpi.probe(k.proc_null, 0, c.comm, status.as_ptr())
            .expect("probe");
        mpi.status_set_elements(status.as_ptr(), c.int(), 5_000_000_000)
            .expect("set_elements");
        assert_eq!(
            mpi.get_elements(status.as_ptr(), c.int()),
            Ok(Some(5_000_000_000))
        );
        mpi.recv(
            std::ptr::null_mut(),
            0,
            c.int(),
            k.proc_null,
            0,
            c.comm,
            IGNORE,
        )
        .expect("recv");
    }
    free(c, huge);
    free(c, row);
}
