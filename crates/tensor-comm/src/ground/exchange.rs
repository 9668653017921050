//! Comparing fingerprints: a state machine over `Isend`, `Irecv` and `Test` on the private duplicate.
//!
//! First a dissemination of field-wise maxima of `x` and of `!x`: all agree exactly if the one is the
//! complement of the other. Every rank sees the same result, so on a disagreement every rank goes on to
//! pass the words around a ring, and every rank raises with what each one called.

use std::sync::Arc;

use mpi_runtime::{Basic, Request, StatusPtr};

use super::awareness;
use super::fingerprint::{FIELDS, Fingerprint, WORDS};
use super::state::State;
use crate::error::{Error, Result};
use crate::site;
use crate::wiretype::byte;

/// Maxima of all fields and of their complements, whether some rank refuses, a number for the communicator, and
/// whether some rank's MPI is not given device memory.
const LANES: usize = 2 * FIELDS + 3;
const REFUSED: usize = 2 * FIELDS;
const ID: usize = 2 * FIELDS + 1;
const STAGED: usize = 2 * FIELDS + 2;

/// One comparison.
pub(crate) struct Exchange {
    state: Arc<State>,
    sequence: u64,
    words: String,
    /// Where in the program the call was made, if that was asked already.
    site: Option<String>,
    maxima: Box<[u64; LANES]>,
    outgoing: Box<[u64; LANES]>,
    incoming: Box<[u64; LANES]>,
    /// Everybody's words, `WORDS` bytes each; empty until a disagreement is found.
    ring: Vec<u8>,
    step: usize,
    requests: [Request; 2],
    flying: bool,
}

impl Exchange {
    /// `refused` is whether this rank will not make the call.
    pub fn new(
        state: Arc<State>,
        sequence: u64,
        fingerprint: &Fingerprint,
        refused: bool,
    ) -> Exchange {
        let mut lanes = [0; LANES];
        for (i, field) in fingerprint.fields.iter().enumerate() {
            if let Some(x) = field {
                lanes[2 * i] = *x;
                lanes[2 * i + 1] = !*x;
            }
        }
        lanes[REFUSED] = u64::from(refused);
        lanes[STAGED] = u64::from(!awareness::offers(state.comm().mpi()));
        // Only one call may bring it, or ranks could end up with different ones. Without it the communicator
        // is harder to tell from others, when somebody asks.
        if sequence == 1 {
            lanes[ID] = state.proposed_id().unwrap_or(0);
        }
        let null = state.comm().mpi().request_null();
        Exchange {
            sequence,
            words: fingerprint.words.clone(),
            site: None,
            maxima: Box::new(lanes),
            outgoing: Box::new([0; LANES]),
            incoming: Box::new([0; LANES]),
            ring: Vec::new(),
            step: 0,
            requests: [null; 2],
            flying: false,
            state,
        }
    }

    /// Notes where in the program the call is made, for an exchange that another thread carries on.
    pub fn noting_the_site(mut self) -> Exchange {
        self.site = site::here();
        self
    }

    /// Goes on as far as it can; `Some` when every rank's fingerprint was seen. `block` waits.
    ///
    /// # Errors
    /// [`Error::Mismatch`] on every rank alike, or MPI's own errors.
    pub fn poll(&mut self, private: mpi_runtime::Comm, block: bool) -> Result<Option<()>> {
        loop {
            if self.flying && !self.landed(block)? {
                return Ok(None);
            }
            if self.ring.is_empty() {
                let distance = 1usize << self.step;
                if distance < self.state.size() {
                    self.launch_maxima(private, distance)?;
                    continue;
                }
                if self.agreed() {
                    if self.sequence == 1 {
                        self.state.agree_id(self.maxima[ID]);
                    }
                    return Ok(Some(()));
                }
                self.ring = vec![0; WORDS * self.state.size()];
                // A blocking call is still in its caller's line, so that only a disagreement costs the look.
                let site = self.site.take().or_else(site::here);
                self.ring[WORDS * self.state.rank()..][..WORDS]
                    .copy_from_slice(&padded(&self.words, site.as_deref()));
                self.step = 0;
            }
            if self.step + 1 == self.state.size() {
                return Err(Error::Mismatch(self.report()));
            }
            self.launch_ring(private)?;
        }
    }

    /// Whether the MPI of every rank would be given device memory, once every rank's fingerprint was seen.
    pub fn offers_everywhere(&self) -> bool {
        self.maxima[STAGED] == 0
    }

    /// Every field is the same wherever it is known, and nobody refuses.
    fn agreed(&self) -> bool {
        let fields = self.maxima[..2 * FIELDS].as_chunks::<2>().0;
        // A field that nobody knows is zero twice.
        fields.iter().all(|&[x, y]| x == !y || (x, y) == (0, 0)) && self.maxima[REFUSED] == 0
    }

    fn launch_maxima(&mut self, private: mpi_runtime::Comm, distance: usize) -> Result<()> {
        let (rank, size) = (self.state.rank(), self.state.size());
        *self.outgoing = *self.maxima;
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        let (out, into) = (
            self.outgoing.as_ptr().cast(),
            self.incoming.as_mut_ptr().cast(),
        );
        self.launch(
            private,
            (out, to),
            (into, from),
            LANES as i64,
            Basic::Uint64,
            0,
        )
    }

    fn launch_ring(&mut self, private: mpi_runtime::Comm) -> Result<()> {
        let (rank, size) = (self.state.rank(), self.state.size());
        let (give, take) = (
            (rank + size - self.step) % size,
            (rank + 2 * size - self.step - 1) % size,
        );
        let base = self.ring.as_mut_ptr();
        let (out, into) = (
            base.wrapping_add(WORDS * give),
            base.wrapping_add(WORDS * take),
        );
        let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
        self.launch(
            private,
            (out.cast_const(), to),
            (into, from),
            WORDS as i64,
            Basic::Byte,
            1,
        )
    }

    fn launch(
        &mut self,
        private: mpi_runtime::Comm,
        (out, to): (*const u8, usize),
        (into, from): (*mut u8, usize),
        count: i64,
        basic: Basic,
        phase: u64,
    ) -> Result<()> {
        let mpi = self.state.comm().mpi();
        let datatype = mpi.datatype(basic).unwrap_or_else(|| byte(mpi));
        let tag = self.state.tag(self.sequence, phase);
        // SAFETY:
        // - both places hold `count` elements, lie apart, and stay where they are until `landed`: they are
        //   heap memory of `self`, which is not dropped before (`Drop`).
        unsafe {
            self.requests[0] = mpi.irecv(into, count, datatype, from as i32, tag, private)?;
            self.flying = true;
            self.requests[1] = mpi.isend(out, count, datatype, to as i32, tag, private)?;
        }
        Ok(())
    }

    /// Whether the messages of this step have come and gone.
    fn landed(&mut self, block: bool) -> Result<bool> {
        let mpi = self.state.comm().mpi();
        let done = if block {
            // One by one: of many, MPI says only that one of them failed.
            for request in &mut self.requests {
                // SAFETY:
                // - the requests are ours, and completed nowhere else.
                unsafe { mpi.wait(request, StatusPtr::ignore()) }?;
            }
            true
        } else {
            // SAFETY:
            // - as above.
            unsafe { mpi.testall(&mut self.requests, StatusPtr::ignore()) }?
        };
        if done {
            self.flying = false;
            self.step += 1;
            if self.ring.is_empty() {
                self.maxima
                    .iter_mut()
                    .zip(self.incoming.iter())
                    .for_each(|(max, came)| *max = (*max).max(*came));
            }
        }
        Ok(done)
    }

    /// What each rank called, ranks that called the same together.
    fn report(&self) -> String {
        let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
        for (rank, words) in self.ring.chunks(WORDS).enumerate() {
            let words = String::from_utf8_lossy(words)
                .trim_end_matches('\0')
                .to_owned();
            match groups.iter_mut().find(|(seen, _)| *seen == words) {
                Some((_, ranks)) => ranks.push(rank),
                None => groups.push((words, vec![rank])),
            }
        }
        let lines: Vec<String> = groups
            .iter()
            .map(|(words, ranks)| format!("  {}: {words}", name(ranks)))
            .collect();
        format!(
            "the ranks of this communicator disagree in collective number {}:\n{}",
            self.sequence,
            lines.join("\n")
        )
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if self.flying {
            // MPI still knows these addresses, and a request cannot give its memory back: leave it.
            std::mem::forget(std::mem::replace(&mut self.outgoing, Box::new([0; LANES])));
            std::mem::forget(std::mem::replace(&mut self.incoming, Box::new([0; LANES])));
            std::mem::forget(std::mem::take(&mut self.ring));
        }
    }
}

fn name(ranks: &[usize]) -> String {
    let list: Vec<String> = ranks.iter().take(16).map(usize::to_string).collect();
    let more = if ranks.len() > 16 {
        format!(" and {} more", ranks.len() - 16)
    } else {
        String::new()
    };
    format!(
        "rank{} {}{more}",
        if ranks.len() == 1 { "" } else { "s" },
        list.join(", ")
    )
}

/// What was called and where, in as many bytes as are passed on.
fn padded(words: &str, site: Option<&str>) -> Vec<u8> {
    let place = site.map_or_else(String::new, |site| format!(" at {site}"));
    let mut end = words.len().min(WORDS.saturating_sub(place.len()));
    while !words.is_char_boundary(end) {
        end -= 1;
    }
    let mut bytes = [&words.as_bytes()[..end], place.as_bytes()].concat();
    bytes.resize(WORDS, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_kept_when_words_are_cut() {
        let text = |words: &str, site| {
            let bytes = padded(words, site);
            assert_eq!(bytes.len(), WORDS);
            String::from_utf8(bytes)
                .expect("whole characters")
                .trim_end_matches('\0')
                .to_owned()
        };
        assert_eq!(text("Barrier", None), "Barrier");
        assert_eq!(text("Barrier", Some("a.py:3")), "Barrier at a.py:3");
        let cut = text(&"ä".repeat(WORDS), Some("a.py:3"));
        assert!(cut.starts_with("ää") && cut.ends_with("ä at a.py:3"));
    }
}
