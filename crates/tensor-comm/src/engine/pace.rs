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
/// How long the engine works before it offers its core: the kernel itself ends turns only when its clock ticks, some
/// milliseconds apart, and to copy a large tensor takes as long.
const TURN: Duration = Duration::from_micros(100);
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
    /// When it last rested or offered the core.
    turn: Instant,
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
            turn: Instant::now(),
        }
    }

    /// Begins anew, after a rest.
    pub fn restart(&mut self) {
        (self.idle, self.asleep, self.turn) = (0, None, Instant::now());
    }

    /// After a step: offers the core to others, or says how long to sleep.
    pub fn rest(&mut self, moved: bool) -> Option<Duration> {
        if moved {
            (self.idle, self.asleep) = (0, None);
            if self.gives_way && self.turn.elapsed() > TURN {
                std::thread::yield_now();
                self.turn = Instant::now();
            }
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
        let sleep = (begin.elapsed() / PART).clamp(SLEEP.0, SLEEP.1);
        self.turn = Instant::now() + sleep;
        Some(sleep)
    }

    /// Offers the core, and notices if that was dear.
    fn offer(&mut self) {
        let before = self.gives_way.then(Instant::now);
        std::thread::yield_now();
        if let Some(before) = before {
            self.turn = Instant::now();
            if self.turn.duration_since(before) > SLOW_YIELD {
                self.crowded = Some(self.turn + CROWDED);
            }
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
    fn who_works_for_long_offers_the_core() {
        let long_ago = Instant::now().checked_sub(TURN * 10).expect("a clock");
        for (gives_way, moved_on) in [(true, true), (false, false)] {
            let mut pace = Pace::new(1000, gives_way);
            pace.turn = long_ago;
            assert_eq!(pace.rest(true), None);
            assert_eq!(pace.turn > long_ago, moved_on);
        }
        let mut pace = Pace::new(0, true);
        pace.turn = long_ago;
        let before = Instant::now();
        assert!(pace.rest(false).is_some() && pace.turn > before);
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
