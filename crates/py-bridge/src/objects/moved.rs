//! Collectives that move objects. While their pickles are short each is one collective, of messages that have a pickle and
//! its length (`tensor_comm::shares`); what is longer follows.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use tensor_comm::Kind;
use tensor_comm::shares::{Given, LONGEST, Shares};

use super::pickled::Pickled;
use super::{Asked, Call};
use crate::errors;

/// Ranks beyond which blocks for short pickles are more than the lengths and the pickles would be.
const MANY: usize = 256;

pub fn bcast<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.collective(const { Kind::named("bcast") }, |call| {
        if !call.is_root() {
            return asked.get(call);
        }
        asked.put(call, asked.required(0)?)
    })
}

impl<'py> Asked<'_, 'py> {
    /// Broadcasts an object from this rank; a copy of it, as the others have it.
    pub fn put(&self, call: &Call, obj: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let pickle = self.hooks.pickle(obj)?;
        let given = pickle.given();
        self.wait(|| call.foreign.share(Some(given), call.root))?;
        match &pickle {
            Pickled::Short(_) => self.hooks.copy(obj, &pickle),
            Pickled::Long(parts, size) => {
                let rest = self.hooks.bcast_rest.bind(self.py());
                rest.call1((self.slf, parts, *size, call.root))
            }
        }
    }

    /// Gets the object that the root broadcasts.
    pub fn get(&self, call: &Call) -> PyResult<Bound<'py, PyAny>> {
        let py = self.py();
        match self.wait(|| call.foreign.share(None, call.root))?.value() {
            Ok(value) => self.hooks.load_of(py, value),
            Err(size) => {
                let rest = self.hooks.bcast_rest.bind(py);
                rest.call1((self.slf, py.None(), size, call.root))
            }
        }
    }

    /// What short pickles of all ranks hold.
    fn loaded(&self, shares: &Shares) -> PyResult<Bound<'py, PyAny>> {
        let values = shares.values().filter_map(Result::ok);
        let objects: Vec<_> = values
            .map(|value| self.hooks.load_of(self.py(), value))
            .collect::<PyResult<_>>()?;
        PyList::new(self.py(), objects).map(Bound::into_any)
    }
}

pub fn scatter<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.collective(const { Kind::named("scatter") }, |call| {
        let (py, root) = (asked.py(), call.root);
        let pickles = match call.is_root() {
            true => Some(asked.hooks.list(asked.required(0)?, call.size)?),
            false => None,
        };
        let given = pickles.as_deref().map(listed);
        let came = asked.wait(|| call.foreign.share_out(given.as_deref(), root))?;
        match came.value() {
            Ok(value) => asked.hooks.load_of(py, value),
            Err(size) => {
                let rest = asked.hooks.scatter_rest.bind(py);
                rest.call1((asked.slf, pickles, size, root))
            }
        }
    })
}

/// Pickles for all ranks as they travel: all in their messages, or all after them.
fn listed<'a>(pickles: &'a [Bound<'_, PyBytes>]) -> Vec<Given<'a>> {
    let short = pickles.iter().all(|one| one.as_bytes().len() <= LONGEST);
    let pickles = pickles.iter();
    pickles
        .map(|one| Given::of(one.as_bytes(), short))
        .collect()
}

/// Who has a long pickle sends it to the root in a message of its own, since nobody else hears of it.
pub fn gather<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.collective(const { Kind::named("gather") }, |call| {
        if call.size > MANY {
            return asked.otherwise();
        }
        let (py, obj) = (asked.py(), asked.required(0)?);
        let pickle = asked.hooks.pickle(obj)?;
        let given = pickle.given();
        let came = asked.wait(|| call.foreign.share_in(given, call.root))?;
        let Some(came) = came else {
            asked.send_rest(call, &pickle, call.root as usize)?;
            return Ok(py.None().into_bound(py));
        };
        // Every long one is received before anything is loaded: who sends one waits, whether or not others can be read.
        let follow: Vec<_> = (came.values().enumerate())
            .filter(|(rank, _)| *rank != call.rank)
            .filter_map(|(rank, value)| value.err().map(|size| (rank, size)))
            .collect();
        let mut followed = match follow.is_empty() {
            true => Vec::new(),
            false => asked.rest(call, None, follow)?,
        }
        .into_iter();
        let object = |(rank, value): (usize, Result<&[u8], u64>)| match value {
            _ if rank == call.rank => asked.hooks.copy(obj, &pickle),
            Ok(value) => asked.hooks.load_of(py, value),
            Err(_) => followed.next().ok_or_else(errors::unbound),
        };
        let objects: Vec<_> = (came.values().enumerate())
            .map(object)
            .collect::<PyResult<_>>()?;
        PyList::new(py, objects).map(Bound::into_any)
    })
}

pub fn allgather<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.collective(const { Kind::named("allgather") }, |call| {
        if call.size > MANY {
            return asked.otherwise();
        }
        let pickle = asked.hooks.pickle(asked.required(0)?)?;
        let given = pickle.given();
        let came = asked.wait(|| call.foreign.share_all(given))?;
        match came.following() {
            None => asked.loaded(&came),
            Some(sizes) => {
                let rest = asked.hooks.allgather_rest.bind(asked.py());
                rest.call1((asked.slf, pickle.object(), sizes))
            }
        }
    })
}

pub fn alltoall<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.collective(const { Kind::named("alltoall") }, |call| {
        if call.size > MANY {
            return asked.otherwise();
        }
        let pickles = asked.hooks.list(asked.required(0)?, call.size)?;
        let given = listed(&pickles);
        let came = asked.wait(|| call.foreign.share_each(&given))?;
        match came.following() {
            None => asked.loaded(&came),
            Some(sizes) => {
                let rest = asked.hooks.alltoall_rest.bind(asked.py());
                rest.call1((asked.slf, pickles, sizes))
            }
        }
    })
}

/// Messages of objects between two members, in a call that both make.
impl<'py> Asked<'_, 'py> {
    /// Sends an object.
    pub fn hand(&self, call: &Call, obj: &Bound<'py, PyAny>, to: usize) -> PyResult<()> {
        let pickle = self.hooks.pickle(obj)?;
        let given = pickle.given();
        self.wait(|| call.foreign.hand(given, to))?;
        self.send_rest(call, &pickle, to)
    }

    /// Receives an object.
    pub fn take(&self, call: &Call, from: usize) -> PyResult<Bound<'py, PyAny>> {
        match self.wait(|| call.foreign.take(from))?.value() {
            Ok(value) => self.hooks.load_of(self.py(), value),
            Err(size) => self.recv_rest(call, size, from),
        }
    }

    /// Sends one and receives one.
    pub fn trade(
        &self,
        call: &Call,
        obj: &Bound<'py, PyAny>,
        with: usize,
    ) -> PyResult<Bound<'py, PyAny>> {
        let pickle = self.hooks.pickle(obj)?;
        let given = pickle.given();
        let came = self.wait(|| call.foreign.trade(given, with))?;
        match (came.value(), &pickle) {
            (Ok(value), Pickled::Short(_)) => self.hooks.load_of(self.py(), value),
            (Ok(value), _) => {
                self.send_rest(call, &pickle, with)?;
                self.hooks.load_of(self.py(), value)
            }
            (Err(size), _) => {
                let sent = match &pickle {
                    Pickled::Short(_) => None,
                    Pickled::Long(parts, _) => Some((with, parts)),
                };
                only(self.rest(call, sent, vec![(with, size)])?)
            }
        }
    }

    fn send_rest(&self, call: &Call, pickle: &Pickled<'py>, to: usize) -> PyResult<()> {
        match pickle {
            Pickled::Short(_) => Ok(()),
            Pickled::Long(parts, _) => self.rest(call, Some((to, parts)), Vec::new()).map(drop),
        }
    }

    fn recv_rest(&self, call: &Call, size: u64, from: usize) -> PyResult<Bound<'py, PyAny>> {
        only(self.rest(call, None, vec![(from, size)])?)
    }

    /// What did not fit into the messages: the parts of a pickle are sent to a member, then those of others are received,
    /// each from a member and of a size. Their objects.
    fn rest(
        &self,
        call: &Call,
        sent: Option<(usize, &Bound<'py, PyAny>)>,
        received: Vec<(usize, u64)>,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let place = self.wait(|| call.foreign.between(|comm, tag| Ok((comm.raw(), tag))))?;
        let rest = self.hooks.rest.bind(self.py());
        rest.call1((self.slf, place, sent, received))?.extract()
    }
}

fn only(objects: Vec<Bound<'_, PyAny>>) -> PyResult<Bound<'_, PyAny>> {
    objects.into_iter().next().ok_or_else(errors::unbound)
}
