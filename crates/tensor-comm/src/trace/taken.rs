//! Which way an operation went: what was done to the elements on this rank, and whose algorithm.

use crate::plan::Plan;
use crate::side::Side;

/// The way of one operation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Taken {
    /// Device memory went through the host.
    pub stage: bool,
    /// Elements were brought into another order or form in memory of their own.
    pub pack: bool,
    /// Arithmetic is ours: our own operation or algorithm, or wider floats.
    pub software: bool,
    /// Whose algorithm.
    pub algorithm: &'static str,
}

impl Taken {
    /// Of a collective.
    pub fn of(plan: &Plan) -> Taken {
        let sides = [plan.send.as_ref(), plan.recv.as_ref()];
        let any = |ask: fn(&Side) -> bool| sides.iter().flatten().any(|side| ask(side));
        Taken {
            stage: any(Side::is_staged),
            pack: any(Side::is_packed),
            software: plan.software,
            algorithm: match (&plan.shared, &plan.direct, &plan.slicing) {
                (Some(_), ..) => "shared memory",
                (None, Some(direct), _) => direct.name(),
                (None, None, Some(_)) => "library, in slices",
                (None, None, None) if plan.spread.is_some() => "handed over",
                (None, None, None) => "library",
            },
        }
    }

    /// Of a message.
    pub fn message(side: &Side) -> Taken {
        Taken {
            stage: side.is_staged(),
            pack: side.is_packed(),
            software: false,
            algorithm: "message",
        }
    }

    /// Of a call that mpi4py makes as its caller described it.
    pub const RAW: Taken = Taken {
        stage: false,
        pack: false,
        software: false,
        algorithm: "mpi4py",
    };

    /// In words: `direct`, or what was done, joined by `+`; `mpi4py` where that does it; `refused` of a call that took no way.
    pub fn path(self) -> String {
        if self == Taken::RAW {
            return "mpi4py".to_owned();
        }
        if self.algorithm.is_empty() {
            return "refused".to_owned();
        }
        let done: Vec<&str> = [
            (self.stage, "stage"),
            (self.pack, "pack"),
            (self.software, "software"),
        ]
        .iter()
        .filter_map(|&(done, word)| done.then_some(word))
        .collect();
        match done.is_empty() {
            true => "direct".to_owned(),
            false => done.join("+"),
        }
    }
}
