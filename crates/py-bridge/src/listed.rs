//! Collectives of short blocks that lie in lists of tensors, one for each rank: laid end to end in scratch memory, which MPI
//! sends from and receives into. Takes flat tensors of one dtype alone; all others are left to their caller.

use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use smallvec::SmallVec;
use tensor_comm::engine::Keep;
use tensor_comm::lane::Flat;
use tensor_comm::{Arg, Blocks, Call, Comm, DType, Device, Part, Scratch, View};

use crate::collective::{Collective, Role, operation, refuse_start};
use crate::errors;
use crate::loan::Wrote;
use crate::mpi4py::Mpi4py;
use crate::order::StreamOrder;
use crate::registry;
use crate::request::Pending;

type Given<'a, 'py> = Option<&'a Bound<'py, PyAny>>;

/// What a call came to.
pub enum Listed {
    /// Nothing was done: the tensors are not so simple.
    Otherwise,
    /// It has ended.
    Done,
    /// Nobody carries it on yet.
    Begun(Pending),
}

/// One side of a call: no tensor, one, or one for each rank.
#[derive(Default)]
struct Side {
    flats: SmallVec<[Flat; 4]>,
    listed: bool,
    tensors: Option<Py<PyTuple>>,
}

impl Side {
    /// Of what is given, unless there is something about it.
    fn of(given: Given<'_, '_>, ranks: usize, most: usize, lent: &mut Lent) -> Option<Side> {
        let Some(given) = given else {
            return Some(Side::default());
        };
        // Another thread may change the list.
        let (tensors, listed) = match given.cast_exact::<PyList>() {
            Ok(list) => (list.to_tuple(), true),
            Err(_) => (PyTuple::new(given.py(), [given]).ok()?, false),
        };
        if listed && tensors.len() != ranks {
            return None;
        }
        let (mut flats, mut order) = (SmallVec::new(), StreamOrder::default());
        for tensor in tensors.iter_borrowed() {
            let exporter = registry::known(&tensor)?;
            let flat = exporter.lend_flat(&tensor, &mut order, &mut lent.kept)?;
            let first = *lent.kind.get_or_insert((flat.dtype, exporter.framework()));
            if first != (flat.dtype, exporter.framework()) || flat.bytes() >= most {
                return None;
            }
            lent.wrote = exporter.wrote();
            flats.push(flat);
        }
        Some(Side {
            flats,
            listed,
            tensors: Some(tensors.unbind()),
        })
    }

    /// Bytes of scratch memory.
    fn bytes(&self) -> usize {
        match self.listed {
            true => self.flats.iter().map(Flat::bytes).sum(),
            false => 0,
        }
    }

    /// The argument; the blocks of a list lie from `scratch` on.
    fn arg(&self, name: &str, role: Role, scratch: *mut u8) -> tensor_comm::Result<Arg> {
        let Some(first) = self.flats.first() else {
            return Ok(Arg::Absent);
        };
        let data = if self.listed { scratch } else { first.data };
        let counts: Vec<i64> = self.flats.iter().map(|flat| flat.count as i64).collect();
        let all: i64 = counts.iter().sum();
        // SAFETY:
        // - a flat tensor's memory, or as much scratch memory as all tensors of the list have; the caller keeps both.
        let view =
            unsafe { View::from_parts(data, &[all], None, first.dtype, Device::CPU, false) }?;
        if role != Role::Vector {
            return Ok(Arg::Part(Part::whole(view)));
        }
        let ends = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end - count)
        });
        let displs = ends.collect();
        Blocks::new(view, name, counts, displs).map(Arg::Blocks)
    }

    /// Each tensor of a list, and where its block lies.
    fn places(&self, scratch: *mut u8) -> impl Iterator<Item = (*mut u8, *mut u8, usize)> {
        let listed = self.flats.iter().filter(|_| self.listed);
        listed.scan(scratch, |at, flat| {
            let place = *at;
            *at = at.wrapping_add(flat.bytes());
            Some((flat.data, place, flat.bytes()))
        })
    }
}

/// What keeps the tensors' memory, and tells of it.
#[derive(Default)]
struct Lent {
    kept: Vec<Py<PyAny>>,
    /// Dtype and framework of all.
    kind: Option<(DType, &'static str)>,
    wrote: Option<Wrote>,
}

/// The memory of a call, until it has ended.
struct Laid {
    scratch: Scratch,
    /// Where the received blocks begin.
    from: usize,
    received: Side,
    lent: Lent,
}

// SAFETY:
// - the addresses are of memory that `lent` keeps, and used by one thread at a time, after the call has ended.
unsafe impl Send for Laid {}

impl Laid {
    /// Puts the received blocks in their places.
    fn home(&self) {
        let blocks = self.scratch.ptr().wrapping_add(self.from);
        for (tensor, block, bytes) in self.received.places(blocks) {
            // SAFETY:
            // - both are that long and kept; scratch memory is nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(block, tensor, bytes) };
        }
    }

    /// Tells the tensors' framework that they were written.
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        match (self.lent.wrote, &self.received.tensors) {
            (Some(wrote), Some(tensors)) => wrote(tensors.bind(py)),
            _ => Ok(()),
        }
    }
}

impl Keep for Laid {
    fn done(&mut self, written: bool) {
        if written {
            self.home();
        }
        let told = Python::try_attach(|py| {
            if let (true, Err(error)) = (written, self.tell(py)) {
                error.write_unraisable(py, None);
            }
            (self.lent, self.received) = (Lent::default(), Side::default());
        });
        if told.is_none() {
            // Nobody can let go of them any more.
            std::mem::forget((
                std::mem::take(&mut self.lent),
                std::mem::take(&mut self.received),
            ));
        }
    }
}

/// Makes a collective in the calling thread, as far as it goes at once. `sent` and `received` are nothing, a tensor, or a list
/// with one for each rank, each of less than `most` bytes.
///
/// # Errors
/// What the operation found.
pub fn attempt(
    mpi4py: &Mpi4py,
    row: &Collective,
    comm: Comm,
    most: usize,
    (sent, received): (Given<'_, '_>, Given<'_, '_>),
    (root, op): (i32, Given<'_, '_>),
    py: Python<'_>,
) -> PyResult<Listed> {
    let core = |error| errors::operation(py, error);
    let ranks = comm.size().map_err(core)?;
    let mut lent = Lent::default();
    let sides = Side::of(sent, ranks, most, &mut lent)
        .and_then(|sent| Some((sent, Side::of(received, ranks, most, &mut lent)?)));
    let Some((give, take)) = sides else {
        return Ok(Listed::Otherwise);
    };
    let fits = |side: &Side, role| side.flats.is_empty() || side.listed == (role != Role::Whole);
    if !fits(&give, row.send) || !fits(&take, row.recv) {
        return Ok(Listed::Otherwise);
    }
    let alike = |side: &Side| {
        side.flats
            .iter()
            .all(|flat| flat.count == side.flats[0].count)
    };
    if row.send == Role::Blocks && !alike(&give) {
        return Ok(Listed::Otherwise);
    }
    let mut call = Call::new(row.kind);
    call.root = root;
    if row.kind.is_reduction() {
        let known = operation(mpi4py, "op", op);
        call.op = Some(known.inspect_err(|why| refuse_start(py, comm, row.kind, why))?);
    }
    let from = give.bytes();
    let laid = Laid {
        scratch: Scratch::new(from + take.bytes()).map_err(core)?,
        from,
        received: take,
        lent,
    };
    let start = laid.scratch.ptr();
    for (tensor, block, bytes) in give.places(start) {
        // SAFETY:
        // - as in `home`.
        unsafe { std::ptr::copy_nonoverlapping(tensor, block, bytes) };
    }
    call.send = give.arg("sendbuf", row.send, start).map_err(core)?;
    let blocks = start.wrapping_add(from);
    call.recv = laid
        .received
        .arg("recvbuf", row.recv, blocks)
        .map_err(core)?;
    // SAFETY:
    // - `laid` keeps the memory, and `sent` is there as long; a late call takes both with it.
    match py.detach(|| unsafe { tensor_comm::attempt(&comm, &call) }) {
        Ok(Some(rest)) => {
            let handle = py.detach(|| rest.keep(Box::new(laid)));
            Ok(Listed::Begun(Pending::new(handle, None)))
        }
        Ok(None) => {
            laid.home();
            laid.tell(py).map(|()| Listed::Done)
        }
        Err(error) => {
            // One that is received into alone may have been written before.
            let told = laid.tell(py);
            Err(core(error)).and_then(|listed| told.map(|()| listed))
        }
    }
}
