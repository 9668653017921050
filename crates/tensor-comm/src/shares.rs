//! Values of few bytes that travel with their length: a broadcast or a scatter of them is one message, where all members come
//! through here. A longer one leaves its length there, and follows by whoever has it. Knows bytes.

use mpi_runtime::Mpi;

use crate::error::Result;
use crate::foreign::Foreign;
use crate::wiretype::byte;

/// Bytes of the length.
const HEAD: usize = 8;
/// The bit of a length that says that its value follows.
const FOLLOWS: u64 = 1 << 63;
/// Bytes of a message: Open MPI takes half as long again for 512.
const ROOM: usize = 128;

/// The longest value that travels with its length. In a scatter that holds for the values of all ranks.
pub const LONGEST: usize = ROOM - HEAD;

/// A value that is given.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// One that is short enough.
    Short(&'a [u8]),
    /// The length of one that follows.
    Follows(u64),
}

/// What every rank has when the message is there.
pub struct Share([u8; ROOM]);

impl Share {
    fn empty() -> Share {
        Share([0; ROOM])
    }

    fn word(&self) -> u64 {
        let (head, _) = self.0.split_at(HEAD);
        head.try_into().map_or(0, u64::from_le_bytes)
    }

    /// The value; the length of one that follows.
    ///
    /// # Errors
    /// That length.
    pub fn value(&self) -> std::result::Result<&[u8], u64> {
        let word = self.word();
        let length = (word & !FOLLOWS) as usize;
        match self.0.get(HEAD..HEAD.saturating_add(length)) {
            Some(value) if word & FOLLOWS == 0 => Ok(value),
            _ => Err(word & !FOLLOWS),
        }
    }
}

/// Puts a value into its message.
fn put(room: &mut [u8], given: Given<'_>) {
    let word = match given {
        Given::Short(value) => value.len() as u64,
        Given::Follows(length) => length | FOLLOWS,
    };
    let (head, rest) = room.split_at_mut(HEAD);
    head.copy_from_slice(&word.to_le_bytes());
    if let (Given::Short(value), Some(rest)) = (given, rest.get_mut(..word as usize)) {
        rest.copy_from_slice(value);
    }
}

impl Foreign {
    /// This rank and how many there are, where all members come through here and are more than one.
    #[inline]
    pub fn ranks(&self) -> Option<(usize, usize)> {
        self.state().map(|state| (state.rank(), state.size()))
    }

    /// Broadcasts a value, which the root gives: on the caller's communicator.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn share(&self, given: Option<Given<'_>>, root: i32) -> Result<Share> {
        let (mpi, mut share) = (self.mpi(), Share::empty());
        if let Some(given) = given {
            put(&mut share.0, given);
        }
        let room = share.0.as_mut_ptr();
        // SAFETY:
        // - the message is of as many bytes on every rank, and this one's is here alone.
        unsafe { mpi.bcast(room, ROOM as i64, byte(mpi), root, self.raw()) }?;
        Ok(share)
    }

    /// Scatters values of which the root gives one for each rank, in their order: either all are short, or all follow.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn share_out(&self, given: Option<&[Given<'_>]>, root: i32) -> Result<Share> {
        let (mpi, mut share) = (self.mpi(), Share::empty());
        let ranks = self.ranks().map_or(1, |(_, size)| size);
        let mut all = vec![0; given.map_or(0, |_| ranks * ROOM)];
        for (room, given) in all.chunks_exact_mut(ROOM).zip(given.unwrap_or_default()) {
            put(room, *given);
        }
        let (from, room) = (all.as_ptr(), share.0.as_mut_ptr());
        let (count, bytes) = (ROOM as i64, byte(mpi));
        // SAFETY:
        // - the root has a message of as many bytes for every rank, and this one's room is here alone.
        unsafe { mpi.scatter(from, count, bytes, room, count, bytes, root, self.raw()) }?;
        Ok(share)
    }

    fn mpi(&self) -> &'static Mpi {
        self.comm().mpi()
    }

    fn raw(&self) -> mpi_runtime::Comm {
        self.comm().raw()
    }
}

#[cfg(test)]
mod tests {
    use super::{Given, LONGEST, ROOM, Share, put};

    fn through(given: Given<'_>) -> Share {
        let mut share = Share([113; ROOM]);
        put(&mut share.0, given);
        share
    }

    #[test]
    fn a_value_comes_out_as_it_went_in() {
        for length in [0, 1, 7, LONGEST] {
            let value: Vec<u8> = (0..length).map(|at| at as u8).collect();
            assert_eq!(through(Given::Short(&value)).value(), Ok(&value[..]));
        }
        assert_eq!(through(Given::Follows(0)).value(), Err(0));
        assert_eq!(through(Given::Follows(1 << 40)).value(), Err(1 << 40));
    }
}
