/* Stands for the demo's worker in Fortran where no Fortran compiler is: the same MPI calls, one each, on the
 * intercommunicator to the Python program that started it. Lines are dealt out in turn. */
#include <complex.h>
#include <mpi.h>
#include <stdlib.h>

static int steps(float x, float y, int limit)
{
    float complex z = 0, c = x + y * I;
    int n = 0;
    while (n < limit && cabsf(z) < 2.0f) {
        z = z * z + c;
        n++;
    }
    return n;
}

int main(int argc, char **argv)
{
    MPI_Comm master;
    int size, rank, shape[3];
    float area[4];

    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&master);
    if (master == MPI_COMM_NULL)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Comm_size(master, &size);
    MPI_Comm_rank(master, &rank);

    MPI_Bcast(area, 4, MPI_FLOAT, 0, master);
    MPI_Bcast(shape, 3, MPI_INT, 0, master);
    int width = shape[0], height = shape[1];
    float dx = (area[1] - area[0]) / (float)width, dy = (area[3] - area[2]) / (float)height;

    int lines = height / size + (rank < height % size);
    int *numbers = malloc(sizeof(int) * (lines + 1)), *counts = malloc(sizeof(int) * (lines * width + 1));
    for (int k = 0; k < lines; k++) {
        numbers[k] = rank + k * size;
        for (int j = 0; j < width; j++)
            counts[k * width + j] = steps(area[0] + j * dx, area[2] + numbers[k] * dy, shape[2]);
    }

    MPI_Gather(&lines, 1, MPI_INT, NULL, 0, MPI_BYTE, 0, master);
    MPI_Gatherv(numbers, lines, MPI_INT, NULL, NULL, NULL, MPI_BYTE, 0, master);
    MPI_Gatherv(counts, lines * width, MPI_INT, NULL, NULL, NULL, MPI_BYTE, 0, master);

    free(numbers);
    free(counts);
    MPI_Comm_disconnect(&master);
    MPI_Finalize();
    return 0;
}
