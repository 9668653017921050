//! How long a thread that carries operations rests between steps that moved nothing.

use std::time::Duration;

/// Steps without progress before the engine sleeps at all: an operation between two busy ranks on one
/// node ends within them.
const EAGER: u32 = 256;
/// The same for a thread that waits for the operation and has nothing else to do.
const WAITING: u32 = 20_000;
/// Shortest and longest sleep between steps.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_micros(500));

/// The rests of one thread: first the core is offered to others, then sleeps grow.
#[derive(Debug)]
pub(crate) struct Pace {
    eager: u32,
    idle: u32,
    sleep: Duration,
}

impl Pace {
    /// Of the engine, whose ranks have other things to do.
    pub fn engine() -> Pace {
        Pace::new(EAGER)
    }

    /// Of a thread that waits.
    pub fn waiting() -> Pace {
        Pace::new(WAITING)
    }

    fn new(eager: u32) -> Pace {
        Pace {
            eager,
            idle: 0,
            sleep: SLEEP.0,
        }
    }

    /// Begins anew.
    pub fn restart(&mut self) {
        (self.idle, self.sleep) = (0, SLEEP.0);
    }

    /// After a step: offers the core to others, or says how long to sleep.
    pub fn rest(&mut self, moved: bool) -> Option<Duration> {
        if moved {
            self.restart();
            return None;
        }
        if self.idle < self.eager {
            self.idle += 1;
            std::thread::yield_now();
            return None;
        }
        let sleep = self.sleep;
        self.sleep = (sleep * 2).min(SLEEP.1);
        Some(sleep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_grow_up_to_a_limit_and_begin_anew() {
        let mut pace = Pace::new(2);
        assert_eq!((pace.rest(false), pace.rest(false)), (None, None));
        let sleeps: Vec<_> = (0..7).filter_map(|_| pace.rest(false)).collect();
        assert_eq!(sleeps.first(), Some(&SLEEP.0));
        assert_eq!(sleeps.last(), Some(&SLEEP.1));
        assert!(sleeps.windows(2).all(|pair| pair[0] <= pair[1]));
        assert_eq!((pace.rest(true), pace.rest(false)), (None, None));
    }
}
