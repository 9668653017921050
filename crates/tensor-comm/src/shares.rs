//! Values of few bytes that travel with their length: a collective of them is one message of each rank, where all members come
//! through here, and so is a message between two of them. A longer one leaves its length there, and follows by whoever
//! has it. Knows bytes.

use mpi_runtime::{Mpi, StatusPtr};

use crate::error::Result;
use crate::foreign::Foreign;
use crate::wiretype::byte;

/// Bytes of the length.
const HEAD: usize = 8;
/// The bit of a length that says that its value follows.
const FOLLOWS: u64 = 1 << 63;
/// Bytes of a message: Open MPI takes half as long again for 512.
const ROOM: usize = 128;

/// The longest value that travels with its length. In a scatter and an exchange of all with all that holds for all values
/// that a rank gives.
pub const LONGEST: usize = ROOM - HEAD;

/// A value that is given.
#[derive(Clone, Copy)]
pub enum Given<'a> {
    /// One that is short enough.
    Short(&'a [u8]),
    /// The length of one that follows.
    Follows(u64),
}

impl<'a> Given<'a> {
    /// A value in its message, or after it.
    pub fn of(value: &'a [u8], short: bool) -> Given<'a> {
        match short {
            true => Given::Short(value),
            false => Given::Follows(value.len() as u64),
        }
    }
}

/// What a rank has of one other when its message is there.
pub struct Share([u8; ROOM]);

impl Share {
    fn of(given: Option<Given<'_>>) -> Share {
        let mut share = Share([0; ROOM]);
        if let Some(given) = given {
            put(&mut share.0, given);
        }
        share
    }

    /// The value; the length of one that follows.
    ///
    /// # Errors
    /// That length.
    pub fn value(&self) -> std::result::Result<&[u8], u64> {
        read(&self.0)
    }
}

/// What a rank has of every rank.
pub struct Shares(Vec<u8>);

impl Shares {
    fn of(ranks: usize) -> Shares {
        Shares(vec![0; ranks * ROOM])
    }

    fn filled(mut self, given: &[Given<'_>]) -> Shares {
        for (room, given) in self.0.chunks_exact_mut(ROOM).zip(given) {
            put(room, *given);
        }
        self
    }

    /// The ranks' values in their order, as [`Share::value`].
    pub fn values(&self) -> impl Iterator<Item = std::result::Result<&[u8], u64>> {
        self.0.chunks_exact(ROOM).map(read)
    }

    /// Their lengths, if any follows.
    pub fn following(&self) -> Option<Vec<u64>> {
        let length = |value: std::result::Result<&[u8], u64>| match value {
            Ok(value) => value.len() as u64,
            Err(length) => length,
        };
        let follow = self.values().any(|value| value.is_err());
        follow.then(|| self.values().map(length).collect())
    }
}

/// Puts a value into its message; the bytes of the message that say something.
fn put(room: &mut [u8], given: Given<'_>) -> usize {
    let word = match given {
        Given::Short(value) => value.len() as u64,
        Given::Follows(length) => length | FOLLOWS,
    };
    let (head, rest) = room.split_at_mut(HEAD);
    head.copy_from_slice(&word.to_le_bytes());
    if let (Given::Short(value), Some(rest)) = (given, rest.get_mut(..word as usize)) {
        rest.copy_from_slice(value);
        return HEAD + value.len();
    }
    HEAD
}

/// Takes it out again.
fn read(room: &[u8]) -> std::result::Result<&[u8], u64> {
    let (head, _) = room.split_at(HEAD.min(room.len()));
    let word = head.try_into().map_or(0, u64::from_le_bytes);
    let length = (word & !FOLLOWS) as usize;
    match room.get(HEAD..HEAD.saturating_add(length)) {
        Some(value) if word & FOLLOWS == 0 => Ok(value),
        _ => Err(word & !FOLLOWS),
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
        let (mpi, mut share) = (self.mpi(), Share::of(given));
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
        let (mpi, mut share) = (self.mpi(), Share::of(None));
        let all = self.room(given.is_some()).filled(given.unwrap_or_default());
        let (from, room) = (all.0.as_ptr(), share.0.as_mut_ptr());
        let (count, bytes) = (ROOM as i64, byte(mpi));
        // SAFETY:
        // - the root has a message of as many bytes for every rank, and this one's room is here alone.
        unsafe { mpi.scatter(from, count, bytes, room, count, bytes, root, self.raw()) }?;
        Ok(share)
    }

    /// Gathers values of which every rank gives one; what the root has then.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn share_in(&self, given: Given<'_>, root: i32) -> Result<Option<Shares>> {
        let (mpi, share) = (self.mpi(), Share::of(Some(given)));
        let here = self
            .ranks()
            .is_some_and(|(rank, _)| usize::try_from(root) == Ok(rank));
        let mut all = self.room(here);
        let (from, room) = (share.0.as_ptr(), all.0.as_mut_ptr());
        let (count, bytes) = (ROOM as i64, byte(mpi));
        // SAFETY:
        // - every rank has a message of as many bytes, and the root room for all of them, which is here alone.
        unsafe { mpi.gather(from, count, bytes, room, count, bytes, root, self.raw()) }?;
        Ok(here.then_some(all))
    }

    /// The same to all ranks.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn share_all(&self, given: Given<'_>) -> Result<Shares> {
        let (mpi, share, mut all) = (self.mpi(), Share::of(Some(given)), self.room(true));
        let (from, room) = (share.0.as_ptr(), all.0.as_mut_ptr());
        let (count, bytes) = (ROOM as i64, byte(mpi));
        // SAFETY:
        // - every rank has a message of as many bytes and room for all of them, which is here alone.
        unsafe { mpi.allgather(from, count, bytes, room, count, bytes, self.raw()) }?;
        Ok(all)
    }

    /// Exchanges values of which every rank gives one for each, in their order: either all of a rank are short, or all
    /// follow. So every rank hears whether any follows.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn share_each(&self, given: &[Given<'_>]) -> Result<Shares> {
        let (mpi, sent, mut all) = (self.mpi(), self.room(true).filled(given), self.room(true));
        let (from, room) = (sent.0.as_ptr(), all.0.as_mut_ptr());
        let (count, bytes) = (ROOM as i64, byte(mpi));
        // SAFETY:
        // - every rank has a message of as many bytes for each and room for as many, which is here alone.
        unsafe { mpi.alltoall(from, count, bytes, room, count, bytes, self.raw()) }?;
        Ok(all)
    }

    /// Sends a value to a member, who takes it from this rank in the same call.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn hand(&self, given: Given<'_>, to: usize) -> Result<()> {
        self.swap(Some(given), to, false).map(drop)
    }

    /// Receives a value from a member, who hands it to this rank in the same call.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn take(&self, from: usize) -> Result<Share> {
        self.swap(None, from, true)
    }

    /// Both, with the same member.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn trade(&self, given: Given<'_>, with: usize) -> Result<Share> {
        self.swap(Some(given), with, true)
    }

    fn swap(&self, given: Option<Given<'_>>, with: usize, takes: bool) -> Result<Share> {
        let (mpi, mut sent, mut share) = (self.mpi(), Share::of(None), Share::of(None));
        let bytes = given.map(|given| put(&mut sent.0, given) as i64);
        let (from, room, datatype) = (sent.0.as_ptr(), share.0.as_mut_ptr(), byte(mpi));
        let (size, peer, none) = (ROOM as i64, with as i32, StatusPtr::ignore());
        self.between(|comm, tag| {
            // SAFETY:
            // - both messages are here alone, and none is longer than the room.
            let swapped = unsafe {
                match (bytes, takes) {
                    (Some(bytes), false) => mpi.send(from, bytes, datatype, peer, tag, comm),
                    (Some(bytes), true) => mpi.sendrecv(
                        from, bytes, datatype, peer, tag, room, size, datatype, peer, tag, comm,
                        none,
                    ),
                    _ => mpi.recv(room, size, datatype, peer, tag, comm, none),
                }
            };
            Ok(swapped?)
        })?;
        Ok(share)
    }

    fn room(&self, wanted: bool) -> Shares {
        let ranks = self.ranks().map_or(1, |(_, size)| size);
        Shares::of(if wanted { ranks } else { 0 })
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
    use super::{Given, HEAD, LONGEST, ROOM, Share, Shares, put};

    fn through(given: Given<'_>) -> Share {
        let mut share = Share([113; ROOM]);
        let bytes = put(&mut share.0, given);
        share.0[bytes..].fill(114);
        share
    }

    #[test]
    fn a_value_comes_out_as_it_went_in() {
        for length in [0, 1, 7, LONGEST] {
            let value: Vec<u8> = (0..length).map(|at| at as u8).collect();
            assert_eq!(through(Given::of(&value, true)).value(), Ok(&value[..]));
            assert_eq!(
                through(Given::of(&value, false)).value(),
                Err(length as u64)
            );
        }
        assert_eq!(through(Given::Follows(0)).value(), Err(0));
        assert_eq!(through(Given::Follows(1 << 40)).value(), Err(1 << 40));
    }
    #[test]
    fn all_hear_of_one_that_follows() {
        let value = [1, 2, 3];
        let all = [Given::Short(&value), Given::Short(&[]), Given::Follows(500)];
        let shares = Shares::of(3).filled(&all);
        let values: Vec<_> = shares.values().collect();
        assert_eq!(values, [Ok(&value[..]), Ok(&[][..]), Err(500)]);
        assert_eq!(shares.following(), Some(vec![3, 0, 500]));
        assert_eq!(Shares::of(2).filled(&all).following(), None);
        assert_eq!(shares.0.len(), 3 * ROOM);
        assert_eq!(put(&mut [0; ROOM], Given::Follows(1)), HEAD);
    }
}
