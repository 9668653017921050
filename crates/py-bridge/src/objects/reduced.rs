//! Reductions of objects: by messages between two members, in the order and with the brackets that mpi4py's own
//! methods give them, so that results are the same.

use pyo3::prelude::*;
use tensor_comm::Kind;

use super::{Asked, Call};
use crate::call;
use crate::params::Takes;

pub fn reduce<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.reduction(const { Kind::named("reduce") }, |call| {
        let (none, root) = (asked.py().None().into_bound(asked.py()), call.root as usize);
        match asked.to_first(call)? {
            Some(result) if root == 0 => Ok(result),
            Some(result) => asked.hand(call, &result, root).map(|()| none),
            None if root == call.rank => asked.take(call, 0),
            None => Ok(none),
        }
    })
}

pub fn allreduce<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.reduction(const { Kind::named("allreduce") }, |call| {
        // The root is the first rank, where there is no such parameter.
        match asked.to_first(call)? {
            Some(result) => asked.put(call, &result),
            None => asked.get(call),
        }
    })
}

pub fn scan<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.reduction(const { Kind::named("scan") }, |call| {
        let own = asked.own()?;
        asked.prefix(call, Some(own))
    })
}

pub fn exscan<'py>(asked: &Asked<'_, 'py>) -> PyResult<Bound<'py, PyAny>> {
    asked.reduction(const { Kind::named("exscan") }, |call| {
        asked.prefix(call, None)
    })
}

impl<'py> Asked<'_, 'py> {
    fn reduction(
        &self,
        kind: Kind,
        work: impl FnOnce(&Call) -> PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.collective(kind, |call| match self.hooks.fast_reduce {
            true => work(call),
            false => self.otherwise(),
        })
    }

    /// What this rank gives, as a copy: the operation may change what it is given.
    fn own(&self) -> PyResult<Bound<'py, PyAny>> {
        self.hooks.copied(self.required(0)?)
    }

    fn combine(
        &self,
        first: &Bound<'py, PyAny>,
        second: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sum = self.hooks.sum.bind(self.py());
        let given = self.given(|takes| takes == Takes::Op);
        call::two(given.unwrap_or(sum), first, second)
    }

    /// What all ranks give, combined at the first rank, which alone has the result.
    fn to_first(&self, call: &Call) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (rank, mut result) = (call.rank, None);
        let mut bit = 1;
        while bit < call.size {
            if rank & bit != 0 {
                let given = match &result {
                    Some(result) => result,
                    None => self.required(0)?,
                };
                self.hand(call, given, rank & !bit)?;
                return Ok(None);
            }
            if rank | bit < call.size {
                let so_far = match result.take() {
                    Some(so_far) => so_far,
                    None => self.own()?,
                };
                let came = self.take(call, rank | bit)?;
                result = Some(self.combine(&so_far, &came)?);
            }
            bit <<= 1;
        }
        Ok(result)
    }

    /// What the ranks before this one give, combined, after which comes `result`. The operation may change both of what it
    /// is given, so nothing is given to it twice.
    fn prefix(
        &self,
        call: &Call,
        mut result: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut partial = self.own()?;
        let mut bit = 1;
        while bit < call.size {
            let with = call.rank ^ bit;
            if with < call.size {
                let came = self.trade(call, &partial, with)?;
                // Where no exchange is left nobody asks for it any more.
                let goes_on = bit << 1 < call.size;
                if call.rank > with {
                    let other = match goes_on {
                        true => self.hooks.copied(&came)?,
                        false => came.clone(),
                    };
                    result = Some(match result {
                        Some(result) => self.combine(&other, &result)?,
                        None => other,
                    });
                }
                if goes_on && call.rank > with {
                    partial = self.combine(&came, &partial)?;
                } else if goes_on {
                    partial = self.combine(&partial, &came)?;
                }
            }
            bit <<= 1;
        }
        Ok(result.unwrap_or_else(|| self.py().None().into_bound(self.py())))
    }
}
