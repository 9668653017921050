//! Derived datatypes (MPI-4.1, chapter 5).

use super::{Result, call, counted, with_table};
use crate::calls::vectors::{all_fit, narrow, widest};
use crate::{Datatype, Mpi};
use smallvec::SmallVec;

/// What `MPI_Type_get_envelope` says of how a datatype was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Envelope {
    /// Integers among the constructor's arguments.
    pub integers: i64,
    /// Addresses among them (with large counts: counts too).
    pub addresses: i64,
    /// Datatypes among them.
    pub datatypes: i64,
    /// Which constructor: compare with `constants().combiner_named` and the others.
    pub combiner: i32,
}

impl Mpi {
    /// `MPI_Type_contiguous`
    pub fn type_contiguous(&self, count: i64, oldtype: Datatype) -> Result<Datatype> {
        counted!(self, "MPI_Type_contiguous", type_contiguous / type_contiguous_c [count] (count, oldtype.native(), &mut new) => new)
            .map(Datatype::from_bits)
    }

    /// `MPI_Type_vector`: `stride` in elements.
    pub fn type_vector(
        &self,
        count: i64,
        blocklength: i64,
        stride: i64,
        oldtype: Datatype,
    ) -> Result<Datatype> {
        counted!(self, "MPI_Type_vector", type_vector / type_vector_c [count, blocklength, stride] (
            count, blocklength, stride, oldtype.native(), &mut new,
        ) => new)
        .map(Datatype::from_bits)
    }

    /// `MPI_Type_create_hvector`: `stride` in bytes.
    pub fn type_create_hvector(
        &self,
        count: i64,
        blocklength: i64,
        stride: i64,
        oldtype: Datatype,
    ) -> Result<Datatype> {
        counted!(self, "MPI_Type_create_hvector", type_create_hvector / type_create_hvector_c [count, blocklength] (
            count, blocklength, stride, oldtype.native(), &mut new,
        ) => new)
        .map(Datatype::from_bits)
    }

    /// `MPI_Type_create_hindexed`: displacements in bytes; as many blocks as the shorter slice has.
    pub fn type_create_hindexed(
        &self,
        blocklengths: &[i64],
        displacements: &[i64],
        oldtype: Datatype,
    ) -> Result<Datatype> {
        let count = blocklengths.len().min(displacements.len()) as i64;
        let (code, bits) = with_table!(self, |table| {
            let mut new = Default::default();
            let code = if super::fits(count) && all_fit(blocklengths) {
                let blocklengths = narrow(blocklengths);
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - Both arrays have at least `count` entries.
                unsafe {
                    (table.type_create_hindexed)(
                        count as i32,
                        blocklengths.as_ptr(),
                        displacements.as_ptr(),
                        oldtype.native(),
                        &mut new,
                    )
                }
            } else if let Some(large) = table.type_create_hindexed_c {
                // SAFETY:
                // - As above; the arrays are of MPI_Count here.
                unsafe {
                    large(
                        count,
                        blocklengths.as_ptr(),
                        displacements.as_ptr(),
                        oldtype.native(),
                        &mut new,
                    )
                }
            } else {
                return Err(super::too_large(
                    "MPI_Type_create_hindexed",
                    &[("count", count), ("blocklengths", widest(blocklengths))],
                ));
            };
            (code, crate::handle::NativeHandle::to_bits(new))
        });
        self.check("MPI_Type_create_hindexed", code)
            .map(|()| Datatype::from_bits(bits))
    }

    /// `MPI_Type_create_struct`: displacements in bytes; as many blocks as the shortest slice has.
    pub fn type_create_struct(
        &self,
        blocklengths: &[i64],
        displacements: &[i64],
        types: &[Datatype],
    ) -> Result<Datatype> {
        let count = blocklengths.len().min(displacements.len()).min(types.len()) as i64;
        let (code, bits) = with_table!(self, |table| {
            let native: SmallVec<[_; 8]> = types.iter().map(|datatype| datatype.native()).collect();
            let mut new = Default::default();
            let code = if super::fits(count) && all_fit(blocklengths) {
                let blocklengths = narrow(blocklengths);
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - All arrays have at least `count` entries.
                unsafe {
                    (table.type_create_struct)(
                        count as i32,
                        blocklengths.as_ptr(),
                        displacements.as_ptr(),
                        native.as_ptr(),
                        &mut new,
                    )
                }
            } else if let Some(large) = table.type_create_struct_c {
                // SAFETY:
                // - As above; the arrays are of MPI_Count here.
                unsafe {
                    large(
                        count,
                        blocklengths.as_ptr(),
                        displacements.as_ptr(),
                        native.as_ptr(),
                        &mut new,
                    )
                }
            } else {
                return Err(super::too_large(
                    "MPI_Type_create_struct",
                    &[("count", count), ("blocklengths", widest(blocklengths))],
                ));
            };
            (code, crate::handle::NativeHandle::to_bits(new))
        });
        self.check("MPI_Type_create_struct", code)
            .map(|()| Datatype::from_bits(bits))
    }

    /// `MPI_Type_create_resized`
    pub fn type_create_resized(&self, oldtype: Datatype, lb: i64, extent: i64) -> Result<Datatype> {
        call!(self, "MPI_Type_create_resized", type_create_resized(oldtype.native(), lb, extent, &mut new) => new)
            .map(Datatype::from_bits)
    }

    /// `MPI_Type_commit`
    pub fn type_commit(&self, datatype: Datatype) -> Result<()> {
        // MPI takes a pointer, but the handle stays the same.
        call!(self, "MPI_Type_commit", type_commit(&mut native) => native from datatype.native()).0
    }

    /// `MPI_Type_free`: pending operations with it still finish.
    ///
    /// # Safety
    /// - Nothing uses a copy of the handle afterwards.
    pub unsafe fn type_free(&self, datatype: &mut Datatype) -> Result<()> {
        let (result, bits) =
            call!(self, "MPI_Type_free", type_free(&mut native) => native from datatype.native());
        *datatype = Datatype::from_bits(bits);
        result
    }

    /// `MPI_Type_size`, whole beyond `i32::MAX` too (`MPI_Type_size_c`, else `MPI_Type_size_x`).
    pub fn type_size(&self, datatype: Datatype) -> Result<i64> {
        let mut wide = 0;
        let code = with_table!(
            self,
            |table| match table.type_size_c.or(table.type_size_x) {
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                Some(size) => unsafe { size(datatype.native(), &mut wide) },
                None => {
                    let mut narrow = 0;
                    // SAFETY:
                    // - The table holds the function of this prototype, for handles of this width.
                    let code = unsafe { (table.type_size)(datatype.native(), &mut narrow) };
                    wide = i64::from(narrow);
                    code
                }
            }
        );
        self.check("MPI_Type_size", code)?;
        Ok(wide)
    }

    /// `MPI_Type_get_extent`: lower bound and extent, in bytes.
    pub fn type_get_extent(&self, datatype: Datatype) -> Result<(i64, i64)> {
        let (mut lb, mut extent) = (0, 0);
        call!(
            self,
            "MPI_Type_get_extent",
            type_get_extent(datatype.native(), &mut lb, &mut extent)
        )?;
        Ok((lb, extent))
    }

    /// `MPI_Type_get_true_extent`: of the bytes that it really touches.
    pub fn type_get_true_extent(&self, datatype: Datatype) -> Result<(i64, i64)> {
        let (mut lb, mut extent) = (0, 0);
        call!(
            self,
            "MPI_Type_get_true_extent",
            type_get_true_extent(datatype.native(), &mut lb, &mut extent)
        )?;
        Ok((lb, extent))
    }

    /// `MPI_Type_get_envelope` (`_c` where the library has it: it alone can describe types made with large counts).
    pub fn type_get_envelope(&self, datatype: Datatype) -> Result<Envelope> {
        let mut combiner = 0;
        let (mut integers, mut addresses, mut counts, mut datatypes) = (0i64, 0i64, 0i64, 0i64);
        let code = with_table!(self, |table| match table.type_get_envelope_c {
            // SAFETY:
            // - The table holds the function of this prototype, for handles of this width.
            // - All pointers are valid for writes.
            Some(get) => unsafe {
                get(
                    datatype.native(),
                    &mut integers,
                    &mut addresses,
                    &mut counts,
                    &mut datatypes,
                    &mut combiner,
                )
            },
            None => {
                let (mut ni, mut na, mut nd) = (0, 0, 0);
                // SAFETY:
                // - The table holds the function of this prototype, for handles of this width.
                // - All pointers are valid for writes.
                let code = unsafe {
                    (table.type_get_envelope)(
                        datatype.native(),
                        &mut ni,
                        &mut na,
                        &mut nd,
                        &mut combiner,
                    )
                };
                (integers, addresses, datatypes) = (i64::from(ni), i64::from(na), i64::from(nd));
                code
            }
        });
        self.check("MPI_Type_get_envelope", code)?;
        Ok(Envelope {
            integers,
            addresses: addresses + counts,
            datatypes,
            combiner,
        })
    }
}
