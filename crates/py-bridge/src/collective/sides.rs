//! Which buffers of a collective matter on this rank, by its row and the place of the rank.

use tensor_comm::{CallKind, Comm};

/// How a buffer argument is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// It has no meaning on this rank.
    Absent,
    /// One part.
    Whole,
    /// One block of equal size per rank; an explicit count is per block.
    Blocks,
    /// One block per rank, with counts and displacements.
    Vector,
}

/// Which buffer only the root has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rooted {
    /// There is no root.
    No,
    /// The root alone receives.
    Recv,
    /// The root alone sends.
    Send,
    /// The root sends what the others receive, from and into the same argument.
    Bcast,
}

/// The row of a collective.
#[derive(Clone, Copy, Debug)]
pub struct Collective {
    /// Which one.
    pub kind: CallKind,
    /// Its send side.
    pub send: Role,
    /// Its receive side.
    pub recv: Role,
    /// Its root.
    pub rooted: Rooted,
}

/// Where this rank stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// It is the root.
    Root,
    /// It talks to the root.
    Leaf,
    /// It is in the root's group of an intercommunicator, but not the root.
    Idle,
}

/// What matters on this rank: roles, and which side may be `IN_PLACE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sides {
    pub send: Role,
    pub recv: Role,
    pub send_in_place: bool,
    pub recv_in_place: bool,
}

impl Collective {
    /// What matters on this rank. MPI is asked only what depends on it: in the common case nothing.
    pub(super) fn sides_here(&self, comm: Comm, root: i32) -> tensor_comm::Result<Sides> {
        let (place, inter) = match self.rooted {
            Rooted::No => (Place::Leaf, false),
            _ => place(comm, root)?,
        };
        Ok(self.sides(place, inter))
    }

    fn sides(&self, place: Place, inter: bool) -> Sides {
        let (send, recv) = match (self.rooted, place) {
            (Rooted::No, _) => (self.send, self.recv),
            (_, Place::Idle) => (Role::Absent, Role::Absent),
            (Rooted::Bcast, Place::Root) => (self.send, Role::Absent),
            (Rooted::Bcast, Place::Leaf) => (Role::Absent, self.recv),
            (_, Place::Root) if !inter => (self.send, self.recv),
            (Rooted::Recv, Place::Root) | (Rooted::Send, Place::Leaf) => (Role::Absent, self.recv),
            (Rooted::Send, Place::Root) | (Rooted::Recv, Place::Leaf) => (self.send, Role::Absent),
        };
        let at_root = !inter && place == Place::Root;
        Sides {
            send,
            recv,
            send_in_place: !inter
                && (self.rooted == Rooted::No || (at_root && self.rooted == Rooted::Recv)),
            recv_in_place: at_root && self.rooted == Rooted::Send,
        }
    }
}

fn place(comm: Comm, root: i32) -> tensor_comm::Result<(Place, bool)> {
    let constants = comm.mpi().constants();
    if !comm.is_inter()? {
        let place = if comm.rank()? == root {
            Place::Root
        } else {
            Place::Leaf
        };
        return Ok((place, false));
    }
    let place = match root {
        root if root == constants.root => Place::Root,
        root if root == constants.proc_null => Place::Idle,
        _ => Place::Leaf,
    };
    Ok((place, true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Body, ROWS};

    fn row(name: &str) -> Collective {
        ROWS.iter()
            .find_map(|row| match row.body {
                Body::Collective(collective) if row.name == name => Some(collective),
                _ => None,
            })
            .expect("a row of this name")
    }

    /// What MPI 4.1 says is significant where (§6.4 to §6.11), as (send, recv).
    #[test]
    fn only_significant_buffers_are_looked_at() {
        let absent = Role::Absent;
        let gather = row("Gather");
        let sides = gather.sides(Place::Root, false);
        assert_eq!((sides.send, sides.recv), (Role::Whole, Role::Blocks));
        assert!(sides.send_in_place && !sides.recv_in_place);
        assert_eq!(gather.sides(Place::Leaf, false).recv, absent);
        assert!(!gather.sides(Place::Leaf, false).send_in_place);
        let sides = gather.sides(Place::Root, true);
        assert_eq!((sides.send, sides.recv), (absent, Role::Blocks));
        let scatter = row("Scatterv");
        let sides = scatter.sides(Place::Root, false);
        assert_eq!((sides.send, sides.recv), (Role::Vector, Role::Whole));
        assert!(sides.recv_in_place && !sides.send_in_place);
        assert_eq!(scatter.sides(Place::Leaf, false).send, absent);
        assert_eq!(scatter.sides(Place::Root, true).recv, absent);
        let bcast = row("Bcast");
        assert_eq!(bcast.sides(Place::Root, false).recv, absent);
        assert_eq!(bcast.sides(Place::Leaf, false).send, absent);
        for rooted in [gather, scatter, bcast, row("Reduce")] {
            let sides = rooted.sides(Place::Idle, true);
            assert_eq!((sides.send, sides.recv), (absent, absent));
        }
        let all = row("Alltoallv").sides(Place::Leaf, false);
        assert_eq!((all.send, all.recv), (Role::Vector, Role::Vector));
        assert!(all.send_in_place);
    }
}
