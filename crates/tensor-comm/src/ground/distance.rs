//! How far another rank's cache is. Cores that share a cache hand each other a line in some 30 ns, those of two parts of
//! a processor, or of two processors, in 200 and more; and a virtual machine's cores are moved from one case to the other
//! while a program runs. So it is measured again and again, when one of two ranks takes what the other has just written.

#[cfg(test)]
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds from which a line came from afar: 80 to 180 between two parts of an EPYC, up to 60 within one.
const FAR: u64 = 75;
/// So many lines more from afar than from nearby decide: some are held up on their way, and few come in time.
const SURE: u32 = 8;
/// Lines from afar for which one from nearby counts.
const NEAR: u32 = 3;
/// Looks at the clock that show what one takes.
const LOOKS: usize = 8;

/// The distance of the ranks that share memory.
#[derive(Debug)]
pub(crate) struct Distance {
    /// Lines that came from afar, less those from nearby.
    score: AtomicU32,
    /// Nanoseconds that a look at the clock takes.
    look: u64,
    /// Whether the processor is AMD's: those of EPYCs are the times that are known.
    known: bool,
    /// What is said whatever is seen.
    #[cfg(test)]
    pretended: std::sync::RwLock<Option<bool>>,
}

impl Distance {
    /// Near until it is seen.
    pub fn new() -> Distance {
        let look = (0..LOOKS).map(|_| Instant::now().elapsed()).min();
        Distance {
            score: AtomicU32::new(0),
            look: nanoseconds(look.unwrap_or_default()),
            known: is_amd(),
            #[cfg(test)]
            pretended: std::sync::RwLock::new(None),
        }
    }

    /// Whether it is worth a look.
    #[inline]
    pub fn is_known(&self) -> bool {
        #[cfg(test)]
        if self.pretended().is_some() {
            return true;
        }
        self.known
    }

    /// Calls `look` and notes how long it took, if it saw what another rank has written since this one looked last.
    #[inline]
    pub fn timed(&self, look: impl FnOnce() -> bool) -> bool {
        let start = Instant::now();
        let seen = look();
        if seen {
            self.note(start.elapsed());
        }
        seen
    }

    /// A line came after so long, with a look at the clock.
    fn note(&self, took: Duration) {
        let took = nanoseconds(took).saturating_sub(self.look);
        let score = self.score.load(Ordering::Relaxed);
        let score = match took >= FAR {
            true => (score + 1).min(2 * SURE),
            false => score.saturating_sub(NEAR),
        };
        self.score.store(score, Ordering::Relaxed);
    }

    /// Whether lines come from afar.
    #[inline]
    pub fn is_far(&self) -> bool {
        #[cfg(test)]
        if let Some(far) = self.pretended() {
            return far;
        }
        self.score.load(Ordering::Relaxed) >= SURE
    }
}

#[cfg(test)]
impl Distance {
    /// From now on it is far, or near.
    pub fn pretend(&self, far: bool) {
        *self
            .pretended
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Some(far);
    }

    fn pretended(&self) -> Option<bool> {
        *self
            .pretended
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_amd() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        // No other maker has them.
        is_x86_feature_detected!("sse4a")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_lines_say_far_and_few_say_near() {
        let distance = Distance::new();
        let note = |ns: u64| {
            distance.note(Duration::from_nanos(distance.look + ns));
            distance.is_far()
        };
        let far = |lines: usize| (1..=lines).fold(false, |_, _| note(200));
        assert!(!distance.is_far());
        assert_eq!((far(7), far(1)), (false, true));
        // One that comes in time by chance.
        assert_eq!((far(8), note(50), note(75)), (true, true, true));
        assert_eq!([50, 74, 50].map(note), [true, true, false]);
        // And one that is held up.
        assert_eq!([30, 5000, 20, 75, 40].map(note), [false; 5]);
    }
}
