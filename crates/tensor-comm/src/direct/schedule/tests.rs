//! Simulated ranks: messages in queues, contributions as sets of ranks (bits).

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const PATTERNS: [Pattern; 3] = [Pattern::Ring, Pattern::Halving, Pattern::TwoLevel];

/// What a rank has of each block: whose contributions, and whether it is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    of: u64,
    finished: bool,
}

struct Rank {
    schedule: Schedule,
    held: Vec<Held>,
    round: usize,
    sent: bool,
}

impl Rank {
    fn round(&self) -> Option<(&Round, bool)> {
        let Schedule {
            combine, spread, ..
        } = &self.schedule;
        match combine.get(self.round) {
            Some(round) => Some((round, true)),
            None => spread
                .get(self.round - combine.len())
                .map(|round| (round, false)),
        }
    }
}

type Message = (Range<usize>, Vec<Held>);

impl Held {
    fn all(self, p: usize) -> bool {
        self.finished && self.of.count_ones() as usize == p
    }
}

/// Runs all ranks to the end; the number of messages that one rank sends at most.
fn run(pattern: Pattern, nodes: &[usize], goal: Goal) -> usize {
    let p = nodes.len();
    let mut ranks: Vec<Rank> = (0..p)
        .map(|rank| {
            let schedule = Schedule::new(pattern, rank, nodes, goal);
            let own = Held {
                of: 1 << rank,
                finished: false,
            };
            Rank {
                held: vec![own; schedule.blocks],
                schedule,
                round: 0,
                sent: false,
            }
        })
        .collect();
    let blocks = ranks[0].schedule.blocks;
    assert!(ranks.iter().all(|rank| rank.schedule.blocks == blocks));
    let mut queues: Vec<VecDeque<Message>> = vec![VecDeque::new(); p * p];
    let mut most = 0;
    loop {
        let mut moved = false;
        for (me, rank) in ranks.iter_mut().enumerate() {
            moved |= step(rank, me, p, &mut queues);
        }
        if !moved {
            break;
        }
    }
    assert!(
        queues.iter().all(VecDeque::is_empty),
        "messages that nobody receives"
    );
    let mut owners = vec![0; blocks];
    for (me, rank) in ranks.iter().enumerate() {
        assert!(
            rank.round().is_none(),
            "{pattern:?} {nodes:?} {goal:?}: rank {me} waits"
        );
        rank.schedule
            .owned
            .clone()
            .for_each(|block| owners[block] += 1);
        let all = || rank.held.iter().all(|held| held.all(p));
        match goal {
            Goal::All => assert!(all(), "{pattern:?} {nodes:?}"),
            Goal::Root(root) => assert!(me != root || all(), "{pattern:?} {nodes:?}"),
            Goal::Owner => {
                assert_eq!(rank.schedule.owned, me..me + 1);
                assert!(rank.held[me].all(p));
            }
        }
        let Schedule {
            combine, spread, ..
        } = &rank.schedule;
        let sends = combine.iter().chain(spread).map(|round| round.sends.len());
        most = most.max(sends.sum());
    }
    assert!(
        owners.iter().all(|&owners| owners == 1),
        "{pattern:?} {nodes:?}: {owners:?}"
    );
    most
}

/// One rank as far as it comes; whether it moved.
fn step(rank: &mut Rank, me: usize, p: usize, queues: &mut [VecDeque<Message>]) -> bool {
    let combines = rank.schedule.combine.len();
    if rank.round == combines && !rank.sent {
        for block in rank.schedule.owned.clone() {
            rank.held[block].finished = true;
        }
    }
    let Some((round, combine)) = rank.round() else {
        return false;
    };
    let (round, mut moved) = (round.clone(), false);
    if !rank.sent {
        for Part { peer, blocks } in &round.sends {
            assert_ne!(*peer, me);
            let part = rank.held[blocks.clone()].to_vec();
            assert!(combine || part.iter().all(|held| held.all(p)));
            queues[me * p + peer].push_back((blocks.clone(), part));
        }
        (rank.sent, moved) = (true, true);
    }
    let from = |peer: usize| peer * p + me;
    if round
        .receives
        .iter()
        .any(|part| queues[from(part.peer)].is_empty())
    {
        return moved;
    }
    for Part { peer, blocks } in &round.receives {
        let sent = round
            .sends
            .iter()
            .any(|part| part.blocks.clone().any(|block| blocks.contains(&block)));
        assert!(
            !(combine && sent),
            "what is sent in a round is combined in it"
        );
        let (came, part) = queues[from(*peer)].pop_front().expect("looked at");
        assert_eq!(came, *blocks, "messages of two ranks come in one order");
        for (block, part) in came.zip(part) {
            let held = &mut rank.held[block];
            if combine {
                assert!(held.of & part.of == 0, "a contribution counts once");
                held.of |= part.of;
            } else {
                *held = part;
            }
        }
    }
    (rank.round, rank.sent) = (rank.round + 1, false);
    // A rank may own something without a round in which it hands that on.
    if rank.round == combines {
        rank.schedule
            .owned
            .clone()
            .for_each(|block| rank.held[block].finished = true);
    }
    true
}

/// Numbered in the order in which ranks show them, as `ground/place.rs` does.
fn numbered(nodes: &[usize]) -> Vec<usize> {
    let mut known: Vec<usize> = Vec::new();
    let number = |node: &usize| {
        known
            .iter()
            .position(|known| known == node)
            .unwrap_or_else(|| {
                known.push(*node);
                known.len() - 1
            })
    };
    nodes.iter().map(number).collect()
}

proptest! {
    #[test]
    fn every_contribution_counts_once_and_all_get_what_they_want(
        nodes in prop::collection::vec(0usize..6, 1..28),
        root in any::<prop::sample::Index>(),
    ) {
        let nodes = numbered(&nodes);
        for pattern in PATTERNS {
            for goal in [Goal::All, Goal::Root(root.index(nodes.len())), Goal::Owner] {
                run(pattern, &nodes, goal);
            }
        }
    }
}

#[test]
fn many_ranks_send_few_messages() {
    let nodes: Vec<usize> = (0..64).map(|rank| rank / 8).collect();
    assert_eq!(run(Pattern::Ring, &nodes, Goal::All), 2 * 63);
    assert_eq!(run(Pattern::Halving, &nodes, Goal::All), 2 * 6);
    assert_eq!(run(Pattern::TwoLevel, &nodes, Goal::All), 2 * 7 + 2 * 3);
}

#[test]
fn between_nodes_each_block_goes_once_per_node() {
    let (p, per) = (32, 4);
    // As launchers place ranks that go round the nodes.
    let nodes: Vec<usize> = (0..p).map(|rank| rank % (p / per)).collect();
    let abroad = |pattern| {
        let mut blocks = 0.0;
        for rank in 0..p {
            let schedule = Schedule::new(pattern, rank, &nodes, Goal::All);
            let rounds = schedule.combine.iter().chain(&schedule.spread);
            for part in rounds.flat_map(|round| &round.sends) {
                if nodes[part.peer] != nodes[rank] {
                    blocks += part.blocks.len() as f64 / schedule.blocks as f64;
                }
            }
        }
        blocks
    };
    let count = (p / per) as f64;
    assert_eq!(abroad(Pattern::TwoLevel), 2.0 * (count - 1.0));
    assert!(abroad(Pattern::Ring) > 4.0 * abroad(Pattern::TwoLevel));
}
