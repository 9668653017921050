//! One rank's error as the same error of all ranks.

use std::fmt::Display;

use tensor_comm::{Arg, Blocks, CallKind};

use crate::collectives::{call, whole};
use crate::comm::Comm;
use crate::error::{Error, ErrorKind, KnownTo, Result};
use crate::op::Op;
use crate::tensor::{Tensor, TensorMut};

/// Bytes of what a rank may say.
const LONGEST: i64 = 1 << 16;

impl Comm<'_> {
    /// Makes an error of one rank the same error of all: put it where a rank may fail alone (reading its file, say)
    /// before the next collective, in which the others would wait for it for ever. Collective.
    ///
    /// Where every rank's result is `Ok`, each gets its own value; else all get one error that says which ranks failed,
    /// and why.
    ///
    /// ```
    /// let universe = dlmpi::initialize()?;
    /// let world = universe.world();
    /// let parsed = world.agree("17".parse::<u32>())?;
    /// assert_eq!(parsed, 17);
    ///
    /// let error = world.agree("seventeen".parse::<u32>()).unwrap_err();
    /// assert_eq!(error.known_to(), dlmpi::KnownTo::EveryRank);
    /// assert!(error.to_string().starts_with("rank 0: invalid digit"));
    /// # Ok::<(), dlmpi::Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`ErrorKind::Agreed`], the same on every rank; else as for all collectives.
    #[track_caller]
    pub fn agree<T, E: Display>(&self, result: Result<T, E>) -> Result<T> {
        let mine = result.as_ref().err().map(ToString::to_string);
        let mut failed = u8::from(mine.is_some());
        self.all_reduce(&mut failed, Op::Max)?;
        match result {
            Ok(value) if failed == 0 => Ok(value),
            _ => Err(self.tell(mine)?),
        }
    }

    /// Tells every rank what the failed ones have to say.
    #[track_caller]
    fn tell(&self, mine: Option<String>) -> Result<Error> {
        let mut mine = mine.map_or(String::new(), |why| format!("rank {}: {why}", self.rank()));
        let end = (0..=LONGEST as usize)
            .rev()
            .find(|end| mine.is_char_boundary(*end));
        mine.truncate(end.unwrap_or(0));
        let mut lengths = vec![0i64; self.size()];
        self.all_gather(&(mine.len() as i64), &mut lengths)?;
        if lengths.iter().any(|length| !(0..=LONGEST).contains(length)) {
            return Err(Error::new(
                ErrorKind::Mismatch,
                KnownTo::EveryRank,
                "the ranks did not all call agree",
            ));
        }
        let starts: Vec<i64> = lengths
            .iter()
            .scan(0, |end, length| Some(std::mem::replace(end, *end + length)))
            .collect();
        let mut words = vec![0u8; lengths.iter().sum::<i64>() as usize];
        let (sending, receiving) = (mine.as_bytes().lend()?, words.lend_mut()?);
        let mut call = call(CallKind::Allgatherv, None, 0);
        call.send = whole(&sending);
        call.recv = Arg::Blocks(Blocks::new(
            receiving.view().clone(),
            "words",
            lengths.clone(),
            starts.clone(),
        )?);
        // SAFETY:
        // - The loans keep the memory, the words for us alone.
        unsafe { tensor_comm::run(&self.enter()?, &call) }?;
        drop(receiving);
        let said: Vec<String> = starts
            .iter()
            .zip(&lengths)
            .filter(|(_, length)| **length > 0)
            .map(|(start, length)| {
                let bytes = &words[*start as usize..(start + length) as usize];
                String::from_utf8_lossy(bytes).into_owned()
            })
            .collect();
        Ok(Error::new(
            ErrorKind::Agreed,
            KnownTo::EveryRank,
            said.join("; "),
        ))
    }
}
