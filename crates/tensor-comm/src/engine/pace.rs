//! How long a thread that carries operations rests between steps that moved nothing.

use std::time::{Duration, Instant};

/// Steps without progress before the engine sleeps at all: an operation between two busy ranks on one
/// node ends within them.
const EAGER: u32 = 2048;
/// The same for a thread that waits for the operation and has nothing else to do.
const WAITING: u32 = 20_000;
/// Steps before such a thread first offers its core: a small operation ends within the time of one offer.
const SPINS: u32 = 50;
/// A yield that took this long gave the core to a thread that computes, which keeps it for a whole slice.
const SLOW_YIELD: Duration = Duration::from_micros(200);
/// How long the engine then sleeps instead: a thread that wakes up gets the core back at once.
const CROWDED: Duration = Duration::from_millis(10);
/// Shortest and longest sleep between steps.
const SLEEP: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(500));
/// A sleep is this part of the time in which nothing moved: an operation is seldom held up by more.
const PART: u32 = 8;

/// The rests of one thread: first the core is offered to others, then sleeps grow.
#[derive(Debug)]
pub(crate) struct Pace {
    eager: u32,
    idle: u32,
    /// When the first sleep began since something moved.
    asleep: Option<Instant>,
    /// Whether it stops yielding where threads compute, and until when.
    gives_way: bool,
    crowded: Option<Instant>,
}

impl Pace {
    /// Of the engine, whose ranks have other things to do.
    pub fn engine() -> Pace {
        Pace::new(EAGER, true)
    }

    /// Of a thread that waits.
    pub fn waiting() -> Pace {
        Pace::new(WAITING, false)
    }

    fn new(eager: u32, gives_way: bool) -> Pace {
        Pace {
            eager,
            idle: 0,
            asleep: None,
            gives_way,
            crowded: None,
        }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        (self.idle, self.asleep) = (0, None);
    }

    /// After a step: offers the core to others, or says how long to sleep.
    pub fn rest(&mut self, moved: bool) -> Option<Duration> {
        if moved {
            self.restart();
            return None;
        }
        if self.idle < self.eager && !self.is_crowded() {
            self.idle += 1;
            match self.gives_way || self.idle > SPINS {
                true => self.offer(),
                false => std::hint::spin_loop(),
            }
            return None;
        }
        let begin = *self.asleep.get_or_insert_with(Instant::now);
        Some((begin.elapsed() / PART).clamp(SLEEP.0, SLEEP.1))
    }

    /// Offers the core, and notices if that was dear.
    fn offer(&mut self) {
        let before = self.gives_way.then(Instant::now);
        std::thread::yield_now();
        if let Some(before) = before
            && before.elapsed() > SLOW_YIELD
        {
            self.crowded = Some(Instant::now() + CROWDED);
        }
    }

    fn is_crowded(&mut self) -> bool {
        self.crowded = self.crowded.filter(|until| Instant::now() < *until);
        self.crowded.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_up_to_a_limit_and_begin_anew() {
        let mut pace = Pace::new(2, false);
        assert_eq!((pace.rest(false), pace.rest(false)), (None, None));
        assert_eq!(pace.rest(false), Some(SLEEP.0));
        pace.asleep = Instant::now().checked_sub(SLEEP.0 * PART * 4);
        let later = pace.rest(false);
        assert!(later > Some(SLEEP.0 * 3), "{later:?}");
        pace.asleep = Instant::now().checked_sub(Duration::from_secs(1));
        assert_eq!(pace.rest(false), Some(SLEEP.1));
        assert_eq!((pace.rest(true), pace.rest(false)), (None, None));
    }

    #[test]
    fn who_lost_the_core_by_yielding_sleeps() {
        let mut pace = Pace::new(1000, true);
        pace.crowded = Some(Instant::now() + CROWDED);
        assert_eq!(pace.rest(false), Some(SLEEP.0));
        pace.crowded = Some(Instant::now());
        assert_eq!(pace.rest(false), None);
    }
}
