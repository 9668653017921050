//! Who sends which blocks to whom, round by round: ring, halving and doubling, and two levels of nodes.
//!
//! A pure function of numbers that all ranks know, so that all see the same schedule. In the first rounds
//! blocks come to be combined, until each has one rank that has all contributions to it; that one rounds. In
//! the last rounds finished blocks go to those who want them. One rank alone combines two given partial
//! results, so all get the same bits.

use std::ops::Range;

use super::Goal;

/// Which ranks exchange what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// From neighbour to neighbour: as few bytes as any, p - 1 rounds.
    Ring,
    /// Halves of what is left, with partners further and further away: as few bytes, log2(p) rounds. Ranks beyond
    /// a power of two give theirs to a neighbour first.
    Halving,
    /// The ranks of a node combine first; each block then goes between nodes once per node, by one of the above.
    TwoLevel,
}

/// Consecutive blocks that go to or come from a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub peer: usize,
    pub blocks: Range<usize>,
}

/// Messages that are under way together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Round {
    pub sends: Vec<Part>,
    /// Contributions are combined in this order.
    pub receives: Vec<Part>,
}

/// One rank's part of a reduction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// Blocks that the elements are divided into.
    pub blocks: usize,
    /// What is received is combined.
    pub combine: Vec<Round>,
    /// What this rank then has all contributions to.
    pub owned: Range<usize>,
    /// What is received is finished.
    pub spread: Vec<Round>,
}

/// Ranks that exchange blocks `first..`, and this rank's place among them.
struct Group<'a> {
    ranks: &'a [usize],
    me: usize,
    first: usize,
}

impl Schedule {
    /// Of `rank`, where ranks run on these nodes. Where every rank owns a block it is the one of its number, which
    /// the ring alone does.
    pub fn new(pattern: Pattern, rank: usize, nodes: &[usize], goal: Goal) -> Schedule {
        let all: Vec<usize> = (0..nodes.len()).collect();
        let world = Group {
            ranks: &all,
            me: rank,
            first: 0,
        };
        let mut schedule = match (pattern, goal) {
            (Pattern::Ring, _) | (_, Goal::Owner) => world.ring(),
            (Pattern::Halving, _) => world.halving(),
            (Pattern::TwoLevel, _) => two_level(rank, nodes),
        };
        match goal {
            Goal::All => {}
            Goal::Owner => schedule.spread.clear(),
            Goal::Root(root) => {
                let owned = |rank| Schedule::new(pattern, rank, nodes, Goal::All).owned;
                let (mut last, own) = (Round::default(), schedule.owned.clone());
                if rank == root {
                    let others = all.iter().filter(|&&rank| rank != root);
                    last.receives = others.map(|&rank| part(rank, owned(rank))).collect();
                    last.receives.retain(|part| !part.blocks.is_empty());
                } else if !own.is_empty() {
                    last.sends.push(part(root, own));
                }
                schedule.spread = vec![last];
            }
        }
        schedule
    }
}

fn part(peer: usize, blocks: Range<usize>) -> Part {
    Part { peer, blocks }
}

fn round(sends: Part, receives: Part) -> Round {
    Round {
        sends: vec![sends],
        receives: vec![receives],
    }
}

impl Group<'_> {
    fn rank(&self, place: usize) -> usize {
        self.ranks.get(place).copied().unwrap_or(0)
    }

    fn ring(&self) -> Schedule {
        let p = self.ranks.len();
        // The block of this number, counted round the ring from the own one.
        let block = |back: usize| {
            let block = self.first + (self.me + 2 * p - back % p) % p;
            block..block + 1
        };
        let (next, before) = (
            self.rank((self.me + 1) % p),
            self.rank((self.me + p - 1) % p),
        );
        let go = |back: usize| round(part(next, block(back)), part(before, block(back + 1)));
        Schedule {
            blocks: p,
            combine: (1..p).map(go).collect(),
            owned: block(0),
            spread: (0..p - 1).map(go).collect(),
        }
    }

    fn halving(&self) -> Schedule {
        let p = self.ranks.len();
        let most = p.checked_ilog2().map_or(0, |log| 1 << log);
        let extra = p - most;
        let all = self.first..self.first + most;
        let mut schedule = Schedule {
            blocks: most,
            combine: Vec::new(),
            owned: all.clone(),
            spread: Vec::new(),
        };
        // Of the first ranks every other one takes no part itself.
        let place = match self.me < 2 * extra {
            true => self.me / 2,
            false => self.me - extra,
        };
        let rank_at = |place: usize| match place < extra {
            true => self.rank(2 * place + 1),
            false => self.rank(place + extra),
        };
        if self.me < 2 * extra {
            let partner = part(self.rank(self.me ^ 1), all.clone());
            let (mut gives, mut gets) = (Round::default(), Round::default());
            if self.me.is_multiple_of(2) {
                gives.sends.push(partner.clone());
                gets.receives.push(partner);
                schedule.combine.push(gives);
                schedule.spread.push(gets);
                schedule.owned = self.first..self.first;
                return schedule;
            }
            gives.receives.push(partner);
            schedule.combine.push(gives);
        }
        let mut distance = most / 2;
        while distance > 0 {
            let (kept, given) = halves(&schedule.owned, place & distance == 0);
            let partner = rank_at(place ^ distance);
            let exchange = round(part(partner, given.clone()), part(partner, kept.clone()));
            schedule.combine.push(exchange);
            let back = round(part(partner, kept.clone()), part(partner, given));
            schedule.spread.insert(0, back);
            schedule.owned = kept;
            distance /= 2;
        }
        if self.me < 2 * extra {
            let mut last = Round::default();
            last.sends.push(part(self.rank(self.me ^ 1), all));
            schedule.spread.push(last);
        }
        schedule
    }
}

/// The half that is kept, and the one that is given away.
fn halves(blocks: &Range<usize>, lower: bool) -> (Range<usize>, Range<usize>) {
    let middle = blocks.start + blocks.len() / 2;
    let (low, high) = (blocks.start..middle, middle..blocks.end);
    match lower {
        true => (low, high),
        false => (high, low),
    }
}

/// As many ranks of each node as the smallest one has combine a slice each, which then goes among those of the
/// same place on all nodes.
fn two_level(rank: usize, nodes: &[usize]) -> Schedule {
    let count = nodes.iter().max().map_or(0, |last| last + 1);
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (rank, &node) in nodes.iter().enumerate() {
        if let Some(members) = members.get_mut(node) {
            members.push(rank);
        }
    }
    let slices = members.iter().map(Vec::len).min().unwrap_or(0);
    let empty = Vec::new();
    let node = nodes.get(rank).copied().unwrap_or(0);
    let here = members.get(node).unwrap_or(&empty);
    let place = here.iter().position(|&member| member == rank).unwrap_or(0);
    // As many blocks of a slice as the exchange between nodes has.
    let among = |me: usize, slice: usize| {
        let ranks: Vec<usize> = members
            .iter()
            .filter_map(|here| here.get(slice).copied())
            .collect();
        let power = count.is_power_of_two();
        let group = |first| Group {
            ranks: &ranks,
            me,
            first,
        };
        let per = match power {
            true => group(0).halving().blocks,
            false => count,
        };
        match power {
            true => (group(slice * per).halving(), per),
            false => (group(slice * per).ring(), per),
        }
    };
    let per = among(0, 0).1;
    let slice = |place: usize| place * per..(place + 1) * per;
    let others = || {
        here.iter()
            .enumerate()
            .filter(move |(_, member)| **member != rank)
    };
    let leads = place < slices;
    let (mut within, mut out) = (Round::default(), Round::default());
    for (at, &other) in others() {
        if at < slices {
            within.sends.push(part(other, slice(at)));
            out.receives.push(part(other, slice(at)));
        }
        if leads {
            within.receives.push(part(other, slice(place)));
            out.sends.push(part(other, slice(place)));
        }
    }
    let mut schedule = Schedule {
        blocks: slices * per,
        combine: vec![within],
        owned: 0..0,
        spread: Vec::new(),
    };
    if leads {
        let (across, _) = among(node, place);
        schedule.combine.extend(across.combine);
        schedule.owned = across.owned;
        schedule.spread = across.spread;
    }
    schedule.spread.push(out);
    schedule
}

#[cfg(test)]
mod tests;
