//! Making, comparing and freeing communicators and groups.

use crate::suite::{Context, IGNORE, Suite, input, output};
use mpi_runtime::{Comm, Comparison};

pub fn all(suite: &mut Suite) {
    suite.check("dup, idup and compare", duplicates);
    suite.check("split, split_type", splits);
    suite.check("groups and create_group", groups);
    suite.check("intercommunicators", inter);
    suite.check("predefined communicators", predefined);
}

fn free(c: &Context, mut comm: Comm) {
    // SAFETY:
    // - Every caller is done with the communicator.
    unsafe { c.mpi.comm_free(&mut comm).expect("free") };
    assert_eq!(comm, c.mpi.comm_null());
}

/// That a communicator carries messages of its own: the sum of ranks, in closed form.
fn works(c: &Context, comm: Comm) {
    let (rank, size) = (
        c.mpi.comm_rank(comm).expect("rank"),
        c.mpi.comm_size(comm).expect("size"),
    );
    let mut out = [0];
    // SAFETY:
    // - Both buffers hold one element.
    unsafe {
        c.mpi
            .allreduce(input(&[rank]), output(&mut out), 1, c.int(), c.sum(), comm)
            .expect("allreduce")
    };
    assert_eq!(out[0], size * (size - 1) / 2);
}

fn duplicates(c: &Context) {
    let mpi = c.mpi;
    let dup = mpi.comm_dup(c.comm).expect("dup");
    assert_eq!(mpi.comm_compare(c.comm, c.comm), Ok(Comparison::Ident));
    assert_eq!(mpi.comm_compare(c.comm, dup), Ok(Comparison::Congruent));
    works(c, dup);

    let (pending, mut request) = mpi.comm_idup(dup).expect("idup");
    // SAFETY:
    // - The request was just made, and `into_comm` comes after its completion.
    let idup = unsafe {
        mpi.wait(&mut request, IGNORE).expect("wait");
        pending.into_comm(mpi)
    };
    assert_ne!(idup, mpi.comm_null());
    assert_eq!(mpi.comm_compare(dup, idup), Ok(Comparison::Congruent));
    works(c, idup);
    free(c, idup);
    free(c, dup);
}

fn splits(c: &Context) {
    let (mpi, k) = (c.mpi, c.mpi.constants());
    // Backwards: the key reverses the ranks.
    let reversed = mpi.comm_split(c.comm, 0, -c.rank).expect("split");
    assert_eq!(mpi.comm_rank(reversed), Ok(c.size - 1 - c.rank));
    assert_eq!(mpi.comm_compare(c.comm, reversed), Ok(Comparison::Similar));
    works(c, reversed);
    free(c, reversed);

    let color = if c.rank == 0 { k.undefined } else { 1 };
    let others = mpi.comm_split(c.comm, color, c.rank).expect("split");
    if c.rank == 0 {
        assert_eq!(others, mpi.comm_null());
    } else {
        assert_eq!(mpi.comm_size(others), Ok(c.size - 1));
        assert_eq!(mpi.comm_compare(c.comm, others), Ok(Comparison::Unequal));
        free(c, others);
    }

    let node = mpi
        .comm_split_type(c.comm, k.comm_type_shared, c.rank)
        .expect("split_type");
    let size = mpi.comm_size(node).expect("size");
    assert!((1..=c.size).contains(&size));
    works(c, node);
    free(c, node);
}

fn groups(c: &Context) {
    let mpi = c.mpi;
    let mut all = mpi.comm_group(c.comm).expect("group");
    assert_eq!(mpi.group_size(all), Ok(c.size));
    assert_eq!(mpi.group_rank(all), Ok(Some(c.rank)));
    let mut ends = mpi.group_incl(all, &[c.size - 1, 0]).expect("incl");
    assert_eq!(mpi.group_size(ends), Ok(2));
    assert_eq!(mpi.group_compare(all, all), Ok(Comparison::Ident));
    let expected = if c.size == 2 {
        Comparison::Similar
    } else {
        Comparison::Unequal
    };
    assert_eq!(mpi.group_compare(all, ends), Ok(expected));
    assert_eq!(
        mpi.group_translate_ranks(ends, &[0, 1], all),
        Ok(vec![c.size - 1, 0])
    );
    let mut empty = mpi.group_incl(all, &[]).expect("incl");
    assert_eq!(
        mpi.group_compare(empty, mpi.group_empty()),
        Ok(Comparison::Ident)
    );
    assert_eq!(
        mpi.group_translate_ranks(all, &[0], mpi.group_empty()),
        Ok(vec![mpi.constants().undefined])
    );

    let member = c.rank == 0 || c.rank == c.size - 1;
    assert_eq!(mpi.group_rank(ends).expect("rank").is_some(), member);
    if member {
        let pair = mpi
            .comm_create_group(c.comm, ends, 7)
            .expect("create_group");
        assert_eq!(mpi.comm_size(pair), Ok(2));
        assert_eq!(mpi.comm_rank(pair), Ok(i32::from(c.rank == 0)));
        works(c, pair);
        free(c, pair);
    }
    // SAFETY:
    // - The groups are not used again.
    unsafe {
        mpi.group_free(&mut all).expect("free");
        mpi.group_free(&mut ends).expect("free");
        mpi.group_free(&mut empty).expect("free");
    }
    assert_eq!(all, mpi.group_null());
}

fn inter(c: &Context) {
    let mpi = c.mpi;
    assert_eq!(mpi.comm_test_inter(c.comm), Ok(false));
    // Rank 0 on one side, everybody else on the other.
    let side = i32::from(c.rank != 0);
    let local = mpi.comm_split(c.comm, side, c.rank).expect("split");
    let inter = mpi
        .intercomm_create(local, 0, c.comm, 1 - side, 9)
        .expect("intercomm_create");
    assert_eq!(mpi.comm_test_inter(inter), Ok(true));
    let (here, there) = if side == 0 {
        (1, c.size - 1)
    } else {
        (c.size - 1, 1)
    };
    assert_eq!(mpi.comm_size(inter), Ok(here));
    assert_eq!(mpi.comm_remote_size(inter), Ok(there));
    let mut remote = mpi.comm_remote_group(inter).expect("remote group");
    assert_eq!(mpi.group_size(remote), Ok(there));

    // A broadcast from the single rank to the other group.
    let root = if side == 0 { mpi.constants().root } else { 0 };
    let mut data = [if side == 0 { 42 } else { -1 }];
    // SAFETY:
    // - The buffer holds one element; the group is not used again.
    unsafe {
        mpi.bcast(output(&mut data), 1, c.int(), root, inter)
            .expect("bcast");
        mpi.group_free(&mut remote).expect("free");
    }
    assert_eq!(data, [42]);

    let merged = mpi.intercomm_merge(inter, side == 0).expect("merge");
    assert_eq!(mpi.comm_size(merged), Ok(c.size));
    assert_eq!(
        mpi.comm_rank(merged),
        Ok(if c.rank == 0 { c.size - 1 } else { c.rank - 1 })
    );
    free(c, merged);
    free(c, inter);
    free(c, local);
}

fn predefined(c: &Context) {
    let mpi = c.mpi;
    assert_eq!(mpi.comm_size(mpi.comm_self()), Ok(1));
    assert_eq!(mpi.comm_rank(mpi.comm_self()), Ok(0));
    assert_eq!(mpi.comm_size(mpi.comm_world()), Ok(c.size));
    assert_eq!(
        mpi.comm_compare(mpi.comm_world(), c.comm),
        Ok(Comparison::Congruent)
    );
    // SAFETY:
    // - The number is a live handle: it comes from one.
    let world = unsafe { Comm::from_raw(mpi.comm_world().raw()) };
    assert_eq!(world, mpi.comm_world());
}
