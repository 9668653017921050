//! The MPI call of a movement that takes the short way.

use super::{End, Lane};
use crate::call::CallKind;
use crate::native::{Extent, Port};
use crate::wiretype::{byte, moving_type};

impl Lane {
    pub(super) fn movement(&self, kind: CallKind, send: End, recv: End) -> Option<(Port, Port)> {
        // How many equal blocks each side has; both sides meet in this rank's own.
        let (sent, received) = match kind {
            CallKind::Bcast | CallKind::Alltoallv => (1, 1),
            CallKind::Gather | CallKind::Allgather => (1, self.size),
            CallKind::Gatherv | CallKind::Allgatherv | CallKind::Scatterv => (1, 1),
            CallKind::Scatter => (self.size, 1),
            CallKind::Alltoall => (self.size, self.size),
            _ => return None,
        };
        if let (Some(from), Some(into)) = (send.flat(), recv.flat()) {
            let rank = self.rank as usize;
            let own = (send.of(rank, sent)?, recv.of(rank, received)?);
            if from.dtype != into.dtype || own.0 != own.1 || from.meets(into) {
                return None;
            }
        }
        let port = |end, blocks| self.port(end, blocks);
        Some((port(send, sent)?, port(recv, received)?))
    }

    fn port(&self, end: End, blocks: usize) -> Option<Port> {
        let mpi = self.mpi;
        match end {
            End::Absent => Some(Port {
                ptr: std::ptr::null_mut(),
                extent: Extent::One(0),
                datatype: byte(mpi),
            }),
            End::InPlace => None,
            End::Flat(flat) => {
                let wire = moving_type(mpi, flat.dtype, flat.itemsize()).ok()?;
                let count = (flat.count / blocks) * wire.units;
                let whole = flat.count.is_multiple_of(blocks) && i32::try_from(count).is_ok();
                whole.then_some(Port {
                    ptr: flat.data,
                    extent: Extent::One(count as i64),
                    datatype: wire.datatype,
                })
            }
            End::Blocks(blocks) => {
                let flat = *blocks.flat();
                let wire = moving_type(mpi, flat.dtype, flat.itemsize()).ok()?;
                let ranks = blocks.ranks();
                if ranks != self.size {
                    return None;
                }
                let numbers = blocks.in_units(wire.units)?;
                Some(Port {
                    ptr: flat.data,
                    extent: Extent::Many { numbers, ranks },
                    datatype: wire.datatype,
                })
            }
        }
    }
}
