"""The real `mpi4py.MPI`, under a name that stays when the drop-in has taken its own.

Constants of mpi4py's are pickled by name: those that the drop-in replaces are found here.
"""

import sys

from dlmpi.comm import mpi

sys.modules[__name__] = mpi
