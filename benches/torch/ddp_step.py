"""A training step under DistributedDataParallel, dlmpi against gloo, interleaved.

    mpiexec -n 2 python benches/torch/ddp_step.py [--batch 16] [--accelerator 40]

The model is a ResNet-18. With --accelerator it is one of the same size whose layers wait without
using the core for so many milliseconds a step, as they do where an accelerator computes.

Also says how much of the reduction of the gradients (45 MB) the backward pass hides: the step is
compared with that of a third model, whose hook reduces nothing, with the reduction alone, and with
a step that reduces all gradients when the backward pass is over.
"""

import statistics

import torch
import torch.distributed as dist
from models import CLASSES, Elsewhere, resnet18
from rivals import OURS, THEIRS, elapsed, groups, options, ratio, write
from torch import nn
from torch.nn.parallel import DistributedDataParallel

TARGET = 1.3
#: A model like the others whose gradients are left as they are.
NOBODY = "nobody"


def leave(_state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--bucket", type=float, default=25, help="DDP's bucket_cap_mb")
    parser.add_argument("--accelerator", type=float, metavar="MS", help="milliseconds of waiting")
    arguments = parser.parse_args()
    waiting = arguments.accelerator
    with groups() as by_name:
        models = {
            name: DistributedDataParallel(
                resnet18() if waiting is None else Elsewhere(waiting / 1e3),
                process_group=group,
                gradient_as_bucket_view=True,
                bucket_cap_mb=arguments.bucket,
            )
            for name, group in [*by_name.items(), (NOBODY, by_name[OURS])]
        }
        models[NOBODY].register_comm_hook(None, leave)
        x = torch.randn(arguments.batch, 3, 32, 32, requires_grad=waiting is not None)
        y = torch.randint(CLASSES, (arguments.batch,))

        def train(name: str) -> None:
            models[name].zero_grad()
            made = models[name](x)
            loss = nn.functional.cross_entropy(made, y) if waiting is None else made.sum()
            loss.backward()

        weights = sum(p.numel() for p in models[OURS].parameters())
        # DDP's buckets: a first one of 1 MiB, then 25 MiB each.
        buckets = [torch.zeros(1 << 18)]
        rest = weights - (1 << 18)
        while rest > 0:
            buckets.append(torch.zeros(min(rest, int(arguments.bucket * (1 << 18)))))
            rest -= len(buckets[-1])

        def reduce_alone(name: str) -> None:
            works = [dist.all_reduce(b, group=by_name[name], async_op=True) for b in buckets]
            for work in works:
                work.wait()

        def one_after_the_other(name: str) -> None:
            train(NOBODY)
            reduce_alone(name)

        cases = {
            **{(name, "step"): train for name in by_name},
            **{(name, "reduction"): reduce_alone for name in by_name},
            **{(name, "apart"): one_after_the_other for name in by_name},
            (NOBODY, "step"): train,
        }
        seconds: dict[tuple[str, str], list[float]] = {case: [] for case in cases}
        for case, call in cases.items():
            call(case[0])  # buckets are laid out anew after the first step
            call(case[0])
        for number in range(arguments.rounds):
            order = list(cases) if number % 2 else list(cases)[::-1]
            for case in order:
                seconds[case].append(elapsed(cases[case], case[0], 2))
        median = {case: statistics.median(found) for case, found in seconds.items()}
        faster = ratio({name: seconds[name, "step"] for name in by_name})
        if dist.get_rank() == 0:
            print(
                f"{weights / 1e6:.1f} million parameters, {4 * weights / 1e6:.0f} MB of gradients"
            )
            compute = median[NOBODY, "step"]
            print(f"a step that reduces nothing {compute * 1e3:.1f} ms")
            for name in (OURS, THEIRS):
                whole, alone = median[name, "step"], median[name, "reduction"]
                hidden = 1 - (whole - compute) / alone
                print(
                    f"{name:6} step {whole * 1e3:7.1f} ms, reduction alone {alone * 1e3:6.1f} ms, "
                    f"{hidden:.0%} of it hidden; one after the other "
                    f"{median[name, 'apart'] * 1e3:.1f} ms"
                )
            print(f"{faster:.2f} x faster (target {TARGET:g})")
            most = median[THEIRS, "step"] / compute
            print(f"a reduction that costs nothing would be {most:.2f} x faster")
        rows = [{"who": who, "what": what, "seconds": s} for (who, what), s in seconds.items()]
        write(arguments.json, [*rows, {"ratio": faster}])


if __name__ == "__main__":
    main()
