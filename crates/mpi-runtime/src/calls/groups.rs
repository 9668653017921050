//! Process groups (MPI-4.1, 7.3).

use super::{Result, call, with_table};
use crate::{Constants, Group, Mpi};
use libc::c_int;

/// What a comparison of communicators or groups says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// The same object.
    Ident,
    /// The same members in the same order.
    Congruent,
    /// The same members in another order.
    Similar,
    /// Anything else.
    Unequal,
}

impl Comparison {
    pub(crate) fn from_native(value: c_int, constants: &Constants) -> Comparison {
        [
            (constants.ident, Comparison::Ident),
            (constants.congruent, Comparison::Congruent),
            (constants.similar, Comparison::Similar),
        ]
        .into_iter()
        .find_map(|(native, comparison)| (native == value).then_some(comparison))
        .unwrap_or(Comparison::Unequal)
    }
}

impl Mpi {
    /// `MPI_Group_size`
    pub fn group_size(&self, group: Group) -> Result<i32> {
        let mut size = 0;
        call!(
            self,
            "MPI_Group_size",
            group_size(group.native(), &mut size)
        )?;
        Ok(size)
    }

    /// `MPI_Group_rank`: `None` if this process is not a member.
    pub fn group_rank(&self, group: Group) -> Result<Option<i32>> {
        let mut rank = 0;
        call!(
            self,
            "MPI_Group_rank",
            group_rank(group.native(), &mut rank)
        )?;
        Ok((rank != self.constants().undefined).then_some(rank))
    }

    /// `MPI_Group_incl`: the members with these ranks, in this order. The caller frees it.
    pub fn group_incl(&self, group: Group, ranks: &[i32]) -> Result<Group> {
        let n = ranks_count("MPI_Group_incl", ranks)?;
        call!(self, "MPI_Group_incl", group_incl(group.native(), n, ranks.as_ptr(), &mut new) => new).map(Group::from_bits)
    }

    /// `MPI_Group_compare`
    pub fn group_compare(&self, group1: Group, group2: Group) -> Result<Comparison> {
        let mut result = 0;
        call!(
            self,
            "MPI_Group_compare",
            group_compare(group1.native(), group2.native(), &mut result)
        )?;
        Ok(Comparison::from_native(result, self.constants()))
    }

    /// `MPI_Group_translate_ranks`: what ranks of one group are in the other; `MPI_UNDEFINED` for none.
    pub fn group_translate_ranks(
        &self,
        group1: Group,
        ranks1: &[i32],
        group2: Group,
    ) -> Result<Vec<i32>> {
        let n = ranks_count("MPI_Group_translate_ranks", ranks1)?;
        let mut ranks2 = vec![0; ranks1.len()];
        call!(
            self,
            "MPI_Group_translate_ranks",
            group_translate_ranks(
                group1.native(),
                n,
                ranks1.as_ptr(),
                group2.native(),
                ranks2.as_mut_ptr()
            )
        )?;
        Ok(ranks2)
    }

    /// `MPI_Group_free`
    ///
    /// # Safety
    /// - Nothing uses a copy of the handle afterwards.
    pub unsafe fn group_free(&self, group: &mut Group) -> Result<()> {
        let (result, bits) =
            call!(self, "MPI_Group_free", group_free(&mut native) => native from group.native());
        *group = Group::from_bits(bits);
        result
    }
}

fn ranks_count(call: &'static str, ranks: &[i32]) -> Result<c_int> {
    c_int::try_from(ranks.len()).map_err(|_| super::too_large(call, &[("n", i64::MAX)]))
}
