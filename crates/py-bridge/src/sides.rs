//! How the sides of an operation on lent memory are divided, and into how many blocks on this rank.

use pyo3::prelude::*;
use tensor_comm::Flow;

use crate::collective::Role;
use crate::lend::given;
use crate::mpi4py::Mpi4py;
use crate::params::{Slots, Takes};
use crate::table::Row;

/// How the sides of an operation are divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sides {
    /// The send side.
    pub send: Role,
    /// The receive side.
    pub recv: Role,
    /// Who the blocks are for.
    pub peers: Peers,
}

/// Who the blocks of a divided message are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peers {
    /// The ranks of the communicator.
    Ranks,
    /// The neighbors of a topology.
    Neighbors,
    /// The partitions that the caller names.
    Partitions,
}

impl Sides {
    /// The role of the side with this flow, and how many blocks it has.
    ///
    /// # Errors
    /// What Python raised.
    pub fn of(
        self,
        mpi4py: &Mpi4py,
        row: &Row,
        slf: &Bound<'_, PyAny>,
        slots: &Slots<'_, '_>,
        flow: Flow,
    ) -> PyResult<(Role, usize)> {
        let reduces = || row.params.iter().any(|param| param.takes == Takes::Op);
        let in_place = || given(row, slots, "sendbuf").is_some_and(|msg| mpi4py.is_in_place(msg));
        let role = match flow {
            Flow::Out => self.send,
            // What is reduced lies in recvbuf, divided as it would be in sendbuf.
            _ if self.send == Role::Blocks && reduces() && in_place() => self.send,
            Flow::In | Flow::Through => self.recv,
        };
        if matches!(role, Role::Whole | Role::Absent) {
            return Ok((role, 0));
        }
        let peers = match (self.peers, flow) {
            (Peers::Neighbors, Flow::Out) => slf.getattr("outdegree")?.extract()?,
            (Peers::Neighbors, _) => slf.getattr("indegree")?.extract()?,
            (Peers::Ranks, _) if slf.getattr("is_inter")?.is_truthy()? => {
                slf.getattr("remote_size")?.extract()?
            }
            (Peers::Ranks, _) => slf.getattr("size")?.extract()?,
            (Peers::Partitions, _) => match given(row, slots, "partitions") {
                Some(partitions) => partitions.extract()?,
                None => 0,
            },
        };
        Ok((role, peers))
    }
}
