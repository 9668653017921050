//! Whose turn it is: non-blocking collectives of one communicator are issued in the order of the calls.

use std::collections::BTreeSet;

/// The queue of one communicator, as numbers.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    tickets: u64,
    turn: u64,
    /// Given up before their turn came.
    forfeited: BTreeSet<u64>,
}

impl Turns {
    /// The place of the next call.
    pub fn next_ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets - 1
    }

    /// Whether it is this ticket's turn.
    pub fn is_turn(&self, ticket: u64) -> bool {
        self.turn == ticket
    }

    /// Whether all calls so far have been issued.
    pub fn is_idle(&self) -> bool {
        self.turn == self.tickets
    }

    /// The ticket whose turn it is has been issued.
    pub fn pass(&mut self) {
        self.turn += 1;
        while self.forfeited.remove(&self.turn) {
            self.turn += 1;
        }
    }

    /// This ticket will never be issued.
    pub fn forfeit(&mut self, ticket: u64) {
        if self.turn == ticket {
            self.pass();
        } else {
            self.forfeited.insert(ticket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    #[test]
    fn turns_come_in_order_and_pass_over_the_forfeited() {
        let mut turns = Turns::default();
        let tickets: Vec<u64> = (0..5).map(|_| turns.next_ticket()).collect();
        turns.forfeit(tickets[1]);
        turns.forfeit(tickets[2]);
        assert!(turns.is_turn(tickets[0]) && !turns.is_turn(tickets[3]));
        turns.pass();
        assert!(turns.is_turn(tickets[3]));
        turns.forfeit(tickets[3]);
        assert!(turns.is_turn(tickets[4]));
    }
}
