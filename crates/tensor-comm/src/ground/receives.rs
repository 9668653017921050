//! Which receive of a communicator may look for its message: where messages are matched by probes, MPI's
//! own order of receives is kept here.

/// A receive that has not found its message yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    ticket: u64,
    source: i32,
    tag: i32,
}

/// The open receives of one communicator, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Receives {
    tickets: u64,
    open: Vec<Open>,
}

impl Receives {
    /// The place of the next receive.
    pub fn enter(&mut self, source: i32, tag: i32) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        self.open.push(Open {
            ticket,
            source,
            tag,
        });
        ticket
    }

    /// Whether no older receive could take the same message. `any` is the wildcard for sources, `any_tag`
    /// for tags.
    pub fn is_first(&self, ticket: u64, any: i32, any_tag: i32) -> bool {
        let Some(at) = self.open.iter().position(|open| open.ticket == ticket) else {
            return true;
        };
        let meets = |a: i32, b: i32, wild: i32| a == b || a == wild || b == wild;
        let Open { source, tag, .. } = self.open[at];
        !self.open[..at]
            .iter()
            .any(|older| meets(older.source, source, any) && meets(older.tag, tag, any_tag))
    }

    /// This receive has found its message, or never will.
    pub fn leave(&mut self, ticket: u64) {
        self.open.retain(|open| open.ticket != ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::Receives;

    #[test]
    fn an_older_receive_of_the_same_message_comes_first() {
        let mut receives = Receives::default();
        let tickets = [(1, 7), (2, 7), (-1, 7), (1, 8), (-1, -2)]
            .map(|(source, tag)| receives.enter(source, tag));
        let first = |receives: &Receives| tickets.map(|ticket| receives.is_first(ticket, -1, -2));
        assert_eq!(first(&receives), [true, true, false, true, false]);
        receives.leave(tickets[0]);
        receives.leave(tickets[1]);
        assert_eq!(first(&receives), [true, true, true, true, false]);
        receives.leave(tickets[2]);
        receives.leave(tickets[3]);
        assert!(first(&receives)[4]);
    }
}
