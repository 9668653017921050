"""Datatypes that pack tensors.

`Datatype` of :mod:`dlmpi.MPI` and the constants there stand for mpi4py's, with the same handles.
"""

import copyreg
from collections.abc import Callable
from typing import Any

from dlmpi._bound import NATIVE, mpi
from dlmpi._standin import Constant, StandIn, stand_for_constants

__all__ = ["Datatype"]


class Datatype(Constant, mpi.Datatype, metaclass=StandIn):
    """An `mpi4py.MPI.Datatype` whose `Pack`, `Unpack` and their like take any tensor."""

    __slots__ = ("_name",)

    @classmethod
    def fromcode(cls, code: str) -> Any:
        """Get predefined MPI datatype from character code or type string."""
        return _ours(super().fromcode(code))

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[mpi.Datatype]]:
        """Return the input arguments used to create a datatype.

        The Datatypes among them pack tensors too.
        """
        integers, addresses, counts, datatypes = super().Get_contents()
        return integers, addresses, counts, [_ours(one) for one in datatypes]

    @property
    def contents(self) -> Any:  # type: ignore[override]
        """Contents."""
        return self.Get_contents()

    def decode(self) -> tuple[mpi.Datatype, str, dict[str, Any]]:
        """Convenience method for decoding a datatype.

        The Datatypes that it was made of pack tensors too.
        """
        base, combiner, params = super().decode()
        if "datatypes" in params:
            params = {**params, "datatypes": [_ours(one) for one in params["datatypes"]]}
        return self if base is self else _ours(base), combiner, params

    def __reduce__(self) -> Any:
        how = super().__reduce__()
        return how if getattr(self, "_name", None) else (_remade, how)


for _name, _method in NATIVE["Datatype"].items():
    setattr(Datatype, _name, _method)
_CONSTANTS = stand_for_constants(Datatype)


def _ours(datatype: mpi.Datatype) -> Any:
    """Return the object of ours with the same handle."""
    known = _CONSTANTS.get(id(datatype))
    if known is None and Datatype not in type(datatype).__mro__:
        known = Datatype(datatype)
    return datatype if known is None else known


def _remade(make: Callable[..., mpi.Datatype], args: tuple[Any, ...]) -> Any:
    return _ours(make(*args))


copyreg.pickle(mpi.Datatype, lambda datatype: _ours(datatype).__reduce__())
